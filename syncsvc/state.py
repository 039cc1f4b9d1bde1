"""The states and phases of a sync, and the table of the transitions between the states."""

from __future__ import annotations

from enum import Enum

from syncsvc.errors import INVALID_STATE
from verifier.runtime.errors import OperationError


class State(Enum):
    INITIALIZING = "INITIALIZING"
    IDLE = "IDLE"
    RUNNING = "RUNNING"
    PAUSED = "PAUSED"
    COMMITTING = "COMMITTING"
    COMMITTED = "COMMITTED"
    REVERSING = "REVERSING"
    FAILED = "FAILED"
    RESETTING = "RESETTING"


class Trigger(Enum):
    """The triggers of state transitions: commands of the user, and events in the process and its engine."""

    READY = "ready"
    START = "start"
    PAUSE = "pause"
    RESUME = "resume"
    COMMIT = "commit"
    FINISH = "finish"
    REVERSE = "reverse"
    REVERSED = "reversed"
    REPAIR = "repair"
    COPY_PRINCIPALS = "a copy of users and roles"
    FAIL = "fail"
    RESET = "reset"
    CLEARED = "cleared"


# A process that finds a saved sync changes from INITIALIZING to the state of that sync. The table does not contain this
# change, because the state of the sync itself stays the same.
_NEXT: dict[tuple[State, Trigger], State] = {
    (State.INITIALIZING, Trigger.READY): State.IDLE,
    (State.IDLE, Trigger.START): State.RUNNING,
    (State.RUNNING, Trigger.PAUSE): State.PAUSED,
    (State.PAUSED, Trigger.RESUME): State.RUNNING,
    # A paused sync fails only if watching the oplog or spooling its change events fails, for example because the oplog
    # has lost some.
    (State.PAUSED, Trigger.FAIL): State.FAILED,
    # A failed sync can also continue as COMMITTING, REVERSING or RESETTING. If the failure is final, the resume is
    # refused: see `syncsvc.resuming`.
    (State.FAILED, Trigger.RESUME): State.RUNNING,
    (State.RUNNING, Trigger.REPAIR): State.RUNNING,
    # A failed sync can be repaired only if its verification failed.
    (State.FAILED, Trigger.REPAIR): State.RUNNING,
    (State.RUNNING, Trigger.COPY_PRINCIPALS): State.RUNNING,
    (State.RUNNING, Trigger.COMMIT): State.COMMITTING,
    (State.RUNNING, Trigger.FAIL): State.FAILED,
    (State.COMMITTING, Trigger.FINISH): State.COMMITTED,
    (State.COMMITTING, Trigger.FAIL): State.FAILED,
    (State.COMMITTED, Trigger.REVERSE): State.REVERSING,
    (State.REVERSING, Trigger.REVERSED): State.RUNNING,
    (State.REVERSING, Trigger.FAIL): State.FAILED,
    (State.RUNNING, Trigger.RESET): State.RESETTING,
    (State.PAUSED, Trigger.RESET): State.RESETTING,
    (State.COMMITTING, Trigger.RESET): State.RESETTING,
    (State.FAILED, Trigger.RESET): State.RESETTING,
    # A reset that was requested continues by itself; the request may be repeated.
    (State.RESETTING, Trigger.RESET): State.RESETTING,
    (State.RESETTING, Trigger.FAIL): State.FAILED,
    (State.RESETTING, Trigger.CLEARED): State.IDLE,
}

# What each state means for a refused command, and what to do next.
_MEANING: dict[State, str] = {
    State.INITIALIZING: "The process is starting: wait until the state changes.",
    State.IDLE: "There is no sync: POST /api/v1/start starts one.",
    State.RUNNING: "The sync is running: GET /api/v1/progress shows what it does.",
    State.PAUSED: "The sync is paused: POST /api/v1/resume continues it.",
    State.COMMITTING: "A commit is in progress: wait until the state is COMMITTED or FAILED (GET /api/v1/progress).",
    State.COMMITTED: "The sync is complete: applications belong on the destination, and no more changes are synced.",
    State.REVERSING: "A reversal is in progress: wait until the state is RUNNING or FAILED (GET /api/v1/progress).",
    State.FAILED: (
        "The sync has failed: errorDescription in GET /api/v1/progress names the cause. In most cases, POST "
        "/api/v1/resume continues the sync once the cause is removed."
    ),
    State.RESETTING: "A reset is in progress: wait until the state is IDLE or FAILED (GET /api/v1/progress).",
}

