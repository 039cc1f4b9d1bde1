"""Tests the overview and the table of collections, the answers of the API that the web page shows.

Also tests the samples for its charts, and the saved list of phases.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
from bson.timestamp import Timestamp

from syncsvc.figures.history import COLUMNS, Points, Row
from syncsvc.figures.progress import (
    CopiedAmount,
    OtherInstance,
    Ping,
    ProgressSnapshot,
    SpoolFigures,
    WarningKind,
)
from syncsvc.reports.headroom import Level, headroom
from syncsvc.reports.namespaces import NamespacePhase, SortKey, TableRequest, namespaces_table
from syncsvc.reports.observation import is_clean, sample_of
from syncsvc.reports.overview import Observed, overview_report
from syncsvc.reports.standing import Standing
from syncsvc.reports.sync import Sync
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import MOST_PHASES, PhaseBegin, with_begin
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import collection_record, known, run_record
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import Amounts, CheckProgress, MismatchCounts
from verifier.compare.mismatch import Difference
from verifier.runtime.waits import LongWait

NO_POINTS = Points((), 5.0, "a.5.0", True)


def shown(sync: Sync, progress: dict[str, Any] | None = None, **observed: Any) -> dict[str, Any]:
    return overview_report(sync, progress or {}, Observed(NO_POINTS, **observed))


def rates(copied: float) -> Row:
    return (0.0, copied, copied / 100, 3.0, 2.0, None, None, None)


def test_without_a_sync_everything_is_empty() -> None:
    found = shown(known(None))
    assert (found["phases"], found["instances"], found["warnings"]) == ([], [], [])
    assert (found["verification"], found["destination"]) == (None, None)
    assert found["copy"]["totalBytes"] is None
    assert found["history"]["columns"] == list(COLUMNS)


def test_phases_have_durations() -> None:
    begins = ((Phase.INITIALIZING, 10.0), (Phase.COPYING, 14.5), (Phase.APPLYING, 12.0))
    record = run_record(phases=tuple(PhaseBegin(phase, at) for phase, at in begins))
    found = shown(known(record))["phases"]
    # The last phase has not ended. The clock of its host is behind, so the second phase has the duration 0.
    assert [each["seconds"] for each in found] == [4.5, 0.0, None]


def test_the_remaining_time_of_the_copy_is_a_range() -> None:
    snapshot = ProgressSnapshot(total_bytes=11_000, copied_bytes=1_000)
    found = shown(known(run_record(), snapshot), last_minute=rates(200.0), lately=rates(100.0))
    copy = found["copy"]
    assert (copy["leastSecondsLeft"], copy["mostSecondsLeft"]) == (45, 112)
    assert (copy["bytesPerSecond"], copy["documentsPerSecond"]) == (200.0, 2.0)
    paused = shown(known(run_record(state=State.PAUSED), snapshot), last_minute=rates(200.0))
    assert paused["copy"]["mostSecondsLeft"] is None


@pytest.mark.parametrize(
    "left, needed, spooling, level",
    [
        (None, 10.0, False, Level.UNKNOWN),
        (math.inf, None, False, Level.GREEN),
        (None, 10.0, True, Level.GREEN),
        (7_200.0, None, False, Level.GREEN),
        (1_200.0, None, False, Level.AMBER),
        (600.0, None, False, Level.RED),
        (10_000.0, 4_000.0, False, Level.GREEN),
        (10_000.0, 6_000.0, False, Level.AMBER),
        (10_000.0, 9_000.0, False, Level.RED),
        (600.0, 2.0, False, Level.AMBER),
        (86_400.0, 1.0, False, Level.GREEN),
    ],
)
def test_the_headroom(
    left: float | None, needed: float | None, spooling: bool, level: Level
) -> None:
    found = headroom(left, needed, spooling)
    assert found.level is level
    assert found.text.endswith(".")


@pytest.mark.parametrize("state", State)
@pytest.mark.parametrize("phase", [Phase.COPYING, Phase.APPLYING])
def test_the_oplog_is_shown_while_it_is_watched(state: State, phase: Phase) -> None:
    record = run_record(state=state, phase=phase)
    found = shown(known(record, ProgressSnapshot(oplog_seconds_left=600.0)))["oplog"]
    watched = state in (State.RUNNING, State.PAUSED)
    assert found["level"] == ("red" if watched else "unknown")
    assert found["secondsLeft"] == (600 if watched else None)


def test_events_that_are_saved_in_a_pause_do_not_need_the_oplog() -> None:
    spool = SpoolFigures(active=True, size=1, limit=2, seconds=3, bytes_per_second=4.0)
    paused = run_record(state=State.PAUSED, phase=Phase.APPLYING)
    found = shown(known(paused, ProgressSnapshot(oplog_seconds_left=600.0, spool=spool)))["oplog"]
    assert found["level"] == "green" and found["text"].startswith("Change events are being saved")


def test_a_full_event_spool_needs_the_oplog() -> None:
    paused = run_record(state=State.PAUSED, phase=Phase.APPLYING)
    spool = SpoolFigures(active=True, size=2, limit=2, seconds=3, bytes_per_second=0.0)
    found = shown(known(paused, ProgressSnapshot(oplog_seconds_left=300.0, spool=spool)))["oplog"]
    assert (found["level"], found["secondsLeft"]) == ("red", 300)


def test_an_endless_oplog_is_valid_json() -> None:
    snapshot = ProgressSnapshot(oplog_seconds_left=math.inf)
    found = shown(known(run_record(), snapshot))["oplog"]
    assert (found["level"], found["secondsLeft"]) == ("green", None)


def test_a_warning_has_a_link() -> None:
    wait = LongWait("A call", "Check it.", 20.0)
    warnings = {WarningKind.OPLOG_SHORT: "Short.", WarningKind.BALANCER_ON: "On."}
    sync = known(run_record(), ProgressSnapshot(warnings=warnings, waits=(wait,)))
    found = shown(sync, {"warnings": ["Short.", "On.", wait.text]})["warnings"]
    assert [each["text"] for each in found] == ["Short.", "On.", wait.text]
    sections = [each["help"].partition("#")[2] for each in found]
    assert sections == ["the-oplog-is-too-short", "", "a-call-does-not-succeed"]


def test_a_standby_does_not_know_the_kind_of_the_warnings_of_the_active_daemon() -> None:
    snapshot = ProgressSnapshot(warnings={WarningKind.OPLOG_SHORT: "Short."})
    sync = replace(known(run_record(), snapshot), standing=Standing())
    found = shown(sync, {"warnings": ["Short.", "The oplog is short."]})["warnings"]
    sections = [each["help"].partition("#")[2] for each in found]
    assert sections == ["the-oplog-is-too-short", ""]


def test_instances_show_their_silence() -> None:
    other = OtherInstance("b", State.RUNNING, Phase.COPYING, 7, 80.0)
    position = Position({}, Timestamp(9, 1))
    record = run_record(instances=("coordinator", "b"), position=position)
    found = shown(known(record, ProgressSnapshot(others=(other,)), now=97.0))["instances"]
    assert [each["name"] for each in found] == ["coordinator", "b"]
    assert [each["silentSeconds"] for each in found] == [0, 15]
    assert [each["appliedUntil"] for each in found] == [9, 7]
    ended = replace(record, state=State.COMMITTED)
    found = shown(known(ended, ProgressSnapshot(others=(other,)), now=9_700.0))["instances"]
    assert [each["silentSeconds"] for each in found] == [0, 0]


@pytest.mark.parametrize(
    "check, clean",
    [
        (None, False),
        (CheckProgress(started=1.0), False),
        (CheckProgress(first=Amounts(1)), True),
        (CheckProgress(first=Amounts(1), mismatches=MismatchCounts({Difference.EXTRA: 1})), False),
        (CheckProgress(first=Amounts(1), mismatches=MismatchCounts(definitions=1)), False),
    ],
)
def test_a_clean_verification(check: CheckProgress | None, clean: bool) -> None:
    assert is_clean(check) is clean


SHARED = ("coordinator", "b")


def test_the_coordinator_shows_the_copy_of_all_instances() -> None:
    """This instance has copied half, and the other one the rest."""
    snapshot = ProgressSnapshot(
        total_bytes=2_000,
        copied_bytes=1_000,
        copied_documents=10,
        copied_in_all=CopiedAmount(2_000, 20),
        oplog_seconds_left=86_400.0,
    )
    done = collection_record(status=CopyStatus.DONE, copied=2_000, documents=20)
    sync = known(run_record(instances=SHARED), snapshot, collections=(done,), now=2.0)
    found = shown(sync, last_minute=rates(200.0))
    copy, summary = found["copy"], found["summary"]
    assert (copy["copiedBytes"], copy["copiedDocuments"], copy["totalDocuments"]) == (2_000, 20, 20)
    assert (copy["byThisInstance"], copy["mostSecondsLeft"]) == (False, 0)
    assert summary.endswith(": 100 % done.")
    assert found["oplog"]["level"] == "green"
    assert sample_of(sync, 1.0).counts[:2] == (2_000, 20)


def test_another_instance_does_not_compare_its_copy_with_the_total() -> None:
    snapshot = ProgressSnapshot(total_bytes=2_000, copied_bytes=1_000, oplog_seconds_left=7_200.0)
    record = run_record(instance="b", instances=SHARED)
    found = shown(known(record, snapshot), last_minute=rates(0.1), lately=rates(2.0))
    copy = found["copy"]
    assert (copy["copiedBytes"], copy["totalBytes"], copy["byThisInstance"]) == (1_000, 2_000, True)
    assert copy["mostSecondsLeft"] is None and "%" not in found["summary"]
    assert (found["oplog"]["level"], found["oplog"]["secondsNeeded"]) == ("green", None)
    # Its rate must not jump when it learns what the others have copied.
    copied = replace(snapshot, copied_in_all=CopiedAmount(2_000, 20))
    assert sample_of(known(record, copied), 1.0).counts[0] == 1_000


def test_a_sample_follows_the_direction_of_the_sync() -> None:
    pings = {"cluster0": Ping(0.001), "cluster1": Ping(None)}
    snapshot = ProgressSnapshot(pings=pings, lag_seconds=3)
    assert sample_of(known(run_record(), snapshot), 1.0).levels == (3, 1.0, None)
    assert sample_of(known(run_record(reversals=1), snapshot), 1.0).levels == (3, None, 1.0)
    assert sample_of(known(None, snapshot), 1.0).levels == (None, 1.0, None)
    assert sample_of(known(None, snapshot), 1.0).counts[:2] == (None, None)


def test_a_phase_is_noted_when_it_begins() -> None:
    record = run_record(phase=Phase.COPYING, phases=(PhaseBegin(Phase.COPYING, 1.0),))
    assert with_begin(record, Phase.COPYING, 9.0) == record.phases
    assert with_begin(record, Phase.APPLYING, 9.0)[-1] == PhaseBegin(Phase.APPLYING, 9.0)
    many = run_record(phases=(PhaseBegin(Phase.APPLYING, 1.0),) * MOST_PHASES)
    assert len(with_begin(many, Phase.WITHDRAWING, 9.0)) == MOST_PHASES


COLLECTIONS = tuple(
    collection_record(
        uuid=bytes([number]) * 16,
        namespace=Namespace("shop", name),
        status=status,
        total=total,
        copied=copied,
    )
    for number, (name, status, total, copied) in enumerate(
        [
            ("Apples", CopyStatus.DONE, 10, 10),
            ("pears", CopyStatus.COPYING, 30, 10),
            ("plums", CopyStatus.WAITING, 20, 0),
        ]
    )
)


@pytest.mark.parametrize(
    "request_, names",
    [
        (TableRequest(), ["Apples", "pears", "plums"]),
        (TableRequest(descending=True), ["plums", "pears", "Apples"]),
        (TableRequest(sort=SortKey.BYTES, descending=True), ["pears", "plums", "Apples"]),
        (TableRequest(sort=SortKey.LEFT), ["Apples", "pears", "plums"]),
        (TableRequest(sort=SortKey.MISMATCHES, descending=True), ["pears", "Apples", "plums"]),
        (TableRequest(search="APPLE"), ["Apples"]),
        (TableRequest(search="shop.p"), ["pears", "plums"]),
        (TableRequest(phase=NamespacePhase.COPYING), ["pears"]),
        (TableRequest(different=True), ["pears"]),
        (TableRequest(offset=1, limit=1), ["pears"]),
        (TableRequest(offset=9), []),
    ],
)
def test_the_table_is_sorted_and_filtered(request_: TableRequest, names: list[str]) -> None:
    check = CheckProgress(
        started=1.0, mismatches=MismatchCounts(namespaces={Namespace("shop", "pears"): 2})
    )
    sync = known(run_record(), ProgressSnapshot(check=check), collections=COLLECTIONS)
    found = namespaces_table(sync, request_)
    assert [each["namespace"].removeprefix("shop.") for each in found["namespaces"]] == names
    everything = namespaces_table(
        sync, TableRequest(request_.search, request_.phase, request_.different)
    )
    assert found["total"] == everything["total"] == len(everything["namespaces"])
