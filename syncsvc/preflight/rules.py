"""The rules of `POST /api/v1/start`: option combinations and cluster requirements.

Pure functions that yield violations. A violation only says what was found. Its error kind, in `errors`, adds what that
means and what to do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from syncsvc import errors, shard_rules
from syncsvc.indexing import Target, definition_violations
from syncsvc.options import BuildIndexes, StartOptions
from syncsvc.preflight.findings import Findings, Metadata
from syncsvc.preflight.privileges import privilege_violations
from syncsvc.principals import comparison
from syncsvc.saved.run import RUNS
from verifier.cluster.cluster import SAME_CLUSTER, lacking, unfit
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.features import BLOCK_WRITES, MERGE_PRINCIPALS, Side
from verifier.cluster.specification import Kind
from verifier.runtime.errors import Violation
from verifier.runtime.schemas import INVALID_REQUEST

# A source before 6.0 does not report every DDL event; a DDL event that it does report fails the sync with a named
# error.
OLDEST_SOURCE, OLDEST_DESTINATION = (5, 0), (6, 0)

# Collections of mongosync, whose database can have the same name as ours. Ours has some of them, too, for dashboards,
# but then it also has the collection RUNS.
_MONGOSYNC_COLLECTIONS = {"globalState", "indexCorrection", "resumeData", "uuidMap"}
_MONGOSYNC_DATABASES = (
    "__mdb_internal_mongosync",
    "mongosync_internal_",
    "mongosync_reserved_for_verification_",
)


_FILTERED = "the request contains includeNamespaces or excludeNamespaces"


def name_violations(options: StartOptions, clusters: Mapping[str, object]) -> Iterator[Violation]:
    """Yield a violation for each unknown cluster name in the options, and if both names are the same.

    The keys of `clusters` are the valid names.
    """
    names = " and ".join(clusters)
    for role, name in (("source", options.source), ("destination", options.destination)):
        if name not in clusters:
            yield errors.UNKNOWN_CLUSTER, f"{role} is {name}, but the clusters are {names}."
    if options.source == options.destination:
        yield SAME_CLUSTER, f"source and destination are both {options.source}."


def option_violations(options: StartOptions) -> Iterator[Violation]:
    """Yield a violation for each unsupported option value, and for options that conflict. Needs no cluster."""
    filtered = bool(options.include_namespaces or options.exclude_namespaces)
    if options.pre_existing_destination_data:
        yield errors.NOT_SUPPORTED_YET, "preExistingDestinationData is true, but must be false."
    if options.blocks_source and filtered:
        yield errors.WRITE_BLOCKING_WITH_FILTER, (
            f"enableUserWriteBlocking is sourceAndDestination, but {_FILTERED}."
        )
    if options.sharding is not None:
        yield from shard_rules.entry_violations(options.sharding)
    if not options.reversible:
        return
    if not options.blocks_source:
        yield errors.REVERSIBLE_NEEDS_WRITE_BLOCKING, (
            f"reversible is true, but enableUserWriteBlocking is {options.write_blocking.value}."
        )
    if filtered:
        yield errors.REVERSIBLE_WITH_FILTER, f"reversible is true, but {_FILTERED}."
    if options.build_indexes is BuildIndexes.NEVER or not options.build_indexes.hashed:
        yield errors.REVERSIBLE_WITHOUT_INDEXES, (
            f"reversible is true, but buildIndexes is {options.build_indexes.value}."
        )


def cluster_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    """Yield the violations that depend on the two clusters: their topology, versions, contents and privileges."""
    source, destination = found.source, found.destination
    for reason in found.bad_patterns:
        yield INVALID_REQUEST, f"{reason}."
    yield from _topology_violations(options, source, destination)
    yield from _sharding_violations(options, found)
    yield from _version_violations(options, source, destination)
    yield from _feature_violations(options, destination)
    if source.identity is not None and source.identity == destination.identity:
        yield SAME_CLUSTER, f"Both connection strings lead to the same {source.topology.value}."
    else:
        yield from emptiness_violations(found.occupied, found.metadata)
    definitions = [each.definition for each in found.contents or ()]
    # If the contents could not be read, assume that there are time-series collections.
    time_series = found.contents is None or any(
        each.kind is Kind.TIME_SERIES for each in definitions
    )
    yield from privilege_violations(options, source, destination, time_series)
    target = Target(options, destination.is_sharded)
    yield from definition_violations(target, source, definitions)
    if found.principals is not None:
        yield from comparison.violations(found.principals)


def _topology_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    to_sharded = (Topology.REPLICA_SET, Topology.SHARDED)
    sides = f"The source is a {source.topology.value}, the destination is a {destination.topology.value}"
    if (source.topology, destination.topology) == to_sharded:
        if options.sharding is None:
            yield errors.SHARDING_REQUIRED, f"{sides}, but the request does not contain sharding."
    elif options.sharding is not None:
        yield errors.SHARDING_NOT_APPLICABLE, f"{sides}, but the request contains sharding."


def _sharding_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    if options.sharding is not None:
        yield from shard_rules.filter_violations(options.sharding, found.left_out)
    counts = len(found.source.shards), len(found.destination.shards)
    if options.reversible and counts[0] != counts[1]:
        sides = (f"{count} shards" if count else "no shards" for count in counts)
        yield errors.REVERSIBLE_NEEDS_EQUAL_SHARDS, (
            f"reversible is true, but the source has {next(sides)}, and the destination has {next(sides)}."
        )


def _version_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    for role, facts, oldest in (
        ("source", source, OLDEST_SOURCE),
        ("destination", destination, OLDEST_DESTINATION),
    ):
        topologies = (Topology.REPLICA_SET, Topology.SHARDED)
        yield from unfit(role, facts, topologies, oldest, errors.UNSUPPORTED_VERSION)
        yield from lacking(Side(role), facts)
    versions = f"The source runs MongoDB {source.dotted_version}, the destination runs {destination.dotted_version}"
    if destination.level[:2] < source.level[:2]:
        yield errors.UNSUPPORTED_VERSION, f"{versions}, but the destination must not be older than the source."
    if options.blocks_source and not source.blocks_writes:
        yield errors.WRITE_BLOCKING_NEEDS_NEWER_SOURCE, (
            f"The source runs MongoDB {source.dotted_version}, but enableUserWriteBlocking is sourceAndDestination."
        )
    if options.reversible and not source.blocks_writes:
        yield errors.REVERSIBLE_NEEDS_NEWER_SOURCE, (
            f"reversible is true, but the source runs MongoDB {source.dotted_version}."
        )
    if options.reversible and source.level[:2] != destination.level[:2]:
        yield errors.REVERSIBLE_NEEDS_EQUAL_VERSIONS, f"{versions}, but reversible is true, which needs equal releases."


def _feature_violations(options: StartOptions, destination: ClusterFacts) -> Iterator[Violation]:
    """Yield a violation for each feature that the destination refuses and that only some options need."""
    needed = {
        BLOCK_WRITES: options.blocks_destination,
        MERGE_PRINCIPALS: options.users_and_roles is not None,
    }
    for feature, is_needed in needed.items():
        if is_needed and feature.name in destination.refused:
            yield errors.SERVER_FEATURE_MISSING, (
                f"The destination (MongoDB {destination.dotted_version}) does not have the command {feature.name}."
            )


def emptiness_violations(
    occupied: Sequence[str], metadata: Iterable[Metadata]
) -> Iterator[Violation]:
    """Yield a violation if the destination holds user databases, and one for each database with the metadata of a sync.

    `occupied` are the names of the user databases; `metadata` are all databases with reserved names.
    """
    if occupied:
        names = ", ".join(occupied)
        yield errors.DESTINATION_NOT_EMPTY, f"The destination holds user databases: {names}."
    for each in metadata:
        if each.instances:
            yield errors.METADATA_LEFT_OVER, (
                f"The database {each.database} holds the metadata of a sync (instances: {', '.join(each.instances)})."
            )
        of_mongosync = RUNS not in each.collections and each.collections & _MONGOSYNC_COLLECTIONS
        if of_mongosync or each.database.startswith(_MONGOSYNC_DATABASES):
            yield errors.METADATA_LEFT_OVER, f"The database {each.database} holds the metadata of mongosync."
