"""Verifies a sync while it runs: performs a check of `verifier.compare` while change events are applied.

The check begins when the destination has caught up for the first time; before that, everything would differ. From then
on, the check is notified of every change event of the source before that event counts as applied (see
`verifier.compare.feed`). The check reads the change events of the destination itself, because users may write to the
destination directly. So all data is compared once, and changed data again. When a commit is requested, only the last
changes remain to be compared. A restarted process continues the check.
"""

from __future__ import annotations

from dataclasses import replace

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from syncsvc.engine.commit_end import CommitEnd
from syncsvc.engine.repairer import Repairer
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.sync_subject import SyncSubject
from syncsvc.errors import (
    INCOMPATIBLE_METADATA,
    SUPERSEDED,
    VERIFICATION_FAILED,
    VERIFICATION_INCOMPLETE,
    of_sync,
)
from syncsvc.figures.progress import MOST_LAG, MOST_RECHECK_LAG, WarningKind
from syncsvc.saved.journal import MOST_NOTES, Verified
from syncsvc.state import State
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster
from verifier.compare.check import Check, begin
from verifier.compare.check_progress import Amounts, CheckProgress, Outcome, Verdict
from verifier.compare.context import Sides
from verifier.compare.feed import Feed
from verifier.compare.record import CheckRecord, Request
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import POLL, TaskGroup
from verifier.runtime.waits import waiting

_VERIFYING = (
    "The field verification of GET /api/v1/progress shows the progress of the verification. If the verification makes "
    "no progress, see the other warnings."
)

# Failures that say nothing about the data. The sync fails with the same error, and can be resumed.
_OF_SYNC = (*failures.CLUSTER_ERRORS, SUPERSEDED, INCOMPATIBLE_METADATA)


class Verification:
    """Runs the check of one sync in a thread of the task group. If verification is disabled, there is no check.

    Continues the saved check, if there is one. Create this object before any change events are read, because a saved
    check must not miss any. The reader of the change events passes them to `feed`.
    """

    def __init__(self, context: RunContext, group: TaskGroup) -> None:
        self._context = context
        self._group = group
        self._stop = group.stop
        self._enabled = context.run.record.options.verification
        self.feed = Feed(context.tuning.check.feed_bytes)
        self._check: Check | None = None
        self._verdict: Verdict | None = None
        self._repairer = Repairer(context, group.stop)
        self._commit_end = CommitEnd(context, self._repairer, group.stop)
        if self._enabled:
            self._recall()

    def begin(self) -> None:
        """Start a check in its own thread; a no-op if a check exists, or if verification is disabled.

        Call this only after the destination has caught up. Raises the errors of `verifier.compare.check.begin`.
        """
        if self._enabled and self._check is None:
            if self._context.run.record.instances:
                # Any instance may have withheld indexes, which then must not count as missing.
                self._context.registry.reload(self._stop)
            sides, store = self._sides(), self._context.checks
            position = self._context.run.record.position
            request = Request(source_filters=self._context.run.record.options.document_filters)
            begin(sides.source, sides.destination, request, store, self._stop, position)
            self._launch(self._new_check())

    def is_ready(self) -> bool:
        """Return whether a commit can be verified soon; True without verification, False before the check begins."""
        if not self._enabled:
            return True
        check = self._check  # another thread may set it to None
        return check is not None and is_ready(check.figures.progress())

    def show(self) -> None:
        """Copy the progress of the check into the progress of the sync; a no-op before the check begins."""
        check = self._check
        if check is not None:
            self._context.progress.set(check=check.figures.progress())

    def repair_if_asked(self) -> None:
        """Run the repair that a user has requested; a no-op if none is requested, or if the check has not begun."""
        if self._check is not None:
            self._repairer.repair_on_demand()

    def finish_repair(self) -> None:
        """Wait until all instances have completed the repair that an earlier process began, if there is one."""
        self._repairer.finish_round()

    def finish(self, written_until: Timestamp) -> None:
        """Make the check end once it has compared all user writes up to `written_until`, and wait until it has passed.

        `written_until` is a cluster time of the source. Before the call, all changes up to that time must be applied,
        and the position saved. If the commit is postponed (see `CommitEnd`), this method also waits until the later
        changes are applied and compared. If verification is disabled, nothing is compared. Raises OperationError
        VerificationFailed or VerificationIncomplete if the check does not pass.
        """
        if not self._enabled:
            while self._commit_end.later(differs=False) is not None:
                self._stop.check()
            return
        with waiting("The commit waits for the verdict of the verification", _VERIFYING):
            while self._verdict is None:
                self.begin()
                # Read the attribute once: another thread sets it to None if the check is given up.
                check = self._check
                if check is not None and not self._context.checks.record.writes_off:
                    check.no_more_writes(written_until)
                self.show()
                self._stop.sleep(POLL)
        self.show()
        error = refusal(self._verdict)
        if error is not None:
            raise error
        self._context.progress.end_warning(WarningKind.CHECK_REPEATED)
        passed = verified(self._context.checks.record)
        self._context.run.revise(lambda journal: replace(journal, verified=passed))

    def _recall(self) -> None:
        """Continue the saved check, or use its verdict if the verdict still applies; a no-op without a saved check.

        The check saves its verdict, and the times at which user writes ended. If the commit was withdrawn, both are
        discarded. If there is no verdict yet, the times are discarded, because the earlier process may have repaired
        differences or moved the commit time since. The check then follows changes until `finish` is called.
        """
        store = self._context.checks
        try:
            saved = store.load()
        except OperationError as error:
            raise of_sync(error) from error
        if saved is None:
            return
        store.take_over()
        run = self._context.run.record
        began_again = run.state is State.RUNNING or run.commit_time is None
        if store.record.writes_off and (began_again or store.record.verdict is None):
            store.reopen()
        verdict = store.record.verdict
        check = self._new_check()
        check.figures.recall()
        self._check, self._verdict = check, verdict
        if verdict is None:
            self._launch(check)

    def _launch(self, check: Check) -> None:
        self._check = check
        self._group.spawn("check", self._run_check, check)

    def _run_check(self, check: Check) -> None:
        try:
            self._verdict = check.run()
        except (OperationError, PyMongoError, BaseExceptionGroup) as error:
            # If several threads fail, their errors arrive as a group; the first error has stopped the other threads.
            named = failures.named(error)
            if isinstance(named, OperationError) and named.kind == failures.OPLOG_WINDOW_EXCEEDED:
                self._give_up(named)
                return
            raise incompletion(named) from error

    def _give_up(self, error: OperationError) -> None:
        """Warn, and forget the check, so that the next call of `begin` starts a new one.

        `error` says that the destination's oplog dropped change events before the check could read them.
        """
        self._context.progress.warn(
            WarningKind.CHECK_REPEATED,
            "The verification started again, because the oplog of the destination was too short. "
            f"Enlarge this oplog on each member (replSetResizeOplog). {error.description}",
        )
        # The abandoned check stays saved until the next one replaces it: `finish`, in another thread, may still notify
        # it that user writes have ended.
        self._check = None

    def _new_check(self) -> Check:
        context = self._context
        subject = SyncSubject(context, self._commit_end, self._stop)
        return Check(
            subject,
            self._sides(),
            context.checks,
            context.tuning.grace,
            context.observe,
            self._stop,
            self.feed,
        )

    def _sides(self) -> Sides:
        context = self._context
        return Sides(
            Cluster("source", context.source_client, context.source_facts),
            Cluster("destination", context.destination_client, context.destination_facts),
            context.threads.comparers,
            context.tuning.verification_bytes,
            context.tuning.check,
        )


