"""Tests each metric of a sync: its value in a known state, and its absence if the value is unknown."""

from __future__ import annotations

import math
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from syncsvc.figures.progress import Ping, ProgressSnapshot, SpoolFigures, WarningKind
from syncsvc.figures.throttling import Throttled, Throttling
from syncsvc.figures.trends import Lag
from syncsvc.limits import Limit
from syncsvc.options import BuildIndexes, StartOptions
from syncsvc.reports.metrics import TABLE
from syncsvc.reports.standing import Role, Standing
from syncsvc.saved.lease import Lease
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from tests.support.metrics import Shown, values
from tests.unit.syncsvc.records import collection_record, known, run_record
from verifier.compare.check_progress import Amounts, Changes, CheckProgress, MismatchCounts
from verifier.compare.check_progress import Phase as CheckPhase
from verifier.compare.mismatch import Difference
from verifier.runtime.metrics import families
from verifier.runtime.waits import LongWait

FALLING = ProgressSnapshot(lags=(Lag(30, 0.0), Lag(10, 20.0)))
COPIED = ProgressSnapshot(total_bytes=100, copied_bytes=40, copied_documents=4)
CHECK = CheckProgress(
    phase=CheckPhase.CHECK,
    started=1.0,
    amounts=Amounts(30, 20, 3000, 2000, 2),
    mismatches=MismatchCounts({Difference.CONTENT: 2, Difference.EXTRA: 1}, lasting=1),
    source=Changes(lag_seconds=1, recheck_lag_seconds=2),
)
VERIFYING = ProgressSnapshot(check=CHECK)
UNKNOWN = {
    *("mongosync_failure", "mongosync_lag_seconds", "mongosync_catch_up_seconds"),
    *("mongosync_oplog_left_seconds", "mongosync_copy_size_bytes"),
    *("mongosync_copied_bytes", "mongosync_copied_documents"),
    *("mongosync_indexes_built", "mongosync_indexes_to_build"),
    "mongosync_event_spool_limit_bytes",
    *("mongosync_cluster_answers", "mongosync_ping_seconds"),
    *("mongosync_verification_documents", "mongosync_verification_estimated_documents"),
    *("mongosync_verification_collections", "mongosync_verification_mismatches"),
    "mongosync_verification_lasting_mismatches",
    *("mongosync_verification_lag_seconds", "mongosync_verification_recheck_lag_seconds"),
    *("mongosync_active", "mongosync_lease_since_timestamp_seconds"),
    "mongosync_lease_expires_timestamp_seconds",
    *("mongosync_limit", "mongosync_throttled_seconds_total"),
}


def shown(
    record: RunRecord | None,
    snapshot: ProgressSnapshot = ProgressSnapshot(),
    **fields: Any,
) -> Shown:
    return values(families(TABLE, known(record, snapshot, **fields)))


def hot(name: str, record: RunRecord | None) -> set[tuple[str, ...]]:
    """Return the label values for which the metric `name` is 1; fail unless it is 0 for all other label values.

    `record` is the run record of the sync whose metrics are read; None for a process without a sync.
    """
    of_name = shown(record)[name]
    assert set(of_name.values()) <= {0, 1}
    return {labels for labels, value in of_name.items() if value}


@pytest.mark.parametrize("state", [State.INITIALIZING, State.IDLE])
def test_metrics_without_a_sync(state: State) -> None:
    pings = {"cluster0": Ping(0.002)}
    snapshot = replace(COPIED, events_applied=3, lag_seconds=1, pings=pings, check=CHECK)
    assert shown(None, snapshot, state=state, collections=(collection_record(),)) == {
        "mongosync_state": {(each.value,): float(each is state) for each in State},
        "mongosync_can_commit": {(): 0},
        "mongosync_can_write": {(): 0},
        "mongosync_long_waits": {(): 0},
        "mongosync_longest_wait_seconds": {(): 0},
        "mongosync_warning": {(each.value,): 0 for each in WarningKind},
    }


