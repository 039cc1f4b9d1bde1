"""Saves change events in the event spool while the source's oplog may be too short for them.

The spool consists of rows, each of which holds successive events. Spooling begins at the saved position, or at the end
of the rows that are already saved. Spooling keeps pace with the source, independently of the copy, index
builds and change event application. Spooling ends when change event application has read all rows and the spooler has
caught up with the source. Change event application then continues with the live stream.

Rows are deleted once the saved position is at or after their end. After that, the saved position is in the first row
that is left. If no row is left, the oplog must still hold the event after the saved position.
"""

from __future__ import annotations

import threading
from time import monotonic

from syncsvc.engine.events.event_stream import event_stream
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import EVENT_SPOOL_FULL
from syncsvc.figures import spooling
from syncsvc.figures.progress import SpoolFigures, WarningKind
from syncsvc.options import EventSpool
from syncsvc.saved.spool import token_text
from verifier.cluster import failures
from verifier.cluster.changes import ChangeReader, ChangeStream, StreamPage
from verifier.cluster.events import Fragment, parse_event
from verifier.cluster.times import Position, seconds_between
from verifier.compare.amounts import Rate
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import SLOW_POLL, StopToken

# The spooler has caught up if it is at most this far behind the source, in seconds. An idle shard advances the stream
# only every ten seconds.
_MOST_LAG = 10


class _Batch:
    """The successive events of the next row of the spool, before the row is saved.

    `since` is the position before these events, `end` the position after them, and `size` their size in bytes.
    """

    def __init__(self, since: Position) -> None:
        self.since = self.end = since
        self.events: list[memoryview] = []
        self.size = 0
        self.began_at = monotonic()
        # False if the last event is a fragment of a large event and more of its fragments follow. A row must not end
        # there: a stream resumes at a fragment only with the same options.
        self.is_complete = True

    def add(self, page: StreamPage) -> None:
        self.events += page.events
        self.size += sum(map(len, page.events))
        self.end = page.position
        if page.events:
            newest = parse_event(bytes(page.events[-1]))
            self.is_complete = not isinstance(newest, Fragment) or newest.last


