"""The rules of `POST /api/v1/start`: option combinations and cluster requirements.

The functions have no side effects, and yield violations. The text of a violation says what was found; its error kind
adds the meaning and the general remedy.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from syncsvc import errors
from syncsvc.options import BuildIndexes, CopyReadPreference, Presplit, StartOptions
from syncsvc.preflight.findings import Findings, ReservedDatabase
from syncsvc.preflight.privileges import privilege_violations
from syncsvc.principals import comparison
from syncsvc.rules import sharding
from syncsvc.rules.indexing import Target, definition_violations
from syncsvc.rules.taken_names import taken_violations
from syncsvc.saved.other_syncs import sharing_violations
from syncsvc.saved.run_documents import RUNS
from verifier.cluster.cluster import SAME_CLUSTER, lacking, unfit
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.features import BLOCK_WRITES, MERGE_PRINCIPALS, ClusterRole
from verifier.cluster.namespace_map import contradictions, entries_of, reverse_contradictions
from verifier.cluster.specification import Kind
from verifier.runtime.errors import Violation
from verifier.runtime.schemas import INVALID_REQUEST

# A source before 6.0 does not report every DDL event: see `syncsvc.engine.events.old_source`.
OLDEST_SOURCE, OLDEST_DESTINATION = (5, 0), (6, 0)

# The collections by which a metadata database of mongosync is recognized. A metadata database of this service can have
# the same name, and contains some of these collections, too, for dashboards. But it also contains the collection RUNS.
_MONGOSYNC_COLLECTIONS = {"globalState", "indexCorrection", "resumeData", "uuidMap"}
_MONGOSYNC_DATABASES = (
    "__mdb_internal_mongosync",
    "mongosync_internal_",
    "mongosync_reserved_for_verification_",
)


_FILTERED = "the start options contain includeNamespaces or excludeNamespaces"


def name_violations(options: StartOptions, clusters: Mapping[str, object]) -> Iterator[Violation]:
    """Yield a violation for each unknown cluster name in the options, and one if both names are the same.

    The keys of `clusters` are the valid names.
    """
    names = " and ".join(clusters)
    for role, name in (("source", options.source), ("destination", options.destination)):
        if name not in clusters:
            yield errors.UNKNOWN_CLUSTER, f"The field {role} is {name}, but the clusters are named {names}."
    if options.source == options.destination:
        yield SAME_CLUSTER, f"The fields source and destination are both {options.source}."


def option_violations(options: StartOptions) -> Iterator[Violation]:
    """Yield a violation for each unsupported option value, and for options that conflict. Needs no cluster."""
    filtered = bool(options.include_namespaces or options.exclude_namespaces)
    if options.pre_existing_destination_data:
        yield from _sharing_option_violations(options)
    if options.blocks_source and filtered:
        yield errors.WRITE_BLOCKING_WITH_FILTER, (
            f"enableUserWriteBlocking is sourceAndDestination, but {_FILTERED}."
        )
    if options.blocks_source and options.document_filters:
        yield errors.WRITE_BLOCKING_WITH_FILTER, (
            "enableUserWriteBlocking is sourceAndDestination, but the start options contain documentFilter."
        )
    yield from _order_violations(options)
    if options.sharding is not None:
        yield from sharding.entry_violations(options.sharding)
    yield from _remap_violations(options)
    if options.reversible:
        yield from _reverse_violations(options, filtered)


def _order_violations(options: StartOptions) -> Iterator[Violation]:
    """Yield a violation for each document filter of a collection that would be copied in natural order.

    In natural order, the source can take longer than the timeout of a call to find the next matching document.
    """
    for name in options.document_filters.queries:
        if options.in_natural_order(name):
            yield errors.INVALID_DOCUMENT_FILTER, (
                f"documentFilter and copyInNaturalOrder both select {name}, but a filtered collection cannot be copied "
                "in natural order."
            )


def _reverse_violations(options: StartOptions, filtered: bool) -> Iterator[Violation]:
    if not options.blocks_source:
        yield errors.REVERSIBLE_NEEDS_WRITE_BLOCKING, (
            f"reversible is true, but enableUserWriteBlocking is {options.write_blocking.value}."
        )
    if filtered:
        yield errors.REVERSIBLE_WITH_FILTER, f"reversible is true, but {_FILTERED}."
    if options.document_filters:
        yield errors.REVERSIBLE_WITH_FILTER, (
            "reversible is true, but the start options contain documentFilter."
        )
    if options.build_indexes is BuildIndexes.NEVER or not options.build_indexes.hashed:
        yield errors.REVERSIBLE_WITHOUT_INDEXES, (
            f"reversible is true, but buildIndexes is {options.build_indexes.value}."
        )


def _remap_violations(options: StartOptions) -> Iterator[Violation]:
    if not options.namespace_remap:
        return
    for contradiction in contradictions(entries_of(options.namespace_remap)):
        yield errors.NAMESPACE_COLLISION, contradiction
    if options.reversible:
        for contradiction in reverse_contradictions(entries_of(options.namespace_remap)):
            yield errors.NAMESPACE_COLLISION, contradiction
    if options.users_and_roles is not None:
        yield errors.REMAP_WITH_USERS_AND_ROLES, (
            "usersAndRoles.copy is true, but the start options contain namespaceRemap."
        )


def _sharing_option_violations(options: StartOptions) -> Iterator[Violation]:
    shared = "preExistingDestinationData is true"
    if options.blocks_destination:
        yield errors.WRITE_BLOCKING_WITH_EXISTING_DATA, (
            f"{shared}, but enableUserWriteBlocking is {options.write_blocking.value}."
        )
    if options.reversible:
        yield errors.REVERSIBLE_WITH_EXISTING_DATA, (
            f"{shared}, but reversible is true; these two options exclude each other."
        )


def cluster_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    """Yield the violations that depend on the two clusters: their topology, versions, contents and privileges."""
    source, destination = found.source, found.destination
    for reason in found.bad_patterns:
        yield INVALID_REQUEST, f"{reason}."
    yield from _document_filter_violations(options, found)
    yield from _topology_violations(options, source, destination)
    yield from _sharding_violations(options, found)
    yield from _read_preference_violations(options, found)
    yield from _version_violations(options, source, destination)
    yield from _feature_violations(options, destination)
    if source.identity is not None and source.identity == destination.identity:
        yield SAME_CLUSTER, (
            f"Both connection strings lead to a {source.topology.value} with the ID {source.identity}."
        )
    else:
        # These come first: if another sync has copied the user databases, the advice to drop them would be wrong.
        yield from metadata_violations(found.metadata)
        yield from sharing_violations(options, found.others)
        yield from emptiness_violations(options, found)
    yield from access_violations(options, found)
    target = Target(options, destination.is_sharded, options.names, destination.unknown_options)
    definitions = [each.definition for each in found.contents or ()]
    yield from definition_violations(target, source, definitions)
    if found.principals is not None:
        yield from comparison.violations(found.principals)


def access_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    """Yield a violation for each group of privileges (`Need`) that the user of a cluster lacks.

    Also yield one for each replica set whose ID the user may not read.
    """
    # If the contents could not be read, assume that there are time-series collections.
    time_series = found.contents is None or any(
        each.definition.kind is Kind.TIME_SERIES for each in found.contents
    )
    yield from privilege_violations(options, found.source, found.destination, time_series)


def _document_filter_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    """Yield the violations of the start option `documentFilter` that depend on the source.

    These are the queries that the source refuses, and the names of collections that are not synced.
    """
    for name, reason in found.bad_queries:
        yield errors.INVALID_DOCUMENT_FILTER, (
            f"The source refused the document filter of {name}: {reason}."
        )
    if found.contents is not None:
        synced = {each.definition.namespace for each in found.contents}
        for name in options.document_filters.queries:
            if name not in synced:
                yield errors.INVALID_DOCUMENT_FILTER, (
                    f"documentFilter names {name}, but that collection does not exist on the source, or "
                    "the filters (includeNamespaces, excludeNamespaces) do not select it."
                )


def _topology_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    to_sharded = (Topology.REPLICA_SET, Topology.SHARDED)
    sides = f"The source is a {source.topology.value}, the destination is a {destination.topology.value}"
    if (source.topology, destination.topology) == to_sharded:
        if options.sharding is None:
            yield errors.SHARDING_REQUIRED, f"{sides}, but the start options do not contain sharding."
    elif options.sharding is not None:
        yield errors.SHARDING_NOT_APPLICABLE, (
            f"{sides}, but the start options contain sharding, which is only for a sync from a replica set to a "
            "sharded cluster."
        )


def _sharding_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    if options.sharding is not None:
        yield from sharding.filter_violations(options.sharding, found.left_out)
    missing = _missing_for_presplit(options, found)
    if missing is not None:
        topology = (found.source if missing == "source" else found.destination).topology
        yield errors.PRESPLIT_NOT_APPLICABLE, (
            f"presplit is {options.presplit.value}, but the {missing} is a {topology.value}, which has no shards."
        )
    counts = len(found.source.shards), len(found.destination.shards)
    if options.reversible and counts[0] != counts[1]:
        sides = ({0: "no shards", 1: "1 shard"}.get(count, f"{count} shards") for count in counts)
        yield errors.REVERSIBLE_NEEDS_EQUAL_SHARDS, (
            f"reversible is true, which needs equal numbers of shards, but the source has {next(sides)}, and the "
            f"destination has {next(sides)}."
        )


def _missing_for_presplit(options: StartOptions, found: Findings) -> str | None:
    """Return "source" or "destination" if the start option `presplit` needs shards on that cluster, which has none.

    Return None if `presplit` can be used.
    """
    if options.presplit is not Presplit.SAMPLE and not found.destination.is_sharded:
        return "destination"
    if options.presplit is Presplit.SOURCE and not found.source.is_sharded:
        return "source"
    return None


def _read_preference_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    mode = options.copy_read_preference
    if mode is CopyReadPreference.PRIMARY:
        return
    given = f"copyReadPreference is {mode.value}"
    if found.source.is_sharded:
        yield errors.READ_PREFERENCE_NOT_APPLICABLE, (
            f"The source is a sharded cluster, but {given}, which needs a replica set."
        )
    elif not found.readable:
        tags = [*options.copy_read_preference_tags]
        also = f", and copyReadPreferenceTags is {tags}" if tags else ""
        yield errors.NO_MEMBER_TO_COPY, f"The copy cannot read from any member of the source: {given}{also}."


def _version_violations(
    options: StartOptions, source: ClusterFacts, destination: ClusterFacts
) -> Iterator[Violation]:
    for role, facts, oldest in (
        ("source", source, OLDEST_SOURCE),
        ("destination", destination, OLDEST_DESTINATION),
    ):
        topologies = (Topology.REPLICA_SET, Topology.SHARDED)
        yield from unfit(role, facts, topologies, oldest, errors.UNSUPPORTED_VERSION)
        yield from lacking(ClusterRole(role), facts)
    versions = (
        f"The source runs MongoDB {source.dotted_version}, and the destination runs MongoDB "
        f"{destination.dotted_version}"
    )
    if destination.level[:2] < source.level[:2]:
        yield errors.UNSUPPORTED_VERSION, f"{versions}, but the destination must not be older than the source."
    if options.blocks_source and not source.blocks_writes:
        yield errors.WRITE_BLOCKING_NEEDS_NEWER_SOURCE, (
            f"The source runs MongoDB {source.dotted_version}, but enableUserWriteBlocking is sourceAndDestination, "
            "which needs MongoDB 6.0 or later."
        )
    if options.namespace_remap and not source.reports_ddl:
        yield errors.REMAP_NEEDS_NEWER_SOURCE, (
            f"The source runs MongoDB {source.dotted_version}, but the start options contain namespaceRemap, "
            "which needs MongoDB 6.0 or later."
        )
    if options.reversible and not source.blocks_writes:
        yield errors.REVERSIBLE_NEEDS_NEWER_SOURCE, (
            "reversible is true, which needs MongoDB 6.0 or later, but the source runs MongoDB "
            f"{source.dotted_version}."
        )
    if options.reversible and source.level[:2] != destination.level[:2]:
        yield errors.REVERSIBLE_NEEDS_EQUAL_VERSIONS, (
            f"{versions}, but reversible is true, which needs the same release (such as 6.0) on both clusters."
        )


def _feature_violations(options: StartOptions, destination: ClusterFacts) -> Iterator[Violation]:
    """Yield a violation for each feature that these options need, but that the destination refuses.

    Features that every sync needs are not checked here.
    """
    needed = {
        BLOCK_WRITES: options.blocks_destination,
        MERGE_PRINCIPALS: options.users_and_roles is not None,
    }
    for feature, is_needed in needed.items():
        if is_needed and feature.name in destination.refused:
            yield errors.SERVER_FEATURE_MISSING, (
                f"The destination (MongoDB {destination.dotted_version}) does not have the command {feature.name}."
            )


def emptiness_violations(options: StartOptions, found: Findings) -> Iterator[Violation]:
    """Yield a violation if the destination holds user databases.

    If the source holds none, and the options contain no filter of namespaces, the violation says that the two clusters
    are probably swapped. If the options allow other data on the destination, yield violations only for the names that
    the sync needs and that are taken.
    """
    if options.pre_existing_destination_data:
        yield from taken_violations(found.taken)
    elif found.occupied:
        yield errors.DESTINATION_NOT_EMPTY, _not_empty(options, found)


def _not_empty(options: StartOptions, found: Findings) -> str:
    names = ", ".join(found.occupied)
    text = f"The destination {options.destination} ({found.destination.address}) holds user databases: {names}."
    namespaces = options.namespaces
    if found.contents == () and not (namespaces.include or namespaces.exclude):
        text += (
            f" The source {options.source} ({found.source.address}) holds no user databases: source and destination "
            "are probably swapped."
        )
    return text


def metadata_violations(metadata: Iterable[ReservedDatabase]) -> Iterator[Violation]:
    """Yield a violation if this sync's metadata database holds run records, and one for each database of mongosync."""
    for each in metadata:
        if each.instances:
            yield errors.METADATA_LEFT_OVER, (
                f"The database {each.database} holds the metadata of a sync (instances: {', '.join(each.instances)})."
            )
        of_mongosync = RUNS not in each.collections and each.collections & _MONGOSYNC_COLLECTIONS
        if of_mongosync or each.database.startswith(_MONGOSYNC_DATABASES):
            yield errors.METADATA_LEFT_OVER, (
                f"The database {each.database} holds the metadata of mongosync. If mongosync still runs, let it finish "
                "first. Then drop this database: this program does not need it, but mongosync can no longer resume or "
                "reverse that migration."
            )
