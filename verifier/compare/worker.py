"""Runs single tasks of a generation (one pass of a check): compares, and saves the mismatches."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from itertools import islice
from time import monotonic, time
from typing import NamedTuple, cast

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from verifier.cluster.connect import Client
from verifier.cluster.inventory import Snapshot, extent, find_named
from verifier.cluster.keys import canonical_id
from verifier.cluster.lookup import ONLY_IDS, fetch
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Keys, Portion, Range, range_bytes, split
from verifier.cluster.rawcursor import first_page_size
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Document, Kind
from verifier.compare.amounts import Tally
from verifier.compare.comparison import Comparison
from verifier.compare.context import CheckContext
from verifier.compare.definitions import compare_definitions
from verifier.compare.errors import TIME_SERIES_NOT_COMPARABLE
from verifier.compare.expiry import expired, expires, note_on_clocks
from verifier.compare.mismatch import Aspect, DefinitionMismatch, Difference, DocumentMismatch
from verifier.compare.points import Point
from verifier.compare.scope import NamespacePair
from verifier.compare.task import Status, Task, Work, digest_of, merged, recheck_of
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# The number of mismatches that are saved with one call.
_MOST_UNSAVED = 500

# The machine's clock minus the monotonic clock, when this process started; see `_steady_time`.
_CLOCK_START = time() - monotonic()


def _steady_time() -> float:
    """Return the UNIX time in seconds, as if the machine's clock had not been changed since this process started.

    Otherwise, a change of the clock would make documents that differ for a moment count as lasting mismatches.
    """
    return _CLOCK_START + monotonic()


class Definitions(NamedTuple):
    """The definitions of a collection or view: on the source, as expected on the destination, and on the destination.

    A definition that does not exist is None. `source` and `expected` are also None if the collection or view must not
    exist on the destination.
    """

    source: CollectionSpec | None
    expected: CollectionSpec | None
    destination: CollectionSpec | None

    @property
    def actual(self) -> tuple[CollectionSpec | None, CollectionSpec | None]:
        return self.source, self.destination


class _Counting(NamedTuple):
    """The facts that a COUNT task needs about a collection.

    `stored` names the namespaces that hold the documents; None if there are no documents to count. `expires` says
    whether documents can expire.
    """

    stored: NamespacePair | None
    expires: bool


class Worker:
    """Runs the tasks of a generation. All threads of the generation share one worker.

    The documents of each cluster are compared as they are at its cluster time in `not_before`, or later; None sets no
    limit. `add_ranges(stored, ranges, documents, size)` adds a RANGE task for each range of a collection. `stored`
    names the namespaces that store the documents; `documents` and `size` (bytes) are estimates for the whole
    collection.
    """

    def __init__(
        self,
        context: CheckContext,
        tally: Tally,
        not_before: tuple[Timestamp | None, Timestamp | None],
        add_ranges: Callable[[NamespacePair, list[Range], int, int], None],
        stop: StopToken,
    ) -> None:
        request, sides = context.store.record.request, context.sides
        self._subject = context.subject
        self._clients = (sides.source.client, sides.destination.client)
        self._range_bytes, self._threads = sides.range_bytes, sides.workers
        # Below featureCompatibilityVersion 6.0, servers send no events for changes of measurements.
        self._reports_buckets = sides.source.facts.reports_ddl
        self._source_facts = sides.source.facts
        self._store = context.store
        self._rechecks = context.rechecks
        self._tally = tally
        self._not_before = not_before
        self._add_ranges = add_ranges
        self._observe = context.observe
        self._stop = stop
        # The definitions on both sides, if the generation compares all of them.
        self._snapshots: tuple[Snapshot, ...] = ()
        # Passes facts from COLLECTION tasks to the COUNT tasks of the same generation; a collection has one of each.
        self._to_count: dict[NamespacePair, _Counting] = {}
        raw = request.document_filter
        chosen = None if raw is None else RawBSONDocument(raw)
        self._filters = request.source_filters
        self._comparison = Comparison(
            *self._clients, request.mode, chosen, stop, sides.tuning, self._filters
        )

    def take_snapshots(self) -> None:
        """List all definitions of each cluster that can list them with few commands. Other definitions are read later.

        Call this if the generation compares all definitions. A definition that changes after the listing of generation
        0 is compared again after the end of user writes, with all other definitions. Raises the driver's errors, and
        `Cancelled`.
        """
        self._snapshots = tuple(
            read(lambda: Snapshot(client), self._stop) for client in self._clients
        )

    def run_task(self, task: Task) -> Task:
        """Run a task, save its mismatches and their rechecks, and return the task with its result.

        Raises OperationError DocumentFilterFailed and TimeSeriesNotComparable, the errors of a save (see CheckStore),
        the driver's errors, and `Cancelled`.
        """
        if task.work is Work.COLLECTION:
            return self._compare_definitions(task)
        if task.work is Work.COUNT:
            return self._compare_counts(task)
        if task.work is Work.RANGE:
            return self._compare_documents(task, Range(task.lower, task.upper), {})
        assert task.first is not None and task.last is not None
        again = merged(self._store.rechecks(task.first, task.last))
        since = {digest: each.since for digest, each in again.items() if each.since is not None}
        keys = tuple(each.key for each in again.values())
        return self._compare_documents(task, Keys(keys), since)

    def _compare_documents(self, task: Task, portion: Portion, since: dict[bytes, float]) -> Task:
        documents = size = mismatches = 0

        def compared(number: int, amount: int) -> None:
            nonlocal documents, size
            documents += number
            size += amount
            self._tally.compared(task.names.source.owner, number, amount)

        first_page = first_page_size(task.documents, task.size) if task.size else None
        found = self._comparison.documents(
            task.names, portion, self._not_before, compared, first_page
        )
        for batch in _batches(found, _MOST_UNSAVED):
            standing = self._standing(task.names, batch)
            mismatches += len(standing)
            self._save(standing, since)
        status = Status.FAILED if mismatches else Status.COMPLETED
        return replace(task, status=status, documents=documents, size=size)

    def _standing(
        self, names: NamespacePair, found: list[DocumentMismatch]
    ) -> list[DocumentMismatch]:
        """Return the mismatches, except those of documents that only one cluster had and that have expired (TTL).

        The other cluster has already deleted such a document; this one has deleted it since, or will do so. Until all
        changes up to the end of user writes are read, return all mismatches: the next generation compares these
        documents again anyway.
        """
        if not self._store.record.last:
            return found
        one_sided = [each for each in found if each.difference is not Difference.CONTENT]
        if not one_sided:
            return found
        definitions = self._definitions(names).actual
        if not expires(definitions):
            return found
        gone = expired(definitions, self._judging_clock())
        if not gone:
            return found
        left = self._left(names, one_sided, {"$nor": gone})
        return [each for each in found if each.difference is Difference.CONTENT or each.key in left]

    def _left(
        self, names: NamespacePair, one_sided: list[DocumentMismatch], query: Document
    ) -> set[bytes]:
        """Return the keys of the documents in `one_sided` that still exist on their cluster and match the query.

        `one_sided` holds mismatches of documents that only one cluster has.
        """
        left: set[bytes] = set()
        sides = zip(self._clients, names, self._not_before, strict=True)
        for difference, side in zip((Difference.MISSING, Difference.EXTRA), sides, strict=True):
            client, name, time = side
            keys = [each.key for each in one_sided if each.difference is difference]
            # Without the cluster time `time`, a new primary might read an older state that lacks the documents.
            found = fetch(client, name, keys, self._stop, ONLY_IDS, query, time)
            left.update(key for key in keys if canonical_id(key) in found)
        return left

    def _judging_clock(self) -> datetime:
        """Return the source's clock in UTC. The check decides by this clock which documents have expired.

        Save a note if the destination's clock differs by more than five seconds.
        """
        source, destination = (clock_of(client, self._stop) for client in self._clients)
        note = note_on_clocks(source, destination)
        if note is not None:
            self._store.add_note(note)
        return source

    def _save(self, found: list[DocumentMismatch], since: dict[bytes, float]) -> None:
        """Save mismatches, count them, and save rechecks of them for the next generation.

        `since` maps the digest of a document's key to the `_steady_time` at which the document was first seen to
        differ. For other documents, this time is the current time.
        """
        steady, now = _steady_time(), time()
        for each in found:
            self._tally.found(each)
        # Users see times of the clock of the machine.
        shown = {digest: now - steady + each for digest, each in since.items()}
        self._store.add_document_mismatches(found, shown, now)
        self._rechecks.add(
            recheck_of(each.namespace, each.key, since.get(digest_of(each.key), steady))
            for each in found
        )

    def _compare_definitions(self, task: Task) -> Task:
        definitions = self._definitions(task.names)
        stored = self._stored(definitions)
        if self._store.record.all_again:
            self._to_count[task.names] = _Counting(stored, expires(definitions.actual))
        # Compare both definitions under the name on the source.
        compared = [
            each and replace(each, namespace=task.names.source)
            for each in (definitions.expected, definitions.destination)
        ]
        found = compare_definitions(*map(_present, compared))
        self._save_definitions(task.names, found)
        self._observe(Point.DEFINITION_COMPARED, str(task.names.source))
        scan = task.scan or self._is_silent(definitions.source)
        if scan and stored is not None:
            self._cut(stored)
        return replace(
            task,
            status=Status.FAILED if found else Status.COMPLETED,
            definition_differs=bool(found),
            unscanned=bool(found) and stored is None,
        )

    def _is_silent(self, source: CollectionSpec | None) -> bool:
        """Return whether this generation must compare all documents of a time-series collection again.

        A source with a featureCompatibilityVersion before 6.0 sends no change events for measurements, so they are
        compared again once, after user writes have ended. `source` is the collection's definition on the source; None
        if it does not exist.
        """
        if self._reports_buckets or source is None or not self._store.record.all_again:
            return False
        return source.kind is Kind.TIME_SERIES

    def _definitions(self, names: NamespacePair) -> Definitions:
        source, destination = (self._find(number, name.owner) for number, name in enumerate(names))
        expected = None if source is None else self._subject.expected(source)
        return Definitions(source if expected else None, expected, destination)

    def _find(self, side: int, name: Namespace) -> CollectionSpec | None:
        """Return the collection or view with this name on the source (`side` 0) or the destination (`side` 1).

        Use the snapshot; if the snapshot lacks it, query the cluster. Return None if it does not exist.
        """
        client = self._clients[side]
        listed = self._snapshots[side].find(name) if self._snapshots else None
        return listed or read(lambda: find_named(client, name), self._stop)

    def _stored(self, definitions: Definitions) -> NamespacePair | None:
        """Return the namespaces that store the documents on both sides; None if there are no documents to compare.

        There are no documents to compare if a side lacks the collection, if only one side has a time-series collection,
        or if the namespace is a view. With a document filter, a time-series collection is not compared either, and a
        saved note says so. Without a document filter, raise OperationError TimeSeriesNotComparable if the source cannot
        read the measurements in the order of the comparison.
        """
        source, destination = definitions.actual
        if source is None or destination is None or source.kind is not destination.kind:
            return None
        if source.kind is Kind.VIEW:
            return None
        request = self._store.record.request
        if source.kind is Kind.TIME_SERIES and request.selects_documents(source.namespace):
            self._store.add_note(
                f"{source.namespace}: the measurements of this time-series collection were not compared, because "
                "they are stored together in buckets, to which a filter of documents does not apply."
            )
            return None
        if source.kind is Kind.TIME_SERIES and not self._source_facts.orders_buckets:
            raise OperationError(
                TIME_SERIES_NOT_COMPARABLE,
                f"{source.namespace} is a time-series collection, and the source runs MongoDB "
                f"{self._source_facts.dotted_version}, which cannot read measurements in the order that the comparison "
                "needs.",
            )
        return NamespacePair(source.storage, destination.storage)

    def _compare_counts(self, task: Task) -> Task:
        """Count the documents of a collection on both sides, compare the counts, and return the task with its result.

        Save an unexplained difference as a mismatch (see `_unexplained`). If documents of the collection can expire, do
        not count them, and save a note that says so.
        """
        # If an earlier process or generation compared the definitions, they must be read again.
        counting = self._to_count.pop(task.names, None)
        if counting is None:
            definitions = self._definitions(task.names)
            counting = _Counting(self._stored(definitions), expires(definitions.actual))
        stored = counting.stored
        found: list[DefinitionMismatch] = []
        if stored is not None and counting.expires:
            self._store.add_note(
                f"{task.names.source}: the numbers of documents were not compared, because documents of this "
                "collection can expire (TTL)."
            )
        elif stored is not None:
            found.extend(self._unexplained(task.names.source, stored))
        self._save_definitions(task.names, found)
        status = Status.FAILED if found else Status.COMPLETED
        return replace(task, status=status, definition_differs=bool(found))

    def _unexplained(
        self, namespace: Namespace, stored: NamespacePair
    ) -> Iterator[DefinitionMismatch]:
        """Yield a mismatch if the numbers of documents on the two clusters differ for no known reason.

        The reason is known if the comparison of the documents found missing and extra documents that account for the
        difference. If counting takes too long, yield nothing, and save a note that says so.
        """
        counts = self._comparison.counts(stored)
        if counts is None:
            self._store.add_note(
                f"{namespace}: the numbers of documents were not compared, because counting the documents takes too "
                "long. The documents themselves were compared."
            )
            return
        source, destination = counts
        if source == destination:
            return
        missing, extra = self._store.one_sided(stored.source)
        if source - destination != missing - extra:
            # The documents of a time-series collection are counted in buckets.
            what = "documents" if stored.source == namespace else "buckets"
            detail = (
                f"{what} to compare: {source:,} on the source, {destination:,} on the destination; but the comparison "
                f"found {missing:,} missing and {extra:,} extra"
            )
            yield DefinitionMismatch(namespace, Difference.CONTENT, Aspect.COUNT, detail=detail)

    def _save_definitions(self, names: NamespacePair, found: list[DefinitionMismatch]) -> None:
        found = [replace(each, destination=names.renamed_to) for each in found]
        if found:
            self._store.add_definition_mismatches(found, time())
        for mismatch in found:
            self._tally.found(mismatch)

    def _cut(self, stored: NamespacePair) -> None:
        """Split the documents of a collection into ranges, and add a task for each range.

        `stored` names the namespaces that store the documents on both clusters.
        """
        client, name = self._clients[0], stored.source
        amount = read(lambda: extent(client, name), self._stop)
        count, size = amount.documents, amount.bytes
        each = range_bytes(size, self._threads, self._range_bytes)
        ranges = split(client, name, count, size, each, self._stop, shards=amount.shards)
        if name in self._filters:
            # Take the estimates from the destination: if it is complete, it contains exactly the documents to compare.
            expected = read(lambda: extent(self._clients[1], stored.destination), self._stop)
            count, size = expected.documents, expected.bytes
        self._add_ranges(stored, ranges, count, size)


def clock_of(client: Client, stop: StopToken) -> datetime:
    """Return the current time in UTC, by the clock of the server that `client` queries.

    Raises the driver's errors, and `Cancelled`.
    """
    reply = read(lambda: client.admin.command("hello"), stop)
    return cast(datetime, reply["localTime"])


def _present(definition: CollectionSpec | None) -> list[CollectionSpec]:
    return [] if definition is None else [definition]


def _batches(found: Iterable[DocumentMismatch], number: int) -> Iterator[list[DocumentMismatch]]:
    left = iter(found)
    while batch := list(islice(left, number)):
        yield batch