def is_ready(progress: CheckProgress) -> bool:
    """Return whether a check can soon verify a commit: its first pass is complete, and it has a verdict or little lag.

    It has little lag if it has read the change events of each cluster up to at most `MOST_LAG` seconds ago, and has
    compared the documents of all changes up to at most `MOST_RECHECK_LAG` seconds ago. An unknown lag counts as too
    large.
    """
    in_time = all(
        _is_at_most(each.lag_seconds, MOST_LAG)
        and _is_at_most(each.recheck_lag_seconds, MOST_RECHECK_LAG)
        for each in (progress.source, progress.destination)
    )
    return progress.first is not None and (in_time or progress.verdict is not None)


def _is_at_most(lag: int | None, most: int) -> bool:
    return lag is not None and lag <= most


def verified(check: CheckRecord) -> Verified:
    """Return the summary of a passed check for the journal, which keeps it even if a reversal deletes the check."""
    first = check.first or Amounts()
    return Verified(
        check.started,
        check.ended,
        check.generation + 1,
        first.documents,
        first.size,
        first.namespaces,
        check.rechecked,
        check.notes[:MOST_NOTES],
    )


def refusal(verdict: Verdict) -> OperationError | None:
    """Return the error with which the commit fails after this verdict; None if the check has passed."""
    if verdict.outcome is Outcome.PASSED:
        return None
    kind = VERIFICATION_FAILED if verdict.outcome is Outcome.FAILED else VERIFICATION_INCOMPLETE
    return OperationError(kind, " ".join(verdict.reasons))


def incompletion(error: BaseException) -> BaseException:
    """Return the error with which the sync fails after `error` has ended its check.

    An exception that is not an OperationError is returned unchanged. VerificationFailed, and errors that say nothing
    about the data, such as ClusterUnreachable, keep their names. Any other OperationError becomes
    VerificationIncomplete.
    """
    if not isinstance(error, OperationError):
        return error
    error = of_sync(error)
    if error.kind in (*_OF_SYNC, VERIFICATION_FAILED):
        return error
    return OperationError(VERIFICATION_INCOMPLETE, f"{error.kind.name}: {error.description}")