def test_metrics_of_a_run_lack_only_unknown_values() -> None:
    every = {metric.name for metric in TABLE}
    assert set(shown(run_record())) == every - UNKNOWN


def test_the_limits_are_shown() -> None:
    since = datetime(2026, 1, 1, tzinfo=UTC)
    throttling = Throttling(
        effective={Limit.EVENTS: 5, Limit.THREADS: 2},
        throttled=Throttled(Limit.EVENTS, "Why.", since),
        waited={Limit.EVENTS: 1.5},
    )
    found = shown(run_record(), ProgressSnapshot(throttling=throttling))
    assert found["mongosync_limit"] == {("eventsPerSecond",): 5, ("threads",): 2}
    assert found["mongosync_throttled"] == {
        (each.value,): int(each is Limit.EVENTS) for each in Limit
    }
    assert found["mongosync_throttled_seconds_total"] == {("eventsPerSecond",): 1.5}


def test_without_a_sync_only_these_metrics_are_shown() -> None:
    snapshot = ProgressSnapshot(
        throttling=Throttling({Limit.EVENTS: 5}, waited={Limit.EVENTS: 0.0})
    )
    assert shown(None, snapshot).keys() == {
        *("mongosync_state", "mongosync_can_commit", "mongosync_can_write"),
        *("mongosync_long_waits", "mongosync_longest_wait_seconds", "mongosync_warning"),
    }


def test_a_daemon_that_becomes_a_standby_shows_no_failure() -> None:
    record = run_record(state=State.FAILED, failure=Failure("Superseded", "Another process."))
    assert shown(record)["mongosync_failure"] == {("Superseded",): 1}
    assert "mongosync_failure" not in shown(record, standing=Standing(Role.ACTIVE))


@pytest.mark.parametrize(("role", "active"), [(Role.ACTIVE, 1), (Role.STANDBY, 0)])
def test_the_role_and_the_lease_are_shown(role: Role, active: int) -> None:
    times = datetime(1970, 1, 1, 0, 1), datetime(1970, 1, 1, 0, 1, 6)
    standing = Standing(role, Lease("name", "host", "address", *times))
    found = shown(None, standing=standing, instance="a")
    assert found["mongosync_active"] == {("a",): active}
    assert ("mongosync_can_commit" in found) == ("mongosync_can_write" in found) == bool(active)
    assert found["mongosync_lease_since_timestamp_seconds"] == {(): 60}
    assert found["mongosync_lease_expires_timestamp_seconds"] == {(): 66}


@pytest.mark.parametrize("state", State)
def test_the_state_metric_shows_the_state_of_the_record(state: State) -> None:
    assert hot("mongosync_state", run_record(state=state)) == {(state.value,)}
    assert len(shown(run_record(state=state))["mongosync_state"]) == len(State)


@pytest.mark.parametrize("phase", Phase)
def test_the_phase_metric_shows_the_phase_of_the_record(phase: Phase) -> None:
    assert hot("mongosync_sync_phase", run_record(phase=phase)) == {(phase.value,)}
    committing = run_record(state=State.COMMITTING, phase=phase)
    assert hot("mongosync_sync_phase", committing) == {(Phase.CUTTING_OVER.value,)}
    assert len(shown(run_record())["mongosync_sync_phase"]) == len(Phase)


def test_the_failure_and_the_warnings_are_named() -> None:
    failed = run_record(state=State.FAILED, failure=Failure("SomeError", "Why."))
    assert shown(failed)["mongosync_failure"] == {("SomeError",): 1}
    warned = ProgressSnapshot(warnings={WarningKind.OPLOG_SHORT: "It is."})
    assert shown(run_record(), warned)["mongosync_warning"] == {
        (kind.value,): int(kind is WarningKind.OPLOG_SHORT) for kind in WarningKind
    }


