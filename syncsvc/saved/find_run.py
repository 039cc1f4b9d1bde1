"""Finds the saved run of this instance on any of the clusters."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from syncsvc import errors
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_documents import load_run
from verifier.cluster.cluster import Cluster
from verifier.runtime.errors import OperationError


def find_run(clusters: Mapping[str, Cluster], instance: str, database: str) -> RunRecord | None:
    """Return the saved run of this instance in the metadata `database`; None if no cluster has a saved run.

    The run must be saved on the cluster that its options name as destination. Raises OperationError: WrongClusters if
    the run syncs other clusters, or if both clusters hold such a run; IncompatibleMetadata if this version cannot read
    the run. Raises the driver's errors, too.
    """
    found = list(_saved_runs(clusters, instance, database))
    if not found:
        return None
    fitting = [record for record, holder in found if _fits(record, holder, clusters)]
    if len(fitting) != 1:
        saved = ", ".join(
            f"{holder.name} holds the saved state of a sync from {' to '.join(record.identities)}"
            for record, holder in found
        )
        raise OperationError(
            errors.WRONG_CLUSTERS,
            "The saved sync does not match the clusters of this process, or both clusters hold a matching sync: "
            f"{saved}.",
        )
    return fitting[0]


def _saved_runs(
    clusters: Mapping[str, Cluster], instance: str, database: str
) -> Iterator[tuple[RunRecord, Cluster]]:
    for cluster in clusters.values():
        record = load_run(cluster.client[database], instance)
        if record is not None:
            yield record, cluster


def _fits(record: RunRecord, holder: Cluster, clusters: Mapping[str, Cluster]) -> bool:
    names = (record.options.source, record.options.destination)
    if names[1] != holder.name or names[0] not in clusters:
        return False
    return tuple(clusters[name].identity for name in names) == record.identities
