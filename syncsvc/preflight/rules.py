"""The rules of `POST /api/v1/start`: which options fit which clusters. Pure; each call gives all violations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from syncsvc import errors
from syncsvc.options import StartOptions, WriteBlocking
from verifier.cluster.cluster import SAME_CLUSTER, unfit
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.failures import NOT_AUTHORIZED
from verifier.runtime.errors import Violation

# A source before 6.0 does not tell every change of a definition; one that it tells fails the sync by name.
OLDEST_SOURCE, OLDEST_DESTINATION = (5, 0), (6, 0)

# What blocking users needs with access control, and our own writes to the destination meanwhile.
BLOCKING_ACTIONS = ("setUserWriteBlockMode", "bypassWriteBlockingMode")
# Of servers that can do it.
OLDEST_BLOCKED = (6, 0)


def option_violations(options: StartOptions, clusters: Mapping[str, object]) -> Iterator[Violation]:
    """What is wrong with the options whatever the clusters are; `clusters` are the known names."""
    names = " and ".join(clusters)
    for role, name in (("source", options.source), ("destination", options.destination)):
        if name not in clusters:
            yield errors.UNKNOWN_CLUSTER, f"{role} is {name}, the clusters are {names}."
    if options.source == options.destination:
        yield SAME_CLUSTER, f"source and destination are both {options.source}."
    for field in _unsupported(options):
        yield errors.NOT_SUPPORTED_YET, field


def _unsupported(options: StartOptions) -> Iterator[str]:
    if options.reversible:
        yield "reversible true is not supported yet."
    if options.sharding is not None:
        yield "sharding is not supported yet."
    if options.pre_existing_destination_data:
        yield "preExistingDestinationData true is not supported yet."


def cluster_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    """What speaks against this sync between these two clusters."""
    for role, facts, oldest in (
        ("source", source, OLDEST_SOURCE),
        ("destination", destination, OLDEST_DESTINATION),
    ):
        violations = list(
            unfit(role, facts, (Topology.REPLICA_SET,), oldest, errors.UNSUPPORTED_VERSION)
        )
        yield from violations
        if not violations and facts.identity is None:
            yield NOT_AUTHORIZED, (
                f"The user may not read the id of the replica set of the {role} (replSetGetConfig); "
                "the built-in role clusterMonitor may."
            )
    if destination.version[:2] < source.version[:2]:
        versions = (
            f"The source runs {source.dotted_version}, the destination {destination.dotted_version}"
        )
        yield errors.UNSUPPORTED_VERSION, f"{versions}, which is older."
    if source.identity is not None and source.identity == destination.identity:
        yield SAME_CLUSTER, "Both connection strings lead to the same replica set."
    elif destination.user_databases:
        names = ", ".join(destination.user_databases)
        yield errors.DESTINATION_NOT_EMPTY, f"The destination holds {names}."
    if options.write_blocking is not WriteBlocking.NONE:
        yield from _missing("destination", destination, BLOCKING_ACTIONS, "restore")
    if options.write_blocking is WriteBlocking.SOURCE_AND_DESTINATION:
        yield from _missing("source", source, BLOCKING_ACTIONS[:1], "backup")
        if source.version[:2] < OLDEST_BLOCKED:
            yield errors.UNSUPPORTED_VERSION, (
                f"The source runs {source.dotted_version}, which cannot block the writes of users; "
                "enableUserWriteBlocking must be destinationOnly or none."
            )


def _missing(
    role: str, facts: ClusterFacts, needed: tuple[str, ...], built_in: str
) -> Iterator[Violation]:
    missing = facts.lacks(*needed)
    if missing:
        yield NOT_AUTHORIZED, (
            f"missing privileges ([{', '.join(missing)}]) to enable user write blocking on the {role}; "
            f"the built-in role {built_in} has them."
        )
