"""Compares the documents of two collections with majority reads, one portion at a time. Saves nothing.

A portion is a range of `_id` values, or a set of single `_id` values. Both collections are read in the order of the
`_id` index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo.errors import NetworkTimeout, OperationFailure, PyMongoError

from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.document_filters import DocumentFilters, judging_as, name_of_query
from verifier.cluster.inventory import list_raw
from verifier.cluster.lookup import among, bounds
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import (
    LAST,
    Keys,
    Part,
    Portion,
    Range,
    end_of_part,
    part_after_timeout,
)
from verifier.cluster.rawcursor import Page, RawCursor
from verifier.cluster.reading import read
from verifier.cluster.specification import Document, Kind
from verifier.compare.documents import Mode, differences
from verifier.compare.mismatch import Difference, DocumentMismatch, FieldDifference
from verifier.compare.order import CollatedOrder, Order, any_order, simple_order
from verifier.compare.pairing import Pairing, Unequal
from verifier.compare.scope import NamespacePair
from verifier.compare.tuning import CheckTuning
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import Temporary, retry
from verifier.runtime.tasks import Budget, StopToken, together

_BY_ID = {"_id": 1}
_NATURAL = {"$natural": 1}
_ANY = {"_id": {"$exists": True}}
_MAJORITY = {"level": "majority"}
_COMMENT = "verifier"
# The longest time for which the documents of a collection are counted, in milliseconds. A call must take less than
# `connect.SOCKET_MS`.
_LONGEST_COUNT_MS = 45_000

# Called with the number of compared documents of the source, and their size in bytes.
OnPages = Callable[[int, int], None]


# The cluster time at or after which each side is read; None if any time will do.
NotBefore = tuple[Timestamp | None, Timestamp | None]

# Queries that select documents. The keys name them in error texts.
_Queries = Mapping[str, RawBSONDocument]


class Comparison:
    """Compares the documents of two clusters. Thread-safe.

    `document_filter` selects documents on both clusters; None selects all. `source_filters` select documents of single
    collections, on the source only: the destination must have these documents and no others.
    """

    def __init__(
        self,
        source: Client,
        destination: Client,
        mode: Mode,
        document_filter: RawBSONDocument | None,
        stop: StopToken,
        tuning: CheckTuning = CheckTuning(),
        source_filters: DocumentFilters = DocumentFilters(),
    ) -> None:
        self._tuning = tuning
        self._clients = (source, destination)
        self._source_filters = source_filters
        self._mode = mode
        self._filter = document_filter
        self._stop = stop
        self._room = Budget(tuning.pages_bytes, stop)
        # The listed properties of the collections that were compared; forgotten when a read of the collection fails.
        self._listed: dict[NamespacePair, tuple[_Stored, _Stored]] = {}

    def documents(
        self,
        names: NamespacePair,
        portion: Portion,
        not_before: NotBefore,
        on_pages: OnPages,
        first_page: int | None = None,
    ) -> Iterator[DocumentMismatch]:
        """Yield a mismatch for every document of the portion that is not equal on both clusters.

        Each cluster is read at its cluster time in `not_before` or later. `on_pages` is called with the number of
        the source's documents compared since its last call, and their size in bytes. `first_page` is the number of
        documents in the first page; None if the size of the documents is unknown. A missing collection, or a view, has
        no documents. After a failure, a mismatch may be yielded again. To bound memory, a document may be yielded
        although the other cluster has an equal one: compare each document again before its mismatch counts. Raises the
        driver's errors that are not temporary, OperationError DocumentFilterFailed, and `Cancelled`.
        """
        reading = _Reading(names, portion, not_before, first_page)
        for unequal in self._unequal(reading, on_pages):
            yield self._mismatch(names, unequal)

    def counts(self, names: NamespacePair) -> tuple[int, int] | None:
        """Return the numbers of documents to compare in a collection: on the source, and on the destination.

        Count only the documents that `document_filter` selects and, on the source, that also match the collection's
        query in `source_filters`. Where no query applies, use the servers' stored counts if they make the two numbers
        equal; otherwise, count the documents with a scan. Return None if a scan takes longer than 45 seconds. Raises
        the driver's errors that are not temporary, OperationError DocumentFilterFailed, and `Cancelled`.
        """
        source, destination = self._counts(names, scan=False)
        if source != destination and source is not None and destination is not None:
            # Stored counts may be wrong after a server's crash: only a scan proves a difference.
            source, destination = self._counts(names, scan=True)
        return None if source is None or destination is None else (source, destination)

    def _counts(self, names: NamespacePair, scan: bool) -> tuple[int | None, int | None]:
        """Return the numbers of documents on both sides; None for a server that needs too long.

        A collection is scanned if `scan` is True, or if a query selects its documents.
        """
        source, destination = (
            (
                self._scanned_count(client, name, queries)
                if scan or queries
                else self._stored_count(client, name)
            )
            for client, name, queries in zip(
                self._clients, names, self._filters(names.source), strict=True
            )
        )
        return source, destination

    def _stored_count(self, client: Client, name: Namespace) -> int:
        database = client[name.database]
        reply = read(lambda: database.command({"count": name.collection}), self._stop)
        return int(reply["n"])

    def _scanned_count(self, client: Client, name: Namespace, queries: _Queries) -> int | None:
        """Return the number of documents that match all of the queries; None if the scan takes too long."""
        # Do not use an aggregation: it refuses filters that a find accepts, such as $where.
        command = {
            "count": name.collection,
            # Without a query, the server would return the stored count.
            "query": {"$and": [*queries.values()]} if queries else _ANY,
            "hint": _NATURAL,
            "readConcern": _MAJORITY,
            "maxTimeMS": _LONGEST_COUNT_MS,
        }
        database = client[name.database]

        def count() -> int | None:
            try:
                reply = database.command(command, codec_options=rawbson.RAW_LENIENT)
                return int(reply["n"])
            except OperationFailure as error:
                if error.code != failures.TIME_LIMIT_EXCEEDED:
                    raise
                return None

        with judging_as(queries):
            return read(count, self._stop)

    def _unequal(self, reading: _Reading, on_pages: OnPages) -> Iterator[Unequal]:
        """Yield the documents of `reading.portion` that differ on the two clusters.

        `on_pages` is called as described in `documents`. After a temporary failure, a range is read again from the last
        key up to which all documents were compared, and single documents are all read again. If a query selects the
        documents, and a read of a range times out, the rest of the range is compared in parts.
        """
        searched = any(self._filters(reading.names.source))
        with ExitStack() as cursors:
            pairing: Pairing | None = None
            listed_before = False

            def step() -> list[Unequal] | None:
                nonlocal reading, pairing, listed_before
                try:
                    if pairing is None:
                        listed_before = reading.names in self._listed
                        stored = self._list(reading.names)
                        reading = self._divided(reading.fitting(stored), stored)
                        pairing = self._open(reading, stored, on_pages, cursors)
                    with self._room.hold(2 * pairing.page_bytes):
                        return pairing.step()
                except (PyMongoError, OperationError) as error:
                    cursors.close()
                    self._listed.pop(reading.names, None)
                    reading = reading.after(pairing.aligned if pairing else None)
                    if isinstance(error, NetworkTimeout) and searched:
                        reading = reading.in_smaller_parts(self._tuning.first_page)
                    pairing = None
                    raise

            def classify(error: BaseException) -> Temporary | None:
                # Since it was listed, the collection may have been replaced, for example by a view.
                again = failures.again(error) if listed_before else None
                return failures.lost_cursor(error) or again

            while True:
                while (found := retry(step, classify, self._stop)) is not None:
                    self._stop.check()
                    yield from found
                if reading.end is None:
                    break
                cursors.close()
                reading, pairing = reading.after_part(), None
        if reading.leaves_out_last:
            yield from self._unequal(reading._replace(portion=Keys((LAST,)), part=None), on_pages)

    def _divided(self, reading: _Reading, stored: tuple[_Stored, _Stored]) -> _Reading:
        """Return the reading limited to its next part: at most about `reading.part.documents` documents on each side.

        Return the reading without this limit if it is not read in parts, if the next part is the last one, or if the
        collations of the two collections differ.
        """
        part, collations = reading.part, [each.collation for each in stored if each.is_there]
        reading = reading._replace(end=None)
        if part is None or collations[1:] not in ([], collations[:1]):
            return reading
        order = _order(self._clients[0], stored[0].collation, stored[1].collation)
        first: bytes | None = None
        for client, name, time, each in zip(
            self._clients, reading.names, reading.not_before, stored, strict=True
        ):
            if each.is_there:
                command = {**reading.command(name, time, each, {}), **part.beyond}
                end = end_of_part(RawCursor(client, name.database, command))
                first = end if first is None or (end and order(end, first)) else first
        return reading._replace(end=first)

    def _open(
        self,
        reading: _Reading,
        stored: tuple[_Stored, _Stored],
        on_pages: OnPages,
        cursors: ExitStack,
    ) -> Pairing:
        order = _order(self._clients[0], stored[0].collation, stored[1].collation)
        source, destination = (
            (
                _Selected(
                    cursors.enter_context(
                        RawCursor(client, name.database, reading.command(name, time, each, queries))
                    ),
                    queries,
                )
                if each.is_there
                else _Nothing()
            )
            for client, name, time, each, queries in zip(
                self._clients,
                reading.names,
                reading.not_before,
                stored,
                self._filters(reading.names.source),
                strict=True,
            )
        )
        return Pairing(
            source,
            destination,
            self._mode,
            order,
            on_pages,
            self._tuning,
            reading.first_page,
        )

    def _list(self, names: NamespacePair) -> tuple[_Stored, _Stored]:
        """Return the properties of both collections, from the cache if they were listed before.

        Cached properties can be out of date: the comparison may then report differences that the next generation does
        not find any more.
        """
        found = self._listed.get(names)
        if found is None:
            calls = (partial(_stored, *each) for each in zip(self._clients, names, strict=True))
            self._listed[names] = found = together(*calls)
        return found

    def _filters(self, name: Namespace) -> tuple[_Queries, _Queries]:
        """Return the queries that select a collection's documents: for the source, and for the destination.

        `name` is the name of the collection on the source.
        """
        common = {} if self._filter is None else {"the filter of the check": self._filter}
        selected = self._source_filters.of(name)
        return common if selected is None else {**common, name_of_query(name): selected}, common

    def _mismatch(self, names: NamespacePair, found: Unequal) -> DocumentMismatch:
        fields: tuple[FieldDifference, ...] = ()
        difference = Difference.CONTENT
        if found.destination is None:
            difference = Difference.MISSING
        elif found.source is None:
            difference = Difference.EXTRA
        else:
            fields = differences(found.source, found.destination, self._mode)
        return DocumentMismatch(names.source, found.key, difference, fields, names.renamed_to)


class _Stored(NamedTuple):
    """The properties of a collection that determine how it is read."""

    is_there: bool
    collation: Document | None = None
    clustered: bool = False


def _stored(client: Client, name: Namespace) -> _Stored:
    for row in list_raw(client, name.database, {"name": name.collection}):
        if row["type"] == Kind.COLLECTION.value:
            options = row["options"]
            return _Stored(True, options.get("collation"), bool(options.get("clusteredIndex")))
    return _Stored(False)


def _order(client: Client, source: Document | None, destination: Document | None) -> Order:
    if source != destination:
        return any_order
    return simple_order if source is None else CollatedOrder(client, source)


class _Selected:
    """The documents of a cursor that the server selects by queries."""

    def __init__(self, cursor: RawCursor, queries: _Queries) -> None:
        self._cursor = cursor
        self._queries = queries

    def read(self, size: int) -> Page | None:
        """Read a page as `RawCursor.read` does. Raises OperationError DocumentFilterFailed, and the driver's errors."""
        with judging_as(self._queries):
            return self._cursor.read(size)


