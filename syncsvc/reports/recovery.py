"""Says what to do after a failure: which cluster the applications must use, and how the sync continues.

The page and `syncctl` show these texts unchanged. A text that sends the applications to the wrong cluster would cause
their writes to be lost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from syncsvc.desired import DesiredState, Goal
from syncsvc.errors import SUPERSEDED, VERIFICATION_FAILED
from syncsvc.reports.sync import Sync
from syncsvc.resuming import continued, state_after_resume, why_final
from syncsvc.saved.run import RunRecord
from syncsvc.state import State, Trigger

# The work that a resume or a restart completes, by the state in which the sync continues.
_COMPLETED = {
    State.COMMITTING: "the commit",
    State.REVERSING: "the reversal",
    State.RESETTING: "the reset",
}
# This text names no command, because the right command depends on the error and the declared state. A restart is always
# right.
_UNSAVED = (
    "Keep the applications stopped until this step changes: this failure is not saved yet. If the daemon is restarted "
    "now, it continues the commit, and every write to the source from this moment on is lost. Saving usually takes a "
    "moment: repeat syncctl status until it shows another step. If it keeps showing this step, find the cause in the "
    "log and remove it; then restart the daemon while the applications are still stopped."
)


@dataclass(frozen=True)
class Step:
    """The next step for the operator: sentences, and the command to send with its request body.

    `command` and `body` are None if there is nothing to send.
    """

    text: str
    command: str | None = None
    body: dict[str, Any] | None = None


def after_failure(sync: Sync, record: RunRecord) -> Step | None:
    """Return the next step after a failure; None if the daemon becomes a standby by itself."""
    if record.failure is not None and record.failure.name == SUPERSEDED.name:
        if sync.standing is not None:
            return None
        return Step(
            "Stop this process: another process runs the sync now, or the saved sync was deleted."
        )
    if _is_commit_failure_unsaved(record):
        return Step(_UNSAVED)
    remedy, goal = _remedy(record), sync.goal
    step = remedy if goal is None else _declared(goal, record, remedy)
    return replace(
        step, text=f"{_applications(record, goal)} {step.text}{_receivers(record, step)}"
    )


def _receivers(record: RunRecord, step: Step) -> str:
    """Return a sentence that names the instances that need the command of `step`; empty if there is only one."""
    if not record.instances or step.command is None:
        return ""
    if step.command == "reset":
        return (
            f" Send the reset to every instance, first to the coordinator ({record.coordinator})."
        )
    return f" Send the {step.command} to every instance that has failed."


def _applications(record: RunRecord, goal: Goal | None) -> str:
    """Return sentences that say where the applications belong until the sync continues."""
    if record.can_write:
        return f"Leave the applications on the destination ({record.destination}): the source lacks their writes."
    interrupted = None if record.failure is None else record.failure.saved_state
    if interrupted not in (None, State.COMMITTING) and _commits(goal):
        # A restart continues the sync, which then commits.
        return "Keep the applications stopped for now."
    if not record.coordinates:
        return _as_coordinator_says(record)
    if _continued(record) is not State.COMMITTING:
        place = _on_source(record)
        if record.instances and _continued(record) is State.RUNNING:
            # This process does not see whether another instance has received the commit since the failure.
            return f"If any instance has received the commit, keep the applications stopped. If none has: {place}"
        return place
    refused = goal is not None and goal.contradicts(Trigger.RESET)
    first = " (first set desiredState to paused and restart the daemon)" if refused else ""
    end = "" if record.in_use else f" If you cannot wait, only a reset ends the commit{first}."
    return (
        "Keep the applications stopped: the commit stays requested, a resume or a restart continues it, and later "
        f"writes to the source would be lost.{end}"
    )


def _as_coordinator_says(record: RunRecord) -> str:
    """Return sentences that refer the operator to the coordinator: only its state shows which cluster to use.

    After a temporary failure of an instance that is not the coordinator, the commit stays requested in all other
    instances. The coordinator may then complete the cut-over without the failed instance.
    """
    text = (
        f"The status of the coordinator ({record.coordinator}) shows where the applications belong."
    )
    if _continued(record) in (State.RUNNING, State.COMMITTING):
        return (
            f"{text} If any instance has received the commit, keep the applications stopped until canWrite of the "
            "coordinator is true."
        )
    return text


def _on_source(record: RunRecord) -> str:
    """Return sentences that say that the applications belong on the source, and whether they can write there now."""
    if record.has_blocked(record.source):
        # The block is lifted after the failure is saved, which usually takes a moment.
        return (
            f"The applications belong on the source ({record.source}), but this sync still blocks user writes there. "
            "If that lasts longer than a minute, restart the daemon, which lifts the block."
        )
    return f"The applications can stay on the source ({record.source}), or return to it."


def _remedy(record: RunRecord) -> Step:
    confirm = {"confirm": record.home}
    if _continued(record) is State.RESETTING:
        # Do not advise a resume: it is refused with the declared state `paused`, which a reset needs. With `running`, a
        # new sync would start after the reset.
        return Step("Remove the cause of the failure, then reset the sync again.", "reset", confirm)
    if why_final(record, ()) is not None:
        if record.in_use:
            return Step(
                "This sync can be neither resumed nor reset, because users may have written to both clusters. The data "
                f"on {record.destination} may be incomplete. Before you start a new sync, stop this process. Then drop "
                f"the copied data on {record.destination}, and the metadata of the sync on both clusters "
                "(docs/howto/reverse, A new sync)."
            )
        return Step(
            "This sync cannot be resumed. Reset it, and start a new sync.", "reset", confirm
        )
    if record.failure is not None and record.failure.name == VERIFICATION_FAILED.name:
        return Step(
            "Repair the differences that the verification found; the sync then continues.",
            "repair",
            {},
        )
    state = state_after_resume(record)
    end = f" to complete {_COMPLETED[state]}" if state in _COMPLETED else ""
    return Step(f"Remove the cause of the failure, then resume the sync{end}.", "resume", {})


def _is_commit_failure_unsaved(record: RunRecord) -> bool:
    """Return whether the failure of a commit is shown, but not saved yet.

    Return False if users may already write to the destination, or if this instance is not the coordinator: then the
    advice does not depend on this failure.
    """
    failure = record.failure
    if failure is None or record.can_write or not record.coordinates:
        return False
    return failure.saved_state is State.COMMITTING and continued(failure) is None


def _continued(record: RunRecord) -> State | None:
    """Return the state in which a resume or a restart continues the sync.

    Return None if there is no failure, or if it is saved or being saved. Once it is saved, a restart alone continues
    nothing, and `state_after_resume` returns the state after a resume.
    """
    return None if record.failure is None else continued(record.failure)


def _commits(goal: Goal | None) -> bool:
    return goal is not None and goal.commits


def _declared(goal: Goal, record: RunRecord, step: Step) -> Step:
    """Return the step; if the declared state does not permit its command, return other advice, without a command.

    The declared state must not contradict the command. And after a resume or a repair, a daemon with the declared state
    `committed` commits again, so applications that have returned to the source would lose their last writes; this does
    not apply if the resume completes the commit.
    """
    if step.command is None:
        return step
    continues = step.command != "reset" and state_after_resume(record) is not State.COMMITTING
    commits = continues and _commits(goal)
    if not (commits or goal.contradicts(Trigger(step.command))):
        return step
    danger = ", so the sync would commit by itself as soon as canCommit is true" if commits else ""
    declares = f"The configuration declares desiredState {goal.state.value}{danger}."
    needed = DesiredState.PAUSED if step.command == "reset" else DesiredState.RUNNING
    state = _continued(record)
    if state is None:
        return Step(
            f"{declares} First set desiredState to {needed.value} and restart the daemon. {step.text}"
        )
    # The restart alone continues the sync, so a command after it would be refused.
    change = "" if state is State.COMMITTING else f"set desiredState to {needed.value} and "
    effect = f"completes {_COMPLETED[state]}" if state in _COMPLETED else "continues the sync"
    return Step(
        f"{declares} Remove the cause of the failure, then {change}restart the daemon, which {effect}."
    )
