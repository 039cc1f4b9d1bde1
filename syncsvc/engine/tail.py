"""Reads the source's change events in order and hands them on: data events to lanes, definition events to a barrier.

One thread reads. It also tells how far the destination is behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.catalog import Catalog
from syncsvc.engine.ddl import DefinitionEvents
from syncsvc.engine.frontier import Entry, Frontier
from syncsvc.engine.lanes import Item, Lane, Portion, group_of, lane_of
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from verifier.cluster.changes import ChangeReader, StreamPage
from verifier.cluster.events import DataEvent, DefinitionEvent, parse_event
from verifier.cluster.times import Position, position_at, seconds_between
from verifier.runtime.tasks import StopToken

# What an event costs in memory beside its bytes: a weight for the lanes' channels.
_EVENT_OVERHEAD = 300


class Tail:
    """The reading end of change event application."""

    def __init__(
        self,
        parts: Parts,
        reader: ChangeReader,
        lanes: Sequence[Lane],
        frontier: Frontier[Position],
        stop: StopToken,
    ) -> None:
        self._parts = parts
        self._reader = reader
        self._definitions = DefinitionEvents(Catalog(parts.client, parts.writer), parts.registry)
        self._lanes = lanes
        self._frontier = frontier
        self._stop = stop
        self._entered = frontier.passed

    def run(self) -> None:
        """Read until stopped. Raises what makes the run fail."""
        for page in self._reader.pages():
            self._hand_on(page)
            lag = seconds_between(self._frontier.passed.time, page.source_time)
            self._parts.progress.set(lag_seconds=lag)

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
        self._parts.observe(Point.DEFINITION_APPLIED, str(event.namespace))
        self._enter(position, 0)

    def _dispatch(
        self, events: list[DataEvent], position: Position, source_time: Timestamp
    ) -> None:
        portions: dict[int, list[Item]] = {}
        sizes: dict[int, int] = {}
        count = len(self._lanes)
        for event in events:
            record = self._parts.registry.get(event.collection)
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
