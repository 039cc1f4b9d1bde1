"""The phases of a sync, in order. Each is safe to enter again: recovery is this, begun at the stored phase."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bson.timestamp import Timestamp

from syncsvc.engine.catalog import Catalog
from syncsvc.engine.copy import Copier
from syncsvc.engine.cutover import Cutover
from syncsvc.engine.ddl import DefinitionEvents
from syncsvc.engine.destination import Destination
from syncsvc.engine.frontier import Frontier
from syncsvc.engine.lanes import Lane
from syncsvc.engine.listing import Listing
from syncsvc.engine.observe import Observer, Point
from syncsvc.engine.tail import Tail, append_note, keep_moving, keep_position, save_position
from syncsvc.engine.verification import Verification
from syncsvc.engine.writeblock import set_write_block
from syncsvc.options import WriteBlocking
from syncsvc.progress import Progress
from syncsvc.settings import LoadLevel
from syncsvc.state import Phase, State
from syncsvc.store import METADATA_DATABASE, Registry, RunStore
from syncsvc.writer import ClusterWriter
from verifier.cluster import failures
from verifier.cluster.changes import ChangeReader, offers_raw_updates, start_position
from verifier.cluster.connect import Client
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken, TaskGroup

_log = logging.getLogger(__name__)

_SCRATCH = Namespace(METADATA_DATABASE, "scratch")
# How far the destination may be behind for a commit to be sensible, in seconds.
MOST_LAG = 30
# How often a wait looks whether what it waits for has come, in seconds.
_GLANCE = 0.05


class Coordinator:
    """Carries one run from its stored phase to its end, in the thread that calls `run`."""

    def __init__(
        self,
        source: Client,
        destination: Client,
        writer: ClusterWriter,
        run_store: RunStore,
        progress: Progress,
        load: LoadLevel,
        observe: Observer,
        stop: StopToken,
    ) -> None:
        self._source = source
        self._client = destination
        self._writer = writer
        self._run = run_store
        self._progress = progress
        self._load = load
        self._observe = observe
        self._stop = stop
        self._destination = Destination(writer)
        self._catalog = Catalog(destination, writer)
        self._registry = Registry(destination, writer, stop)
        self._commit_asked = threading.Event()
        self._show_copied()

    def commit(self) -> None:
        """Let the run, which is saved as committing, go on to the cut-over."""
        self._commit_asked.set()

    def run(self) -> None:
        """Return when the run is committed. Raises what makes it fail, and `Cancelled` when stopped."""
        if self._run.record.state is State.COMMITTING:
            self._commit_asked.set()
        phases: dict[Phase, Callable[[], Phase]] = {
            Phase.INITIALIZING: self._initialize,
            Phase.COPYING: self._copy,
            Phase.APPLYING: self._apply,
            Phase.CUTTING_OVER: self._cut_over,
        }
        while (phase := self._run.record.phase) is not Phase.DONE:
            _log.info("A phase begins.", extra={"phase": phase.value})
            following = phases[phase]()
            self._run.update(phase=following)

    def _initialize(self) -> Phase:
        # The start of the change stream is saved before anything is read: what is written from here on comes as an
        # event, whatever the listing and the copy see of it. Taken later, writes in between would be lost.
        if self._run.record.start is None:
            start = retry(lambda: start_position(self._source), failures.is_transient, self._stop)
            self._run.update(start=start, position=start)
        self._observe(Point.STARTED, "")
        if self._run.record.options.write_blocking is not WriteBlocking.NONE:
            set_write_block(self._writer, blocked=True)
        Listing(self._source, self._catalog, self._registry, self._observe, self._stop).run()
        self._observe(Point.LISTED, "")
        return Phase.COPYING

    def _copy(self) -> Phase:
        self._show_copied()
        copier = Copier(
            self._source,
            self._destination,
            self._registry,
            self._progress,
            self._load,
            self._observe,
        )
        # Whatever was written before the change stream's start is older than now, and no copy may miss it.
        copier.run(append_note(self._source, self._stop), self._stop)
        self._run.update(copy_end=append_note(self._source, self._stop))
        return Phase.APPLYING

    def _apply(self) -> Phase:
        self._show_copied()
        position = self._run.record.position
        assert position is not None
        frontier = Frontier(position)
        with TaskGroup("apply", self._stop) as group:
            self._spawn_appliers(group, frontier)
            self._wait_for_commit(frontier, group.stop)
            self._drain(frontier, group.stop)
            if self._run.record.options.verification:
                drain = self._drain_again(frontier, group.stop)
                Verification(self._source, self._client, drain, group.stop).verify()
            save_position(frontier, self._run, self._observe)
            # Lanes end between two batches; what they leave is newer than the commit.
            group.stop.stop("commit")
        return Phase.CUTTING_OVER

    def _cut_over(self) -> Phase:
        self._show_copied()
        Cutover(
            self._catalog, self._registry, self._run, self._writer, self._observe, self._stop
        ).run()
        self._progress.set(lag_seconds=0)
        return Phase.DONE

    def _show_copied(self) -> None:
        """Show what is saved of the copy: before it goes on, and when it is done."""
        records = list(self._registry)
        phase = self._run.record.phase
        copied = sum(record.copied for record in records)
        total = copied if phase.copied else sum(record.total for record in records)
        self._progress.set(
            total_bytes=None if phase is Phase.INITIALIZING else total,
            copied_bytes=copied,
            copied_documents=sum(record.documents for record in records),
            lag_seconds=0 if phase is Phase.DONE else None,
        )

    def _spawn_appliers(self, group: TaskGroup, frontier: Frontier[Position]) -> None:
        raw_updates = self._raw_updates()
        lanes = [
            Lane(
                self._source,
                self._client,
                self._destination,
                frontier,
                self._progress,
                self._observe,
                group.stop,
            )
            for _ in range(self._load.lanes)
        ]
        tail = Tail(
            ChangeReader(self._source, frontier.passed, raw_updates, group.stop),
            self._registry,
            DefinitionEvents(self._catalog, self._registry),
            lanes,
            frontier,
            self._progress,
            self._observe,
            group.stop,
        )
        for number, lane in enumerate(lanes):
            group.spawn(f"lane-{number}", lane.run)
        group.spawn("tail", tail.run)
        group.spawn("position", keep_position, frontier, self._run, self._observe, group.stop)
        group.spawn("notes", keep_moving, self._source, frontier, self._progress, group.stop)

    def _raw_updates(self) -> bool:
        offered = retry(
            lambda: offers_raw_updates(self._source)
            and self._destination.offers_raw_diffs(_SCRATCH),
            failures.is_transient,
            self._stop,
        )
        how = "the oplog's own diffs" if offered else "top-level fields and documents read again"
        _log.info("Updates are replayed.", extra={"by": how})
        return offered

    def _wait_for_commit(self, frontier: Frontier[Position], stop: StopToken) -> None:
        """Tell when a commit is possible, until one is asked for."""
        copy_end = self._run.record.copy_end
        assert copy_end is not None
        while not self._commit_asked.is_set():
            lag = self._progress.snapshot.lag_seconds
            caught_up = frontier.passed.time > copy_end and lag is not None and lag <= MOST_LAG
            if caught_up is not self._progress.snapshot.caught_up:
                self._progress.set(caught_up=caught_up)
            stop.sleep(_GLANCE)

    def _drain(self, frontier: Frontier[Position], stop: StopToken) -> None:
        """Apply everything up to the commit time, which is the source's time when it is first asked for."""
        if self._run.record.commit_time is None:
            self._run.update(commit_time=append_note(self._source, stop))
        commit_time = self._run.record.commit_time
        assert commit_time is not None
        self._wait_until_past(commit_time, frontier, stop)

    def _drain_again(self, frontier: Frontier[Position], stop: StopToken) -> Callable[[], None]:
        def drain() -> None:
            self._wait_until_past(append_note(self._source, stop), frontier, stop)

        return drain

    def _wait_until_past(
        self, time: Timestamp, frontier: Frontier[Position], stop: StopToken
    ) -> None:
        # Past it, not at it: all events of a transaction share one time, and a page may end among them.
        append_note(self._source, stop)
        while frontier.passed.time <= time:
            stop.sleep(_GLANCE)
