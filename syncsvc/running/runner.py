"""Runs one sync in this process: creates its engine from the saved record, pauses it, and handles failures.

A state change is saved before it is visible, unless it is a failure. A failure may arrive at the same moment as a
command; a lock then makes them change the state one after the other.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Container
from contextlib import suppress
from dataclasses import replace
from functools import partial
from time import monotonic, time
from typing import Any

from pymongo.errors import PyMongoError

from syncsvc import errors
from syncsvc.engine.after_commit import watch_source
from syncsvc.engine.coordinator import Coordinator
from syncsvc.engine.follower import Follower
from syncsvc.engine.phases import Phases
from syncsvc.engine.principal_copy import PrincipalCopy
from syncsvc.engine.reset import Reset
from syncsvc.engine.reversal import (
    WEAKENING,
    coordinator_reversal,
    follower_reversal,
    refuse_written,
)
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.instances import FailedElsewhere
from syncsvc.engine.run.points import Point
from syncsvc.engine.run.writeblock import to_put_back
from syncsvc.figures.progress import WarningKind
from syncsvc.resuming import (
    continued,
    is_damaged,
    needs_new_check,
    refuse_repair,
    resumed,
)
from syncsvc.running.admission import Admission, can_commit
from syncsvc.running.assembly import Assembly
from syncsvc.running.journaling import JournalKeeper
from syncsvc.running.pausing import Pausing
from syncsvc.running.principal_check import Principals
from syncsvc.running.process import ProcessContext
from syncsvc.saved.created_collections import (
    Contents,
    contents,
    mismatch_names,
    replaced,
    temporary_prefix,
)
from syncsvc.saved.journal import Entry
from syncsvc.saved.peers import Peers
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import Failure, RunRecord, refuse_in_use, refuse_resetting
from syncsvc.saved.run_journal import failure_entry
from syncsvc.saved.run_store import RunStore
from syncsvc.saved.views import CreatedViews
from syncsvc.state import ACTIVE, Phase, State, Trigger, next_state
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError, describe, in_words_of
from verifier.runtime.tasks import SLOW_POLL, Cancelled, StopToken

_log = logging.getLogger(__name__)

# How long a command waits for the run to stop, in seconds.
_REST_SECONDS = 10.0


class Runner:
    """Runs one sync from its saved record.

    The constructor saves the next epoch, makes the destination and the cluster with the metadata refuse late writes of
    earlier engines, and creates an engine: the object whose threads run the phases of the sync. `begin` starts the
    engine. `cleared` is called at the end of a reset, when the run record of this instance no longer exists.
    """

    def __init__(
        self, store: RunStore, process: ProcessContext, cleared: Callable[[], None]
    ) -> None:
        self._store = store
        self._process = process
        self._cleared = cleared
        # Held while the state is changed by a failure, or by a command during which the sync can fail.
        self._changing = threading.Lock()
        self._at_rest = threading.Event()  # set while no thread runs the sync
        self._at_rest.set()
        self._stop = StopToken(process.stop)
        # Stops the calls of `_release` when a reset begins: the reset must not wait for a source that is gone for good.
        self._releasing = StopToken(process.stop)
        self._admission = Admission(store, process)
        self._assembly = Assembly(store, process)
        self._pausing = Pausing(
            process, self._assembly, lambda: self._engine, self._at_rest, self._fail_in_pause
        )
        # The users and roles of both clusters.
        self.principals = Principals(store, process)
        self._journal = JournalKeeper(store, process.progress)
        self._prepare()

    def begin(self) -> None:
        """Start the work that belongs to the saved state.

        This is the sync, a reset, the event spool of a paused sync, or the watch of the source of a committed sync.

        If the saved state is FAILED, restore the original write blocks and balancers of the clusters, because the
        process that saved the failure may have been killed before it did so.
        """
        _log.info(
            "The sync was started, or was loaded from its saved state.",
            extra={"state": self.record.state.value},
        )
        if self.record.state in ACTIVE or self.record.state is State.RESETTING:
            self._spawn()
        elif self.record.state is State.PAUSED:
            self._pausing.begin()
        elif self.record.state is State.COMMITTED:
            self._watch_source()
        elif self.record.state is State.FAILED:
            # A reset stops this work, because it releases the clusters itself.
            with suppress(Cancelled):
                self._conclude()
            self._process.stop.check()

    def watch(self, watch: Callable[[RunRecord], None]) -> None:
        """Call `watch` with the record now, and after each change of its state. `watch` must not wait or raise."""
        self._store.watch(watch)

    @property
    def record(self) -> RunRecord:
        return self._store.record

    @property
    def collections(self) -> tuple[CollectionRecord, ...]:
        """Return the saved records of all collections."""
        return tuple(self._registry)

    def pause(self, command: Entry) -> None:
        """Save the state PAUSED, and stop the engine. Its running calls end later; `resume` waits for them.

        A new thread then spools change events if the oplog may become too short. `command` is the entry of the journal
        that is saved together with the new state. Raises OperationError and the driver's errors.
        """
        with self._changing:
            state = next_state(self.record.state, Trigger.PAUSE)
            self._store.update(command, state=state)
        _log.info("The sync is paused.", extra={"state": state.value})
        self._stop.stop("pause")
        self._pausing.begin()

    def resume(self, command: Entry) -> None:
        """Save the new state, and start a new engine that continues where the run was paused or failed.

        Raises OperationError if the resume is refused (see `syncsvc.resuming`), OperationError ClusterUnreachable if
        the old engine does not stop, and the driver's errors.
        """
        state = next_state(self.record.state, Trigger.RESUME)
        self._pausing.end("resume")
        try:
            self._wait_for_rest()
            self._save_resumed(state, command)
        finally:
            if self.record.state is State.PAUSED:
                # The resume was refused, so the pause continues.
                self._pausing.begin()
        _log.info("The sync is resumed.", extra={"state": self.record.state.value})
        self._spawn()

    def _refuse_overwriting(self) -> None:
        """Block the old source again before a failed reversal is resumed.

        Someone may have lifted the block since the reversal began. Raises OperationError OldSourceWritten if users have
        written to the old source since the commit, because the reversed sync would overwrite these writes. This is a
        no-op in other phases than REVERSING, on an instance that is not the coordinator, and if an earlier version
        began the reversal.
        """
        record = self.record
        if record.phase is Phase.REVERSING and record.coordinates and record.committed is not None:
            old = self._process.clusters[record.destination]
            refuse_written(old, record.committed, self._process.stop, WEAKENING)
            self._block_old_source(old, record.committed, WEAKENING)

    def _block_old_source(
        self, old: Cluster, since: Position, ignored: Container[str] = ()
    ) -> None:
        """Block user writes on the old source; then raise OperationError OldSourceWritten if users wrote to it.

        All writes since the position `since`, at which the commit ended, count: before this block, users may have been
        able to write. For `ignored`, see `refuse_written`.
        """
        self._assembly.block(old, self._process.stop).set()
        refuse_written(old, since, self._process.stop, ignored)

    def _save_resumed(self, state: State, command: Entry) -> None:
        """Prepare a new engine, and save that the sync is resumed.

        - After a pause, the new state is `state`.
        - After a failure that was not saved, the new state is the one in which the run failed.
        - After a saved failure, the whole record from which the new engine continues is saved.
        """
        if self.record.state is State.PAUSED:
            self._prepare()
            self._store.update(command, state=state)
            return
        failure = self.record.failure
        assert failure is not None
        interrupted = continued(failure)
        if interrupted is None:
            self._retry(command)
        else:
            self._refuse_overwriting()
            self._prepare()
            self._store.update(command, state=interrupted, failure=None)

    def repair(self, command: Entry) -> None:
        """Save a request to repair the differences that the verification has found; the engine runs the repair.

        If the sync failed because the verification has failed, also resume the sync. On an instance that is not the
        coordinator, this only resumes the sync, because the coordinator manages the repair for all instances. Raises
        OperationError if the repair or the resume is refused, and the driver's errors.
        """
        record = self.record
        state = next_state(record.state, Trigger.REPAIR)
        refuse_repair(record)
        if record.state is State.FAILED:
            self._wait_for_rest()
            requests = self.record.repair_requests + record.coordinates
            self._retry(command, repair_requests=requests)
            self._spawn()
        else:
            with self._changing:
                next_state(self.record.state, Trigger.REPAIR)
                requests = self.record.repair_requests + 1
                self._store.update(command, repair_requests=requests)
        _log.info("A repair was requested.", extra={"state": state.value})

    def replaced(self) -> set[Namespace]:
        """Return the names of the collections that users have dropped on the destination and created again.

        The result contains every name under which the verification may report mismatches of such a collection (see
        `mismatch_names`). Raises OperationError and the driver's errors.
        """
        client = self._process.clusters[self.record.destination].client
        with failures.named_errors():
            found = read(
                lambda: replaced(client, self._assembly.saved_registry()), self._process.stop
            )
        return mismatch_names(found, self.record.names)

    def _retry(self, command: Entry, **requested: Any) -> None:
        """Prepare a new engine after a saved failure, and save the record from which it continues.

        `requested` are fields to save together with the record. Until this save, the run stays failed, and the command
        can be repeated after any error or crash. Raises OperationError if the run cannot be resumed.
        """
        process = self._process
        failure = self.record.failure
        assert failure is not None
        others = self._others()
        self._admission.refuse_final(failure, others)
        changes = resumed(self.record, others)
        self._refuse_overwriting()
        # The failure may not be saved yet, and a commit may have left the source blocked.
        self._release()
        context = self._prepare()
        if is_damaged(self.record):
            context.spool.clear()
        coordinates = self.record.coordinates and changes["state"] is State.RUNNING
        if coordinates and needs_new_check(failure):
            context.checks.forget()
            process.progress.set(check=None)
        self._store.update(command, **changes, **requested)
        process.observe(Point.RESUME_SAVED, "")

    def _others(self) -> list[RunRecord]:
        """Return the run records of the other instances. Raises OperationError and the driver's errors."""
        metadata = self._process.metadata(self.record.home)
        return Peers(metadata, self._store).others(self._process.stop)

    def commit(self, command: Entry) -> None:
        """Save the state COMMITTING, and let the engine proceed to the cut-over.

        Raises OperationError InvalidState if the state is not RUNNING, CannotCommit if canCommit is false in this
        state, and other OperationErrors if some of the users and roles to copy cannot be copied. Also raises the
        driver's errors.
        """
        if can_commit(self.record, self._process.progress.snapshot):
            self.principals.refuse_commit()
        with self._changing:
            state = next_state(self.record.state, Trigger.COMMIT)
            if not can_commit(self.record, self._process.progress.snapshot):
                raise OperationError(
                    errors.CANNOT_COMMIT, "The commit was refused, because canCommit is false."
                )
            self._store.update(command, state=state)
        _log.info("Commit was requested.", extra={"state": state.value})
        self._phases.commit()

    def copy_principals(self, command: Entry) -> None:
        """Copy users and roles now. The commit compares them again, and copies those that have changed since.

        If the copy is refused or fails, the sync continues. Raises OperationError and the driver's errors.
        """
        next_state(self.record.state, Trigger.COPY_PRINCIPALS)
        self.principals.refuse_copy()
        # The engine copies users and roles only after a commit command, which is refused until this command ends.
        PrincipalCopy(self._engine, self._stop).run(command)

    def reverse(self, command: Entry) -> None:
        """Reverse the committed run: save the reversal, and start a new engine.

        Before that, the coordinator blocks user writes on the old source. Raises OperationError if the reversal is
        refused, and the driver's errors; the run then stays committed. An error after the save is not raised: the run
        fails with it.
        """
        record = self.record
        state = next_state(record.state, Trigger.REVERSE)
        if not record.options.reversible:
            raise OperationError(
                errors.NOT_REVERSIBLE, "The start option reversible of this sync is false."
            )
        self._wait_for_rest()
        self._admission.refuse_to_reverse()
        others = self._others()
        if record.coordinates:
            assert record.reverse_start is not None and record.position is not None
            self._block_old_source(self._process.clusters[record.source], record.position)
            changes = coordinator_reversal(record, record.reverse_start, others)
        else:
            changes = follower_reversal(record, others)
        self._store.update(command, state=state, **changes)
        _log.info(
            "The reversal of the sync begins.",
            extra={"state": state.value, "reversals": self.record.reversals},
        )
        try:
            self._prepare()
        except (OperationError, PyMongoError) as error:
            self._fail(error)
        else:
            self._spawn()

    def reset(self, command: Entry) -> None:
        """Save the state RESETTING, stop the engine, and start a thread that runs the reset (`syncsvc.engine.reset`).

        This is a no-op if a reset is already running. Raises OperationError if the reset is refused, and the driver's
        errors.
        """
        self._admission.refuse_reset()
        with self._changing:
            state = next_state(self.record.state, Trigger.RESET)
            if self.record.state is state:
                return
            self._store.update_unless(refuse_in_use, command, state=state, failure=None)
        _log.info("The reset of the sync begins.", extra={"state": state.value})
        self._process.observe(Point.RESET_SAVED, "")
        self._pausing.end("reset")
        self._releasing.stop("reset")
        self._stop.stop("reset")
        self._spawn()

    def keep_journal(self) -> None:
        """Save the new warnings and event counts of this process in the journal.

        Raises OperationError and the driver's errors.
        """
        self._journal.keep()

    def note(self, entry: Entry) -> None:
        """Add an entry to the journal. A later save of the run record saves it."""
        self._store.note(entry)

    def resettable(self) -> tuple[RunRecord, Contents]:
        """Return the coordinator's run record and the contents of the destination, for a description of a reset.

        A reset restores the write blocks and balancers in the record. The contents are divided into those that a reset
        would drop and all others. If the coordinator was not started, the record of this instance is returned. Raises
        OperationErrors, such as DestinationInUse and InvalidState if the sync cannot be reset, and the driver's errors.
        """
        leader = self._admission.refuse_in_use()
        next_state(self.record.state, Trigger.RESET)
        process, destination = self._process, self.record.home
        client, writer = process.clusters[destination].client, process.saver(destination)
        views = CreatedViews(process.metadata(destination), writer, process.stop).load()
        registry, temporary = self._assembly.saved_registry(), temporary_prefix(self.record)
        found = contents(client, registry, views, process.stop, temporary)
        found = replace(found, principals=self.principals.created())
        return leader or self.record, found

    def _wait_for_rest(self) -> None:
        """Wait until the engine, and the thread that spools in a pause, have ended.

        Raises OperationError ClusterUnreachable after ten seconds, and `Cancelled` if the process stops.
        """
        deadline = monotonic() + _REST_SECONDS
        while not self._is_at_rest():
            self._process.stop.check()
            if monotonic() > deadline:
                raise OperationError(
                    failures.CLUSTER_UNREACHABLE,
                    "The sync has not stopped yet, because calls to a cluster have not returned. "
                    "These calls end within three minutes; then send the command again.",
                )

    def _is_at_rest(self) -> bool:
        """Wait briefly for the engine and for the thread of the pause; return whether both have ended."""
        return self._at_rest.wait(SLOW_POLL) and self._pausing.has_ended()

    def _prepare(self) -> RunContext:
        """Save the next epoch, create an engine from the saved state with a new stop token, and return its context.

        If the sync copies users and roles, the coordinator also drops the temporary credentials that a killed process
        may have left on the destination.
        """
        # End what is left of an earlier engine: the watch of the source after a commit.
        self._stop.stop("a new engine")
        self._process.stop.release(self._stop)
        self._stop = StopToken(self._process.stop)
        self._engine = context = self._assembly.next_context(self._stop)
        self._registry = context.registry
        if self.record.coordinates and self.record.options.users_and_roles is not None:
            # A process that was killed while it copied users may have left their credentials on the destination.
            PrincipalCopy(context, self._stop).drop_temporary()
        # Without this, a commit could be accepted before the engine has read the saved check.
        self._process.progress.set(caught_up=False)
        kind = Coordinator if self.record.coordinates else Follower
        self._phases: Phases = kind(context, self._stop)
        return context

    def _spawn(self) -> None:
        if self.record.state is State.RESETTING:
            self._process.spawn("reset", self._run_reset)
            return
        self._at_rest.clear()
        self._process.spawn("sync", self._run_sync)

    def _watch_source(self) -> None:
        """Start a thread that watches the source for user writes after the commit. Only the coordinator does this."""
        if self.record.coordinates:
            watch = partial(watch_source, self._engine, self._stop)
            self._process.spawn("after commit", watch)

    def _run_sync(self) -> None:
        """Run the phases; then save the state COMMITTED, or handle the failure (`_fail`).

        Outermost function of a thread.
        """
        self._watch_source()
        try:
            self._phases.run()
            self._store.update(state=next_state(self.record.state, Trigger.FINISH))
            _log.info("The sync is committed.", extra={"state": self.record.state.value})
        except Cancelled:
            _log.info(
                "The work on the sync has stopped, because of a pause, a reset, a takeover, or the end of the process.",
                extra={"state": self.record.state.value},
            )
            raise
        except Exception as error:
            self._fail(error)
        finally:
            self._at_rest.set()

    def _run_reset(self) -> None:
        """Wait until the engine has stopped, then reset the run. Outermost function of a thread.

        If the reset fails, the failure becomes visible, but is not saved: a restart continues the reset.
        """
        while not self._is_at_rest():
            self._process.stop.check()
        self._at_rest.clear()
        try:
            Reset(self._prepare(), self._stop).run()
        except Exception as error:
            self._fail(error, during=State.RESETTING)
        else:
            _log.info("The reset is complete.")
            self._cleared()
        finally:
            self._at_rest.set()

    def _fail_in_pause(self, error: Exception) -> None:
        self._fail(error, during=State.PAUSED)

    def _fail(self, error: Exception, during: State | None = None) -> None:
        """Make the failure of the sync visible, and save the failure unless a restart repeats the failed work.

        After a saved failure, also restore the original write blocks and balancers. `during` is PAUSED or RESETTING if
        the work of a pause or a reset has failed, otherwise None. If the sync is PAUSED or RESETTING now and `during`
        is not this state, the error is only logged.
        """
        reported = in_words_of(errors.ALL, failures.named(error))
        kind, description = describe(reported)
        with self._changing:
            state = self.record.state
            if state in (State.PAUSED, State.RESETTING) and state is not during:
                # Ignore the error: after a pause, the failed work is retried, because it never counts as done.
                _log.warning(
                    "A call failed while the sync was being paused or reset. You need not do anything: "
                    "after a pause, a resume repeats the failed work.",
                    exc_info=error,
                )
                return
            elsewhere = isinstance(reported, FailedElsewhere)
            failure = Failure(kind.name, description, elsewhere, saved_state=state)
            failed = next_state(state, Trigger.FAIL)
            is_continued = continued(failure) is not None
            # Unlike other state changes, a failure is shown before it is saved: the save may take long or fail, for the
            # same reason as the run.
            self._store.show(state=failed, failure=failure)
            if is_continued:
                self._store.note(failure_entry(failure, time()))
            else:
                self._store.defer(state=failed, failure=failure.as_saved)
        _log.error(
            "The sync failed.",
            exc_info=error,
            extra={"error": kind.name, "errorDescription": description},
        )
        if not is_continued:
            self._conclude()

    def _conclude(self) -> None:
        """Save the failure, if it is not saved yet, and restore the original write blocks and balancers.

        An error is only logged, because a resume or the next start of the process repeats these steps. If no later save
        has saved the failure by then, the next start continues the sync instead.
        """
        try:
            self._release()
        except (OperationError, PyMongoError) as error:
            _log.error(
                "Could not save the failure, or could not lift the write blocks and restart the balancers of the "
                "clusters. POST /api/v1/resume and the next start of the process repeat these steps. Exception: if the "
                "failure is not saved by then, the next start continues the sync. Meanwhile, user writes may stay "
                "blocked, and balancers may stay stopped.",
                extra={"error": str(error)},
            )

    def _release(self) -> None:
        """Save the failure; then restore the original write blocks (see `to_put_back`) and balancers of the clusters.

        Raises OperationError, the driver's errors, and `Cancelled` if a reset begins or the process stops.
        """
        # Save the failure before releasing the clusters: a run that continues must never find its source unblocked.
        self._store.update_unless(refuse_resetting)
        self._process.observe(Point.FAILURE_SAVED, "")
        if not self.record.can_write:
            # The applications may return to the source, so the warnings that forbid this must end.
            for kind in (WarningKind.FOREIGN_BLOCK, WarningKind.SOURCE_WRITTEN):
                self._process.progress.end_warning(kind)
        for name in to_put_back(self.record):
            self._assembly.block(self._process.clusters[name], self._releasing).put_back()
        for cluster in self._process.clusters.values():
            self._assembly.balancer(cluster, self._releasing).put_back()
