"""Each metric of a sync, as a table: what is known of it, and what is left out."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from syncsvc.figures.progress import ProgressSnapshot, WarningKind
from syncsvc.figures.trends import Lag
from syncsvc.reports.metrics import TABLE, Sync
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from tests.support.metrics import Shown, values
from tests.unit.syncsvc.records import run_record
from verifier.runtime.metrics import families

FALLING = ProgressSnapshot(lags=(Lag(30, 0.0), Lag(10, 20.0)))
COPIED = ProgressSnapshot(total_bytes=100, copied_bytes=40, copied_documents=4)
UNKNOWN = {
    *("mongosync_failure", "mongosync_lag_seconds", "mongosync_catch_up_seconds"),
    *("mongosync_oplog_left_seconds", "mongosync_copy_size_bytes"),
    *("mongosync_copied_bytes", "mongosync_copied_documents"),
}


def shown(
    record: RunRecord | None,
    snapshot: ProgressSnapshot = ProgressSnapshot(),
    can_commit: bool = False,
) -> Shown:
    state = State.IDLE if record is None else record.state
    return values(families(TABLE, Sync(state, record, snapshot, can_commit)))


def hot(name: str, record: RunRecord | None) -> set[tuple[str, ...]]:
    """The labels of which the value is 1; that of the others is 0."""
    of_name = shown(record)[name]
    assert set(of_name.values()) <= {0, 1}
    return {labels for labels, value in of_name.items() if value}


def test_idle_shows_the_state_and_what_is_not_possible() -> None:
    assert shown(None, replace(COPIED, events_applied=3, lag_seconds=1)) == {
        "mongosync_state": {(each.value,): float(each is State.IDLE) for each in State},
        "mongosync_can_commit": {(): 0},
        "mongosync_can_write": {(): 0},
    }


def test_of_a_run_all_is_shown_but_the_unknown() -> None:
    every = {metric.name for metric in TABLE}
    assert set(shown(run_record())) == every - UNKNOWN


@pytest.mark.parametrize("state", list(State)[1:])
def test_the_state_is_the_one_of_the_record(state: State) -> None:
    assert hot("mongosync_state", run_record(state=state)) == {(state.value,)}
    assert len(shown(run_record(state=state))["mongosync_state"]) == len(State)


@pytest.mark.parametrize("phase", Phase)
def test_the_phase_is_the_one_of_the_record(phase: Phase) -> None:
    assert hot("mongosync_sync_phase", run_record(phase=phase)) == {(phase.value,)}
    committing = run_record(state=State.COMMITTING, phase=phase)
    assert hot("mongosync_sync_phase", committing) == {(Phase.CUTTING_OVER.value,)}
    assert len(shown(run_record())["mongosync_sync_phase"]) == len(Phase)


def test_the_failure_and_the_warnings_are_named() -> None:
    failed = run_record(state=State.FAILED, failure=Failure("SomeError", "Why."))
    assert shown(failed)["mongosync_failure"] == {("SomeError",): 1}
    warned = ProgressSnapshot(warnings={WarningKind.OPLOG_SHORT: "It is."})
    assert shown(run_record(), warned)["mongosync_warning"] == {
        ("oplog short",): 1,
        ("oplog unknown",): 0,
        ("indexes withheld",): 0,
        ("check repeated",): 0,
    }


RUNNING = {"state": State.RUNNING}
APPLYING = {"state": State.RUNNING, "phase": Phase.APPLYING}
COMMITTING = {"state": State.COMMITTING, "phase": Phase.APPLYING}
PAUSED = {"state": State.PAUSED, "phase": Phase.APPLYING}
FAILED = {"state": State.FAILED, "phase": Phase.APPLYING}
NUMBERS: list[tuple[str, dict[str, Any], ProgressSnapshot, float | None]] = [
    ("can_write", {"can_write": True}, ProgressSnapshot(), 1),
    ("can_write", RUNNING, ProgressSnapshot(), 0),
    ("lag_seconds", APPLYING, ProgressSnapshot(lag_seconds=0), 0),
    ("lag_seconds", COMMITTING, ProgressSnapshot(lag_seconds=7), 7),
    ("lag_seconds", PAUSED, ProgressSnapshot(lag_seconds=7), None),
    ("lag_seconds", FAILED, ProgressSnapshot(lag_seconds=7), None),
    ("catch_up_seconds", APPLYING, FALLING, 10),
    ("catch_up_seconds", COMMITTING, FALLING, 10),
    ("catch_up_seconds", RUNNING, FALLING, None),
    ("catch_up_seconds", PAUSED, FALLING, None),
    ("catch_up_seconds", FAILED, FALLING, None),
    ("oplog_left_seconds", RUNNING, ProgressSnapshot(oplog_seconds_left=0.0), 0),
    ("oplog_left_seconds", RUNNING, ProgressSnapshot(oplog_seconds_left=math.inf), math.inf),
    ("oplog_left_seconds", COMMITTING, ProgressSnapshot(oplog_seconds_left=5.0), None),
    ("copy_size_bytes", RUNNING, COPIED, 100),
    ("copy_size_bytes", RUNNING, replace(COPIED, copied_bytes=101), 101),
    ("copied_bytes", RUNNING, COPIED, 40),
    ("copied_bytes", RUNNING, replace(COPIED, copied_bytes=0), 0),
    ("copied_bytes", RUNNING, ProgressSnapshot(copied_bytes=40), None),
    ("copied_documents", RUNNING, COPIED, 4),
    ("copied_documents", RUNNING, ProgressSnapshot(copied_documents=4), None),
    ("events_applied_total", RUNNING, ProgressSnapshot(events_applied=9), 9),
    ("documents_refetched_total", RUNNING, ProgressSnapshot(documents_refetched=2), 2),
]


@pytest.mark.parametrize("name, record, snapshot, value", NUMBERS)
def test_a_number(
    name: str, record: dict[str, Any], snapshot: ProgressSnapshot, value: float | None
) -> None:
    found = shown(run_record(**record), snapshot).get(f"mongosync_{name}")
    assert found == (None if value is None else {(): value})


@pytest.mark.parametrize("can_commit", [True, False])
def test_whether_a_commit_is_possible(can_commit: bool) -> None:
    assert shown(run_record(), can_commit=can_commit)["mongosync_can_commit"] == {(): can_commit}


def test_every_row_has_a_test() -> None:
    tested = {f"mongosync_{name}" for name, *_ in NUMBERS} | {
        *("mongosync_state", "mongosync_sync_phase", "mongosync_failure", "mongosync_warning"),
        "mongosync_can_commit",
    }
    assert tested == {metric.name for metric in TABLE}
