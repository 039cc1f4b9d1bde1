"""Tests the effect of a resume after each kind of error, and the record from which the sync continues."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from typing import Any

import pytest
from bson import Timestamp

from syncsvc import errors
from syncsvc.options import StartOptions, WriteBlocking
from syncsvc.resuming import (
    RESUMPTIONS,
    Resumption,
    continued,
    is_damaged,
    is_saved,
    may_be_lost,
    needs_new_check,
    refuse_final,
    resumed,
    state_after_resume,
    why_not_repairable,
)
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import run_record
from verifier.runtime.errors import ErrorKind, OperationError

COMMIT: dict[str, Any] = {
    "commit_time": Timestamp(1700000000, 1),
    "steps": ("definitions prepared",),
    "commit_repairs": 1,
}


def failed(name: str = "DocumentNotCopied", **fields: Any) -> RunRecord:
    return run_record(state=State.FAILED, failure=Failure(name, "It did."), **fields)


def test_every_kind_of_failure_has_a_decision() -> None:
    assert set(RESUMPTIONS) == set(errors.FAILURES)


@pytest.mark.parametrize("kind", errors.FAILURES, ids=lambda kind: str(kind.name))
def test_a_decision_agrees_with_the_remedy(kind: ErrorKind) -> None:
    decision = RESUMPTIONS[kind]
    failure = Failure(kind.name, "It did.")
    assert is_saved(kind) is (decision is not Resumption.CONTINUED)
    assert may_be_lost(failure) is (decision is Resumption.RETRIED_UNLESS_LOST)
    if decision is Resumption.RETRIED:
        assert "POST /api/v1/resume" in kind.remedy
    if decision is Resumption.RETRIED_UNLESS_LOST:
        assert "POST /api/v1/resume" in kind.remedy
        assert "POST /api/v1/reset" in kind.remedy
    if decision is Resumption.FINAL:
        assert "POST /api/v1/reset" in kind.remedy
        assert "POST /api/v1/resume" not in kind.remedy
        with pytest.raises(
            OperationError, match=f"{kind.name}.*again.*POST /api/v1/reset"
        ) as raised:
            refuse_final(failed(kind.name), ())
        assert raised.value.kind is errors.FAILURE_IS_FINAL
    else:
        refuse_final(failed(kind.name), ())


@pytest.mark.parametrize("reversals, newest", [(1, "cluster1"), (2, "cluster0")])
def test_a_final_failure_of_a_reversed_sync_names_the_cluster_with_the_newest_data(
    reversals: int, newest: str
) -> None:
    with pytest.raises(OperationError, match=f"{newest} has the newest data.*cannot be reset"):
        refuse_final(failed("EventTooLarge", reversals=reversals), ())
    with pytest.raises(OperationError) as raised:
        refuse_final(failed("EventTooLarge"), ())
    assert "has the newest data" not in str(raised.value)


def test_a_kind_of_another_version_is_retried() -> None:
    failure = Failure("FromTheFuture", "It did.")
    refuse_final(failed("FromTheFuture"), ())
    assert not may_be_lost(failure)


def test_only_an_own_spool_counts_as_damaged() -> None:
    assert is_damaged(failed("EventSpoolDamaged"))
    assert not is_damaged(failed("EventSpoolFull"))
    other = Failure("EventSpoolDamaged", "The instance b failed: why.", elsewhere=True)
    assert not is_damaged(run_record(state=State.FAILED, failure=other))


@pytest.mark.parametrize(
    "name, saved_state, state",
    [
        ("UnexpectedServerError", State.COMMITTING, State.COMMITTING),
        ("UnexpectedServerError", State.REVERSING, State.REVERSING),
        # The failure itself is saved, as earlier versions did with this error.
        ("UnexpectedServerError", None, None),
        ("DuplicateIds", State.COMMITTING, None),
        ("DuplicateIds", State.RESETTING, State.RESETTING),
        ("FromTheFuture", State.COMMITTING, None),
    ],
)
def test_only_an_unsaved_failure_is_continued(
    name: str, saved_state: State | None, state: State | None
) -> None:
    failure = Failure(name, "", saved_state=saved_state)
    record = run_record(state=State.FAILED, failure=failure)
    assert continued(failure) is state
    assert state_after_resume(record) is (state or State.RUNNING)
    assert failure.as_saved.saved_state is None


def test_a_commit_that_a_resume_continues_is_not_final() -> None:
    failure = Failure("NotAuthorized", "", saved_state=State.COMMITTING)
    record = failed(phase=Phase.CUTTING_OVER, steps=("source checked",))
    with pytest.raises(OperationError, match="in the last"):
        refuse_final(record, ())
    refuse_final(replace(record, failure=failure), ())


NOT_BLOCKED = replace(run_record().options, write_blocking=WriteBlocking.NONE)


@pytest.mark.parametrize(
    "fields, is_final",
    [
        ({"steps": ("definitions prepared",)}, False),
        ({"steps": ("definitions prepared", "source checked")}, True),
        # An earlier version did not save the step "source checked".
        ({"steps": ("definitions prepared", "destination unblocked")}, True),
        ({"steps": ("source checked", "destination unblocked"), "options": NOT_BLOCKED}, False),
        ({"steps": ("source checked",), "can_write": True}, False),
        ({"steps": ("source checked",), "phase": Phase.APPLYING}, False),
    ],
)
def test_a_copy_that_was_open_to_users_is_not_continued(
    fields: dict[str, Any], is_final: bool
) -> None:
    other = failed(**{"phase": Phase.CUTTING_OVER, **fields})
    for record, others in ((other, ()), (failed(), (other,))):
        with pytest.raises(OperationError, match="in the last") if is_final else nullcontext():
            refuse_final(record, others)


@pytest.mark.parametrize(
    "record, changes",
    [
        (failed(phase=Phase.INITIALIZING), {}),
        (failed(phase=Phase.COPYING), {}),
        (failed(phase=Phase.APPLYING, **COMMIT), {}),
        (failed(phase=Phase.WITHDRAWING), {}),
        (failed(phase=Phase.CUTTING_OVER, **COMMIT), {"phase": Phase.WITHDRAWING}),
        (failed(phase=Phase.CUTTING_OVER, can_write=True, **COMMIT), {"state": State.COMMITTING}),
        (failed(phase=Phase.REVERSING, reversals=1), {"state": State.REVERSING}),
        (failed(phase=Phase.APPLYING, reversals=1, **COMMIT), {}),
    ],
)
def test_a_commit_is_withdrawn_unless_users_may_write_to_the_destination(
    record: RunRecord, changes: dict[str, Any]
) -> None:
    found = {"failure": None, "attempt": 1, "state": State.RUNNING, **changes}
    if found["state"] is State.RUNNING:
        withdrawn = {"commit_time": None, "steps": (), "principals": None, "commit_repairs": 0}
        found = {"phase": record.phase, **withdrawn, **found}
    assert resumed(record, []) == found


def test_a_follower_does_what_its_coordinator_does() -> None:
    follower = failed(phase=Phase.CUTTING_OVER)
    assert resumed(follower, [failed(can_write=True)])["state"] is State.COMMITTING
    assert resumed(follower, [failed(reversals=1)])["state"] is State.COMMITTING
    assert resumed(follower, [failed()])["state"] is State.RUNNING
    reversed_follower = failed(phase=Phase.CUTTING_OVER, reversals=1)
    not_told = run_record(state=State.COMMITTED, can_write=True)
    assert resumed(reversed_follower, [not_told])["state"] is State.RUNNING


@pytest.mark.parametrize(
    "own, others, expected",
    [
        (0, [(State.FAILED, 0), (State.FAILED, 0)], 1),
        # One of the other instances is already resumed.
        (0, [(State.RUNNING, 1), (State.FAILED, 0)], 1),
        (0, [(State.COMMITTED, 1)], 1),
        # The other instance was resumed, and has failed again.
        (0, [(State.FAILED, 1)], 2),
        (2, [(State.FAILED, 1)], 3),
        # The other instance is not reversed yet.
        (1, [(State.COMMITTED, 0)], 2),
    ],
)
def test_all_instances_join_one_attempt(
    own: int, others: list[tuple[State, int]], expected: int
) -> None:
    records = [run_record(state=state, attempt=number) for state, number in others]
    assert resumed(failed(attempt=own), records)["attempt"] == expected


@pytest.mark.parametrize("state", [State.RUNNING, State.COMMITTING, State.PAUSED, State.RESETTING])
def test_no_instance_is_resumed_before_all_have_stopped(state: State) -> None:
    other = run_record(instance="other", state=state, attempt=1)
    with pytest.raises(OperationError, match="not: other") as raised:
        resumed(failed(attempt=1), [failed(attempt=1), other])
    assert raised.value.kind is errors.INVALID_STATE


def test_a_check_is_continued_unless_it_is_incomplete() -> None:
    assert not needs_new_check(Failure("VerificationFailed", "It differs."))
    assert needs_new_check(Failure("VerificationIncomplete", "Something is missing."))


FOLLOWER: dict[str, Any] = {"instance": "b", "instances": ("a", "b")}


@pytest.mark.parametrize(
    "fields, named",
    [
        ({}, None),
        ({"phase": Phase.COPYING}, "does not run in the current phase"),
        (
            {"options": StartOptions("cluster0", "cluster1", verification=False)},
            "without verification",
        ),
        (FOLLOWER, "must be sent to the coordinator a"),
        ({"state": State.FAILED, "failure": Failure("VerificationFailed", "")}, None),
        ({"state": State.FAILED, "failure": Failure("VerificationFailed", ""), **FOLLOWER}, None),
        ({"state": State.FAILED, "failure": Failure("DuplicateIds", "")}, "DuplicateIds; only"),
        ({"state": State.FAILED}, "an unknown error"),
    ],
)
def test_why_a_sync_cannot_be_repaired(fields: dict[str, Any], named: str | None) -> None:
    reason = why_not_repairable(run_record(**{"phase": Phase.APPLYING, **fields}))
    assert reason is None if named is None else named in str(reason)
