"""The log lines that are written every half minute have the messages and fields that log tools for mongosync expect."""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any

import pytest

from syncsvc.figures.durations import Durations, Operation
from syncsvc.figures.progress import Ping, ProgressSnapshot
from syncsvc.reports.log_lines import Line, lines
from syncsvc.reports.sync import Sync
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State
from tests.unit.syncsvc.records import collection_record, known, run_record
from verifier.compare.check_progress import Changes, CheckProgress

BEFORE = known(None, now=100.0)
SNAPSHOT = ProgressSnapshot(
    events_read=90,
    events_applied=60,
    documents_written=50,
    lag_seconds=3,
    pings={"cluster0": Ping(0.0042), "cluster1": Ping(None)},
)


def told(sync: Sync, before: Sync = BEFORE, **durations: Durations) -> dict[str, Line]:
    noted = {Operation[name]: each for name, each in durations.items()}
    return {each.message: each for each in lines(before, sync, noted)}


def running(phase: Phase, snapshot: ProgressSnapshot = SNAPSHOT, **fields: Any) -> Sync:
    return known(run_record(phase=phase), snapshot, now=130.0, **fields)


@pytest.mark.parametrize("record", [None, *(run_record(state=state) for state in State)])
def test_only_an_active_sync_has_log_lines(
    record: RunRecord | None,
) -> None:
    active = record is not None and record.state in ACTIVE
    assert bool(told(known(record))) is active


EVERY = ["Replication progress.", "Operation duration stats."]
EVERY += ["Write Stats to Source and Destination Clusters."]


@pytest.mark.parametrize(
    "phase, more",
    [
        (Phase.INITIALIZING, []),
        (Phase.COPYING, ["Completed writing 1 / 2 partitions to destination cluster"]),
        (Phase.INDEXING, []),
        (Phase.APPLYING, ["Average Source CRUD events rate"]),
        (Phase.CUTTING_OVER, []),
    ],
)
def test_each_phase_has_its_lines(phase: Phase, more: list[str]) -> None:
    collections = [collection_record(status=each) for each in (CopyStatus.DONE, CopyStatus.COPYING)]
    found = told(running(phase, collections=tuple(collections)))
    assert [*found] == EVERY + more
    assert {line.level for line in found.values()} == {logging.INFO}


def test_rates_of_a_sync_that_began_after_a_reset_count_from_zero() -> None:
    before = running(Phase.APPLYING, replace(SNAPSHOT, events_applied=900, events_read=900))
    found = told(running(Phase.APPLYING), replace(before, now=100.0))
    assert found["Replication progress."].fields["eventApplicationRatePerSecond"] == 2.0
    assert found["Average Source CRUD events rate"].fields == {"srcCRUDEventsPerSec": 3.0}


def test_the_progress_of_the_replication() -> None:
    before = running(Phase.APPLYING, replace(SNAPSHOT, events_applied=0))
    line = told(running(Phase.APPLYING), replace(before, now=100.0))["Replication progress."]
    assert line.fields == {
        "totalEventsApplied": 60,
        "eventApplicationRatePerSecond": 2.0,
        "lagTimeSeconds": 3,
        "lag": {"overallLagSeconds": 3, "crudLagSeconds": 3, "ddlLagSeconds": None},
        "estimatedOplogTimeRemaining": "not checked yet",
    }


def test_the_durations_of_calls() -> None:
    durations = Durations(4, 0.5, 0.25)
    quiet = {"averageDurationMs": "0.00", "maximumDurationMs": "0.00", "numOperations": 0}
    line = told(running(Phase.APPLYING), EVENTS_WRITE=durations)["Operation duration stats."]
    assert line.fields == {
        "CollectionCopySourceRead": quiet,
        "CollectionCopyDestinationWrite": quiet,
        "CEASourceRead": quiet,
        "CEADestinationWrite": {
            "averageDurationMs": "125.00",
            "maximumDurationMs": "250.00",
            "numOperations": 4,
        },
        "sourcePingLatencyMs": 4,
        "destinationPingLatencyMs": -1,
    }


def test_the_numbers_of_writes() -> None:
    snapshot = replace(SNAPSHOT, documents_copied=10)
    line = told(running(Phase.APPLYING, snapshot))[EVERY[2]]
    assert line.fields == {
        "EstimatedNumWritesOnSourceCluster": 90,
        "NumWritesOnDestinationCluster": 60,
    }


def test_the_write_rate_covers_the_last_half_minute() -> None:
    before = running(Phase.APPLYING, replace(SNAPSHOT, events_read=30))
    line = told(running(Phase.APPLYING), replace(before, now=100.0))
    assert line["Average Source CRUD events rate"].fields == {"srcCRUDEventsPerSec": 2.0}


@pytest.mark.parametrize(
    "source, destination, fields, level",
    [
        (None, None, None, None),
        (1, None, {"verifierSrcLagTimeSeconds": 1}, logging.INFO),
        (
            1,
            30,
            {"verifierSrcLagTimeSeconds": 1, "verifierDstLagTimeSeconds": 30},
            logging.INFO,
        ),
        (31, None, {"verifierSrcLagTimeSeconds": 31}, logging.WARNING),
    ],
)
def test_a_verification_lag_that_prevents_a_commit_is_a_warning(
    source: int | None,
    destination: int | None,
    fields: dict[str, int] | None,
    level: int | None,
) -> None:
    check = CheckProgress(
        source=Changes(lag_seconds=source), destination=Changes(lag_seconds=destination)
    )
    line = told(running(Phase.APPLYING, replace(SNAPSHOT, check=check))).get("Verifier lag.")
    assert (line and line.fields, line and line.level) == (fields, level)
