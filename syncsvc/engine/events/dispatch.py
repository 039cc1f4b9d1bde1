"""Decides through which lane each event goes, and passes events to the lanes in portions.

All events of one document must go through the same lane, even if they contain its key in different forms: the server
treats some keys with different bytes as equal.
"""

from __future__ import annotations

import zlib
from collections.abc import Hashable, Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.documents.translate import without_contents
from syncsvc.engine.events.event_share import Share
from syncsvc.engine.events.lanes import IN_ORDER, Item, Lane, Portion
from syncsvc.engine.run.frontier import Entry, Frontier
from syncsvc.engine.run.pace import Pace
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.events import DataEvent
from verifier.cluster.keys import canonical_id, depends_on_collation, id_element
from verifier.cluster.times import Position
from verifier.runtime.tasks import StopToken

# How many bytes of memory an event takes in addition to its own bytes.
_EVENT_OVERHEAD = 300


def group_of(record: CollectionRecord, event: DataEvent) -> Hashable:
    """Return the group of an event: a value that is equal for all document keys that the server treats as equal.

    Events of one group must stay in order. They may be combined, except those of the group IN_ORDER. All documents of a
    capped collection are in the group IN_ORDER, because the order of inserts must be kept. In a collection with a
    collation, a document is in the group IN_ORDER if the collation may treat its `_id` as equal to another `_id`.
    """
    definition = record.definition
    if definition.capped:
        return IN_ORDER
    if definition.collated and depends_on_collation(id_element(event.key)):
        return IN_ORDER
    return canonical_id(event.key)


def lane_of(record: CollectionRecord, group: Hashable, lanes: int) -> int:
    """Return the index of the lane for a group, from 0 to `lanes` - 1.

    After a restart, the index may differ, which is harmless.
    """
    if group is IN_ORDER:
        return zlib.crc32(record.uuid) % lanes
    return hash((record.uuid, group)) % lanes


class Dispatcher:
    """Sorts data events into portions for the lanes. Only one thread may use it: the one that runs `Tail.run`.

    A portion that exceeds `portion_bytes`, or has as many events as `pace` allows, is passed to its lane before the
    rest of the page is sorted. So lanes begin their work early, and portions stay small. Before a portion is passed,
    the dispatcher waits until `pace` admits its events. Events outside the `share` of this process are skipped: other
    instances apply them. Documents of collections that `filters` name are always read again from the source.
    """

    def __init__(
        self,
        lanes: Sequence[Lane],
        frontier: Frontier[Position],
        portion_bytes: int,
        pace: Pace,
        stop: StopToken,
        share: Share,
        filters: DocumentFilters,
    ) -> None:
        self._lanes = lanes
        self._frontier = frontier
        # None if all events belong to this process.
        self._share = share if share.parts > 1 else None
        self._filters = filters
        self._portion_bytes = portion_bytes
        self._pace = pace
        self._stop = stop
        self._entered = frontier.passed
        self._entry: Entry[Position] | None = None
        self._events: list[list[Item]] = [[] for _ in lanes]
        self._sizes = [0 for _ in lanes]
        # The number of events to pass to a lane at once. Updated only after a portion and at the end of a page, because
        # an update for every event would be slow.
        self._portion_events = pace.event_portion()

    def add(self, record: CollectionRecord, event: DataEvent, source_time: Timestamp) -> None:
        if record.source_name in self._filters:
            # Only the source can decide whether the document is selected.
            event = without_contents(event)
        group = group_of(record, event)
        if self._share is not None and not self._share.has(
            record.uuid, None if group is IN_ORDER else group
        ):
            return
        lane = lane_of(record, group, len(self._lanes))
        events = self._events[lane]
        events.append((record, group, event))
        self._sizes[lane] += len(event.body) + len(event.key) + _EVENT_OVERHEAD
        if self._sizes[lane] > self._portion_bytes or len(events) >= self._portion_events:
            self._hand_on(lane, source_time)

    def end(self, position: Position | None, source_time: Timestamp) -> None:
        """Pass incomplete portions to their lanes. Call this at the end of a page, and before a DDL event.

        `position` is the position after the events added so far: the frontier reaches it once these are applied. If
        `position` is None, the frontier stays at the previous position. `source_time` is the cluster time of the source
        when the page was read.
        """
        for lane, events in enumerate(self._events):
            if events:
                self._hand_on(lane, source_time)
        # Update this even while the source is idle, so that a new limit already applies to the next events.
        self._portion_events = self._pace.event_portion()
        self._entered = position or self._entered
        self._frontier.settle(self._open_entry(), self._entered)
        self._entry = None

    def _hand_on(self, lane: int, source_time: Timestamp) -> None:
        self._pace.admit_events(len(self._events[lane]), self._stop)
        # A new limit may have been set while the page was sorted.
        self._portion_events = self._pace.event_portion()
        entry = self._open_entry()
        self._frontier.extend(entry)
        self._lanes[lane].put(Portion(self._events[lane], entry, source_time, self._sizes[lane]))
        self._events[lane], self._sizes[lane] = [], 0

    def _open_entry(self) -> Entry[Position]:
        """Return the frontier's entry that counts the unfinished portions since the last call of `end`.

        Create the entry if there is none. The next call of `end` sets its position in the change stream.
        """
        if self._entry is None:
            self._entry = self._frontier.enter(self._entered, 1)
        return self._entry
