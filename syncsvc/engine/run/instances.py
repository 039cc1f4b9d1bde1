"""Waits for the other instances (processes) that share a sync, and warns of their problems."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from time import monotonic

from syncsvc.errors import ALL
from syncsvc.figures.progress import OtherInstance, Progress, WarningKind
from syncsvc.saved.peers import Peers, awaited, is_cut_over
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.saved.run_store import RunStore
from syncsvc.state import ACTIVE, State
from syncsvc.tuning import Tuning
from verifier.runtime.errors import INTERNAL_ERROR, OperationError
from verifier.runtime.tasks import POLL, SLOW_POLL, StopToken, wait_until
from verifier.runtime.waits import waiting

_LOOK_AT_INSTANCES = (
    "Check that the other instances run, and read their state and warnings (GET /api/v1/progress)."
)
_RESET_INSTANCES = (
    "Nothing is dropped until each of them is being reset: check that they run, and send POST /api/v1/reset to each "
    "of them."
)

_AWAITED = (
    "These instances need a command before all instances can continue: {}. Send each command to the instance that is "
    "named before it."
)
_KEEP = "Until all instances have received the command reverse, the oplog of {} must keep all changes since the commit."

# The beginning of a failure description that comes from another instance.
_BEGINNING = "The instance "
_KINDS = {kind.name: kind for kind in ALL}


class Instances:
    """The other instances of one run.

    If this instance runs alone, `wait_for_all` and `wait_for_started` return immediately. Each method that reads the
    saved records also raises the errors of `Peers.others`.
    """

    def __init__(
        self, run: RunStore, peers: Peers, progress: Progress, tuning: Tuning = Tuning()
    ) -> None:
        self._run = run
        self._peers = peers
        self._progress = progress
        self._tuning = tuning
        # The records that `watch` has read last.
        self._known: list[RunRecord] = []
        # For each instance: its newest heartbeat (`RunRecord.beat`), and the monotonic time when this process first saw
        # that heartbeat, or last saw the instance in a state without heartbeats.
        self._beats: dict[str, tuple[int, float]] = {}

    def all_hold(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> bool:
        """Return whether all other instances have started, none has failed, and `holds` is True for their records."""
        return self._all(holds, self._peers.others(stop))

    def all_held(self, holds: Callable[[RunRecord], bool]) -> bool:
        """Return the same as `all_hold`, but for the records that `watch` has last read."""
        return self._all(holds, self._known)

    def _all(self, holds: Callable[[RunRecord], bool], others: Sequence[RunRecord]) -> bool:
        several = len(self._run.record.instances) or 1
        return len(others) == several - 1 and all(map(_unless_failed(holds), others))

    def wait_for_all(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> None:
        """Wait until all other instances have started, none has failed, and `holds` is True for their run records.

        Raises `Cancelled` when stopped.
        """
        with waiting("This instance waits for the other instances", _LOOK_AT_INSTANCES):
            wait_until(lambda: self.all_hold(holds, stop), stop)

    def wait_for_started(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> None:
        """Wait, in a reset, until `holds` is True for the run records of all other instances that have been started.

        Raises `Cancelled` when stopped.
        """
        with waiting("The reset waits for the other instances", _RESET_INSTANCES):
            wait_until(lambda: all(map(holds, self._peers.others(stop))), stop)

    def wait_for_coordinator(
        self, holds: Callable[[RunRecord], bool], stop: StopToken
    ) -> RunRecord:
        """Wait until `holds` returns True for the run record of the coordinator, and return that record.

        While the coordinator has not started or has failed, keep waiting. Raises `Cancelled` when stopped.
        """
        with waiting("This instance waits for the coordinator", _LOOK_AT_INSTANCES):
            return self._coordinator(holds, stop, POLL)

    def wait_for_long_work(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> RunRecord:
        """Wait like `wait_for_coordinator`, for work of the coordinator that may take hours, such as index builds.

        The record is read less often, and a long wait causes no warning: `watch` warns if the coordinator is silent or
        lacks a command.
        """
        return self._coordinator(holds, stop, SLOW_POLL)

    def _coordinator(
        self, holds: Callable[[RunRecord], bool], stop: StopToken, every: float
    ) -> RunRecord:
        while True:
            record = self._peers.coordinator(stop)
            if record is not None and _unless_failed(holds)(record):
                return record
            stop.sleep(every)

    def watch(self, stop: StopToken) -> None:
        """Until stopped, publish the progress of the other instances, and warn if an instance needs attention.

        The warnings name the instances that have not received a command that others have, and the other instances that
        send no heartbeats. Also save that users may write to the destination, once the record of another instance shows
        that. Raises FailedElsewhere (see `refuse_failed`). Returns immediately if there are no other instances.
        """
        if not self._run.record.instances:
            return
        try:
            while True:
                others = self._known = self._peers.others(stop)
                self._save_cut_over(others)
                refuse_failed(self._run.record, others)
                self._warn_of_commands(others)
                self._warn_of_silence(others)
                self._progress.set(others=tuple(map(self._shown, others)))
                stop.sleep(self._tuning.instance_interval)
        finally:
            # No other code ends these warnings.
            for kind in (WarningKind.INSTANCE_AWAITED, WarningKind.INSTANCE_SILENT):
                self._progress.end_warning(kind)

    def _save_cut_over(self, others: Collection[RunRecord]) -> None:
        """Save that users may write to the destination, if another instance has saved that.

        This is needed because `wait_for_coordinator` ignores the record of a failed coordinator, and the coordinator
        may have failed right after it saved this.
        """
        own = self._run.record
        if not own.can_write and is_cut_over(own, others):
            self._run.update(can_write=True)

    def _shown(self, other: RunRecord) -> OtherInstance:
        applied = None if other.position is None else other.position.time.time
        _, heard_at = self._beats[other.instance]
        return OtherInstance(
            other.instance,
            other.state,
            other.phase,
            applied,
            heard_at,
            other.repaired_documents,
            other.repaired_definitions,
        )

    def _warn_of_commands(self, others: Iterable[RunRecord]) -> None:
        own = self._run.record
        missing = list(awaited(own.instances, [own, *others]))
        # Until an instance receives the command `reverse`, it does not spool the change events since the commit.
        reverse = any(command == "reverse" for _, command in missing)
        text = f"{_AWAITED} {_KEEP.format(own.source)}" if reverse else _AWAITED
        names = [f"{name} ({command})" for name, command in missing]
        self._warn(WarningKind.INSTANCE_AWAITED, names, text)

    def _warn_of_silence(self, others: Iterable[RunRecord]) -> None:
        now = monotonic()
        silent = []
        for each in others:
            beat, since = self._beats.get(each.instance, (-1, now))
            if beat != each.beat or each.state not in ACTIVE:
                self._beats[each.instance] = each.beat, now
            elif now - since > self._tuning.most_silence:
                silent.append(each.instance)
        self._warn(
            WarningKind.INSTANCE_SILENT,
            silent,
            "No heartbeat from: {}. Check that these instances run and reach the destination; start those that do not "
            "run. The sync cannot progress without them.",
        )

    def _warn(self, kind: WarningKind, names: list[str], text: str) -> None:
        if names:
            self._progress.warn(kind, text.format(", ".join(names)))
        else:
            self._progress.end_warning(kind)


def refuse_failed(own: RunRecord, others: Iterable[RunRecord]) -> None:
    """Raise FailedElsewhere if one of the instances `others` has failed since this instance was last resumed.

    `own` is the run record of this instance. Earlier failures are ignored, because the failed instance will be resumed,
    too.
    """
    for each in others:
        failed = each.state is State.FAILED and each.attempt >= own.attempt
        if failed and each.failure is not None:
            raise FailedElsewhere(each.instance, each.failure)


def _unless_failed(holds: Callable[[RunRecord], bool]) -> Callable[[RunRecord], bool]:
    """Return a predicate like `holds` that is False for a failed instance, because a resume may change its record."""
    return lambda other: other.state is not State.FAILED and holds(other)


class FailedElsewhere(OperationError):
    """Raised because another instance has failed.

    The text names the instance that failed first, and already includes the remedy.
    """

    def __init__(self, instance: str, failure: Failure) -> None:
        text = failure.description
        # If that instance failed because of another one, the text already names the other one.
        if not text.startswith(_BEGINNING):
            text = f"{_BEGINNING}{instance} failed: {text}"
        super().__init__(_KINDS.get(failure.name, INTERNAL_ERROR), text)

    def __str__(self) -> str:
        return self.description
