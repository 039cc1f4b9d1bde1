"""Reads the results of a find, an aggregation or a listing page by page, as raw bytes.

None of the driver's own cursors offers all of this: the resume token of each page, the cluster time of each reply, and
the raw bytes of the documents.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from itertools import cycle, islice
from struct import Struct
from types import TracebackType
from typing import Any, NamedTuple, Self

import pymongo
from bson.timestamp import Timestamp
from pymongo.client_session import ClientSession
from pymongo.errors import OperationFailure, PyMongoError
from pymongo.read_preferences import ReadPreference

from verifier.cluster import rawbson
from verifier.cluster.block import Block
from verifier.cluster.calls import kept
from verifier.cluster.connect import Client, replacing_connections
from verifier.cluster.pinning import Pin, ServerMode
from verifier.runtime.retry import Classifier, retry
from verifier.runtime.tasks import StopToken

# The usual size of a page, in bytes. Reading is as fast as with pages of 16 MB, and needs less memory.
PAGE_BYTES = 3 << 20
# The size of the largest page: servers cut pages at this size, in bytes.
LARGEST_PAGE = 16 << 20
# The number of documents in the first page, if their size is unknown.
FIRST_PAGE = 1000
# The maximum number of attempts to free a cursor on its server, and the timeout of each attempt, in seconds.
_MOST_KILLS = 10
_KILL_SECONDS = 2.0
_INT64 = Struct("<q")
_UNSIGNED_PAIR = Struct("<II")

# The most documents that `next_page_size` requests for a page by default. The page is written with one command, and
# servers accept at most 100,000 documents per write command.
_MOST_DOCUMENTS = 50_000


class Page(NamedTuple):
    """One reply of a cursor, as raw bytes."""

    raw: bytes
    # The offset in `raw` of the array of documents.
    array: int
    # The resume token after the last document; None if the reply has none.
    resume: dict[str, Any] | None
    # The cluster time of the reply (its field `operationTime`); None if the reply has none.
    time: Timestamp | None

    def documents(self) -> list[memoryview]:
        return rawbson.array_documents(self.raw, self.array)

    def block(self) -> Block:
        return Block.of_array(memoryview(self.raw)[self.array : self.array + self.size])

    @property
    def size(self) -> int:
        """Return the size of the array of documents in bytes."""
        return int(rawbson.int32_at(self.raw, self.array)[0])

    def same_documents(self, other: Page) -> bool:
        """Return whether the documents of both pages have the same bytes, in the same order."""
        mine = memoryview(self.raw)[self.array : self.array + self.size]
        # This compares at memory speed and copies nothing, unlike a comparison of views or slices. An array begins with
        # its length, so a longer array does not match.
        return other.raw.startswith(mine, other.array)

    def count(self, expected: int) -> int:
        """Return the number of documents in the page.

        This is fast if the number is `expected`; otherwise, each document is visited.
        """
        if expected > 0:
            header = b"\x03%d\0" % (expected - 1)
            end = self.array + self.size - 1
            last = self.raw.rfind(header, self.array, end)
            start = last + len(header)
            # A nested document cannot end where the last document ends.
            if (
                last >= 0
                and start + 4 <= end
                and start + rawbson.int32_at(self.raw, start)[0] == end
            ):
                return expected
        return len(self.documents())


class RawCursor:
    """A command that opens a cursor, and its getMores, on one server and in one session.

    Use it as a context manager: the `with` block starts the session, and its end frees the cursor. The first read sends
    the command.

    `pages` requests `first_page` documents for the first page (default: `batch_size` or FIRST_PAGE), and `batch_size`
    documents for each later page. If `batch_size` is None, later pages have about `page_bytes` bytes. A `first_page` of
    0 requires a `batch_size`: the first command then only opens the cursor, and `pages` does not yield its reply.

    `await_ms` returns how long the next getMore of a change stream waits for an event, in milliseconds. Pass a `pin` if
    other commands must run on the same server, or to read from a secondary.
    """

    def __init__(
        self,
        client: Client,
        database: str,
        command: dict[str, Any],
        batch_size: int | None = None,
        await_ms: Callable[[], int] | None = None,
        pin: Pin | None = None,
        page_bytes: int = PAGE_BYTES,
        first_page: int | None = None,
    ) -> None:
        self._database = client.get_database(database)
        self._client = client
        self._command = command
        self._batch_size = batch_size
        self._size = (batch_size or FIRST_PAGE) if first_page is None else first_page
        self._await_ms = await_ms
        self._pin = pin or Pin()
        self._page_bytes = page_bytes
        self._opened = False
        self._cursor_id = 0
        self._collection = ""
        self._session: ClientSession | None = None

    def __enter__(self) -> Self:
        # The session has no causal consistency: the commands themselves specify the read concern that they need.
        self._session = self._client.start_session(causal_consistency=False)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._session is not None
        if self._cursor_id:
            self._kill()
        self._session.end_session()

    def _kill(self) -> None:
        """Free the cursor on its server. Errors of the driver are ignored: servers free unused cursors anyway."""
        # Alternate between two read preferences: the first one waits for a primary that is briefly unavailable, and the
        # second one also finds a server that is no longer the primary.
        preferences = cycle((self._pin.read_preference, ReadPreference.NEAREST))
        for preference in islice(preferences, _MOST_KILLS):
            try:
                # Error texts must name the command that failed before.
                with kept(), pymongo.timeout(_KILL_SECONDS):
                    self._run(
                        {"killCursors": self._collection, "cursors": [self._cursor_id]}, preference
                    )
                return
            except PyMongoError as error:
                # With MaxTimeMSExpired, which counts as a timeout, a server has answered, so it can be asked again.
                if error.timeout and not isinstance(error, OperationFailure):
                    return

    def pages(self) -> Iterator[Page]:
        """Yield every page until the cursor is exhausted; endless for a change stream. Raises the driver's errors."""
        while (page := self.read(self._size)) is not None:
            asked = self._size
            self._size = self._batch_size or next_page_size(page.size, asked, self._page_bytes)
            if asked:
                yield page

    def read(self, size: int) -> Page | None:
        """Return the next page, of at most `size` documents; None after the last page. Raises the driver's errors."""
        self._size = size
        if self._opened and not self._cursor_id:
            return None
        if self._opened:
            # In a block of `pymongo.timeout`, the driver would add a time limit, which servers refuse for getMore.
            # Servers apply the time limit of the first command to all pages.
            with pymongo.timeout(None):
                return self._page(self._run(self._get_more()), b"nextBatch")
        asked: dict[str, Any] = {"batchSize": size}
        if "find" not in self._command:
            asked = {"cursor": asked}
        page = self._page(self._run({**self._command, **asked}), b"firstBatch")
        self._opened = True
        return page

    def _get_more(self) -> dict[str, Any]:
        command: dict[str, Any] = {
            "getMore": self._cursor_id,
            "collection": self._collection,
            "batchSize": self._size,
        }
        if self._await_ms is not None:
            command["maxTimeMS"] = self._await_ms()
        return command

    def _run(self, command: dict[str, Any], read_preference: ServerMode | None = None) -> bytes:
        with self._pin.held(), replacing_connections(self._client):
            reply = self._database.command(
                command,
                read_preference=read_preference or self._pin.read_preference,
                # Servers quote values of documents in their errors, and these need not be valid text.
                codec_options=rawbson.RAW_LENIENT,
                session=self._session,
            )
        return bytes(reply.raw)

    def _page(self, raw: bytes, batch_name: bytes) -> Page:
        array, resume, cluster_time = 0, None, None
        for element in rawbson.elements(raw):
            if element.name == b"cursor":
                array, resume = self._take_cursor(raw, element.start, batch_name)
            elif element.name == b"operationTime":
                increment, seconds = _UNSIGNED_PAIR.unpack_from(raw, element.start)
                cluster_time = Timestamp(seconds, increment)
        return Page(raw, array, resume, cluster_time)

    def _take_cursor(
        self, raw: bytes, at: int, batch_name: bytes
    ) -> tuple[int, dict[str, Any] | None]:
        array, resume = 0, None
        for element in rawbson.elements(raw, at):
            if element.name == batch_name:
                array = element.start
            elif element.name == b"postBatchResumeToken":
                resume = rawbson.decode(raw[element.start : element.end])
            elif element.name == b"id":
                self._cursor_id = _INT64.unpack_from(raw, element.start)[0]
            elif element.name == b"ns":
                name = raw[element.start + 4 : element.end - 1].decode(errors="replace")
                self._collection = name.partition(".")[2]
        return array, resume


