"""Verifies a sync while it runs: a check of `verifier.compare` beside change event application.

The check begins when the destination has caught up for the first time; before, everything would be different. From then
on it is told of every change event of the source before that event counts as applied (see `verifier.compare.feed`), and
reads those of the destination itself, where somebody may write behind our back. So all is compared once, and again what
changed; when a commit is asked for, only the last changes are left. A process that is started again goes on with it.
"""

from __future__ import annotations

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from syncsvc.engine.run.context import RunContext
from syncsvc.engine.sync_subject import SyncSubject
from syncsvc.errors import (
    INCOMPATIBLE_METADATA,
    SUPERSEDED,
    VERIFICATION_FAILED,
    VERIFICATION_INCOMPLETE,
    of_sync,
)
from syncsvc.figures.progress import WarningKind
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster
from verifier.compare.check import Check, begin
from verifier.compare.check_progress import CheckProgress, Outcome, Verdict
from verifier.compare.feed import Feed
from verifier.compare.record import Request
from verifier.compare.worker import Sides
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import POLL, TaskGroup
from verifier.runtime.waits import waiting

_VERIFYING = "verification in GET /api/v1/progress says how far it is. If it does not move, see the other warnings."

# Failures that say nothing about the data: the sync fails with them as they are, and can be resumed.
_OF_SYNC = (
    failures.CLUSTER_UNREACHABLE,
    failures.NOT_AUTHORIZED,
    failures.UNEXPECTED_SERVER_ERROR,
    SUPERSEDED,
    INCOMPATIBLE_METADATA,
)


class Verification:
    """The check of one run, carried out in a thread of the group; nothing at all where the run is not verified.

    To be made before any event is read, since an unfinished check must not miss one. `feed` takes the events.
    """

    def __init__(self, context: RunContext, group: TaskGroup) -> None:
        self._context = context
        self._group = group
        self._stop = group.stop
        self._enabled = context.run.record.options.verification
        self.feed = Feed(context.tuning.check.feed_bytes)
        self._check: Check | None = None
        self._verdict: Verdict | None = None
        if self._enabled:
            self._recall()

    def begin(self) -> None:
        """Begin the check, now that the destination has caught up, unless it has begun. Raises the driver's errors."""
        if self._enabled and self._check is None:
            sides, store = self._sides(), self._context.checks
            position = self._context.run.record.position
            begin(sides.source, sides.destination, Request(), store, self._stop, position)
            self._launch(self._new_check(self.feed))

    def is_ready(self, most_lag: int) -> bool:
        """Whether a commit would be verified soon: all was compared once, and no change waits for longer than that."""
        if not self._enabled:
            return True
        return self._check is not None and is_ready(self._check.figures.progress(), most_lag)

    def show(self) -> None:
        """Tell how far the check is."""
        if self._check is not None:
            self._context.progress.set(check=self._check.figures.progress())

    def finish(self, written_until: Timestamp) -> None:
        """Return when source and destination are proved equal. Users write to neither any more.

        `written_until` is since when they do not write to the source; everything until then is applied, and its
        position saved. Raises OperationError VerificationFailed, VerificationIncomplete.
        """
        if not self._enabled:
            return
        with waiting("The commit waits for the verdict of the verification", _VERIFYING):
            while self._verdict is None:
                self.begin()
                if self._check is not None and not self._context.checks.record.writes_off:
                    self._check.no_more_writes(written_until)
                self.show()
                self._stop.sleep(POLL)
        self.show()
        error = refusal(self._verdict)
        if error is not None:
            raise error

    def _recall(self) -> None:
        """Go on with the check that is saved, or know what it ended with."""
        store = self._context.checks
        try:
            saved = store.load()
        except OperationError as error:
            raise of_sync(error) from error
        if saved is None:
            return
        store.take_over()
        ended = store.record.verdict is not None
        check = self._new_check(None if ended else self.feed)
        check.figures.recall()
        self._check, self._verdict = check, store.record.verdict
        if not ended:
            self._launch(check)

    def _launch(self, check: Check) -> None:
        self._check = check
        self._group.spawn("check", self._carry_out, check)

    def _carry_out(self, check: Check) -> None:
        try:
            self._verdict = check.run()
        except (OperationError, PyMongoError) as error:
            named = failures.named(error)
            if isinstance(named, OperationError) and named.kind == failures.OPLOG_WINDOW_EXCEEDED:
                self._give_up(named)
                return
            raise incompletion(named) from error

    def _give_up(self, error: OperationError) -> None:
        """Let a check begin anew: changes of the destination were lost before it could read them."""
        self._context.progress.warn(
            WarningKind.CHECK_REPEATED,
            "The verification started again, because the oplog of the destination was too short for it. "
            f"Enlarge it on each member (replSetResizeOplog). {error.description}",
        )
        # It stays saved until the next one takes its place: whoever tells it that writes are off finds it until then.
        self._check = None

    def _new_check(self, feed: Feed | None) -> Check:
        context = self._context
        subject = SyncSubject(context, self._stop)
        return Check(
            subject,
            self._sides(),
            context.checks,
            context.tuning.grace,
            context.observe,
            self._stop,
            feed,
        )

    def _sides(self) -> Sides:
        context = self._context
        return Sides(
            Cluster("source", context.source_client, context.source_facts),
            Cluster("destination", context.destination_client, context.destination_facts),
            context.load.readers,
            context.tuning.verification_bytes,
            context.tuning.check,
        )


def is_ready(progress: CheckProgress, most_lag: int) -> bool:
    """Whether a check has compared everything once, and is behind the changes of neither cluster by more seconds."""
    lags = (progress.source.lag_seconds, progress.destination.lag_seconds)
    in_time = all(lag is not None and lag <= most_lag for lag in lags)
    return progress.first is not None and (in_time or progress.verdict is not None)


def refusal(verdict: Verdict) -> OperationError | None:
    """What a commit fails with after that verdict; None where it may go on."""
    if verdict.outcome is Outcome.PASSED:
        return None
    kind = VERIFICATION_FAILED if verdict.outcome is Outcome.FAILED else VERIFICATION_INCOMPLETE
    return OperationError(
        kind, f"{' '.join(verdict.reasons)} GET /api/v1/mismatches lists all of them."
    )


def incompletion(error: BaseException) -> BaseException:
    """What a run fails with when its check could not be carried out."""
    if not isinstance(error, OperationError):
        return error
    error = of_sync(error)
    if error.kind in _OF_SYNC:
        return error
    return OperationError(VERIFICATION_INCOMPLETE, f"{error.kind.name}: {error.description}")
