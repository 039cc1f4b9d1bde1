"""Reads the source's change events in order, and passes data events to lanes and DDL events to a barrier.

One thread reads pages, and another one passes their events on. So the next page is on its way while a page is
processed. The second thread also publishes how far the destination lags behind.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.index_builds import try_withheld
from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.events.barrier import Barrier
from syncsvc.engine.events.ddl import DefinitionEvents, has_consequences
from syncsvc.engine.events.dispatch import Dispatcher
from syncsvc.engine.events.event_share import share_of
from syncsvc.engine.events.event_source import EventSource
from syncsvc.engine.events.lanes import Lane
from syncsvc.engine.events.old_source import named_events
from syncsvc.engine.events.renames import Renames
from syncsvc.engine.events.repair_work import RepairWork
from syncsvc.engine.events.unreported import Listing, Unreported
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.frontier import Frontier
from syncsvc.engine.run.points import Point
from syncsvc.figures.durations import Operation, timed
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.changes import StreamPage
from verifier.cluster.events import (
    DataEvent,
    DefinitionEvent,
    Fragment,
    join_fragments,
    parse_event,
    token_of,
)
from verifier.cluster.namespace_map import shown
from verifier.cluster.times import Position, position_at, seconds_between
from verifier.compare.feed import Feed
from verifier.runtime.tasks import Channel, StopToken
from verifier.runtime.waits import waiting

_SLOW = (
    "You need not do anything. If the wait does not end, see the other warnings, and check the load of "
    "the destination."
)


class Tail:
    """Passes data events to `lanes`, and DDL events to the barrier. One thread calls `read`, and another one `run`.

    `frontier` records the position up to which the lanes have applied all events. `feed` is notified of the changed
    documents and of DDL events. `save_position` saves the position up to which all events are applied. `resharded`
    returns the old UUIDs of collections that the source has resharded or moved without an event; those that the
    registry still contains are copied again. `listing` returns the collections of a source before 6.0 that are new or
    whose definitions have changed (see `Listing`); None if there are none.
    """

    def __init__(
        self,
        context: RunContext,
        reader: EventSource,
        lanes: Sequence[Lane],
        frontier: Frontier[Position],
        feed: Feed,
        save_position: Callable[[], None],
        resharded: Callable[[], Collection[bytes]],
        listing: Callable[[], Listing | None],
        stop: StopToken,
    ) -> None:
        self._context = context
        self._resharded = resharded
        self._listing = listing
        # The listing that waits until it can be applied, and the one that was applied last.
        self._awaited: Listing | None = None
        self._applied: Listing | None = None
        self._has_tried_withheld = False
        self._reader = reader
        catalog = catalog_of(context, stop)
        renames = self._renames = Renames(context, catalog, stop)
        self._definitions = DefinitionEvents(context, catalog, renames, stop)
        self._named_events = named_events(context, self._definitions, renames, stop)
        self._unreported = Unreported(context, catalog, renames, feed, stop)
        record = context.run.record
        share = share_of(record.instance, record.instances)
        portion = context.tuning.portion_bytes
        self._dispatcher = Dispatcher(
            lanes, frontier, portion, context.pace, stop, share, record.options.document_filters
        )
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
        # The cluster time of the newest no-op that the stream should have reached.
        self._noted = frontier.passed.time
        # The cluster time of the newest page, and `_noted` when that page arrived.
        self._newest = self._noted, self._noted

    @property
    def held_after(self) -> Timestamp | None:
        """Return the cluster time from which the reader will continue, while it waits for `run` to take its page.

        Return None while the stream is being read.
        """
        return self._held_after

    @property
    def has_tried_withheld(self) -> bool:
        """Return whether the attempt to build the withheld indexes is over: they are built, or left to the commit."""
        return self._has_tried_withheld

    @property
    def noted(self) -> Timestamp:
        """Return the cluster time last passed to `should_reach`; before that, the time at which the tail began."""
        return self._noted

    def should_reach(self, noted: Timestamp) -> None:
        """Measure the lag at least against `noted`, the cluster time of a no-op in the source's oplog.

        The times of the pages are not sufficient: they do not advance while the source has no majority.
        """
        self._noted = noted
        self._show_lag(noted)

    def is_short_of(self, noted: Timestamp) -> bool:
        """Return whether pages arrive, but do not reach `noted`, which was passed to `should_reach` before."""
        newest, expected = self._newest
        return self._held_after is None and newest < noted <= expected

    def read(self) -> None:
        """Read pages of change events, and queue them for `run`, until stopped.

        Raises every error that must end the sync.
        """
        stopwatch = self._context.progress.stopwatch
        for page, seconds in timed(self._reader.pages()):
            if page.events:  # otherwise, the read only waited for events
                stopwatch.note(Operation.EVENTS_READ, seconds)
            self._newest = page.source_time, self._noted
            self._held_after = page.position.time
            self._pages.put(page, 1)
            self._held_after = None

    def run(self) -> None:
        """Pass the events that `read` reads to lanes and barrier until stopped, and publish the lag after each page.

        Also does work that must wait for the events before it: copies of resharded collections, listings, withheld
        indexes and repairs. Raises every error that must end the sync.
        """
        if not self._context.run.record.instances:
            # A process may have been killed after it removed a collection, but before it gave the name to the
            # collection that waits for it. If several instances share the sync, they wait at the DDL event of the
            # removal, which is applied again.
            self._renames.release_all()
        for page in self._pages:
            self._feed.page_begins(page.source_time)
            self._unreported.finish_copies()
            self._hand_on(page)
            self._copy_resharded()
            self._apply_listing(page.position)
            self._try_withheld(page.position)
            self._repair_work.run_pending(page.source_time)
            self._show_lag(max(page.source_time, self._noted))

    def _show_lag(self, now: Timestamp) -> None:
        self._context.progress.set_lag(seconds_between(self._frontier.passed.time, now))

    def _hand_on(self, page: StreamPage) -> None:
        before: bytes | None = None
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
                    self._feed.changed(record.source_storage, event.key)
                    self._dispatcher.add(record, event, page.source_time)
            elif isinstance(event, DefinitionEvent) and self._needs_barrier(event):
                self._barrier(before, event, page.source_time)
            elif isinstance(event, DefinitionEvent):
                self._feed.defined(event)
            before = raw
        self._context.progress.add(events_read=read)
        self._feed.page_ends(page.position, page.source_time)
        # A position among the fragments of an event is not valid as a resume point.
        self._dispatcher.end(None if self._fragments else page.position, page.source_time)

    def _needs_barrier(self, event: DefinitionEvent) -> bool:
        """Return whether later events must wait until a DDL event is applied. If False, the DDL event has no effect.

        Several instances must all wait at the same events. They do so at every event that can have consequences:
        whether it has an effect depends on records that the coordinator may have changed just before it was killed. A
        source before 6.0 sends names instead of UUIDs, so every event that can have consequences counts.
        """
        context = self._context
        # The instances may read different `invalidate` events, which belong to one change stream, not to the oplog.
        if not has_consequences(event):
            return False
        if context.run.record.instances or not context.source_facts.reports_ddl:
            return True
        return self._definitions.concerns_sync(event)

    def _record_of(self, event: DataEvent) -> CollectionRecord | None:
        """Return the record of an event's collection; None if the collection is not synced.

        A collection is not synced if the filter excludes it, if it was dropped before the collections were listed, or
        if a DDL event has dropped it since; see also `NamedEvents`.
        """
        if event.namespace is None:
            return self._context.registry.get(event.collection)
        return self._named_events.record_of(event.namespace)

    def _barrier(
        self, before: bytes | None, event: DefinitionEvent, source_time: Timestamp
    ) -> None:
        """Apply a DDL event once all events before it are applied; later events wait until this method returns.

        `before` is the preceding event of the same page, or None. The position between the two events is saved before
        the DDL event is applied. Otherwise, a restart could apply a write from before the DDL event to a collection
        that got its name only with the DDL event.
        """
        self._dispatcher.end(None if before is None else position_at(token_of(before)), source_time)
        with waiting(
            f"{event.operation} on {shown(event.namespace)} waits until all earlier changes are applied",
            _SLOW,
        ):
            self._frontier.wait_drained(self._stop)
        self._save_position()
        self._feed.defined(event)
        self._context.observe(Point.BARRIER_REACHED, str(event.namespace))
        self._shared_barrier.take(event.token, lambda: self._apply(event))
        self._context.observe(Point.DEFINITION_APPLIED, str(event.namespace))
        self._dispatcher.end(position_at(event.token), source_time)

    def _copy_resharded(self) -> None:
        for uuid in self._resharded():
            record = self._context.registry.get(uuid)
            if record is not None:
                self._frontier.wait_drained(self._stop)
                # Report the collection to the feed before the copy, and save the report, because after a restart the
                # copy may be complete. Report the collection again after the copy, because the verification compares a
                # reported collection at once.
                self._feed.replaced([record.source_name])
                self._feed.flush()
                self._definitions.copy_again(record)
                self._feed.replaced([record.source_name])

    def _apply_listing(self, read_until: Position) -> None:
        """Apply the listing that waits or, if none waits, the newest one; a no-op if this is already done.

        Only a source before 6.0 has listings: they contain the collections that are new or whose definitions have
        changed. To apply a listing is to make the destination's collections equal to those in it. Does nothing yet if
        `read_until`, the position up to which all events are read, is not past the time of the listing. A later call
        then applies this listing, even if a newer one exists: each newer one could be too new again. Does nothing if a
        commit time is saved.
        """
        listing = self._awaited or self._listing()
        if listing is None or listing is self._applied:
            return
        self._awaited = listing
        # Once the commit time is saved, changed definitions are no longer applied: they make the commit fail.
        if not read_until.is_past(listing.time) or self._context.run.record.commit_time is not None:
            return
        self._frontier.wait_drained(self._stop)
        self._save_position()
        for name, uuid in listing.collections.items():
            self._unreported.apply(name, uuid)
        self._awaited, self._applied = None, listing

    def _try_withheld(self, read_until: Position) -> None:
        """Build the withheld indexes once all events from the time of the copy are applied; a no-op if already tried.

        Before that, documents can be in states that the source never had. `read_until` is the position up to which
        all events are read. If several instances share the sync, other instances may not have applied their events yet:
        then, and once a commit time is saved, the commit builds these indexes.
        """
        if self._has_tried_withheld:
            return
        record = self._context.run.record
        if not record.instances and record.commit_time is None:
            assert record.copy_end is not None
            if not read_until.is_past(record.copy_end):
                return
            self._frontier.wait_drained(self._stop)
            try_withheld(self._context, self._stop)
        self._has_tried_withheld = True

    def _apply(self, event: DefinitionEvent) -> None:
        if self._context.source_facts.reports_ddl:
            self._definitions.apply(event)
        else:
            self._named_events.apply(event)
        # Of several instances, only the coordinator applies the event.
        self._context.progress.add(definitions_applied=1)
