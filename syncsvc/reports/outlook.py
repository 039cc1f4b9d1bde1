"""Describes in words what a sync does, why a commit is not possible, and what to do next.

The page and other clients show these texts unchanged, so clients need no rules of their own.
"""

from __future__ import annotations

from collections.abc import Iterator

from syncsvc.desired import Goal
from syncsvc.figures.progress import MOST_LAG, MOST_RECHECK_LAG, OtherInstance, WarningKind
from syncsvc.options import CLUSTERS
from syncsvc.principals.comparison import described
from syncsvc.reports.durations import about
from syncsvc.reports.recovery import Step, after_failure
from syncsvc.reports.sync import (
    Sync,
    copied_in_all,
    index_building,
    is_drained,
    lag_seconds,
    phase_shown,
    total_bytes,
)
from syncsvc.reports.verification_answer import documents_expected, first_amounts
from syncsvc.resuming import why_final, why_not_repairable
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase, State, Trigger, next_state
from verifier.compare.check_progress import Changes, CheckProgress
from verifier.runtime.errors import OperationError

_PHASES = {
    Phase.INITIALIZING: "The sync is preparing the copy",
    Phase.COPYING: "The sync is copying the collections",
    Phase.INDEXING: "The sync is building the indexes",
    Phase.APPLYING: "The sync is applying change events",
    Phase.WITHDRAWING: "The sync is withdrawing the commit",
    Phase.CUTTING_OVER: "The sync is cutting over",
    Phase.DONE: "The sync is complete",
    Phase.REVERSING: "The sync is being reversed",
    Phase.RESETTING: "The sync is being reset",
}
_BEFORE_EVENTS = {
    Phase.INITIALIZING: "The copy has not begun.",
    Phase.COPYING: "The copy is not finished.",
    Phase.INDEXING: "The indexes are not built yet.",
    Phase.WITHDRAWING: "An interrupted commit is still being undone.",
    Phase.REVERSING: "The sync is still being reversed.",
}
_WITHOUT_RUNNING = {
    State.COMMITTING: "A commit is already running.",
    State.COMMITTED: "The sync is already committed.",
    State.REVERSING: "The sync is being reversed.",
    State.RESETTING: "The sync is being reset.",
}
# Shown if no reason is known why a commit is not possible. Usually canCommit is not determined yet, which happens a few
# times per second.
_SOON = "The sync has not determined yet that a commit is possible."


def why_no_commit(sync: Sync) -> tuple[str, ...]:
    """Return all known reasons why a commit is refused now, as sentences; empty if a commit is possible."""
    if sync.can_commit:
        return ()
    if sync.is_standby:
        return ("This daemon is a standby.",)
    record = sync.record
    if record is None:
        starting = sync.state is State.INITIALIZING
        return ("The process is starting." if starting else "No sync was started.",)
    if record.state in (State.FAILED, State.PAUSED):
        return (_stopped(record),)
    if record.state is not State.RUNNING:
        return (_WITHOUT_RUNNING.get(record.state, _SOON),)
    if record.phase is not Phase.APPLYING:
        return (_BEFORE_EVENTS.get(record.phase, _SOON),)
    return tuple(_while_applying(sync, record)) or (_SOON,)


def _while_applying(sync: Sync, record: RunRecord) -> Iterator[str]:
    snapshot = sync.snapshot
    lag = lag_seconds(record, snapshot)
    if record.repairs_now:
        yield "The differences between the clusters are being repaired."
    if not is_drained(record, snapshot):
        yield "Not all changes made during the copy are applied yet."
    if lag is None:
        yield "It is not known yet how far the destination is behind the source."
    elif lag > MOST_LAG:
        yield f"The destination is {about(lag)} behind the source; a commit allows at most {MOST_LAG} seconds."
    if WarningKind.DEFINITIONS_CHANGED in snapshot.warnings:
        yield (
            "The definition of a collection or index was changed on the source in a way that cannot be applied, "
            "because MongoDB before 6.0 does not report such changes. Undo the change on the source: a warning in the "
            "progress names it."
        )
    yield from snapshot.hindrances
    for other in snapshot.others:
        if reason := _awaited(record, other):
            yield f"A commit must wait for the instance {other.name}: {reason}."
    if not record.coordinates:
        yield f"The coordinator {record.coordinator} has not reported that a commit is possible."
    elif record.options.verification:
        yield from _unverified(snapshot.check)


def _awaited(record: RunRecord, other: OtherInstance) -> str | None:
    """Return why a commit must wait for another instance, as a clause; None if no reason is known."""
    if other.state is not State.RUNNING or other.phase is not Phase.APPLYING:
        return f"its state is {other.state.value}, its phase is {other.phase.value}"
    copy_end, own, applied = record.copy_end, record.position, other.applied_until
    if applied is None or (copy_end is not None and applied < copy_end.time):
        return "it has not applied all changes made during the copy yet"
    behind = 0 if own is None else own.time.time - applied
    if behind > MOST_LAG:
        return f"it is {about(behind)} behind this instance; a commit allows at most {MOST_LAG} seconds"
    return None


