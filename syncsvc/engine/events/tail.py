"""Reads the source's change events in order, and passes data events to lanes and DDL events to a barrier.

One thread reads pages, and another one passes their events on. So the next page is on its way while a page is
processed. The second thread also publishes how far the destination lags behind.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.events.barrier import Barrier
from syncsvc.engine.events.ddl import DefinitionEvents, has_consequences
from syncsvc.engine.events.dispatch import Dispatcher
from syncsvc.engine.events.event_share import share_of
from syncsvc.engine.events.event_source import EventSource
from syncsvc.engine.events.lanes import Lane
from syncsvc.engine.events.old_source import OldSource
from syncsvc.engine.events.repair_work import RepairWork
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.frontier import Frontier
from syncsvc.engine.run.points import Point
from syncsvc.figures.durations import Operation, timed
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.changes import StreamPage
from verifier.cluster.events import (
    DataEvent,
    DataKind,
    DefinitionEvent,
    Fragment,
    join_fragments,
    parse_event,
    token_of,
)
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position, position_at, seconds_between
from verifier.compare.feed import Feed
from verifier.runtime.tasks import Channel, StopToken
from verifier.runtime.waits import waiting

_SLOW = (
    "You need not do anything. If the wait does not end, see the other warnings, and check the load of "
    "the destination."
)


class Tail:
    """Passes the data events of `reader` to `lanes` and DDL events to the barrier: `read` and `run`, in a thread each.

    `frontier` records the position up to which the lanes have applied all events. `feed` is notified of the changed
    documents and of DDL events. `save_position` saves the applied position before each DDL event.
    """

    def __init__(
        self,
        context: RunContext,
        reader: EventSource,
        lanes: Sequence[Lane],
        frontier: Frontier[Position],
        feed: Feed,
        save_position: Callable[[], None],
        stop: StopToken,
    ) -> None:
        self._context = context
        self._reader = reader
        self._definitions = DefinitionEvents(context, stop)
        self._old_source = OldSource(context, stop)
        record = context.run.record
        share = share_of(record.instance, record.instances)
        portion = context.tuning.portion_bytes
        self._dispatcher = Dispatcher(lanes, frontier, portion, context.pace, stop, share)
        self._repair_work = RepairWork(context, self._dispatcher, frontier, stop)
        self._shared_barrier = Barrier(context.run, context.registry, context.instances, stop)
        self._frontier = frontier
        self._feed = feed
        self._save_position = save_position
        self._fragments: list[Fragment] = []
        self._stop = stop
        # One page waits here, and another one in the thread that reads.
        self._pages: Channel[StreamPage] = Channel(1, stop)
        self._held_after: Timestamp | None = None

    @property
    def held_after(self) -> Timestamp | None:
        """Return the cluster time from which the stream must still be read, while a page waits to be passed on.

        Return None while the stream is being read.
        """
        return self._held_after

    def read(self) -> None:
        """Read pages for `run` until stopped. Raises the error that the run fails with."""
        stopwatch = self._context.progress.stopwatch
        for page, seconds in timed(self._reader.pages()):
            if page.events:  # otherwise it waited for events
                stopwatch.note(Operation.EVENTS_READ, seconds)
            self._held_after = page.position.time
            self._pages.put(page, 1)
            self._held_after = None

    def run(self) -> None:
        """Pass on the events that `read` reads until stopped, and publish the lag after each page.

        Raises the error that the run fails with.
        """
        for page in self._pages:
            self._feed.page_begins(page.source_time)
            self._hand_on(page)
            self._repair_work.run_pending(page.source_time)
            lag = seconds_between(self._frontier.passed.time, page.source_time)
            self._context.progress.set_lag(lag)

    def _hand_on(self, page: StreamPage) -> None:
        before: bytes | None = None
        changed: dict[Namespace, bytes] = {}
        read = 0
        for view in page.events:
            raw = bytes(view)
            event = parse_event(raw)
            if isinstance(event, Fragment):
                self._fragments.append(event)
                if not event.last:
                    continue
                raw = join_fragments(self._fragments)
                self._fragments.clear()
                event = parse_event(raw)
            if isinstance(event, DataEvent):
                read += 1
                record = self._record_of(event)
                if record is not None:
                    if not _may_be_expired(event, record):
                        changed[record.source_name] = raw
                    self._feed.changed(record.source_storage, event.key)
                    self._dispatcher.add(record, event, page.source_time)
            elif isinstance(event, DefinitionEvent):
                self._barrier(before, event, page.source_time)
                if has_consequences(event):
                    selected = filter(self._context.selection.selects, event.owners)
                    changed.update(dict.fromkeys(selected, raw))
            before = raw
        if changed:
            times = {name: position_at(token_of(raw)).time for name, raw in changed.items()}
            self._feed.written(times)
        self._feed.read_until = page.position.time
        self._context.progress.add(events_read=read)
        self._feed.page_ends(page.position, page.source_time)
        # A position among the fragments of an event is not valid as a resume point.
        self._dispatcher.end(None if self._fragments else page.position, page.source_time)

    def _record_of(self, event: DataEvent) -> CollectionRecord | None:
        """Return the record of an event's collection; None if it is not synced.

        It is not synced if the filter excludes it, if it was dropped before the collections were listed, or if a DDL
        event has dropped it since. Raises OperationError UnsupportedChange; see `OldSource`.
        """
        if event.namespace is None:
            return self._context.registry.get(event.collection)
        return self._old_source.record_of(event.namespace)

    def _barrier(
        self, before: bytes | None, event: DefinitionEvent, source_time: Timestamp
    ) -> None:
        """Apply a DDL event once all events before it are applied; the events after it wait until this returns.

        `before` is the preceding event of the same page, or None. The position between the two events is saved before
        the DDL event is applied. Otherwise, a restart could apply a write from before the DDL event to a collection
        that got its name only with the DDL event.
        """
        self._dispatcher.end(None if before is None else position_at(token_of(before)), source_time)
        with waiting(
            f"{event.operation} on {event.namespace} waits until all changes before it are applied",
            _SLOW,
        ):
            self._frontier.wait_drained(self._stop)
        self._save_position()
        self._feed.defined(event)
        self._context.observe(Point.BARRIER_REACHED, str(event.namespace))
        self._shared_barrier.take(event.token, lambda: self._apply(event))
        self._context.progress.add(definitions_applied=1)
        self._context.observe(Point.DEFINITION_APPLIED, str(event.namespace))
        self._dispatcher.end(position_at(event.token), source_time)

    def _apply(self, event: DefinitionEvent) -> None:
        if self._context.source_facts.reports_ddl:
            self._definitions.apply(event)
        else:
            self._old_source.refuse(event)


def _may_be_expired(event: DataEvent, record: CollectionRecord) -> bool:
    """Return whether the TTL monitor of the source may have caused the event; its deletes look like those of users."""
    return event.kind is DataKind.DELETE and record.definition.expires
