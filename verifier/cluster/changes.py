"""Reads the change stream of a whole cluster, with expanded events, as pages of raw events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.rawcursor import Page, RawCursor, resilient_pages
from verifier.cluster.times import Position, position_at
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

# How long the server holds a getMore open on an idle stream; bounds how late a stop is seen. In milliseconds.
_AWAIT_MS = 200
_EVENTS_A_PAGE = 5_000


class StreamPage(NamedTuple):
    """Some events in stream order. `position` is after the last of them, `source_time` the cluster's newest time."""

    events: list[memoryview]
    position: Position
    source_time: Timestamp


def _open(client: Client, position: Position | None, raw_updates: bool) -> RawCursor:
    stage: dict[str, Any] = {
        "allChangesForCluster": True,
        "showExpandedEvents": True,
        # Not public: with it a replica set shows what convertToCapped and cloneCollectionAsCapped copy.
        "showMigrationEvents": True,
    }
    if raw_updates:
        # Not public: the driver's watch() does not pass it on, hence the plain command.
        stage["showRawUpdateDescription"] = True
    if position is not None:
        stage["resumeAfter"] = position.token
    command = {"aggregate": 1, "pipeline": [{"$changeStream": stage}]}
    return RawCursor(client, "admin", command, batch_size=_EVENTS_A_PAGE, await_ms=_AWAIT_MS)


def start_position(client: Client) -> Position:
    """The place in the change stream that is now. Raises the driver's errors."""
    with _open(client, None, raw_updates=False) as cursor:
        page = next(cursor.pages())
    assert page.resume is not None
    return position_at(page.resume)


def offers_raw_updates(client: Client) -> bool:
    """Whether the cluster's change streams can carry the oplog's own diff of an update."""
    try:
        with _open(client, None, raw_updates=True) as cursor:
            next(cursor.pages())
    except OperationFailure as error:
        if failures.is_transient(error):
            raise
        return False
    return True


class ChangeReader:
    """One change stream, read on from a position and opened again there after failures."""

    def __init__(
        self, client: Client, position: Position, raw_updates: bool, stop: StopToken
    ) -> None:
        self._client = client
        self._position = position
        self._raw_updates = raw_updates
        self._stop = stop

    def pages(self) -> Iterator[StreamPage]:
        """Pages without end, some of them without events. Raises OperationError OplogWindowExceeded."""
        try:
            for page in resilient_pages(self._reopen, self._may_go_on, self._stop):
                yield self._stream_page(page)
        except OperationFailure as error:
            if not failures.is_history_lost(error):
                raise
            since = self._position.time.as_datetime().isoformat()
            raise OperationError(
                failures.OPLOG_WINDOW_EXCEEDED,
                f"The source's oplog no longer reaches back to {since}.",
            ) from error

    def _stream_page(self, page: Page) -> StreamPage:
        assert page.resume is not None and page.time is not None
        self._position = position_at(page.resume)
        return StreamPage(page.documents(), self._position, page.time)

    def _reopen(self) -> RawCursor:
        return _open(self._client, self._position, self._raw_updates)

    def _may_go_on(self, error: BaseException) -> bool:
        if failures.is_history_lost(error):
            # A cursor that fell behind says so with another code than a token that is gone: opening again decides.
            return failures.code_of(error) == failures.CAPPED_POSITION_LOST
        return failures.is_transient(error) or failures.is_cursor_lost(error)