def _unverified(check: CheckProgress | None) -> Iterator[str]:
    """Yield the reasons why the verification does not allow a commit yet, as sentences."""
    if check is None or check.started is None:
        yield "The verification has not begun."
        return
    if check.first is None:
        done, total = first_amounts(check).documents, documents_expected(check)
        of_all = "" if total is None else f" of about {total:,}"
        yield f"The first pass of the verification is not finished; documents compared: {done:,}{of_all}."
        return
    if check.verdict is None:
        for name, changes in (("source", check.source), ("destination", check.destination)):
            yield from _behind(name, changes)


def _behind(name: str, changes: Changes) -> Iterator[str]:
    lag = changes.lag_seconds
    if lag is None:
        yield f"It is not known yet how far the verification is behind the changes of the {name}."
    elif lag > MOST_LAG:
        yield (
            f"The verification is {about(lag)} behind the changes of the {name}; a commit allows at most "
            f"{MOST_LAG} seconds."
        )
    uncompared = changes.recheck_lag_seconds
    if uncompared is None:
        yield f"The verification must still compare the documents of the {name} that changed during its first pass."
    elif uncompared > MOST_RECHECK_LAG:
        yield (
            f"The verification is {about(uncompared)} behind in comparing the changed documents of the {name}; a "
            f"commit allows at most {MOST_RECHECK_LAG} seconds."
        )


def _stopped(record: RunRecord) -> str:
    """Return a sentence that says that a paused or failed sync has stopped.

    If several instances share the sync, the others may still run.
    """
    what = "This instance of the sync" if record.instances else "The sync"
    if record.state is State.PAUSED:
        return f"{what} is paused."
    return f"{what} has failed{'' if record.failure is None else f' with {record.failure.name}'}."


def summary(sync: Sync) -> str:
    """Return up to three sentences that say what the sync does now, or how it ended."""
    record = sync.record
    if sync.standing is not None and sync.standing.is_standby:
        return f"This daemon is a standby. {sync.standing.where_active}"
    if record is None:
        if sync.state is State.INITIALIZING:
            return "The process is starting: it connects to both clusters and reads the saved sync."
        return "No sync was started."
    if record.state in (State.FAILED, State.PAUSED):
        return _stopped(record)
    if record.state is State.COMMITTED:
        return f"The sync is committed. Applications may write to the destination.{_principals(record)}"
    if record.state is State.COMMITTING:
        return f"The sync is committing.{_of_committing(sync, record)}"
    if record.state is State.RESETTING:
        # The saved phase is still that of the work that is being stopped.
        return f"{_PHASES[Phase.RESETTING]}."
    return f"{_PHASES[phase_shown(record)]}{_amount(sync, record)}."


def _principals(record: RunRecord) -> str:
    """Return a sentence about the copy of users and roles; empty if there was no such copy."""
    if record.principals is None:
        return ""
    return f" Users and roles: {described(record.principals)}."


def _of_committing(sync: Sync, record: RunRecord) -> str:
    if record.can_write:
        return (
            " Applications may write to the destination; the last steps, such as making indexes unique again, are "
            "still running."
        )
    if WarningKind.INSTANCE_AWAITED in sync.snapshot.warnings:
        return " The commit waits for other instances: the next step names them."
    if record.phase is Phase.WITHDRAWING:
        return (
            " Users have written to the source, or may have, so the steps of the cut-over are undone; then the commit "
            "begins again by itself."
        )
    if record.phase is Phase.CUTTING_OVER:
        return " Definitions on the destination are being restored, and the source is checked for new user writes."
    return " The last changes are being applied, and compared unless the verification is disabled."


def _amount(sync: Sync, record: RunRecord) -> str:
    """Return the progress of the current phase, as the end of a sentence; empty if the progress is unknown."""
    snapshot = sync.snapshot
    if record.phase is Phase.COPYING:
        total, copied = total_bytes(snapshot), copied_in_all(sync)
        return f": {percent(copied.bytes, total)} done" if total and copied is not None else ""
    indexes = index_building(sync)
    if record.phase is Phase.INDEXING and indexes is not None:
        return f": {indexes.built} of {indexes.total} are built"
    lag = lag_seconds(record, snapshot)
    if record.phase is not Phase.APPLYING or lag is None:
        return ""
    return f"; the destination is {about(lag)} behind the source"


def percent(part: int, whole: int) -> str:
    """Return `part` as a percentage of `whole`, such as "42 %", rounded down; at most 100 %."""
    return f"{100 * part // whole if part < whole else 100} %"


