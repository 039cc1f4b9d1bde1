"""Finds the changes that users have made on a cluster since a position in its change stream.

A commit ends only when the destination has all user writes to the source. `LateWrites` finds the user writes after the
commit time. A reversal is refused if users have written to the old source since the commit. `after_commit` uses
`LateWrites` to count the writes that reach the source after the commit.

A change event alone does not always tell whether the destination lacks the change:

- the server may have deleted the document, because it had expired (TTL). The destination does so itself after the
  commit;
- the document may be one that the document filter does not select.

If all these events counted, a source with constant TTL deletes or unselected writes would never let a commit end. If
none counted, user writes would be lost. Therefore, `LateWrites` queries the clusters about collections whose documents
expire or are filtered. There, a delete counts if the destination still has the document and the document has not
expired. Another change of a filtered collection counts if the destination has the document, or if the source has it and
the filter selects it. (`LateWrites.count` has further exceptions.)
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain, islice
from time import monotonic
from typing import Any, NamedTuple

from bson.timestamp import Timestamp

from syncsvc.engine.events.ddl import OF_NO_CONSEQUENCE
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster import failures
from verifier.cluster.changes import ChangeReader, ChangeStream
from verifier.cluster.cluster import Cluster
from verifier.cluster.document_filters import judging
from verifier.cluster.events import DefinitionEvent, KeyEvent, parse_key_event
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.keys import canonical_id
from verifier.cluster.lookup import ONLY_IDS, fetch, fetch_pages, portions
from verifier.cluster.migrations import Migrations
from verifier.cluster.namespace import Namespace, is_user_namespace, some_of
from verifier.cluster.note import append_note
from verifier.cluster.times import Position, next_time, position_after
from verifier.compare.expiry import expired
from verifier.compare.worker import clock_of
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import FOREVER
from verifier.runtime.tasks import StopToken
from verifier.runtime.waits import waiting

_SEARCHING = (
    "The search takes up to 20 seconds on an idle sharded cluster, and longer after many changes. If it does not end, "
    "check that all members of the cluster are up and do not lag far behind the primary."
)

Change = KeyEvent | DefinitionEvent
# Takes changes, except DDL events that change no definition or that a chunk migration caused. Returns some of the
# collections and views with changes that count; empty if none counts.
Judge = Callable[[Sequence[Change]], Collection[Namespace]]


class SourceWritten(Exception):
    """Raised if users have, or may have, written to the source after the commit time.

    The commit time is the cluster time of the source up to which all changes are applied before the commit.
    `namespaces` are some of the collections and views with newer writes; empty if they are unknown.
    """

    def __init__(self, namespaces: Collection[Namespace] = ()) -> None:
        self.namespaces = namespaces


@dataclass(frozen=True)
class LateWrites:
    """Finds the user writes to the source after the commit time of a run."""

    context: RunContext
    stop: StopToken

    def refuse(self) -> None:
        """Warn, and raise SourceWritten, if the destination lacks a user write to the source, or may lack one.

        If the oplog no longer reaches back to the commit time, the check is impossible: also warn and raise. The commit
        can still be repeated, because the event spool may hold the lost events. Also raises OperationError
        DocumentFilterFailed, and the driver's errors.
        """
        try:
            written = self._find()
        except OperationError as error:
            if error.kind != failures.OPLOG_WINDOW_EXCEEDED:
                raise
            self._warn(())
            raise SourceWritten from error
        if written:
            self._warn(written)
            raise SourceWritten(written)

    def _warn(self, written: Collection[Namespace]) -> None:
        self.context.progress.warn(WarningKind.SOURCE_WRITTEN, warning_of(written))

    def _find(self) -> Collection[Namespace]:
        """Return some collections and views with user writes that the destination lacks, or may lack; empty if none.

        Raises OperationError OplogWindowExceeded if the oplog no longer reaches back to the commit time.
        """
        record = self.context.run.record
        assert record.commit_time is not None
        source = Cluster(record.source, self.context.source_client, self.context.source_facts)
        destination = self.context.destination_client
        since = position_after(record.commit_time)
        unsure = self.unsure()
        now = append_note(source.client, self.stop)
        times = _Times(now, append_note(destination, self.stop) if unsure else None)
        judge = partial(self._lacking, unsure, times)
        namespaces = self.context.run.record.options.namespaces
        return first_written(source, since, now, judge, self.stop, namespaces=namespaces)

    def unsure(self) -> dict[Namespace, CollectionRecord]:
        """Return the collections in which some changes need not reach the destination, by their names on the source.

        These are the collections whose documents expire or are filtered.
        """
        return {each.source_name: each for each in self.context.registry if self._is_unsure(each)}

    def count(
        self,
        unsure: Mapping[Namespace, CollectionRecord],
        changes: Sequence[KeyEvent],
        now: Timestamp,
    ) -> Counter[Namespace]:
        """Return how many of `changes` the destination lacks, by collection.

        Several writes to one document may count as one. Deletes do not count in collections whose documents expire, nor
        in collections that were not synced under their present name: after the commit, operators may rename collections
        of the source. Call this after the commit, when the destination may also have writes of users. `unsure` is the
        result of the method of that name, and `now` the cluster time of the source up to which `changes` were read.
        Raises the driver's errors, and OperationErrors.
        """
        synced = {each.source_name for each in self.context.registry}
        certain, asked = self._asked(
            unsure,
            [
                each
                for each in changes
                if each.operation != "delete" or each.namespace.owner in synced
            ],
        )
        for name, keys in asked.items():
            if unsure[name].definition.expires:
                # Applications may have renewed the document on the destination since its copy on the source expired.
                keys.deleted.clear()
        selected = self.context.selection.of(names_of(certain))
        written = (name for each in certain for name in islice(_names(each) & selected, 1))
        return Counter(chain(written, self._changed(unsure, asked, _Times(now, None))))

    def _is_unsure(self, record: CollectionRecord) -> bool:
        """Return whether some changes of the documents of this collection need not reach the destination."""
        return record.definition.expires or record.source_name in self.context.document_filters

    def _lacking(
        self,
        unsure: Mapping[Namespace, CollectionRecord],
        times: _Times,
        changes: Sequence[Change],
    ) -> set[Namespace]:
        """Return some collections and views of which the destination lacks, or may lack, one of `changes`.

        Return an empty set if there are none. Collections and views that the sync does not select are left out.
        """
        certain, asked = self._asked(unsure, changes)
        written = self.context.selection.of(names_of(certain))
        # Ask the clusters only if the answer is needed, and only until one collection has a late write.
        return written or set(islice(self._changed(unsure, asked, times), 1))

    def _asked(
        self, unsure: Mapping[Namespace, CollectionRecord], changes: Sequence[Change]
    ) -> tuple[list[Change], dict[Namespace, _Keys]]:
        """Divide the changes into certain and uncertain late writes.

        Return the changes for which no query is needed, and, by collection, the keys of those changes for which the
        clusters must be queried first.
        """
        certain: list[Change] = []
        asked: dict[Namespace, _Keys] = defaultdict(_Keys)
        for each in changes:
            name = each.namespace.owner
            if not isinstance(each, KeyEvent) or name not in unsure:
                certain.append(each)
            elif each.operation == "delete":
                asked[name].deleted.append(each.key)
            elif name in self.context.document_filters:
                asked[name].changed.append(each.key)
            else:
                certain.append(each)
        return certain, asked

    def _changed(
        self,
        unsure: Mapping[Namespace, CollectionRecord],
        asked: Mapping[Namespace, _Keys],
        times: _Times,
    ) -> Iterator[Namespace]:
        """Query the clusters for the keys in `asked`; yield the collection of each document whose change is missing."""
        for name, keys in asked.items():
            found: set[Hashable] = set()
            for each in chain(
                self._kept(unsure[name], keys, times), self._selected(unsure[name], keys, times)
            ):
                if each not in found:
                    found.add(each)
                    yield name

    def _kept(self, record: CollectionRecord, keys: _Keys, times: _Times) -> Iterator[Hashable]:
        """Yield the IDs of the changed and deleted documents that the destination still has.

        Deleted documents that have expired there are left out. All IDs are in their canonical form.
        """
        context = self.context
        unexpired = self._unexpired(record) if keys.deleted else {}
        for each, query in ((keys.deleted, unexpired), (keys.changed, {})):
            yield from fetch(
                context.destination_client,
                record.namespace,
                list(dict.fromkeys(each)),
                self.stop,
                ONLY_IDS,
                query,
                times.destination,
            )

    def _unexpired(self, record: CollectionRecord) -> dict[str, Any]:
        """Return the query for the documents of a collection that have not expired."""
        if not record.definition.expires:
            return {}
        gone = expired([record.definition], clock_of(self.context.source_client, self.stop))
        return {"$nor": gone} if gone else {}

    def _selected(self, record: CollectionRecord, keys: _Keys, times: _Times) -> Iterator[Hashable]:
        """Yield the canonical IDs of the changed documents that the source has and the document filter selects."""
        client, filters = self.context.source_client, self.context.document_filters
        query: Mapping[str, Any] = filters.of(record.source_name) or {}
        with judging(filters, record.source_name):
            for portion in portions(list(dict.fromkeys(keys.changed))):
                for page in fetch_pages(
                    client,
                    record.source_storage,
                    portion,
                    self.stop,
                    not_before=times.source,
                    projection=ONLY_IDS,
                    query=query,
                    by_id=True,
                ):
                    yield from map(canonical_id, page)


class _Times(NamedTuple):
    """The cluster times at or after which the source and the destination are read.

    Without them, a newly elected primary could return older documents. `destination` is None if the destination need
    not be read, or may be read as of any time.
    """

    source: Timestamp
    destination: Timestamp | None


@dataclass(frozen=True)
class _Keys:
    """Keys of documents of one collection: of those that were deleted, and of those that were inserted or changed."""

    deleted: list[bytes] = field(default_factory=list)
    changed: list[bytes] = field(default_factory=list)


def warning_of(written: Collection[Namespace]) -> str:
    """Return the warning about late writes. `written` are some of the collections written to; empty if unknown."""
    if not written:
        return (
            "The oplog of the source is too short to find out whether applications wrote to the source. The "
            "commit applies all changes and checks this again: stop the applications that write to the synced "
            "collections of the source."
        )
    return (
        "Applications wrote to the source after the commit was requested, for example to "
        f"{some_of(written)}. The commit applies these writes, and is repeated until no more follow: stop the "
        "applications that make them."
    )


def first_written(
    cluster: Cluster,
    since: Position,
    until: Timestamp,
    judge: Judge,
    stop: StopToken,
    longest_stall: float = FOREVER,
    namespaces: NamespaceFilter = NamespaceFilter(),
) -> Collection[Namespace]:
    """Search the change stream for user writes that `judge` counts; return some of their collections and views.

    The result is empty only if there are no such writes between `since` and `until`. Later writes may count, too.

    `since` is a position in the cluster's change stream, and `until` a time that `append_note` has returned. `judge` is
    called with the changes of each page, except DDL events that change no definition or that a chunk migration caused;
    its first result that is not empty is returned. The stream leaves out most document changes in namespaces that do
    not match `namespaces`.

    Raises OperationError ClusterUnreachable if the stream does not advance for `longest_stall` seconds. An idle sharded
    cluster can cause this, as well as a cluster without a working majority. Raises OperationError OplogWindowExceeded
    if the oplog does not reach back to `since`. Also raises the errors of `judge`, and the driver's errors.
    """
    stream = ChangeStream(cluster.client, cluster.facts, keys_only=True, namespaces=namespaces)
    migrations = Migrations(cluster.client, cluster.facts, stop)
    # On a sharded cluster, another shard may have events of the time `until` itself, which can follow in a later page.
    end = next_time(until) if cluster.facts.is_sharded else until
    read_until, advanced_at = since.time, monotonic()
    with waiting(
        f"The search for user writes reads the change events of {cluster.name}, up to the newest one",
        _SEARCHING,
    ):
        for page in ChangeReader(stream, since, stop, awaits_oplog=False).pages():
            changes = map(parse_key_event, map(bytes, page.events))
            written = judge([each for each in changes if not _is_of_servers(each, migrations)])
            if written or page.position.time >= end:
                return written
            if page.position.time > read_until:
                read_until, advanced_at = page.position.time, monotonic()
            elif monotonic() > advanced_at + longest_stall:
                raise OperationError(
                    failures.CLUSTER_UNREACHABLE,
                    f"The change stream of {cluster.name} did not return the newest changes within "
                    f"{longest_stall:.0f} seconds.",
                )
    raise AssertionError("the pages of a change stream have ended, but must never end")


def names_of(changes: Iterable[Change]) -> set[Namespace]:
    """Return the user collections and views that the changes concern."""
    return {name for each in changes for name in _names(each) if is_user_namespace(name)}


def _names(change: Change) -> frozenset[Namespace]:
    return frozenset([change.namespace.owner]) if isinstance(change, KeyEvent) else change.owners


def _is_of_servers(change: Change, migrations: Migrations) -> bool:
    """Return whether a change is a DDL event that changes no definition, or that a chunk migration has caused.

    `migrations` recognizes the DDL events of chunk migrations.
    """
    if isinstance(change, KeyEvent):
        return False
    return change.operation in OF_NO_CONSEQUENCE or migrations.caused(change)
