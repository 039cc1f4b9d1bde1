"""Tests the state transitions of a sync against a second table, which was written independently."""

from __future__ import annotations

from itertools import product

import pytest

from syncsvc.errors import INVALID_STATE
from syncsvc.state import ACTIVE, Phase, State, Trigger, next_state
from verifier.runtime.errors import OperationError

TABLE = {
    ("INITIALIZING", "ready"): "IDLE",
    ("IDLE", "start"): "RUNNING",
    ("RUNNING", "pause"): "PAUSED",
    ("PAUSED", "resume"): "RUNNING",
    ("PAUSED", "fail"): "FAILED",
    ("FAILED", "resume"): "RUNNING",
    ("RUNNING", "repair"): "RUNNING",
    ("FAILED", "repair"): "RUNNING",
    ("RUNNING", "a copy of users and roles"): "RUNNING",
    ("RUNNING", "commit"): "COMMITTING",
    ("RUNNING", "fail"): "FAILED",
    ("COMMITTING", "finish"): "COMMITTED",
    ("COMMITTING", "fail"): "FAILED",
    ("COMMITTED", "reverse"): "REVERSING",
    ("REVERSING", "reversed"): "RUNNING",
    ("REVERSING", "fail"): "FAILED",
    ("RUNNING", "reset"): "RESETTING",
    ("PAUSED", "reset"): "RESETTING",
    ("COMMITTING", "reset"): "RESETTING",
    ("FAILED", "reset"): "RESETTING",
    ("RESETTING", "reset"): "RESETTING",
    ("RESETTING", "fail"): "FAILED",
    ("RESETTING", "cleared"): "IDLE",
}
EVERYTHING = [(state.value, trigger.value) for state, trigger in product(State, Trigger)]


@pytest.mark.parametrize("state, trigger", TABLE)
def test_a_trigger_leads_to_the_next_state(state: str, trigger: str) -> None:
    assert next_state(State(state), Trigger(trigger)).value == TABLE[state, trigger]


@pytest.mark.parametrize("state, trigger", [each for each in EVERYTHING if each not in TABLE])
def test_any_other_trigger_is_refused(state: str, trigger: str) -> None:
    with pytest.raises(OperationError) as raised:
        next_state(State(state), Trigger(trigger))
    assert raised.value.kind is INVALID_STATE


@pytest.mark.parametrize(
    "state, trigger, description",
    [
        (State.RUNNING, Trigger.START, "start needs state IDLE; the state is RUNNING. "),
        (State.PAUSED, Trigger.PAUSE, "pause needs state RUNNING; the state is PAUSED. "),
        (
            State.RUNNING,
            Trigger.RESUME,
            "resume needs state PAUSED or FAILED; the state is RUNNING. ",
        ),
        (State.IDLE, Trigger.COMMIT, "commit needs state RUNNING; the state is IDLE. "),
        (
            State.IDLE,
            Trigger.FAIL,
            "fail needs state PAUSED or RUNNING or COMMITTING or REVERSING or RESETTING; the state is IDLE. ",
        ),
    ],
)
def test_a_refusal_names_the_required_states(
    state: State, trigger: Trigger, description: str
) -> None:
    with pytest.raises(OperationError) as raised:
        next_state(state, trigger)
    assert raised.value.description.startswith(description)


@pytest.mark.parametrize(
    "state, trigger, advice",
    [
        (State.PAUSED, Trigger.REPAIR, "First resume the sync"),
        (State.PAUSED, Trigger.COMMIT, "First resume the sync"),
        (
            State.COMMITTING,
            Trigger.REPAIR,
            "If the commit fails with VerificationFailed, request the repair again",
        ),
        (State.PAUSED, Trigger.COPY_PRINCIPALS, "First resume the sync"),
        (State.COMMITTING, Trigger.COPY_PRINCIPALS, "the commit copies users and roles"),
        (State.COMMITTED, Trigger.REPAIR, "A committed sync cannot be repaired"),
        (
            State.COMMITTING,
            Trigger.COMMIT,
            "A commit is in progress: wait until",
        ),
        (State.COMMITTED, Trigger.COMMIT, "already committed, so there is nothing to send"),
        (State.PAUSED, Trigger.PAUSE, "already paused, so there is nothing to do"),
        (State.RUNNING, Trigger.RESUME, "there is nothing to resume"),
        (State.REVERSING, Trigger.REVERSE, "A reversal is in progress: wait until"),
        (State.RUNNING, Trigger.REVERSE, "it already runs in the other direction"),
        (State.RESETTING, Trigger.PAUSE, "A reset is in progress: wait until the state is IDLE"),
        (State.IDLE, Trigger.PAUSE, "There is no sync: POST /api/v1/start starts one"),
        (State.COMMITTED, Trigger.START, "drop its metadata database: see docs/howto/clean-up"),
        (State.FAILED, Trigger.START, "POST /api/v1/resume continues the failed sync"),
    ],
)
def test_a_refusal_says_what_to_do_instead(state: State, trigger: Trigger, advice: str) -> None:
    with pytest.raises(OperationError, match=f"; the state is {state.value}. .*{advice}"):
        next_state(state, trigger)


def test_the_active_states_are_those_in_which_a_sync_works() -> None:
    at_rest = {State.INITIALIZING, State.IDLE, State.PAUSED, State.COMMITTED, State.FAILED}
    # RESETTING does not count as active, because a reset does no work of a sync.
    at_rest.add(State.RESETTING)
    assert ACTIVE == set(State) - at_rest


def test_the_phase_of_applying_is_named_as_documented() -> None:
    assert Phase.APPLYING.value == "change event application"


@pytest.mark.parametrize("phase", Phase)
def test_everything_is_copied_when_events_are_applied(phase: Phase) -> None:
    assert phase.copied is (phase.name not in ("INITIALIZING", "COPYING"))