# More precise advice for some commands.
_ADVICE: dict[tuple[State, Trigger], str] = {
    (State.COMMITTED, Trigger.START): (
        "Before a new sync, keep the report of the committed one, stop this process, and drop its metadata database: "
        "see docs/howto/clean-up. To return to the former source, use POST /api/v1/reverse if the sync is reversible."
    ),
    (State.FAILED, Trigger.START): (
        "In most cases, POST /api/v1/resume continues the failed sync once the cause of the failure is removed. A sync "
        "that was never committed can also be reset (POST /api/v1/reset) and started again."
    ),
    (State.RUNNING, Trigger.RESUME): "The sync is running, so there is nothing to resume.",
    (State.RUNNING, Trigger.REVERSE): (
        "A reversal needs a commit first (POST /api/v1/commit). If you have just reversed the sync, it already runs in "
        "the other direction: directionMapping in GET /api/v1/progress shows the clusters swapped."
    ),
    (State.PAUSED, Trigger.PAUSE): (
        "The sync is already paused, so there is nothing to do. POST /api/v1/resume continues it."
    ),
    (State.PAUSED, Trigger.REPAIR): "First resume the sync (POST /api/v1/resume).",
    (State.PAUSED, Trigger.COMMIT): "First resume the sync (POST /api/v1/resume).",
    (State.PAUSED, Trigger.COPY_PRINCIPALS): "First resume the sync (POST /api/v1/resume).",
    (State.COMMITTED, Trigger.COMMIT): (
        "The sync is already committed, so there is nothing to send: applications belong on the destination."
    ),
    (State.COMMITTING, Trigger.COPY_PRINCIPALS): (
        "Wait: the commit copies users and roles itself if the sync was started with usersAndRoles.copy true."
    ),
    (State.COMMITTING, Trigger.REPAIR): (
        "Wait: with verification, the commit compares both clusters, and repairs the differences unless "
        "verification.repair is never. If the commit fails with VerificationFailed, request the repair again."
    ),
    (State.COMMITTED, Trigger.REPAIR): (
        "A committed sync cannot be repaired: users may have changed the documents of both clusters since the commit. "
        "Do not send the repair again; correct single documents yourself, on the cluster that the applications use now."
    ),
}

ACTIVE = frozenset({State.RUNNING, State.COMMITTING, State.REVERSING})


def next_state(state: State, trigger: Trigger) -> State:
    """Return the state after `trigger` in `state`.

    Raises OperationError InvalidState if there is no such transition.
    """
    following = _NEXT.get((state, trigger))
    if following is None:
        needed = " or ".join(start.value for start, each in _NEXT if each is trigger)
        advice = _ADVICE.get((state, trigger), _MEANING[state])
        raise OperationError(
            INVALID_STATE,
            f"{trigger.value} needs state {needed}; the state is {state.value}. {advice}",
        )
    return following


class Phase(Enum):
    """The phases of a sync. The values are shown in the field `info` of the progress."""

    INITIALIZING = "initializing collections and indexes"
    COPYING = "collection copy"
    INDEXING = "building indexes"
    APPLYING = "change event application"
    WITHDRAWING = "withdrawing the commit"
    CUTTING_OVER = "waiting for commit to complete"
    DONE = "commit completed"
    REVERSING = "reversing"
    RESETTING = "resetting"

    @property
    def copied(self) -> bool:
        """Return whether the phase comes after the copy of the collections.

        True in a reversed sync, which has no copy phase, and in RESETTING, even if the copy was not complete.
        """
        return self not in (Phase.INITIALIZING, Phase.COPYING)

    @property
    def applied(self) -> bool:
        """Return whether the phase is CUTTING_OVER or DONE.

        In these phases, all changes up to the commit are applied, and the verification (if enabled) has passed.
        """
        return self in (Phase.CUTTING_OVER, Phase.DONE)