class _Nothing:
    """A substitute for the cursor of a namespace that does not exist or is a view: it has no documents."""

    def read(self, size: int) -> Page | None:
        return None


class _Reading(NamedTuple):
    """A read of one portion from both clusters, each at or after its cluster time in `not_before`."""

    names: NamespacePair
    portion: Portion
    not_before: NotBefore
    # The number of documents in the first page; None if the size of the documents is unknown.
    first_page: int | None = None
    # The key up to which all documents of the portion are compared; None before the first such key.
    aligned: bytes | None = None
    # The size of the parts, None if the portion is read as a whole; and the upper bound of the part that is read now,
    # None if this part is the last one.
    part: Part | None = None
    end: bytes | None = None

    def fitting(self, stored: tuple[_Stored, _Stored]) -> _Reading:
        """Return this reading; a range is replaced if both collections exist and their collations differ.

        The bounds of the range would then select different documents on the two clusters, or none. So the first range,
        which has no lower bound, becomes the whole collection, and each other range becomes empty.
        """
        source, destination = stored
        same = source.collation == destination.collation or not all(
            each.is_there for each in stored
        )
        if same or isinstance(self.portion, Keys):
            return self
        return self._replace(portion=Keys(()) if self.portion.lower else Range())

    def after(self, key: bytes | None) -> _Reading:
        """Return the reading that remains after all documents up to `key` are compared.

        The document with this key is read again, because the lower bound of a range is inclusive. Return this reading
        unchanged if `key` is None (unknown) or MaxKey, or if the portion is a set of single `_id` values, which are all
        read again.
        """
        if key is None or key == LAST or isinstance(self.portion, Keys):
            return self
        return self._replace(aligned=key)

    def in_smaller_parts(self, page: int) -> _Reading:
        """Return the reading with which to continue after a timeout: in parts, or in smaller parts if possible.

        A portion of single keys stays unchanged. `page` is the size of the first parts, in documents, unless
        `first_page` is set.
        """
        if isinstance(self.portion, Keys):
            return self
        return self._replace(part=part_after_timeout(self.part, self.first_page or page))

    def after_part(self) -> _Reading:
        """Return the reading that remains after a part, which must not be the last one."""
        assert self.part is not None
        return self._replace(aligned=self.end, part=self.part.larger(), end=None)

    @property
    def left(self) -> Portion:
        """Return the range that is left to read: in the current part, or in the whole portion if it has no parts.

        A portion of single keys is returned whole.
        """
        if isinstance(self.portion, Keys):
            return self.portion
        lower, upper = self.aligned or self.portion.lower, self.end or self.portion.upper
        return Range(lower, upper)

    @property
    def leaves_out_last(self) -> bool:
        """Return whether a second read must look for a document whose `_id` is MaxKey (`Range.leaves_out_last`)."""
        return isinstance(self.left, Range) and self.left.leaves_out_last

    def command(
        self,
        name: Namespace,
        not_before: Timestamp | None,
        stored: _Stored,
        queries: _Queries,
    ) -> dict[str, Any]:
        concern: dict[str, Any] = {"level": "majority"}
        if not_before is not None:
            concern["afterClusterTime"] = not_before
        filters, ends, left = [*queries.values()], {}, self.left
        if isinstance(left, Range):
            ends = left.bounds
        else:
            filters.append(among(left.keys))
            if stored.clustered and not stored.collation:
                filters.extend(bounds(left.keys))
        return {
            "find": name.collection,
            "filter": {"$and": filters} if filters else {},
            "sort": _BY_ID,
            "hint": _BY_ID,
            **ends,
            "noCursorTimeout": True,
            "readConcern": concern,
            "comment": _COMMENT,
        }
