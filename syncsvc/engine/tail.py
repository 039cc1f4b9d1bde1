"""Reads the source's change events in order and hands them on: data events to lanes, definition events to a barrier.

One thread reads. It also watches how far the destination is behind, and keeps an idle source moving, so that lag and
position stay true there.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.engine.ddl import DefinitionEvents
from syncsvc.engine.frontier import Entry, Frontier
from syncsvc.engine.lanes import Item, Lane, Portion, group_of, lane_of
from syncsvc.engine.observe import Observer, Point
from syncsvc.progress import Progress
from syncsvc.store import Registry, RunStore
from verifier.cluster import failures
from verifier.cluster.changes import ChangeReader, StreamPage
from verifier.cluster.connect import Client
from verifier.cluster.events import DataEvent, DefinitionEvent, parse_event
from verifier.cluster.times import Position, position_at, seconds_between
from verifier.runtime.retry import retry
from verifier.runtime.tasks import Cancelled, StopToken

# How often the applied position is saved, and an idle source is moved on, in seconds.
_SAVE_INTERVAL = 1.0
_NOTE_INTERVAL = 5.0
# What an event costs in memory beside its bytes: a weight for the lanes' channels.
_EVENT_OVERHEAD = 300


def append_note(source: Client, stop: StopToken) -> Timestamp:
    """The source's newest cluster time, after which nothing but newer writes can come.

    Writes a no-op to the oplog, so that the change stream moves past that time at once; a user without that privilege
    gets the newest time as it is, and the stream moves when the source writes its own periodic no-op.
    """

    def note() -> Timestamp:
        try:
            reply = source.admin.command({"appendOplogNote": 1, "data": {"syncsvc": "tick"}})
        except OperationFailure as error:
            if failures.named_kind(error) is not failures.NOT_AUTHORIZED:
                raise
            reply = source.admin.command("ping")
        time: Timestamp = reply["operationTime"]
        return time

    return retry(note, failures.is_transient, stop)


class Tail:
    """The reading end of change event application."""

    def __init__(
        self,
        reader: ChangeReader,
        registry: Registry,
        definitions: DefinitionEvents,
        lanes: Sequence[Lane],
        frontier: Frontier[Position],
        progress: Progress,
        observe: Observer,
        stop: StopToken,
    ) -> None:
        self._reader = reader
        self._registry = registry
        self._definitions = definitions
        self._lanes = lanes
        self._frontier = frontier
        self._progress = progress
        self._observe = observe
        self._stop = stop
        self._entered = frontier.passed

    def run(self) -> None:
        """Read until stopped. Raises what makes the run fail."""
        for page in self._reader.pages():
            self._hand_on(page)
            show_lag(self._frontier, page.source_time, self._progress)

    def _hand_on(self, page: StreamPage) -> None:
        events: list[DataEvent] = []
        for view in page.events:
            event = parse_event(bytes(view))
            if isinstance(event, DataEvent):
                events.append(event)
            else:
                self._barrier(events, event, page.source_time)
                events = []
        self._dispatch(events, page.position, page.source_time)

    def _barrier(
        self, before: list[DataEvent], event: DefinitionEvent, source_time: Timestamp
    ) -> None:
        """Apply a definition event when all before it is applied, and let nothing pass it meanwhile."""
        position = position_at(event.token)
        # The place before the whole page: where exactly these events end in the stream need not be known.
        self._dispatch(before, self._entered, source_time)
        self._frontier.wait_drained(self._stop)
        self._definitions.apply(event)
        self._observe(Point.DEFINITION_APPLIED, str(event.namespace))
        self._enter(position, 0)

    def _dispatch(
        self, events: list[DataEvent], position: Position, source_time: Timestamp
    ) -> None:
        portions: dict[int, list[Item]] = {}
        sizes: dict[int, int] = {}
        count = len(self._lanes)
        for event in events:
            record = self._registry.get(event.collection)
            if record is None:
                # Of a collection that was gone when the collections were listed, or is dropped by now.
                continue
            group = group_of(record, event)
            lane = lane_of(record, group, count)
            portions.setdefault(lane, []).append((record, group, event))
            sizes[lane] = sizes.get(lane, 0) + len(event.body) + _EVENT_OVERHEAD
        entry = self._enter(position, len(portions))
        for lane, portion in portions.items():
            self._lanes[lane].put(Portion(portion, entry, source_time, sizes[lane]))

    def _enter(self, position: Position, parts: int) -> Entry[Position]:
        self._entered = position
        return self._frontier.enter(position, parts)


def keep_position(
    frontier: Frontier[Position], run: RunStore, observe: Observer, stop: StopToken
) -> None:
    """Save the applied position every second until stopped, and then once more."""
    while not stop.stopped:
        with contextlib.suppress(Cancelled):
            stop.sleep(_SAVE_INTERVAL)
        save_position(frontier, run, observe)
    stop.check()


def save_position(frontier: Frontier[Position], run: RunStore, observe: Observer) -> None:
    """Save what is applied by now, where it moved."""
    position = frontier.passed
    if position != run.record.position:
        run.update(position=position)
        observe(Point.POSITION_SAVED, str(position.time))


def show_lag(frontier: Frontier[Position], source_time: Timestamp, progress: Progress) -> None:
    progress.set(lag_seconds=seconds_between(frontier.passed.time, source_time))


def keep_moving(
    source: Client, frontier: Frontier[Position], progress: Progress, stop: StopToken
) -> None:
    """Write a note to the source's oplog every few seconds, until stopped.

    Its time tells the lag, also while the tail waits in front of full lanes and reads nothing.
    """
    while True:
        stop.sleep(_NOTE_INTERVAL)
        show_lag(frontier, append_note(source, stop), progress)
