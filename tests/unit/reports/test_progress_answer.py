"""Tests the answer to /progress: it has the same fields in every state, and their values follow the sync."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.figures.collections import CollectionFigures
from syncsvc.figures.progress import (
    OtherInstance,
    Ping,
    ProgressSnapshot,
    SpoolFigures,
    WarningKind,
)
from syncsvc.figures.trends import Lag
from syncsvc.options import BuildIndexes, StartOptions, UsersAndRoles
from syncsvc.principals.comparison import PrincipalCounts
from syncsvc.reports.progress_answer import progress_report
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import Failure, RunRecord
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import collection_record, known, run_record
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import (
    Amounts,
    Changes,
    CheckProgress,
    NamespaceProgress,
    Outcome,
    Verdict,
)
from verifier.compare.check_progress import Phase as CheckPhase

ADDRESSES = {"cluster0": "a:27017", "cluster1": "b:27018"}
SNAPSHOT = ProgressSnapshot(
    total_bytes=100,
    copied_bytes=40,
    copied_documents=4,
    events_read=9,
    events_applied=7,
    lag_seconds=2,
    caught_up=True,
)
WITHOUT_A_SYNC = (State.INITIALIZING, State.IDLE)
WITH_A_SYNC = [state for state in State if state not in WITHOUT_A_SYNC]
# Fields that are present only if they apply.
SOMETIMES = {
    *("estimatedOplogTimeRemaining", "estimatedSecondsToCEACatchup", "indexBuilding", "warnings"),
    "verification",
}


def report(
    record: RunRecord | None, snapshot: ProgressSnapshot = SNAPSHOT, **fields: Any
) -> dict[str, Any]:
    return progress_report(known(record, snapshot, **fields), ADDRESSES, "me")


@pytest.mark.parametrize("state", WITHOUT_A_SYNC)
def test_without_a_sync_nothing_is_known_but_the_state(state: State) -> None:
    shown = report(None, state=state, can_commit=True)
    told: dict[str, Any] = {"state": state.value, "canCommit": False, "canWrite": False}
    told |= {"mongosyncID": "me"}
    told |= {"collectionCopy": {"estimatedTotalBytes": 0, "estimatedCopiedBytes": 0}}
    assert {name: value for name, value in shown.items() if value is not None} == told


@pytest.mark.parametrize("state", WITH_A_SYNC)
def test_the_fields_are_the_same_in_every_state(state: State) -> None:
    shown = report(run_record(state=state))
    watched = state in (State.RUNNING, State.PAUSED)
    assert ("estimatedOplogTimeRemaining" in shown) is watched
    assert set(shown) - SOMETIMES == set(report(None)) - SOMETIMES


def test_running_shows_everything() -> None:
    side: dict[str, Any] = {
        "estimatedDocumentCount": None,
        "hashedDocumentCount": 0,
        "totalCollectionCount": None,
    }
    side |= {"phase": "not started", "scannedCollectionCount": 0, "lagTimeSeconds": None}
    side |= {"recheckLagTimeSeconds": None}
    assert report(run_record(phase=Phase.APPLYING), can_commit=True) == {
        "state": "RUNNING",
        "canCommit": True,
        "canWrite": False,
        "info": "change event application",
        "ceaStage": "steady state",
        "lag": {"overallLagSeconds": 2, "crudLagSeconds": 2, "ddlLagSeconds": None},
        "lagTimeSeconds": 2,
        "totalEventsApplied": 7,
        "collectionCopy": {"estimatedTotalBytes": 100, "estimatedCopiedBytes": 40},
        "directionMapping": {
            "Source": "cluster0: a:27017",
            "Destination": "cluster1: b:27018",
        },
        "enableUserWriteBlocking": "destinationOnly",
        "source": {},
        "destination": {},
        "verification": {"source": side, "destination": side},
        "mongosyncID": "me",
        "coordinatorID": "coordinator",
        "error": None,
        "errorDescription": None,
        "throttledBy": None,
        "estimatedOplogTimeRemaining": "not checked yet",
    }


@pytest.mark.parametrize(
    "state, lag, seconds",
    [
        (State.RUNNING, True, 2),
        (State.PAUSED, False, None),
        (State.COMMITTING, True, 2),
        (State.COMMITTED, True, 2),
        (State.REVERSING, True, 2),
        (State.FAILED, True, None),
    ],
)
def test_the_lag_is_shown_if_it_is_known(state: State, lag: bool, seconds: int | None) -> None:
    shown = report(run_record(state=state, phase=Phase.APPLYING))
    assert (shown["lagTimeSeconds"], shown["totalEventsApplied"]) == (seconds, 7)
    assert (shown["lag"] is not None) is lag
    if shown["lag"] is not None:
        assert shown["lag"]["overallLagSeconds"] == seconds


@pytest.mark.parametrize(
    "snapshot, writes, definitions",
    [
        (ProgressSnapshot(lag_seconds=3), None, None),
        (ProgressSnapshot(lag_seconds=3, events_read=1), 3, None),
        (ProgressSnapshot(lag_seconds=3, definitions_applied=1), None, 3),
        (ProgressSnapshot(lag_seconds=0, events_read=1, definitions_applied=1), 0, 0),
        (ProgressSnapshot(events_read=1, definitions_applied=1), None, None),
    ],
)
def test_a_lag_of_one_kind_is_known_once_there_was_one(
    snapshot: ProgressSnapshot, writes: int | None, definitions: int | None
) -> None:
    shown = report(run_record(phase=Phase.APPLYING), snapshot)["lag"]
    assert (shown["crudLagSeconds"], shown["ddlLagSeconds"]) == (writes, definitions)


AT_9, AT_10, AT_11 = (Position({"_data": "8265"}, Timestamp(time, 1)) for time in (9, 10, 11))


@pytest.mark.parametrize(
    "fields, caught_up, stage",
    [
        ({"phase": Phase.COPYING}, False, None),
        ({"phase": Phase.INDEXING, "copy_end": AT_10.time}, False, None),
        ({"copy_end": AT_10.time, "position": AT_9}, False, "collection copy drain"),
        ({"copy_end": AT_10.time, "position": AT_10}, False, "collection copy drain"),
        ({"copy_end": AT_10.time, "position": AT_11}, False, "steady state"),
        ({"copy_end": AT_10.time, "position": AT_9}, True, "steady state"),
        ({"copy_end": AT_10.time, "position": AT_11, "state": State.PAUSED}, False, "steady state"),
        ({"position": AT_9}, False, "steady state"),
        ({"phase": Phase.CUTTING_OVER, "copy_end": AT_10.time}, False, None),
        ({"phase": Phase.DONE, "copy_end": AT_10.time}, False, None),
    ],
)
def test_the_stage_shows_whether_the_copy_backlog_is_applied(
    fields: dict[str, Any], caught_up: bool, stage: str | None
) -> None:
    record = run_record(**{"phase": Phase.APPLYING, **fields})
    assert report(record, ProgressSnapshot(caught_up=caught_up))["ceaStage"] == stage


@pytest.mark.parametrize(
    "options, reversals, source, destination",
    [
        (StartOptions("cluster0", "cluster1"), 0, "cluster0: a:27017", "cluster1: b:27018"),
        (StartOptions("cluster1", "cluster0"), 0, "cluster1: b:27018", "cluster0: a:27017"),
        (StartOptions("cluster0", "cluster1"), 1, "cluster1: b:27018", "cluster0: a:27017"),
        (StartOptions("cluster0", "cluster1"), 2, "cluster0: a:27017", "cluster1: b:27018"),
    ],
)
def test_the_current_direction_is_shown(
    options: StartOptions, reversals: int, source: str, destination: str
) -> None:
    pings = {"cluster0": Ping(0.002), "cluster1": Ping(0.003)}
    shown = report(run_record(options=options, reversals=reversals), ProgressSnapshot(pings=pings))
    assert shown["directionMapping"] == {"Source": source, "Destination": destination}
    latency = {"cluster0: a:27017": {"pingLatencyMs": 2}, "cluster1: b:27018": {"pingLatencyMs": 3}}
    assert (shown["source"], shown["destination"]) == (latency[source], latency[destination])


@pytest.mark.parametrize(
    "ping, shown",
    [
        (None, {}),
        (Ping(None), {"pingLatencyMs": -1}),
        (Ping(0.0), {"pingLatencyMs": 1}),
        (Ping(0.00099), {"pingLatencyMs": 1}),
        (Ping(0.001), {"pingLatencyMs": 1}),
        (Ping(4.2), {"pingLatencyMs": 4200}),
    ],
)
def test_a_ping_is_shown_as_one_millisecond_or_more(
    ping: Ping | None, shown: dict[str, int]
) -> None:
    pings = {} if ping is None else {"cluster0": ping}
    found = report(run_record(), ProgressSnapshot(pings=pings))
    assert (found["source"], found["destination"]) == (shown, {})


@pytest.mark.parametrize(
    "state, phase, info",
    [
        (State.RUNNING, Phase.INITIALIZING, "initializing collections and indexes"),
        (State.RUNNING, Phase.COPYING, "collection copy"),
        (State.RUNNING, Phase.INDEXING, "building indexes"),
        (State.RUNNING, Phase.APPLYING, "change event application"),
        (State.PAUSED, Phase.COPYING, "collection copy"),
        (State.PAUSED, Phase.APPLYING, "change event application"),
        (State.COMMITTING, Phase.APPLYING, "waiting for commit to complete"),
        (State.COMMITTING, Phase.CUTTING_OVER, "waiting for commit to complete"),
        (State.COMMITTED, Phase.DONE, "commit completed"),
        (State.REVERSING, Phase.REVERSING, "reversing"),
        (State.FAILED, Phase.COPYING, "collection copy"),
    ],
)
def test_the_phase_is_shown(state: State, phase: Phase, info: str) -> None:
    assert report(run_record(state=state, phase=phase))["info"] == info


@pytest.mark.parametrize("can_write", [True, False])
def test_writes_are_allowed_as_saved(can_write: bool) -> None:
    shown = report(run_record(state=State.COMMITTING, can_write=can_write))
    assert shown["canWrite"] is can_write


def test_a_failure_is_shown() -> None:
    record = run_record(state=State.FAILED, failure=Failure("SomeError", "Why, and what to do."))
    shown = report(record)
    assert (shown["state"], shown["error"]) == ("FAILED", "SomeError")
    assert shown["errorDescription"].startswith("Why, and what to do.")


@pytest.mark.parametrize(
    "phase, total, copied, shown",
    [
        (Phase.INITIALIZING, None, 0, 1),
        (Phase.COPYING, None, 0, None),
        (Phase.COPYING, 100, 40, 100),
        (Phase.COPYING, 100, 140, 140),
        (Phase.COPYING, 0, 0, 0),
        (Phase.APPLYING, 140, 140, 140),
    ],
)
def test_the_total_is_never_less_than_the_copied_bytes(
    phase: Phase, total: int | None, copied: int, shown: int | None
) -> None:
    snapshot = ProgressSnapshot(total_bytes=total, copied_bytes=copied)
    copy = report(run_record(phase=phase), snapshot)["collectionCopy"]
    assert copy == {"estimatedTotalBytes": shown, "estimatedCopiedBytes": copied}


def test_the_copy_of_users_is_shown_only_if_it_is_requested() -> None:
    assert "usersAndRoles" not in report(run_record(), ProgressSnapshot())
    record = run_record()
    record = replace(record, options=replace(record.options, users_and_roles=UsersAndRoles()))
    zeros = {"copied": False, "users": 0, "roles": 0, "equal": 0, "kept": 0}
    assert report(record, ProgressSnapshot())["usersAndRoles"] == zeros
    record = replace(record, principals=PrincipalCounts(users=3, equal=1))
    shown = {"copied": True, "users": 3, "roles": 0, "equal": 1, "kept": 0}
    assert report(record, ProgressSnapshot())["usersAndRoles"] == shown


def test_the_event_spool_is_shown_while_it_is_used() -> None:
    assert "eventSpool" not in report(run_record(), ProgressSnapshot())
    spool = SpoolFigures(active=True, size=5, limit=10, seconds=3, bytes_per_second=1.6)
    assert report(run_record(), ProgressSnapshot(spool=spool))["eventSpool"] == {
        "active": True,
        "bytes": 5,
        "limitBytes": 10,
        "seconds": 3,
        "bytesPerSecond": 2,
    }


def test_a_failed_sync_saves_no_events() -> None:
    spool = SpoolFigures(active=True, size=5, limit=10, seconds=3, bytes_per_second=1.6)
    shown = report(run_record(state=State.FAILED), ProgressSnapshot(spool=spool))
    assert shown["eventSpool"]["active"] is False


@pytest.mark.parametrize("state", [State.RUNNING, State.PAUSED])
@pytest.mark.parametrize(
    "left, shown",
    [(None, "not checked yet"), (0.0, "less than 15 minutes"), (7300.0, "2 hours")],
)
def test_the_remaining_oplog_time_is_shown_in_words(
    left: float | None, shown: str, state: State
) -> None:
    snapshot = ProgressSnapshot(oplog_seconds_left=left)
    assert report(run_record(state=state), snapshot)["estimatedOplogTimeRemaining"] == shown


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
def test_the_catch_up_forecast_is_shown_while_events_are_applied(
    state: State, phase: Phase, shown: int | None
) -> None:
    snapshot = ProgressSnapshot(lags=(Lag(100, 10.0), Lag(50, 50.0)))
    found = report(run_record(state=state, phase=phase), snapshot)
    assert found.get("estimatedSecondsToCEACatchup") == shown


def test_a_lag_that_does_not_fall_has_no_forecast() -> None:
    snapshot = ProgressSnapshot(lags=(Lag(50, 10.0), Lag(50, 50.0)))
    shown = report(run_record(phase=Phase.APPLYING), snapshot)
    assert "estimatedSecondsToCEACatchup" not in shown


def test_warnings_are_shown_if_there_are_any() -> None:
    assert "warnings" not in report(run_record())
    snapshot = ProgressSnapshot(warnings={WarningKind.OPLOG_SHORT: "Do something."})
    assert report(run_record(), snapshot)["warnings"] == ["Do something."]


AFTER = StartOptions("cluster0", "cluster1", build_indexes=BuildIndexes.AFTER_DATA_COPY)
A_INDEX, B_INDEX = ({"name": name, "key": {name: 1}} for name in ("a_1", "b_1"))
BUILT, BEING_BUILT, WITHOUT = (bytes([number]) * 16 for number in range(3))
COLLECTIONS = (
    collection_record({}, A_INDEX, B_INDEX, uuid=BUILT, status=CopyStatus.DONE),
    collection_record({}, A_INDEX, uuid=BEING_BUILT, status=CopyStatus.DONE),
    collection_record(uuid=WITHOUT, status=CopyStatus.DONE),
)
FIGURES = {BUILT: CollectionFigures(indexed=True), BEING_BUILT: CollectionFigures(indexing=True)}


@pytest.mark.parametrize(
    "options, phase, shown",
    [
        (AFTER, Phase.INITIALIZING, None),
        (AFTER, Phase.COPYING, None),
        (AFTER, Phase.INDEXING, (2, 3, 1, 2)),
        (AFTER, Phase.APPLYING, (3, 3, 2, 2)),
        (AFTER, Phase.CUTTING_OVER, None),
        (AFTER, Phase.DONE, None),
        (StartOptions("cluster0", "cluster1"), Phase.APPLYING, None),
    ],
)
def test_index_building_is_shown_after_the_copy(
    options: StartOptions, phase: Phase, shown: tuple[int, ...] | None
) -> None:
    record = run_record(options=options, phase=phase)
    found = report(record, collections=COLLECTIONS, figures=FIGURES).get("indexBuilding")
    names = ("indexesBuilt", "totalIndexesToBuild", "collectionsFinished", "collectionsTotal")
    assert found == (None if shown is None else dict(zip(names, shown, strict=True)))


def test_withheld_indexes_are_not_built() -> None:
    withheld = (replace(COLLECTIONS[0], withheld=True), *COLLECTIONS[1:])
    found = report(run_record(options=AFTER, phase=Phase.APPLYING), collections=withheld)
    assert list(found["indexBuilding"].values()) == [1, 3, 1, 2]


def test_indexes_that_only_the_commit_can_build_are_not_counted() -> None:
    unique = {"name": "unique", "key": {"n": 1}, "unique": True}
    plain = {"name": "plain", "key": {"n": 1}, "partialFilterExpression": {"n": 1}}
    twin = {"name": "twin", "key": {"n": 1}}
    deferred = (collection_record({}, unique, plain, twin, status=CopyStatus.DONE),)
    found = report(run_record(options=AFTER, phase=Phase.APPLYING), collections=deferred)
    assert list(found["indexBuilding"].values()) == [2, 2, 1, 1]


def test_only_the_coordinator_shows_the_index_builds() -> None:
    follower = run_record(options=AFTER, phase=Phase.INDEXING, instances=("a", "coordinator"))
    assert "indexBuilding" not in report(follower, collections=COLLECTIONS)


def test_a_follower_shows_the_repairs_that_the_coordinator_counts() -> None:
    follower = run_record(repair=1, repaired=1, instances=("a", "coordinator"))
    assert "repairs" not in report(follower)
    other = OtherInstance("a", State.RUNNING, Phase.APPLYING, None, 0.0, 5, 2)
    shown = report(follower, ProgressSnapshot(others=(other,)))["repairs"]
    assert shown == {"inProgress": False, "documents": 5, "definitions": 2}


def test_a_sync_without_verification_shows_none() -> None:
    options = StartOptions("cluster0", "cluster1", verification=False)
    assert "verification" not in report(run_record(options=options))


NAMES = [Namespace("d", name) for name in "ab"]
FIRST = CheckProgress(
    phase=CheckPhase.CHECK,
    generation=0,
    started=1.0,
    amounts=Amounts(30, 100, 3000, 10_000, 2),
    namespaces={
        NAMES[0]: NamespaceProgress(30, 30, tasks=2, tasks_done=2),
        NAMES[1]: NamespaceProgress(0, 70, tasks=3, tasks_done=1),
    },
    source=Changes(lag_seconds=1, recheck_lag_seconds=2),
    destination=Changes(lag_seconds=None),
)
# No document has changed, so there is no next generation (round of rechecks) yet.
QUIET = replace(FIRST, first=Amounts(104, 100, 10_400, 10_000, 2))
LATER = replace(
    FIRST, phase=CheckPhase.RECHECK, generation=4, first=Amounts(104, 100, 10_400, 10_000, 2)
)
ENDED = replace(LATER, phase=CheckPhase.IDLE, verdict=Verdict(Outcome.PASSED))


@pytest.mark.parametrize(
    "check, shown",
    [
        (None, ("not started", None, 0, None, 0)),
        (CheckProgress(), ("not started", None, 0, None, 0)),
        (FIRST, ("initial hashing", 100, 30, 2, 1)),
        (QUIET, ("stream hashing", 104, 104, 2, 2)),
        (LATER, ("stream hashing", 104, 104, 2, 2)),
        (ENDED, ("stream hashing", 104, 104, 2, 2)),
    ],
)
def test_the_verification_is_shown_for_both_clusters(
    check: CheckProgress | None, shown: tuple[Any, ...]
) -> None:
    found = report(run_record(phase=Phase.APPLYING), ProgressSnapshot(check=check))["verification"]
    names = ("phase", "estimatedDocumentCount", "hashedDocumentCount", "totalCollectionCount")
    for side in ("source", "destination"):
        lags = found[side].pop("lagTimeSeconds"), found[side].pop("recheckLagTimeSeconds")
        assert found[side] == dict(zip((*names, "scannedCollectionCount"), shown, strict=True))
        assert lags == ((1, 2) if check and check.started and side == "source" else (None, None))