def next_step(sync: Sync) -> Step | None:
    """Return what the operator should do next; None if there is nothing to do but wait."""
    step, goal = _next_step(sync), sync.goal
    if step is None or step.command is None or goal is None:
        return step
    if not _contradicts_goal(sync, _TRIGGERS[step.command]):
        return step
    # Only the declared state `paused` leads here: `after_failure` handles the other contradictions itself.
    return Step(
        f"The configuration declares desiredState {goal.state.value}. To continue, set desiredState to running and "
        "restart the daemon."
    )


def _contradicts_goal(sync: Sync, trigger: Trigger) -> bool:
    return sync.goal is not None and sync.goal.contradicts(trigger)


def _next_step(sync: Sync) -> Step | None:
    record = sync.record
    if sync.is_standby:
        return Step("Send commands to the active daemon.")
    if record is None:
        return _first_step(sync.goal) if sync.state is State.IDLE else None
    if record.state is State.PAUSED:
        what = "each paused instance of the sync" if record.instances else "the sync"
        return Step(f"Resume {what}.", "resume", {})
    if record.state is State.FAILED:
        return after_failure(sync, record)
    if record.state is State.COMMITTED:
        if record.options.reversible:
            refused = _contradicts_goal(sync, Trigger.REVERSE)
            first = ": first set desiredState to running and restart the daemon" if refused else ""
            return Step(
                "Point the applications to the destination. You can reverse the sync until you clean up "
                f"(docs/howto/clean-up){first}."
            )
        return Step(
            "Point the applications to the destination. Keep the report; then stop this process, and clean up "
            "(docs/howto/clean-up)."
        )
    awaited = sync.snapshot.warnings.get(WarningKind.INSTANCE_AWAITED)
    if record.can_write:
        # This ends the downtime, so it comes first.
        first = "Point the applications to the destination."
        return Step(first if awaited is None else f"{first} Then: {awaited}")
    if awaited is not None:
        return Step(awaited)
    if record.state is State.RUNNING and _commits_itself(sync, record):
        return Step(
            "The configuration declares desiredState committed, so the sync commits by itself as soon as canCommit is "
            "true. Stop the applications that write to the source before that. To choose the time "
            "yourself, set desiredState to running and restart the daemon."
        )
    if sync.can_commit:
        first = "Stop the applications that write to the source, then"
        if record.instances:
            names = ", ".join(record.instances)
            return Step(f"{first} send the commit to every instance ({names}).", "commit", {})
        return Step(f"{first} commit.", "commit", {})
    return None


def _first_step(goal: Goal | None) -> Step:
    """Return what the operator should do before the start. `goal` is the declared state; None if there is none."""
    if goal is None:
        source, destination = CLUSTERS
        body = {"source": source, "destination": destination}
        return Step("Check the clusters with a preflight, then start the sync.", "start", body)
    declares = f"The configuration declares desiredState {goal.state.value}"
    if goal.contradicts(Trigger.START):
        return Step(
            f"{declares}. To start the sync, set desiredState to running and restart the daemon."
        )
    starts = (
        f"{declares}, so the daemon starts the sync by itself with the options of its configuration"
    )
    refused = "If the start is refused, a warning says why."
    if goal.commits:
        return Step(
            f"{starts}, and commits it as soon as canCommit is true. Stop the applications that write to the source "
            f"before that. {refused}"
        )
    return Step(f"{starts}. {refused}")


def _commits_itself(sync: Sync, record: RunRecord) -> bool:
    """Return whether the process will send the commit, because the configuration declares it.

    The process sends no commands for a sync that began with other options.
    """
    return sync.goal is not None and sync.goal.commits and sync.goal.options == record.options


_TRIGGERS = {
    "start": Trigger.START,
    "pause": Trigger.PAUSE,
    "resume": Trigger.RESUME,
    "commit": Trigger.COMMIT,
    "reverse": Trigger.REVERSE,
    "repair": Trigger.REPAIR,
    "reset": Trigger.RESET,
}


def commands_now(sync: Sync) -> list[str]:
    """Return the names of the commands that the current state and the declared state allow; empty on a standby.

    These commands can still be refused for other reasons. The copy of users and roles is never among them.
    """
    if sync.is_standby:
        return []
    return [name for name, trigger in _TRIGGERS.items() if _is_allowed(sync, name, trigger)]


def _is_allowed(sync: Sync, name: str, trigger: Trigger) -> bool:
    try:
        next_state(sync.state, trigger)
    except OperationError:
        return False
    if _contradicts_goal(sync, trigger):
        return False
    record = sync.record
    if name == "commit":
        return sync.can_commit
    if record is None:
        return name == "start"
    if name == "reverse":
        return record.options.reversible
    if name == "reset":
        return not record.in_use
    if name == "resume":
        return why_final(record, ()) is None
    if name == "repair":
        return why_not_repairable(record) is None
    return True
