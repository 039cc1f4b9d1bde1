"""Finds the saved run of this instance on any of the clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from syncsvc import errors
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_documents import load_run
from verifier.cluster.cluster import Cluster, unreadable_id
from verifier.runtime.errors import OperationError, raise_all


def find_run(clusters: Mapping[str, Cluster], instance: str, database: str) -> RunRecord | None:
    """Return the saved run of this instance in the metadata `database`; None if no cluster holds one.

    Raises OperationError WrongClusters and NotAuthorized (see `fitting_run`), and IncompatibleMetadata if this version
    cannot read the run. Also raises the driver's errors.
    """
    return fitting_run(tuple(_saved_runs(clusters, instance, database)), clusters)


def fitting_run(
    found: Sequence[tuple[RunRecord, Cluster]], clusters: Mapping[str, Cluster]
) -> RunRecord | None:
    """Return the saved run that syncs these clusters; None if `found` is empty.

    `found` contains the saved runs, each with the cluster that holds it. A run matches only if this cluster is the
    destination of its start options. Raises OperationError: WrongClusters if no run matches, or if both clusters hold a
    matching run; NotAuthorized, in the same cases, if the user may not read the ID of a cluster, because the runs then
    cannot be compared with this cluster.
    """
    if not found:
        return None
    fitting = [record for record, holder in found if _fits(record, holder, clusters)]
    if len(fitting) == 1:
        return fitting[0]
    raise_all(
        lacking for each in clusters.values() for lacking in unreadable_id(each.name, each.facts)
    )
    known = ", ".join(f"{each.name} {each.facts.identity}" for each in clusters.values())
    raise OperationError(
        errors.WRONG_CLUSTERS,
        "The saved sync does not match the clusters of this process, or both clusters hold a matching sync. "
        f"{' '.join(_described(*each) for each in found)} The IDs of the clusters of this process are: {known}.",
    )


def _described(record: RunRecord, holder: Cluster) -> str:
    source, destination = record.identities
    return (
        f"{holder.name} holds the saved state of a sync that was started from {record.options.source} (a cluster with "
        f"the ID {source}) to {record.home} (a cluster with the ID {destination}); its state is {record.state.value}."
    )


def _saved_runs(
    clusters: Mapping[str, Cluster], instance: str, database: str
) -> Iterator[tuple[RunRecord, Cluster]]:
    for cluster in clusters.values():
        record = load_run(cluster.client[database], instance)
        if record is not None:
            yield record, cluster


def _fits(record: RunRecord, holder: Cluster, clusters: Mapping[str, Cluster]) -> bool:
    source = record.options.source
    if record.home != holder.name or source not in clusters:
        return False
    return record.is_between(clusters[source].facts, holder.facts)
