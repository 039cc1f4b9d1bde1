"""Queries both clusters and this machine for the facts that the start rules need. Changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from pymongo.errors import OperationFailure, ServerSelectionTimeoutError

from syncsvc.metadata import Metadata
from syncsvc.options import StartOptions
from syncsvc.preflight import memory
from syncsvc.preflight.findings import Findings, Measured, ReservedDatabase
from syncsvc.principals.comparison import Comparison
from syncsvc.principals.listing import compare_clusters
from syncsvc.rules import sharding
from syncsvc.rules.taken_names import Taken, taken
from syncsvc.rules.unmatched_filters import FilterMatches, Unmatched, unmatched_part
from syncsvc.saved.other_syncs import other_syncs
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_documents import load_runs, saved_instances
from syncsvc.source.oplog import read_oplog
from syncsvc.source.read_preference import read_preference
from syncsvc.source.selected_size import selected_size
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster, filter_evaluator
from verifier.cluster.connect import Client
from verifier.cluster.document_filters import DocumentFilters, bad_queries, judging
from verifier.cluster.features import DOCUMENTS
from verifier.cluster.filters import NamespaceFilter, Selection, bad_patterns
from verifier.cluster.inventory import (
    Size,
    extent,
    hidden_time_series,
    list_collections,
    list_kinds,
    list_names,
    list_raw,
    measure,
)
from verifier.cluster.namespace import RESERVED_PREFIXES, Namespace, is_user_database
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken, for_each, single_error

T = TypeVar("T")

# Estimate, instead of measuring, the sizes on disk of collections up to this size. A file has at least one page, and
# an index entry takes about 32 bytes. All values are in bytes.
_MOST_ESTIMATED = 1 << 20
_LEAST_FILE = 4096
_INDEX_ENTRY = 32
# How many collections are measured at the same time.
_MEASURING = 16

# Collections that do not count as data. The server keeps an empty `system.views` after the last view was dropped, and a
# reset keeps the profiler's `system.profile`.
_LEFT_OVER = frozenset({"system.profile", "system.views"})


def ask(
    options: StartOptions, source: Cluster, destination: Cluster, database: str, stop: StopToken
) -> Findings:
    """Query both clusters and this machine for the facts that decide whether a sync with these options may start.

    `database` is the name of the metadata database. Raises OperationError, the driver's errors, and `Cancelled` when
    stopped.
    """
    evaluator = filter_evaluator(source, destination)
    able = evaluator.facts.offers(DOCUMENTS)
    bad = tuple(bad_patterns(evaluator.client, options.namespaces, stop)) if able else ()
    refused = _all_allowed(lambda: bad_queries(source.client, options.document_filters, stop), stop)
    contents, matches = None, None
    left_out, hidden = frozenset[Namespace](), frozenset[Namespace]()
    if able and not bad:
        selection = Selection(options.namespaces, evaluator.client, stop)
        left_out = _left_out(options, selection)
        filters = DocumentFilters() if refused else options.document_filters
        contents = _if_allowed(lambda: _contents(source.client, selection, filters, stop), stop)
        hidden = frozenset(
            _all_allowed(lambda: selection.of(hidden_time_series(list_kinds(source.client))), stop)
        )
        matches = _if_allowed(
            lambda: _filter_matches(options.namespaces, source.client, evaluator.client, stop), stop
        )
    return Findings(
        source=source.facts,
        destination=destination.facts,
        database=database,
        bad_patterns=bad,
        bad_queries=refused,
        occupied=_all_allowed(lambda: _occupied(destination.client), stop),
        taken=_if_allowed(lambda: _taken(options, destination.client, contents or ()), stop)
        or Taken(),
        others=_all_allowed(lambda: other_syncs(destination.client, database), stop),
        metadata=_all_allowed(lambda: _metadata(destination.client, database), stop),
        contents=contents,
        filter_matches=matches or FilterMatches(),
        hidden=hidden,
        left_out=left_out,
        readable=_is_readable(options, source.client, stop),
        disk_free=_if_allowed(lambda: free_disk(destination.client), stop),
        oplog=_if_allowed(lambda: read_oplog(source.client), stop),
        memory_available=memory.available_memory(),
        principals=_if_allowed(lambda: _principals(options, source, destination, stop), stop),
        runs=_runs(destination.client[database], stop),
    )


def _is_readable(options: StartOptions, client: Client, stop: StopToken) -> bool:
    """Return whether the source has a member that fits the read preference of the copy.

    If there is none, this call takes as long as the server selection timeout. For a sharded source, only mongos is
    asked, so the result says nothing about the members of the shards.
    """
    try:
        preference = read_preference(
            options.copy_read_preference.value, options.copy_read_preference_tags
        )
        retry(
            lambda: client.admin.command("ping", read_preference=preference),
            failures.only_lost_cursor,
            stop,
        )
        return True
    except ServerSelectionTimeoutError:
        return False


def _principals(
    options: StartOptions, source: Cluster, destination: Cluster, stop: StopToken
) -> Comparison | None:
    copied = options.users_and_roles
    if copied is None:
        return None
    return compare_clusters(copied, source.client, destination.client, stop)


def _runs(metadata: Metadata, stop: StopToken) -> tuple[RunRecord, ...]:
    """Return the run records on the destination.

    Return an empty tuple if the user may not read them, or if one of them has an unsupported format. In the second
    case, `Findings.metadata` still contains the database with the records.
    """
    try:
        return _all_allowed(lambda: load_runs(metadata), stop)
    except OperationError:
        return ()


def _if_allowed(question: Callable[[], T], stop: StopToken) -> T | None:
    """Return the result of `question`; None if the user lacks a privilege, or the server lacks a command.

    A violation or a warning reports both cases. Retries the question if a cursor is lost. Raises all other errors, even
    transient ones, because the user waits for the answer.
    """
    try:
        return retry(question, failures.only_lost_cursor, stop)
    except OperationFailure as error:
        unknown = error.code == failures.COMMAND_NOT_FOUND
        if unknown or failures.named_kind(error) is failures.NOT_AUTHORIZED:
            return None
        raise


def _all_allowed(question: Callable[[], Iterable[T]], stop: StopToken) -> tuple[T, ...]:
    """Return the results of `question`; none if the user lacks a privilege, or the server lacks a command."""
    return _if_allowed(lambda: tuple(question()), stop) or ()


def _left_out(options: StartOptions, selection: Selection) -> frozenset[Namespace]:
    """Return the collections that the start option `sharding` names, but that the sync does not select."""
    if options.sharding is None:
        return frozenset()
    sharded = frozenset(sharding.named(options.sharding))
    return sharded - selection.of(sharded)


def _filter_matches(
    namespaces: NamespaceFilter, source: Client, evaluator: Client, stop: StopToken
) -> FilterMatches | None:
    """Compare the namespace filter with all namespaces of the source; return None if the filter is empty.

    The server of `evaluator` evaluates the regular expressions.
    """
    if not (namespaces.include or namespaces.exclude):
        return None
    names = sorted(list_names(source))

    def matching(among: Sequence[Namespace], **element: Any) -> list[Namespace]:
        only = NamespaceFilter(include=(element,))
        return sorted(Selection(only, evaluator, stop).of(among)) if among else []

    unmatched = []
    for path, element in namespaces.elements():
        if "database" in element:
            # The server is not needed to compare names.
            present = [each for each in names if each.database == element["database"]]
        else:
            present = matching(names, databaseRegex=element["databaseRegex"])
        pattern = element.get("collectionsRegex")
        by_pattern = [] if pattern is None else matching(present, collectionsRegex=pattern)
        part = unmatched_part(element, present, by_pattern)
        if part is not None:
            unmatched.append(Unmatched(path, part, tuple(present)))
    return FilterMatches(
        selects_nothing=not Selection(namespaces, evaluator, stop).of(names),
        unmatched=tuple(unmatched),
        databases=tuple(sorted({each.database for each in names})),
    )


def _contents(
    client: Client, selection: Selection, filters: DocumentFilters, stop: StopToken
) -> tuple[Measured, ...] | None:
    """Return the selected collections and views of the source in the order of their names, with their sizes.

    Several collections are measured at the same time: there may be thousands, on a link with latency. Return None if
    the user may not read the size of a collection.
    """
    listed = list(list_collections(client, selection))
    sizes: dict[Namespace, Size | None] = {}

    def measure_one(definition: CollectionSpec, stop: StopToken) -> None:
        # Convert errors here: only the thread that has sent the failed command can name it.
        with failures.named_errors():
            sizes[definition.namespace] = _if_allowed(
                lambda: _selected_size(client, definition, filters, stop), stop
            )

    collections = [each for each in listed if each.kind is not Kind.VIEW]
    with single_error():
        for_each("measure", collections, measure_one, _MEASURING, stop)
    if None in sizes.values():
        return None
    return tuple(Measured(each, sizes.get(each.namespace) or Size()) for each in listed)


def _selected_size(
    client: Client, definition: CollectionSpec, filters: DocumentFilters, stop: StopToken
) -> Size:
    """Return the size of a collection; if it has a document filter, the estimated size of the selected documents."""
    whole = _size(client, definition)
    query = filters.of(definition.namespace)
    with judging(filters, definition.namespace):
        return selected_size(client, definition.storage, query, whole, stop)


def _size(client: Client, definition: CollectionSpec) -> Size:
    """Return the size of a collection. The sizes on disk of a small collection of a replica set are only estimated.

    The server takes about twenty times as long for the statistics that contain the sizes on disk as for the other
    figures.
    """
    if client.is_mongos:
        return measure(client, definition.storage)
    amount = extent(client, definition.storage)
    if amount.bytes > _MOST_ESTIMATED:
        return measure(client, definition.storage)
    of_index = _LEAST_FILE + _INDEX_ENTRY * amount.documents
    indexes = dict.fromkeys(("_id_", *definition.indexes), of_index)
    return replace(amount, on_disk=_LEAST_FILE + amount.bytes, indexes=indexes)


def _occupied(client: Client) -> Iterator[str]:
    """Yield the user databases that hold more than the system collections that a drop or a reset leaves behind."""
    for name in sorted(filter(is_user_database, client.list_database_names())):
        if {row["name"] for row in list_raw(client, name)} - _LEFT_OVER:
            yield name


def _taken(options: StartOptions, client: Client, contents: Sequence[Measured]) -> Taken:
    """Return the names that the collections and views in `contents` need, but that the destination already has.

    Return an empty `Taken` if the start options do not allow other data on the destination.
    """
    if not options.pre_existing_destination_data:
        return Taken()
    needed = [options.names.to_destination(each.definition.namespace) for each in contents]
    return taken(list_names(client), needed, client.is_mongos)


def _metadata(client: Client, own: str) -> Iterator[ReservedDatabase]:
    for name in sorted(client.list_database_names()):
        if name.startswith(RESERVED_PREFIXES):
            collections = frozenset(str(row["name"]) for row in list_raw(client, name))
            instances = saved_instances(client[name]) if name == own else ()
            yield ReservedDatabase(name, collections, instances)


def free_disk(client: Client) -> int | None:
    """Return the free bytes on the disks on which the primary, or the primaries of all shards, keep their data.

    Return None if a server does not report its disk. Raises the driver's errors.
    """
    # The database admin always exists; for a missing database, a server reports no disk figures.
    return free_bytes(client.admin.command("dbStats"))


def free_bytes(statistics: Mapping[str, Any]) -> int | None:
    """Return the free bytes in the reply to `dbStats`; None if it lacks the figures of a server.

    A mongos lists the replies of the shards in `raw`. Before MongoDB 7.0, its own figures leave out the disks.
    """
    replies = statistics.get("raw", {"": statistics}).values()
    if not all(each.get("fsTotalSize") for each in replies):
        return None
    return int(sum(each["fsTotalSize"] - each["fsUsedSize"] for each in replies))