RUNNING = {"state": State.RUNNING}
APPLYING = {"state": State.RUNNING, "phase": Phase.APPLYING}
COMMITTING = {"state": State.COMMITTING, "phase": Phase.APPLYING}
PAUSED = {"state": State.PAUSED, "phase": Phase.APPLYING}
FAILED = {"state": State.FAILED, "phase": Phase.APPLYING}
WAITING = ProgressSnapshot(waits=(LongWait("a", "", 70.0), LongWait("b", "", 20.0)))
BUILDING = ProgressSnapshot(waits=(LongWait("a", "", 7000.0, expected=True),))
SPOOLING = ProgressSnapshot(events_spooled=4, spool=SpoolFigures(True, 5, 10, 3, 1.6))
NUMBERS: list[tuple[str, dict[str, Any], ProgressSnapshot, float | None]] = [
    ("can_write", {"can_write": True}, ProgressSnapshot(), 1),
    ("can_write", RUNNING, ProgressSnapshot(), 0),
    ("long_waits", RUNNING, ProgressSnapshot(), 0),
    ("long_waits", RUNNING, WAITING, 2),
    ("longest_wait_seconds", RUNNING, ProgressSnapshot(), 0),
    ("longest_wait_seconds", RUNNING, WAITING, 70),
    ("long_waits", RUNNING, BUILDING, 1),
    ("longest_wait_seconds", RUNNING, BUILDING, 0),
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
    ("event_spool_bytes", RUNNING, SPOOLING, 5),
    ("event_spool_bytes", RUNNING, ProgressSnapshot(), 0),
    ("event_spool_limit_bytes", RUNNING, SPOOLING, 10),
    ("event_spool_limit_bytes", RUNNING, ProgressSnapshot(), None),
    ("event_spool_seconds", RUNNING, SPOOLING, 3),
    ("event_spool_seconds", RUNNING, ProgressSnapshot(), 0),
    ("events_spooled_total", RUNNING, SPOOLING, 4),
    ("copy_size_bytes", RUNNING, COPIED, 100),
    ("copy_size_bytes", RUNNING, replace(COPIED, copied_bytes=101), 101),
    ("copied_bytes", RUNNING, COPIED, 40),
    ("copied_bytes", RUNNING, replace(COPIED, copied_bytes=0), 0),
    ("copied_bytes", RUNNING, ProgressSnapshot(copied_bytes=40), None),
    ("copied_documents", RUNNING, COPIED, 4),
    ("copied_documents", RUNNING, ProgressSnapshot(copied_documents=4), None),
    ("events_applied_total", RUNNING, ProgressSnapshot(events_applied=9), 9),
    ("documents_copied_again_total", RUNNING, ProgressSnapshot(documents_copied_again=2), 2),
    ("documents_refetched_total", RUNNING, ProgressSnapshot(documents_refetched=2), 2),
    ("documents_written_total", RUNNING, ProgressSnapshot(documents_written=2), 2),
    ("definitions_applied_total", RUNNING, ProgressSnapshot(definitions_applied=2), 2),
    ("events_read_total", RUNNING, ProgressSnapshot(events_read=2), 2),
    ("verification_documents", APPLYING, VERIFYING, 30),
    ("verification_documents", APPLYING, ProgressSnapshot(check=CheckProgress()), None),
    ("verification_estimated_documents", APPLYING, VERIFYING, 30),
    ("verification_collections", APPLYING, VERIFYING, 0),
    ("verification_mismatches", APPLYING, VERIFYING, 3),
    ("verification_lasting_mismatches", APPLYING, VERIFYING, 1),
    ("repaired_documents", {**APPLYING, "repaired_documents": 4}, VERIFYING, 4),
    ("repaired_definitions", {**APPLYING, "repaired_definitions": 2}, VERIFYING, 2),
]


