"""The phases of a sync, in order. Each is safe to enter again: recovery is this, begun at the stored phase."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from bson.timestamp import Timestamp

from syncsvc.engine.application import Application
from syncsvc.engine.catalog import Catalog
from syncsvc.engine.copy import Copier
from syncsvc.engine.cutover import Cutover
from syncsvc.engine.listing import Listing
from syncsvc.engine.note import append_note
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from syncsvc.engine.verification import Verification
from syncsvc.engine.writeblock import set_write_block
from syncsvc.options import WriteBlocking
from syncsvc.state import Phase, State
from verifier.cluster import failures
from verifier.cluster.changes import start_position
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken, TaskGroup

_log = logging.getLogger(__name__)

# How far the destination may be behind for a commit to be sensible, in seconds.
MOST_LAG = 30
# How often a wait looks whether what it waits for has come, in seconds.
_GLANCE = 0.05


class Coordinator:
    """Carries one run from its stored phase to its end, in the thread that calls `run`."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._parts = parts
        self._stop = stop
        self._commit_asked = threading.Event()
        self._show_copied()

    def commit(self) -> None:
        """Let the run, which is saved as committing, go on to the cut-over."""
        self._commit_asked.set()

    def run(self) -> None:
        """Return when the run is committed. Raises what makes it fail, and `Cancelled` when stopped."""
        run = self._parts.run
        if run.record.state is State.COMMITTING:
            self._commit_asked.set()
        phases: dict[Phase, Callable[[], Phase]] = {
            Phase.INITIALIZING: self._initialize,
            Phase.COPYING: self._copy,
            Phase.APPLYING: self._apply,
            Phase.CUTTING_OVER: self._cut_over,
        }
        while (phase := run.record.phase) is not Phase.DONE:
            _log.info("A phase begins.", extra={"phase": phase.value})
            run.update(phase=phases[phase]())
            self._show_copied()

    def _initialize(self) -> Phase:
        parts = self._parts
        # The start of the change stream is saved before anything is read: what is written from here on comes as an
        # event, whatever the listing and the copy see of it. Taken later, writes in between would be lost.
        if parts.run.record.start is None:
            start = retry(lambda: start_position(parts.source), failures.is_transient, self._stop)
            parts.run.update(start=start, position=start)
        parts.observe(Point.STARTED, "")
        if parts.run.record.options.write_blocking is not WriteBlocking.NONE:
            set_write_block(parts.writer, blocked=True)
        Listing(parts, self._stop).run()
        parts.observe(Point.LISTED, "")
        return Phase.COPYING

    def _copy(self) -> Phase:
        # Whatever was written before the change stream's start is older than now, and no copy may miss it.
        now = append_note(self._parts.source, self._stop)
        Copier(self._parts).run(now, self._stop)
        self._parts.run.update(copy_end=append_note(self._parts.source, self._stop))
        return Phase.APPLYING

    def _apply(self) -> Phase:
        with TaskGroup("apply", self._stop) as group:
            application = Application(self._parts, group)
            self._wait_for_commit(application, group.stop)
            application.wait_until_past(self._commit_time(group.stop))
            if self._parts.run.record.options.verification:
                Verification(self._parts, application.drain, group.stop).verify()
            application.save_position()
            # Lanes end between two batches; what they leave is newer than the commit.
            group.stop.stop("commit")
        return Phase.CUTTING_OVER

    def _cut_over(self) -> Phase:
        Cutover(self._parts, Catalog(self._parts.client, self._parts.writer), self._stop).run()
        return Phase.DONE

    def _wait_for_commit(self, application: Application, stop: StopToken) -> None:
        """Tell whether a commit is possible, until one is asked for."""
        copy_end = self._parts.run.record.copy_end
        assert copy_end is not None
        while not self._commit_asked.is_set():
            lag = self._parts.progress.snapshot.lag_seconds
            caught_up = application.is_past(copy_end) and lag is not None and lag <= MOST_LAG
            self._parts.progress.set(caught_up=caught_up)
            stop.sleep(_GLANCE)

    def _commit_time(self, stop: StopToken) -> Timestamp:
        """The source's time when the commit was first asked for: everything up to it is applied before it is done."""
        if self._parts.run.record.commit_time is None:
            self._parts.run.update(commit_time=append_note(self._parts.source, stop))
        commit_time = self._parts.run.record.commit_time
        assert commit_time is not None
        return commit_time

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
