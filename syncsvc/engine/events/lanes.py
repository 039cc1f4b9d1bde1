"""Applies data events in parallel threads, the lanes. All events of one document go through one lane, in order.

A lane folds the events that wait for it into one outcome (the combined effect) for each document, except events of the
group `IN_ORDER`. Over a slow network, a lane writes to several collections at the same time.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from bson.timestamp import Timestamp

from syncsvc.engine.documents.translate import Outcome, fold
from syncsvc.engine.documents.writing import OutcomeWriter
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.frontier import Entry, Frontier
from syncsvc.engine.run.points import Point
from syncsvc.figures.durations import Operation
from syncsvc.saved.registry import CollectionRecord
from syncsvc.tuning import Tuning
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.times import Position
from verifier.runtime.tasks import Budget, Channel, StopToken, for_each

# The group of the documents in a collection whose events must all stay in order, even those of different documents.
# These events are not folded.
IN_ORDER = object()

# A local name: looking up a member of an Enum class takes ten times as long.
_REREAD = DataKind.REREAD

# An event with its collection and its group (see `dispatch.group_of`).
Item = tuple[CollectionRecord, Hashable, DataEvent]


class Portion(NamedTuple):
    """Events of one page of the change stream, for one lane. A lane may get several portions of a page."""

    events: list[Item]
    # The frontier's entry, which has one part for this portion. The part is finished once the events are applied.
    entry: Entry[Position]
    # The cluster time of the source when the page arrived, so no event is after it.
    source_time: Timestamp
    # The memory that the events take, in bytes.
    size: int


class Room:
    """The memory budgets that all lanes (the threads that apply events) share.

    One budget is for waiting events, the other one for documents that are read again.
    """

    def __init__(self, tuning: Tuning, stop: StopToken) -> None:
        self.events = Budget(tuning.waiting_events_bytes, stop)
        self.rereading = Budget(tuning.reread_bytes, stop)


class Lane:
    """Applies portions of change events to the destination, in one thread."""

    def __init__(
        self, context: RunContext, frontier: Frontier[Position], room: Room, stop: StopToken
    ) -> None:
        self._context = context
        self._writer = OutcomeWriter(context, room.rereading, stop)
        self._frontier = frontier
        self._room = room
        self._stop = stop
        # Practically unlimited, because the budget `room.events` limits the waiting portions.
        self._portions: Channel[Portion] = Channel(1 << 40, stop)

    def put(self, portion: Portion) -> None:
        """Pass a portion to the lane, after waiting until its size fits into the budget that all lanes share."""
        self._room.events.take(portion.size)
        self._portions.put(portion, portion.size)

    def run(self) -> None:
        """Apply the portions of events that `put` passes, until the lane is stopped."""
        while True:
            self._room.events.give_back(self._apply_waiting())

    def _apply_waiting(self) -> int:
        """Wait for a portion, apply it together with other waiting portions, and return their total size in bytes.

        Keeps no reference to the portions, so that their memory is free when `run` returns their size to the budget.
        """
        portions = self._waiting()
        self._apply(portions)
        for each in portions:
            self._frontier.finish(each.entry)
        return sum(each.size for each in portions)

    def _waiting(self) -> list[Portion]:
        first = self._portions.take()
        assert first is not None  # the channel is never closed
        portions, size = [first], first.size
        while size < self._context.tuning.lane_batch_bytes and (
            more := self._portions.take_ready()
        ):
            portions.append(more)
            size += more.size
        return portions

    def _apply(self, portions: Sequence[Portion]) -> None:
        batch = _Batch()
        for portion in portions:
            for record, group, event in portion.events:
                batch.add(record, group, event)
        newest = portions[-1].source_time
        for_each(
            "collections",
            batch.parts,
            lambda part, _: self._write(part, newest),
            self._context.link_factor,
            self._stop,
        )
        events = {part.record.uuid: part.events for part in batch.parts}
        self._context.progress.add(events_applied=sum(events.values()))
        self._context.progress.collections.applied(events)
        self._context.observe(Point.EVENTS_APPLIED, str(newest))

    def _write(self, part: _Part, newest: Timestamp) -> None:
        outcomes = list(part.outcomes.values())
        progress = self._context.progress
        with (
            self._context.pace.working(self._stop),
            progress.stopwatch.timing(Operation.EVENTS_WRITE),
        ):
            refetched = self._writer.write(part.record, outcomes, newest)
        progress.add(documents_written=len(outcomes), documents_refetched=refetched)


@dataclass(slots=True)
class _Part:
    """The effect of a batch on one collection: its outcomes, and the number of its events.

    The key of an outcome is the group of its events, or a unique value for the group `IN_ORDER`. Requests to read a
    document again (`DataKind.REREAD`) do not count as events.
    """

    record: CollectionRecord
    events: int
    outcomes: dict[Hashable, Outcome]


class _Batch:
    """Collects change events by collection, and combines those of each document into one outcome.

    Events of the group `IN_ORDER` are not combined: each has its own outcome.
    """

    def __init__(self) -> None:
        self._parts: dict[bytes, _Part] = {}

    @property
    def parts(self) -> Collection[_Part]:
        return self._parts.values()

    def add(self, record: CollectionRecord, group: Hashable, event: DataEvent) -> None:
        part = self._parts.get(record.uuid)
        if part is None:
            part = self._parts[record.uuid] = _Part(record, 0, {})
        part.events += event.kind is not _REREAD
        outcomes = part.outcomes
        if group is IN_ORDER:
            outcomes[len(outcomes), IN_ORDER] = fold(None, event)
        else:
            outcomes[group] = fold(outcomes.get(group), event)
