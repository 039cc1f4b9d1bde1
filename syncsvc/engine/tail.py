"""Reads the source's change events in order and hands them on: data events to lanes, definition events to a barrier.

One thread reads. It also tells how far the destination is behind.
"""

from __future__ import annotations

from collections.abc import Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.catalog import Catalog
from syncsvc.engine.ddl import DefinitionEvents
from syncsvc.engine.dispatch import Dispatcher
from syncsvc.engine.frontier import Frontier
from syncsvc.engine.lanes import Lane
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from verifier.cluster.changes import ChangeReader, StreamPage
from verifier.cluster.events import DefinitionEvent, parse_event
from verifier.cluster.times import Position, position_at, seconds_between
from verifier.runtime.tasks import StopToken


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
        self._definitions = DefinitionEvents(parts.source, Catalog(parts, stop), parts.registry)
        self._dispatcher = Dispatcher(lanes, frontier)
        self._frontier = frontier
        self._stop = stop

    def run(self) -> None:
        """Read until stopped. Raises what makes the run fail."""
        for page in self._reader.pages():
            self._hand_on(page)
            lag = seconds_between(self._frontier.passed.time, page.source_time)
            self._parts.progress.set_lag(lag)

    def _hand_on(self, page: StreamPage) -> None:
        for view in page.events:
            event = parse_event(bytes(view))
            if isinstance(event, DefinitionEvent):
                self._barrier(event, page.source_time)
                continue
            record = self._parts.registry.get(event.collection)
            # None: of a collection that was gone when the collections were listed, or is dropped by now.
            if record is not None:
                self._dispatcher.add(record, event, page.source_time)
        self._dispatcher.end(page.position, page.source_time)

    def _barrier(self, event: DefinitionEvent, source_time: Timestamp) -> None:
        """Apply a definition event when all before it is applied, and let nothing pass it meanwhile."""
        self._dispatcher.end(None, source_time)
        self._frontier.wait_drained(self._stop)
        self._definitions.apply(event)
        self._parts.observe(Point.DEFINITION_APPLIED, str(event.namespace))
        self._dispatcher.end(position_at(event.token), source_time)
