"""Decides through which lane each event goes, and passes events to the lanes in portions.

All events of one document must go through the same lane. Which keys belong to one document is the server's decision:
keys with different bytes can be equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.events.event_share import Share
from syncsvc.engine.events.lanes import IN_ORDER, Item, Lane, Portion
from syncsvc.engine.run.frontier import Entry, Frontier
from syncsvc.engine.run.pace import Pace
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.events import DataEvent
from verifier.cluster.keys import canonical, depends_on_collation, id_element
from verifier.cluster.times import Position
from verifier.runtime.tasks import StopToken

# The memory that an event takes in addition to its bytes.
_EVENT_OVERHEAD = 300


def group_of(record: CollectionRecord, event: DataEvent) -> Hashable:
    """Return the group of an event: a value that is equal for all document keys that the server treats as equal.

    Events of one group must stay in order, and may be folded. The group IN_ORDER is shared by all documents of a capped
    collection, because the order of inserts must be kept, and by all documents of a collection whose keys a collation
    may treat as equal.
    """
    definition = record.definition
    if definition.capped:
        return IN_ORDER
    element = id_element(event.key)
    if definition.collated and depends_on_collation(element):
        return IN_ORDER
    return canonical(event.key, element)


def lane_of(record: CollectionRecord, group: Hashable, lanes: int) -> int:
    """Return the index of the lane for a group, below `lanes`. It may differ after a restart, which is harmless."""
    if group is IN_ORDER:
        return zlib.crc32(record.uuid) % lanes
    return hash((record.uuid, group)) % lanes


class Dispatcher:
    """Sorts data events into portions for the lanes. Used only by the thread that reads the events.

    A portion is passed to its lane when it exceeds `portion_bytes`, so lanes begin before the page is completely read,
    and portions stay small. Before, it waits until `pace` admits its events. Events outside the `share` of this process
    are skipped: other instances apply them.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        frontier: Frontier[Position],
        portion_bytes: int,
        pace: Pace,
        stop: StopToken,
        share: Share = Share(),
    ) -> None:
        self._lanes = lanes
        self._frontier = frontier
        self._share = share
        self._portion_bytes = portion_bytes
        self._pace = pace
        self._stop = stop
        self._entered = frontier.passed
        self._entry: Entry[Position] | None = None
        self._events: list[list[Item]] = [[] for _ in lanes]
        self._sizes = [0 for _ in lanes]

    def add(self, record: CollectionRecord, event: DataEvent, source_time: Timestamp) -> None:
        group = group_of(record, event)
        if not self._share.has(record.uuid, None if group is IN_ORDER else group):
            return
        lane = lane_of(record, group, len(self._lanes))
        self._events[lane].append((record, group, event))
        self._sizes[lane] += len(event.body) + len(event.key) + _EVENT_OVERHEAD
        full = self._sizes[lane] > self._portion_bytes
        if full or len(self._events[lane]) >= self._pace.event_portion():
            self._hand_on(lane, source_time)

    def end(self, position: Position | None, source_time: Timestamp) -> None:
        """Pass on the events that wait for a full portion: at the end of a page, and before a DDL event.

        `position` is the position after these events; the frontier reaches it once they are applied. If it is None, the
        frontier stays at the previous position.
        """
        for lane, events in enumerate(self._events):
            if events:
                self._hand_on(lane, source_time)
        self._entered = position or self._entered
        self._frontier.settle(self._open_entry(), self._entered)
        self._entry = None

    def _hand_on(self, lane: int, source_time: Timestamp) -> None:
        self._pace.admit_events(len(self._events[lane]), self._stop)
        entry = self._open_entry()
        self._frontier.extend(entry)
        self._lanes[lane].put(Portion(self._events[lane], entry, source_time, self._sizes[lane]))
        self._events[lane], self._sizes[lane] = [], 0

    def _open_entry(self) -> Entry[Position]:
        """Return the frontier's entry for the events that are being added; create it if there is none.

        All portions that are handed on before the next call of `end` belong to this entry. That call sets its position.
        """
        if self._entry is None:
            self._entry = self._frontier.enter(self._entered, 1)
        return self._entry
