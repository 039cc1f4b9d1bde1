"""Judges whether a sync may begin. A start is refused if there is a violation; a preflight only reports it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from syncsvc.options import StartOptions
from syncsvc.preflight.estimates import (
    Estimates,
    estimate,
    memory_violations,
    resource_violations,
    warnings,
)
from syncsvc.preflight.findings import Findings
from syncsvc.preflight.joining import (
    begun_by_others,
    instance_violations,
    instances_of,
    join_violations,
)
from syncsvc.preflight.questions import ask
from syncsvc.preflight.rules import (
    access_violations,
    cluster_violations,
    name_violations,
    option_violations,
)
from syncsvc.principals.comparison import Comparison
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster, refreshed
from verifier.cluster.features import ClusterRole, Feature
from verifier.runtime.errors import OperationError, Violation
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class Judgement:
    """The violations, warnings and estimates of a start, as far as they are known.

    A start is accepted if it has no violations. `instances` are the IDs of all instances that run the sync together;
    empty if there is only one. If other instances have begun the sync, `warnings`, `missing` and `principals` have
    their defaults. If the clusters were not queried, or a query failed, only `violations` are known.
    """

    violations: tuple[Violation, ...]
    warnings: tuple[str, ...] = ()
    estimates: Estimates = Estimates()
    instances: tuple[str, ...] = ()
    # The features that a cluster lacks, each with the name of the cluster.
    missing: tuple[tuple[str, Feature], ...] = ()
    # The comparison of the users and roles of both clusters; None if none are to be copied, or if it is unknown.
    principals: Comparison | None = None
    # The judged clusters, by name, with the facts that the judgement is based on; empty if only `violations` are known.
    clusters: Mapping[str, Cluster] = field(default_factory=dict)


def judge(
    options: StartOptions,
    instance: str,
    clusters: Mapping[str, Cluster],
    database: str,
    memory_needed: int,
    spool_limit: int,
    stop: StopToken,
) -> Judgement:
    """Query both clusters, and judge whether the instance `instance` may start a sync. Changes nothing.

    `database` is the name of the metadata database. `memory_needed` is the memory that this process may need if the
    sync is verified, `spool_limit` is the size limit of each instance's event spool; both are in bytes. An error of a
    cluster becomes a violation if it has a name (`failures.named_kind`); the driver's other errors are raised. Raises
    `Cancelled` when stopped.
    """
    nameless = tuple(name_violations(options, clusters))
    if nameless:
        return Judgement((*nameless, *option_violations(options)))
    try:
        with failures.named_errors():
            # Servers and roles may have changed since the facts of `clusters` were read.
            current = {name: refreshed(each) for name, each in clusters.items()}
            source, destination = current[options.source], current[options.destination]
            found = ask(options, source, destination, database, stop)
    except OperationError as error:
        # Report the option violations too: they are known without an answer from the clusters.
        return Judgement((*option_violations(options), (error.kind, error.description)))
    judgement = judgement_of(options, instance, found, memory_needed, spool_limit)
    return replace(judgement, clusters=current)


def judgement_of(
    options: StartOptions, instance: str, found: Findings, memory_needed: int, spool_limit: int
) -> Judgement:
    """Judge, by the facts in `found`, whether the instance `instance` may start a sync with these options.

    If other instances have begun the sync, check only whether this instance can join them (see `join_violations`), has
    enough memory, and connects as users with the needed privileges. `memory_needed` is the memory that this process may
    need if the sync is verified, `spool_limit` is the size limit of each instance's event spool; both are in bytes.
    """
    instances = instances_of(options, instance, found)
    others = begun_by_others(instance, instances, found)
    estimates = estimate(options, found, memory_needed)
    if others:
        return Judgement(
            violations=(
                *instance_violations(options, instance, found),
                *join_violations(options, instances, found, others),
                *memory_violations(estimates),
                *access_violations(options, found),
            ),
            estimates=estimates,
            instances=instances,
        )
    # Each instance has its own spool.
    spool_limit *= max(1, len(instances))
    return Judgement(
        violations=(
            *option_violations(options),
            *instance_violations(options, instance, found),
            *cluster_violations(options, found),
            *resource_violations(options, estimates, spool_limit),
        ),
        warnings=tuple(warnings(options, found, estimates, spool_limit)),
        estimates=estimates,
        instances=instances,
        missing=(
            *((options.source, each) for each in found.source.missing(ClusterRole.SOURCE)),
            *(
                (options.destination, each)
                for each in found.destination.missing(ClusterRole.DESTINATION)
            ),
        ),
        principals=found.principals,
    )
