"""Reads the change events to apply: first those in the event spool, then the live change stream of the source."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from time import monotonic

from bson.timestamp import Timestamp

from syncsvc.engine.events.event_stream import event_stream
from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.saved.spool import Row, joint_of, token_text
from verifier.cluster.changes import ChangeReader, StreamPage
from verifier.cluster.events import token_of
from verifier.cluster.note import append_note
from verifier.cluster.times import Position, position_at
from verifier.runtime.tasks import POLL, StopToken
from verifier.runtime.waits import waiting

# How long a cluster time that was read from the source counts as current while spooled events are read, in seconds.
_TIME_HOLDS = 1.0
_SPOOLING = (
    "Change events are applied once they are saved in the event spool. If eventSpool in GET /api/v1/progress does not "
    "change, see the other warnings."
)


class EventSource:
    """Reads all change events after `position`, from the spool and the live stream. Only one thread may use it."""

    def __init__(
        self, context: RunContext, spooler: Spooler, position: Position, stop: StopToken
    ) -> None:
        self._context = context
        self._spool = context.spool
        self._spooler = spooler
        self._position = position
        self._stream = event_stream(context, stop)
        self._stop = stop
        # The newest known time of the source, and when it was read (monotonic clock).
        self._now = position.time
        self._read_at: float | None = None

    def pages(self) -> Iterator[StreamPage]:
        """Yield the pages of change events in their order, without end. Some pages have no events.

        Raises OperationError, such as OplogWindowExceeded, EventTooLarge or EventSpoolDamaged, the driver's errors that
        are not temporary, and `Cancelled`.
        """
        while True:
            yield from self._spooled()
            yield from self._live()

    def _spooled(self) -> Iterator[StreamPage]:
        """Yield the events in the spool, until spooling has ended and all spooled events are read."""
        while True:
            # Check the spooler before reading a row: once the spooler has ended, it adds no row.
            ended = not self._spooler.is_active
            row = self._spool.after(self._position)
            if row is not None:
                events = self._spool.read(row)
                yield self._advanced(StreamPage(self._new(row, events), row.end, self._time(row)))
                self._context.observe(Point.SPOOL_READ, str(row.number))
            elif ended:
                return
            else:
                self._wait_for_spooler()

    def _wait_for_spooler(self) -> None:
        """Ask the spooler to end once it has caught up; wait until it has ended or has saved more events."""
        with waiting(
            "No change events are applied until more are saved in the event spool", _SPOOLING
        ):
            while self._spooler.is_active and self._spool.after(self._position) is None:
                # Repeat the request, because a spooler that is just starting forgets earlier requests.
                self._spooler.end_soon()
                self._stop.sleep(POLL)

    def _live(self) -> Iterator[StreamPage]:
        """Yield the events of the live stream, until events are spooled again."""
        for page in ChangeReader(self._stream, self._position, self._stop).pages():
            yield self._advanced(page)
            if self._spooler.is_active:
                return

    def _advanced(self, page: StreamPage) -> StreamPage:
        self._position = page.position
        return page

    def _new(self, row: Row, events: Sequence[memoryview]) -> list[memoryview]:
        """Return the events after the current position. `events` are all events saved in `row` of the spool."""
        at = token_text(self._position)
        old = 0
        if joint_of(self._position) != row.joint:
            while old < len(events) and token_text(position_at(token_of(events[old]))) <= at:
                old += 1
        return list(events[old:])

    def _time(self, row: Row) -> Timestamp:
        """Return the current cluster time of the source, or the time at the end of `row` if that is later.

        A row of the spool holds successive events. The current time was read at most a second ago. The lag is measured
        against the returned time, not against the time at which the events were spooled.
        """
        if self._read_at is None or monotonic() - self._read_at > _TIME_HOLDS:
            self._now = append_note(self._context.source_client, self._stop)
            self._read_at = monotonic()
        return max(self._now, row.end.time)
