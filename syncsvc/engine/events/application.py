"""Starts the threads of change event application, which read and apply events, and keeps position and lag current."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Collection

from bson.timestamp import Timestamp

from syncsvc.engine.events.event_source import EventSource
from syncsvc.engine.events.lanes import Lane, Room
from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.events.tail import Tail
from syncsvc.engine.events.unreported import Listing
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.frontier import Frontier
from syncsvc.engine.run.points import Point
from verifier.cluster.note import append_note
from verifier.cluster.times import Position
from verifier.compare.feed import Feed
from verifier.runtime.tasks import SLOW_POLL, Cancelled, StopToken, TaskGroup, wait_until
from verifier.runtime.waits import waiting

# What an operator can do about a long wait for the application of change events.
LOOK_AT_LAG = "lagTimeSeconds in GET /api/v1/progress shows the lag. If the lag does not fall, see the other warnings."
_NOT_REPORTED = "The change stream of the source does not report the newest writes"
_CHECK_MAJORITY = (
    "It reports a write once a majority of the members has it: check with rs.status() on the source, or on its shards, "
    "that the members are up and replicate. No write is lost: the sync continues afterwards."
)
# How long a no-op that is appended to an idle source's oplog may take to arrive in the change stream, in seconds.
_NOTE_TRAVELS = 1.0


class Application:
    """Applies the change events after the saved position, in threads of `group` that the constructor starts.

    Events in the event spool are read first, and then those of the live stream; `spooler` fills the spool. `feed` is
    notified of the changed documents and of DDL events. `resharded` returns the old UUIDs of collections that the
    source has resharded or moved; these are copied again. `listing` returns the collections of a source before MongoDB
    6.0 that are new or whose definitions have changed; None if there are none.
    """

    def __init__(
        self,
        context: RunContext,
        spooler: Spooler,
        feed: Feed,
        group: TaskGroup,
        resharded: Callable[[], Collection[bytes]] = tuple,
        listing: Callable[[], Listing | None] = lambda: None,
    ) -> None:
        position = context.run.record.position
        assert position is not None
        self._context = context
        self._spooler = spooler
        self._feed = feed
        self._stop: StopToken = group.stop
        self._frontier: Frontier[Position] = Frontier(position)
        self._saving = threading.Lock()  # so that the saved position never moves back
        room = Room(context.tuning, group.stop)
        lanes = [
            Lane(context, self._frontier, room, group.stop) for _ in range(context.threads.lanes)
        ]
        reader = EventSource(context, spooler, position, group.stop)
        self._tail = Tail(
            context,
            reader,
            lanes,
            self._frontier,
            feed,
            self.save_position,
            resharded,
            listing,
            group.stop,
        )
        for number, lane in enumerate(lanes):
            group.spawn(f"lane-{number}", lane.run)
        group.spawn("read", self._tail.read)
        group.spawn("tail", self._tail.run)
        group.spawn("position", self._keep_position)
        group.spawn("notes", self._keep_moving)
        group.spawn("stream", self._watch_stream)

    def held_after(self) -> Timestamp | None:
        """Return the cluster time of the source from which the reader of the change stream will continue.

        Return None if the reader is not blocked. It is blocked while the events that it has read wait to be processed.
        """
        return self._tail.held_after

    @property
    def passed(self) -> Position:
        """Return the position up to which this instance has applied all its events."""
        return self._frontier.passed

    @property
    def has_tried_withheld(self) -> bool:
        """Return whether the attempt to build the withheld indexes is over: they are built, or left to the commit."""
        return self._tail.has_tried_withheld

    def wait_until_past(self, time: Timestamp) -> None:
        """Wait until this instance has applied all its events up to `time`, a cluster time of the source.

        Appends a no-op to the source's oplog, because the stream of an idle source would pass that time only with the
        source's own periodic no-op. Raises the driver's errors and `Cancelled`.
        """
        append_note(self._context.source_client, self._stop)
        with waiting("The commit waits until all earlier changes are applied", LOOK_AT_LAG):
            wait_until(lambda: self.passed.is_past(time), self._stop)

    def save_position(self) -> None:
        """Flush the feed. If the position up to which all events are applied has moved, save the new position.

        Then delete the rows of the event spool up to that position, because their events are applied.
        """
        with self._saving:
            position = self._frontier.passed
            # Flush between reading the position and saving it: everything before the position was handed to the feed
            # earlier, and is saved first.
            self._feed.flush()
            if position != self._context.run.record.position:
                self._context.run.update(position=position)
                self._context.observe(Point.POSITION_SAVED, str(position.time))
                self._spooler.forget(position)

    def _keep_position(self) -> None:
        """Save the position periodically until stopped, and then once more. Raises `Cancelled`."""
        while not self._stop.stopped:
            with contextlib.suppress(Cancelled):
                self._stop.sleep(self._context.tuning.position_interval)
            self.save_position()
        self._stop.check()

    def _keep_moving(self) -> None:
        """Append a no-op to the source's oplog periodically, to keep position and lag current while the source is idle.

        The time of the no-op also shows the lag while the reading thread reads nothing, because the lanes are full. The
        first no-op moves the stream past the end of the copy.
        """
        while True:
            now = append_note(self._context.source_client, self._stop)
            # After this pause, a stream that is being read has reached the no-op. Without the pause, the destination
            # would seem to lag behind an idle source.
            self._stop.sleep(_NOTE_TRAVELS)
            self._tail.should_reach(now)
            self._stop.sleep(self._context.tuning.note_interval)

    def _watch_stream(self) -> None:
        """Warn, until stopped, while the change stream does not reach a no-op that was appended to the oplog."""
        while True:
            self._stop.sleep(self._context.tuning.note_interval)
            noted = self._tail.noted
            with waiting(_NOT_REPORTED, _CHECK_MAJORITY):
                while self._tail.is_short_of(noted):
                    self._stop.sleep(SLOW_POLL)