@pytest.mark.parametrize("name, record, snapshot, value", NUMBERS)
def test_the_value_of_a_metric_without_labels(
    name: str, record: dict[str, Any], snapshot: ProgressSnapshot, value: float | None
) -> None:
    found = shown(run_record(**record), snapshot).get(f"mongosync_{name}")
    assert found == (None if value is None else {(): value})


@pytest.mark.parametrize("can_commit", [True, False])
def test_whether_a_commit_is_possible(can_commit: bool) -> None:
    assert shown(run_record(), can_commit=can_commit)["mongosync_can_commit"] == {(): can_commit}


def test_the_phases_of_collections_are_counted() -> None:
    statuses = (CopyStatus.DONE, CopyStatus.DONE, CopyStatus.COPYING)
    collections = tuple(collection_record(status=each) for each in statuses)
    assert shown(run_record(), collections=collections)["mongosync_namespaces"] == {
        **{("waiting",): 0, ("copying",): 1, ("copied",): 2},
        **{("indexing",): 0, ("withheld",): 0},
    }


def test_the_building_of_indexes_after_the_copy_is_shown() -> None:
    options = StartOptions("cluster0", "cluster1", build_indexes=BuildIndexes.AFTER_DATA_COPY)
    collections = (collection_record({}, {"name": "a_1", "key": {"a": 1}}),)
    for phase, built in ((Phase.INDEXING, 0), (Phase.APPLYING, 1)):
        found = shown(run_record(options=options, phase=phase), collections=collections)
        assert found["mongosync_indexes_built"] == {(): built}
        assert found["mongosync_indexes_to_build"] == {(): 1}


def test_a_cluster_that_does_not_answer_is_named() -> None:
    pings = {"cluster0": Ping(0.25), "cluster1": Ping(None)}
    found = shown(run_record(), ProgressSnapshot(pings=pings))
    assert found["mongosync_cluster_answers"] == {("source",): 1, ("destination",): 0}
    assert found["mongosync_ping_seconds"] == {("source",): 0.25}


@pytest.mark.parametrize("role", Role)
def test_a_daemon_with_standby_shows_before_a_sync_which_cluster_answers(role: Role) -> None:
    # A standby that does not reach both clusters cannot take over.
    pings = ProgressSnapshot(pings={"cluster0": Ping(None), "cluster1": Ping(0.25)})
    found = shown(None, pings, standing=Standing(role))
    assert found["mongosync_cluster_answers"] == {("source",): 0, ("destination",): 1}
    assert found["mongosync_ping_seconds"] == {("destination",): 0.25}


def test_verification_metrics_exist_only_with_verification() -> None:
    found = shown(run_record(phase=Phase.APPLYING), VERIFYING)
    assert found["mongosync_verification_phase"][("initial hashing",)] == 1
    assert found["mongosync_verification_lag_seconds"] == {("source",): 1}
    assert found["mongosync_verification_recheck_lag_seconds"] == {("source",): 2}
    off = run_record(options=StartOptions("cluster0", "cluster1", verification=False))
    assert not [name for name in shown(off) if name.startswith("mongosync_verification")]


def test_every_row_has_a_test() -> None:
    tested = {f"mongosync_{name}" for name, *_ in NUMBERS} | {
        *("mongosync_state", "mongosync_sync_phase", "mongosync_failure", "mongosync_warning"),
        *("mongosync_can_commit", "mongosync_namespaces", "mongosync_verification_phase"),
        *("mongosync_indexes_built", "mongosync_indexes_to_build", "mongosync_cluster_answers"),
        *("mongosync_ping_seconds", "mongosync_verification_lag_seconds"),
        "mongosync_verification_recheck_lag_seconds",
        *("mongosync_active", "mongosync_lease_since_timestamp_seconds"),
        "mongosync_lease_expires_timestamp_seconds",
        *("mongosync_limit", "mongosync_throttled", "mongosync_throttled_seconds_total"),
    }
    assert tested == {metric.name for metric in TABLE}