def first_page_size(documents: int, size: int, page_bytes: int = PAGE_BYTES) -> int:
    """Return the number of documents to request, so that the first page of a collection has about `page_bytes` bytes.

    `documents` and `size` are estimates for the collection: its number of documents, and their size in bytes. If one of
    them is 0 (unknown), return FIRST_PAGE.
    """
    return next_page_size(size, documents, page_bytes) if documents and size else FIRST_PAGE


def next_page_size(
    size: int, asked: int, page_bytes: int = PAGE_BYTES, most: int = _MOST_DOCUMENTS
) -> int:
    """Return the number of documents to request, at most `most`, so that the next page has about `page_bytes` bytes.

    `asked` documents were requested for the last page, which had `size` bytes. If that page had fewer documents,
    because of the limit of 16 MB or the end of the collection, this function underestimates the average size of a
    document. Then one page is too large, but within the server's own limit.
    """
    average = max(1, size // asked)
    return max(1, min(most, page_bytes // average))


def resilient_pages(
    open_cursor: Callable[[], RawCursor],
    classify: Classifier,
    stop: StopToken,
) -> Iterator[Page]:
    """Yield the pages of a cursor, reopened with `open_cursor` after each failure that `classify` calls temporary.

    After a failure, pages are repeated, unless `open_cursor` begins to read after the last page that was yielded.
    Raises the driver's last error, and `Cancelled` when `stop` is stopped.
    """
    with contextlib.ExitStack() as opened:
        pages: Iterator[Page] | None = None

        def next_page() -> Page | None:
            nonlocal pages
            try:
                if pages is None:
                    pages = opened.enter_context(open_cursor()).pages()
                return next(pages, None)
            except PyMongoError:
                pages = None
                opened.close()
                raise

        while (page := retry(next_page, classify, stop)) is not None:
            stop.check()
            yield page