class Spooler:
    """Saves change events in the event spool: `run` does this, in a thread of its own.

    Other threads may call the other methods.
    """

    def __init__(self, context: RunContext) -> None:
        self._context = context
        self._spool = context.spool
        option = context.run.record.options.event_spool
        self.is_allowed = option is not EventSpool.NEVER
        self._active = threading.Event()
        if option is EventSpool.ALWAYS:
            self._active.set()
        self._ending = threading.Event()
        self._was_full = False
        self._rate = Rate()

    @property
    def is_active(self) -> bool:
        """Return whether `run` saves events in the spool, or is about to begin."""
        return self._active.is_set()

    def start(self) -> None:
        """Make `run` save change events in the spool."""
        self._active.set()

    def finish(self) -> None:
        """Make `is_active` False until spooling starts again. Does not interrupt `run` while it saves events."""
        self._active.clear()

    def judge(self, left: float, rest: float | None) -> None:
        """Start spooling if the oplog may be too short and the start option `eventSpool` allows spooling.

        `left` is the number of seconds until the oplog drops events that the sync needs. `rest` is the number of
        seconds for which the sync still needs these events; None if unknown.
        """
        if self.is_allowed and spooling.is_needed(left, rest):
            self.start()

    def end_soon(self) -> None:
        """Make `run` stop spooling once it has caught up with the source.

        `run` forgets the request if it is only just beginning to spool, so repeat the call until `is_active` is False.
        """
        self._ending.set()

    def load(self, position: Position) -> None:
        """Load the saved rows of the spool; if there are any, start spooling, because their events are not applied yet.

        All events up to `position` are applied. The figures of the rows replace those that an earlier engine has
        published. Raises OperationError EventSpoolDamaged if rows after `position` are missing, and the driver's
        errors.
        """
        self._spool.load(position)
        if self._spool.end is not None:
            self.start()
        self._publish()

    def forget(self, position: Position) -> None:
        """Delete the spool's rows that end at or before `position`, which must be saved. Raises the driver's errors."""
        if self._spool.begin is not None:
            self._spool.forget(position)
            self._context.observe(Point.SPOOL_FORGOTTEN, str(position.time))
            self._publish()

    def clear(self) -> None:
        """Mark the spooler as inactive, and delete all rows of the spool.

        Call this when all events are applied and `run` has ended. Raises the driver's errors.
        """
        self.finish()
        self._spool.clear()
        self._publish()

    def run(self, stop: StopToken) -> None:
        """Save change events in the spool while `is_active`, until stopped or until all events are applied.

        Raises OperationError, such as EventSpoolFull or OplogWindowExceeded, the driver's errors, and `Cancelled` when
        stopped.
        """
        run = self._context.run
        while not run.record.phase.applied:
            # Read the end of the spool before the position: rows are deleted once the saved position has passed them.
            end, position = self._spool.end, run.record.position
            if self.is_active and position is not None:
                self._run_from(max(end or position, position, key=token_text), stop)
            stop.sleep(SLOW_POLL)

    def _run_from(self, position: Position, stop: StopToken) -> None:
        self._ending.clear()
        self._context.observe(Point.SPOOLING_BEGAN, str(position.time))
        stream = event_stream(self._context, stop)
        try:
            self._wait_for_room(stream, position, stop)
            self._spool_from(position, stream, stop)
        except OperationError as error:
            if self._was_full and error.kind == failures.OPLOG_WINDOW_EXCEEDED:
                raise OperationError(EVENT_SPOOL_FULL, error.description) from error
            raise
        self._publish()
        self._context.observe(Point.SPOOLING_ENDED, "")

    def _spool_from(self, position: Position, stream: ChangeStream, stop: StopToken) -> None:
        batch = _Batch(position)
        for page in ChangeReader(stream, position, stop).pages():
            batch.add(page)
            self._was_full = False
            ends = batch.is_complete and self._ending.is_set() and _has_caught_up(page)
            if ends or self._is_due(batch):
                self._save(batch)
                batch = _Batch(batch.end)
            if ends:
                self.finish()
                return
            self._wait_for_room(stream, batch.since, stop)

    def _is_due(self, batch: _Batch) -> bool:
        tuning = self._context.tuning
        waited = monotonic() - batch.began_at
        return batch.is_complete and (
            batch.size >= tuning.spool_row_bytes or waited >= tuning.spool_interval
        )

    def _save(self, batch: _Batch) -> None:
        if batch.end == batch.since:
            return
        before = self._spool.size
        self._spool.append(batch.since, batch.end, batch.events)
        self._context.progress.end_warning(WarningKind.PAUSE_UNSPOOLED)
        self._rate.add(max(0, self._spool.size - before))
        self._context.progress.add(events_spooled=len(batch.events))
        self._publish()
        self._context.observe(Point.EVENTS_SPOOLED, str(batch.end.time))

    def _wait_for_room(self, stream: ChangeStream, position: Position, stop: StopToken) -> None:
        """Wait while the spool is full.

        Raises OperationError OplogWindowExceeded if the oplog drops the events after `position` during the wait.
        """
        looked_at = monotonic()
        while self._spool.size >= self._context.tuning.spool_limit:
            self._was_full = True
            self._publish()
            if monotonic() - looked_at > self._context.tuning.oplog_interval:
                next(ChangeReader(stream, position, stop).pages())
                looked_at = monotonic()
            stop.sleep(SLOW_POLL)

    def _publish(self) -> None:
        """Publish the figures of the spool, and begin or end the warning that it is filling up."""
        progress, spool = self._context.progress, self._spool
        limit, size, speed = self._context.tuning.spool_limit, spool.size, self._rate.per_second
        begin, end = spool.begin, spool.end
        span = 0 if begin is None or end is None else seconds_between(begin, end.time)
        figures = SpoolFigures(self.is_active, size, limit, span, speed)
        progress.set(spool=figures if begin is not None or self.is_active else None)
        warned = WarningKind.SPOOL_FILLING in progress.snapshot.warnings
        text = spooling.warning(size, limit, speed, warned)
        if text is None:
            progress.end_warning(WarningKind.SPOOL_FILLING)
        else:
            progress.warn(WarningKind.SPOOL_FILLING, text)


def _has_caught_up(page: StreamPage) -> bool:
    return seconds_between(page.position.time, page.source_time) <= _MOST_LAG
