"""The phases of a sync, in order. Each is safe to enter again: recovery is this, begun at the stored phase."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from time import monotonic

from bson.timestamp import Timestamp

from syncsvc.engine.application import Application
from syncsvc.engine.building import build_all
from syncsvc.engine.catalog import Catalog
from syncsvc.engine.copy import copy_all
from syncsvc.engine.cutover import Cutover
from syncsvc.engine.listing import Listing
from syncsvc.engine.observe import Point
from syncsvc.engine.old_source import OldSource
from syncsvc.engine.partitioned import plan_copy
from syncsvc.engine.parts import Parts
from syncsvc.engine.turning import weaken_definitions
from syncsvc.engine.verification import Verification
from syncsvc.engine.views import reconcile_views
from syncsvc.engine.watch import OplogWatch
from syncsvc.engine.withholding import restore_indexes
from syncsvc.figures.progress import MOST_LAG
from syncsvc.reports.lines import partitions
from syncsvc.saved.run import CONFIRM_INTERVAL
from syncsvc.state import Phase, State, Trigger, next_state
from verifier.cluster import failures
from verifier.cluster.changes import ChangeStream, start_position
from verifier.cluster.note import append_note
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken, TaskGroup

_log = logging.getLogger(__name__)

# How long a figure of the lag is shown when no newer one comes, in seconds.
_LAG_HOLDS = 15.0
# How often a wait looks whether what it waits for has come, in seconds.
_GLANCE = 0.05


class Coordinator:
    """Carries one run from its stored phase to its end, in the thread that calls `run`."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._parts = parts
        self._stop = stop
        self._commit_asked = threading.Event()
        self._oplog = OplogWatch(parts)
        parts.progress.forget_pace()
        self._show_copied()

    def commit(self) -> None:
        """Let the run, which is saved as committing, go on to the cut-over."""
        self._commit_asked.set()

    def run(self) -> None:
        """Return when the run is committed. Raises what makes it fail, and `Cancelled` when stopped."""
        run = self._parts.run
        if run.record.state is State.COMMITTING:
            self._commit_asked.set()
        with TaskGroup("run", self._stop) as group:
            group.spawn("owner", self._keep_owning, group.stop)
            with TaskGroup("reading", group.stop) as reading:
                reading.spawn("oplog", self._oplog.run, reading.stop)
                self._carry_out(
                    {
                        Phase.TURNING: self._turn,
                        Phase.INITIALIZING: self._initialize,
                        Phase.COPYING: self._copy,
                        Phase.INDEXING: self._index,
                        Phase.APPLYING: self._apply,
                    },
                    reading.stop,
                )
                reading.stop.stop("all is read")
            self._carry_out({Phase.CUTTING_OVER: self._cut_over}, group.stop)
            group.stop.stop("done")

    def _carry_out(
        self, phases: Mapping[Phase, Callable[[StopToken], Phase]], stop: StopToken
    ) -> None:
        """Go through these phases, from the stored one on."""
        run = self._parts.run
        while (phase := run.record.phase) in phases:
            _log.info(f"Starting {phase.value} phase")
            following = phases[phase](stop)
            run.update(phase=following)
            _log.debug(f"Updating the in-memory phase from `{phase.value}` to `{following.value}`.")
            self._show_copied()

    def _keep_owning(self, stop: StopToken) -> None:
        """Learn of another process that took the run over, also while nothing is saved."""
        while True:
            stop.sleep(CONFIRM_INTERVAL)
            self._parts.run.confirm()

    def _turn(self, stop: StopToken) -> Phase:
        parts = self._parts
        parts.observe(Point.TURNING, "")
        # What was proved is of the other direction.
        parts.checks.forget()
        parts.progress.set(check=None)
        weaken_definitions(parts, stop)
        parts.observe(Point.TURNED, "")
        # Both at once: no other phase is one of a sync that is being reversed.
        parts.run.update(
            state=next_state(parts.run.record.state, Trigger.TURN), phase=Phase.APPLYING
        )
        return Phase.APPLYING

    def _initialize(self, stop: StopToken) -> Phase:
        parts = self._parts
        if parts.run.record.options.blocks_destination:
            parts.destination_block.set()
        # The start of the change stream is saved before anything is read: what is written from here on comes as an
        # event, whatever the listing and the copy see of it. Taken later, writes in between would be lost.
        if parts.run.record.start is None:
            stream = ChangeStream(parts.source, parts.source_facts)
            start = retry(lambda: start_position(stream), failures.is_transient, stop)
            parts.run.update(start=start, position=start)
        parts.observe(Point.STARTED, "")
        Listing(parts, stop).run()
        plan_copy(parts, stop)
        parts.observe(Point.PLANNED, "")
        parts.observe(Point.LISTED, "")
        return Phase.COPYING

    def _copy(self, stop: StopToken) -> Phase:
        # Whatever was written before the change stream's start is older than now, and no copy may miss it.
        now = append_note(self._parts.source, stop)
        copy_all(self._parts, now, stop)
        _log.info(partitions(tuple(self._parts.registry)).message)
        self._parts.run.update(copy_end=append_note(self._parts.source, stop))
        return Phase.INDEXING

    def _index(self, stop: StopToken) -> Phase:
        if self._parts.run.record.options.build_indexes.after_copy:
            build_all(self._parts, stop)
        return Phase.APPLYING

    def _apply(self, stop: StopToken) -> Phase:
        with TaskGroup("apply", stop) as group:
            verification = Verification(self._parts, group)
            application = Application(self._parts, verification.feed, group)
            self._oplog.follow(application.held_after)
            self._wait_for_commit(application, verification, group.stop)
            self._block_source()
            commit_time = self._commit_time(group.stop)
            application.wait_until_past(commit_time)
            self._done("drained")
            if not self._parts.source_facts.tells_definitions:
                OldSource(self._parts).check_definitions(group.stop)
            reconcile_views(self._parts, group.stop)
            restore_indexes(self._parts, group.stop)
            # Also before: a restart that finds a verdict, or its beginnings, must not apply again what that is about.
            application.save_position()
            verification.finish(commit_time)
            self._done("verified")
            application.save_position()
            self._oplog.let_go()
            # What the lanes leave, or carry out in part only, is newer than the commit.
            group.stop.stop("commit")
        return Phase.CUTTING_OVER

    def _cut_over(self, stop: StopToken) -> Phase:
        Cutover(self._parts, Catalog(self._parts, stop), stop).run()
        return Phase.DONE

    def _wait_for_commit(
        self, application: Application, verification: Verification, stop: StopToken
    ) -> None:
        """Tell whether a commit is possible, until one is asked for."""
        copy_end = self._parts.run.record.copy_end
        assert copy_end is not None
        while not self._commit_asked.is_set():
            progress = self._parts.progress
            if monotonic() - progress.snapshot.lag_at > _LAG_HOLDS:
                progress.forget_lag()
            lag = progress.snapshot.lag_seconds
            caught_up = application.is_past(copy_end) and lag is not None and lag <= MOST_LAG
            if caught_up:
                verification.begin()
            verification.show()
            progress.set(caught_up=caught_up and verification.is_ready(MOST_LAG))
            stop.sleep(_GLANCE)
        self._done("commit saved")

    def _block_source(self) -> None:
        # Before the commit time is taken: what a user is told was written is older than that then, and is applied.
        if self._parts.run.record.options.blocks_source:
            self._parts.source_block.set()
            self._done("source blocked")

    def _commit_time(self, stop: StopToken) -> Timestamp:
        """The source's time when the commit was first asked for: everything up to it is applied before it is done."""
        if self._parts.run.record.commit_time is None:
            self._parts.run.update(commit_time=append_note(self._parts.source, stop))
            self._done("commit time saved")
        commit_time = self._parts.run.record.commit_time
        assert commit_time is not None
        return commit_time

    def _done(self, step: str) -> None:
        self._parts.observe(Point.STEP_DONE, step)

    def _show_copied(self) -> None:
        """Show what is saved of the copy, at the beginning of each phase."""
        records = list(self._parts.registry)
        phase = self._parts.run.record.phase
        copied = sum(record.copied for record in records)
        total = copied if phase.copied else sum(record.total for record in records)
        self._parts.progress.set(
            total_bytes=None if phase is Phase.INITIALIZING else total,
            copied_bytes=copied,
            copied_documents=sum(record.documents for record in records),
            lag_seconds=0 if phase in (Phase.CUTTING_OVER, Phase.DONE) else None,
        )
