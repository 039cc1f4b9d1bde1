"""Runs the phases that every instance of a run goes through, beginning with the saved phase.

Each phase can be run again, so after a restart or a resume, a run continues with its saved phase.
"""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import inf
from typing import Any

from syncsvc.engine.copying.partitioned import amount_of, copied_in_all
from syncsvc.engine.definitions.index_builds import warn_of_withheld
from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.oplog_watch import OplogWatch
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import CopiedAmount
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run_store import HEARTBEAT_INTERVAL
from syncsvc.state import Phase, State
from verifier.runtime.tasks import StopToken, TaskGroup

_log = logging.getLogger(__name__)


class Phases(ABC):
    """Runs the phases of one instance, from the saved phase to the last, in the thread that calls `run`.

    A subclass implements one method per phase, which runs the phase and returns the next one.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop
        self._commit_requested = threading.Event()
        self._spooler = Spooler(context)
        self._oplog = OplogWatch(context, self._spooler)
        context.progress.forget_pace()
        warn_of_withheld(context)
        self._show_copied()

    def commit(self) -> None:
        """Let the run proceed to the cut-over. The caller must already have saved the state COMMITTING."""
        self._commit_requested.set()

    def run(self) -> None:
        """Run the remaining phases, and return when the cut-over is complete.

        Raises the error with which the sync fails, and `Cancelled` when stopped.
        """
        if self._context.run.record.state is State.COMMITTING:
            self._commit_requested.set()
        with TaskGroup("run", self._stop) as group:
            group.spawn("owner", self._keep_owning, group.stop)
            group.spawn("instances", self._context.instances.watch, group.stop)
            while self._context.run.record.phase is not Phase.DONE:
                self._read(group.stop)
                self._run_phases({Phase.CUTTING_OVER: self._cut_over}, group.stop)
            self._spooler.clear()
            group.stop.stop("done")

    def _read(self, stop: StopToken) -> None:
        """Run the phases up to change event application; meanwhile, watch the oplog, and spool events if necessary."""
        record = self._context.run.record
        if record.position is not None and not record.phase.applied:
            self._spooler.load(record.position)
        with TaskGroup("events", stop) as group:
            group.spawn("oplog", self._oplog.run, group.stop)
            group.spawn("spooler", self._spooler.run, group.stop)
            self._run_phases(
                {
                    Phase.REVERSING: self._reverse,
                    Phase.INITIALIZING: self._initialize,
                    Phase.COPYING: self._copy,
                    Phase.INDEXING: self._index,
                    Phase.WITHDRAWING: self._withdraw,
                    Phase.APPLYING: self._apply,
                },
                group.stop,
            )
            group.stop.stop("all is read")

    @abstractmethod
    def _reverse(self, stop: StopToken) -> Phase: ...

    @abstractmethod
    def _initialize(self, stop: StopToken) -> Phase: ...

    @abstractmethod
    def _copy(self, stop: StopToken) -> Phase: ...

    @abstractmethod
    def _index(self, stop: StopToken) -> Phase: ...

    @abstractmethod
    def _withdraw(self, stop: StopToken) -> Phase: ...

    @abstractmethod
    def _apply(self, stop: StopToken) -> Phase: ...

    @abstractmethod
    def _cut_over(self, stop: StopToken) -> Phase: ...

    def _run_phases(
        self, phases: Mapping[Phase, Callable[[StopToken], Phase]], stop: StopToken
    ) -> None:
        """Run the saved phase and its successors as long as they are in `phases`, and save each transition."""
        run = self._context.run
        while (phase := run.record.phase) in phases:
            _log.info(f"Starting {phase.value} phase")
            following = phases[phase](stop)
            self._proceed(following)
            _log.debug(f"Updating the in-memory phase from `{phase.value}` to `{following.value}`.")
            self._show_copied()

    def _proceed(self, following: Phase, **changes: Any) -> None:
        """Save the next phase and the fields `changes`, once no earlier write of a document can still take effect.

        Saves nothing if the phase is already saved. Raises OperationError Superseded if another process has taken over
        the run, and the driver's errors.
        """
        # Threads that the phase cancelled may have left writes in flight.
        self._context.destination_writer.settle()
        if self._context.run.record.phase is not following:
            self._context.run.update(phase=following, **changes)

    def _keep_owning(self, stop: StopToken) -> None:
        """Every half second until stopped, save the run record if it was not saved within the last half second.

        Each save is also a heartbeat for the other instances. Raises OperationError Superseded if another process has
        taken over the run, the driver's errors, and `Cancelled` when stopped.
        """
        while True:
            stop.sleep(HEARTBEAT_INTERVAL)
            self._context.run.confirm(HEARTBEAT_INTERVAL)

    def _done(self, step: str) -> None:
        self._context.observe(Point.STEP_DONE, step)

    def _own_copy(self, records: Sequence[CollectionRecord]) -> CopiedAmount:
        run = self._context.run.record
        # After a reversal, both clusters hold the whole copy, and no part of it belongs to a single instance.
        if not run.instances or run.reversals:
            return amount_of(records)
        own = self._context.partitions.copied(run.instance).values()
        return CopiedAmount(sum(each.bytes for each in own), sum(each.documents for each in own))

    def _show_copied(self) -> None:
        """Publish the total size of the copy, and the saved amounts that this instance and all instances have copied.

        Also resets the lag: to 0 if all events are applied, otherwise to unknown. Called when a phase begins.
        """
        records = list(self._context.registry)
        own = self._own_copy(records)
        record = self._context.run.record
        phase, done = record.phase, record.all_copied
        total = sum(each.copied if done else each.total for each in records)
        self._context.progress.set(
            total_bytes=None if phase is Phase.INITIALIZING else total,
            copied_bytes=own.bytes,
            copied_documents=own.documents,
            copied_in_all=copied_in_all(record, records),
            lag_seconds=0 if phase.applied else None,
            lag_until=inf,
        )
