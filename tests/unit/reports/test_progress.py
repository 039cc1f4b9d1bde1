"""The progress answer has its documented shape in every state."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.figures.progress import ProgressSnapshot, WarningKind
from syncsvc.figures.trends import Lag
from syncsvc.options import StartOptions
from syncsvc.reports.progress import progress_report
from syncsvc.reports.sync import Sync
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import run_record

ADDRESSES = {"cluster0": "a:27017", "cluster1": "b:27018"}
SNAPSHOT = ProgressSnapshot(
    total_bytes=100, copied_bytes=40, copied_documents=4, events_applied=7, lag_seconds=2
)


def report(
    record: RunRecord | None, snapshot: ProgressSnapshot = SNAPSHOT, can_commit: bool = False
) -> dict[str, Any]:
    state = State.IDLE if record is None else record.state
    return progress_report(Sync(state, record, snapshot, can_commit), ADDRESSES, "me")


def test_idle_shows_nothing_but_the_state() -> None:
    shown = report(None, can_commit=True)
    known = {"state": "IDLE", "canCommit": False, "canWrite": False}
    known |= {"mongosyncID": "me", "coordinatorID": "me"}
    assert {name: value for name, value in shown.items() if value is not None} == known


def test_a_process_that_is_not_ready_shows_nothing_but_that() -> None:
    shown = progress_report(Sync(State.INITIALIZING, None, ProgressSnapshot(), False), {}, "me")
    assert shown == {**report(None), "state": "INITIALIZING"}


OF_A_SYNC = [state for state in State if state not in (State.INITIALIZING, State.IDLE)]


@pytest.mark.parametrize("state", OF_A_SYNC)
def test_the_fields_are_the_same_in_every_state(state: State) -> None:
    shown = report(run_record(state=state))
    assert ("estimatedOplogTimeRemaining" in shown) is (state is State.RUNNING)
    shown.pop("estimatedOplogTimeRemaining", None)
    assert list(shown) == list(report(None))


def test_running_shows_everything() -> None:
    assert report(run_record(phase=Phase.APPLYING), can_commit=True) == {
        "state": "RUNNING",
        "canCommit": True,
        "canWrite": False,
        "info": "change event application",
        "lagTimeSeconds": 2,
        "totalEventsApplied": 7,
        "collectionCopy": {"estimatedTotalBytes": 100, "estimatedCopiedBytes": 40},
        "directionMapping": {
            "Source": "cluster0: a:27017",
            "Destination": "cluster1: b:27018",
        },
        "mongosyncID": "me",
        "coordinatorID": "me",
        "error": None,
        "errorDescription": None,
        "estimatedOplogTimeRemaining": "not checked yet",
    }


def test_paused_knows_no_lag() -> None:
    shown = report(run_record(state=State.PAUSED, phase=Phase.APPLYING))
    assert (shown["lagTimeSeconds"], shown["totalEventsApplied"]) == (None, 7)


def test_the_direction_is_that_of_the_options() -> None:
    record = run_record(options=StartOptions("cluster1", "cluster0"))
    assert report(record)["directionMapping"] == {
        "Source": "cluster1: b:27018",
        "Destination": "cluster0: a:27017",
    }


@pytest.mark.parametrize(
    "state, phase, info",
    [
        (State.RUNNING, Phase.INITIALIZING, "initializing collections and indexes"),
        (State.RUNNING, Phase.COPYING, "collection copy"),
        (State.RUNNING, Phase.APPLYING, "change event application"),
        (State.PAUSED, Phase.COPYING, "collection copy"),
        (State.PAUSED, Phase.APPLYING, "change event application"),
        (State.COMMITTING, Phase.APPLYING, "waiting for commit to complete"),
        (State.COMMITTING, Phase.CUTTING_OVER, "waiting for commit to complete"),
        (State.COMMITTED, Phase.DONE, "commit completed"),
        (State.FAILED, Phase.COPYING, "collection copy"),
    ],
)
def test_the_phase_is_told(state: State, phase: Phase, info: str) -> None:
    assert report(run_record(state=state, phase=phase))["info"] == info


@pytest.mark.parametrize("can_write", [True, False])
def test_writes_are_allowed_as_saved(can_write: bool) -> None:
    shown = report(run_record(state=State.COMMITTING, can_write=can_write))
    assert shown["canWrite"] is can_write


def test_a_failure_is_told() -> None:
    record = run_record(state=State.FAILED, failure=Failure("SomeError", "Why, and what to do."))
    shown = report(record)
    assert (shown["state"], shown["error"]) == ("FAILED", "SomeError")
    assert shown["errorDescription"].startswith("Why, and what to do.")


@pytest.mark.parametrize(
    "total, copied, shown", [(None, 0, None), (100, 40, 100), (100, 140, 140), (0, 0, 0)]
)
def test_the_total_is_never_less_than_what_was_copied(
    total: int | None, copied: int, shown: int | None
) -> None:
    snapshot = ProgressSnapshot(total_bytes=total, copied_bytes=copied)
    copy = report(run_record(), snapshot)["collectionCopy"]
    assert copy == {"estimatedTotalBytes": shown, "estimatedCopiedBytes": copied}


def test_an_unknown_lag_is_null() -> None:
    assert report(run_record(), ProgressSnapshot())["lagTimeSeconds"] is None


@pytest.mark.parametrize(
    "left, shown",
    [(None, "not checked yet"), (0.0, "less than 15 minutes"), (7300.0, "2 hours")],
)
def test_the_oplog_that_is_left_is_told_in_words(left: float | None, shown: str) -> None:
    snapshot = ProgressSnapshot(oplog_seconds_left=left)
    assert report(run_record(), snapshot)["estimatedOplogTimeRemaining"] == shown


@pytest.mark.parametrize(
    "state, phase, shown",
    [
        (State.RUNNING, Phase.COPYING, None),
        (State.RUNNING, Phase.APPLYING, 40),
        (State.PAUSED, Phase.APPLYING, None),
        (State.COMMITTING, Phase.APPLYING, 40),
        (State.COMMITTING, Phase.CUTTING_OVER, None),
        (State.FAILED, Phase.APPLYING, None),
    ],
)
def test_the_end_of_catching_up_is_told_while_events_are_applied(
    state: State, phase: Phase, shown: int | None
) -> None:
    snapshot = ProgressSnapshot(lags=(Lag(100, 10.0), Lag(50, 50.0)))
    found = report(run_record(state=state, phase=phase), snapshot)
    assert found.get("estimatedSecondsToCEACatchup") == shown


def test_a_lag_that_does_not_fall_has_no_end() -> None:
    snapshot = ProgressSnapshot(lags=(Lag(50, 10.0), Lag(50, 50.0)))
    shown = report(run_record(phase=Phase.APPLYING), snapshot)
    assert "estimatedSecondsToCEACatchup" not in shown


def test_warnings_are_told_where_there_are_some() -> None:
    assert "warnings" not in report(run_record())
    snapshot = ProgressSnapshot(warnings={WarningKind.OPLOG_SHORT: "Do something."})
    assert report(run_record(), snapshot)["warnings"] == ["Do something."]
