"""Tests the texts of `syncctl` for each state of a sync: the reasons against a commit, and the next step."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.ctl.advice import (
    MAX_LAG_SECONDS,
    MAX_RECHECK_LAG_SECONDS,
    destination_name,
    next_step,
    obstacles,
)
from syncsvc.figures.progress import MOST_LAG, MOST_RECHECK_LAG
from syncsvc.state import State
from tests.unit.ctl.progress import (
    APPLYING,
    COMMITTABLE,
    COMMITTED,
    COMMITTING,
    COPYING,
    FAILED,
    IDLE,
    WRITABLE,
    side,
)

BEHIND = {
    "source": side("stream hashing", 9, 9, 40),
    "destination": side("stream hashing", 9, 9, 0),
}
UNCOMPARED = {
    "source": {**side("stream hashing", 9, 9), "recheckLagTimeSeconds": None},
    "destination": side("stream hashing", 9, 9),
}
LATE = {
    "source": side("stream hashing", 9, 9),
    "destination": {**side("stream hashing", 9, 9), "recheckLagTimeSeconds": 61},
}
COMPARING = {name: side("initial hashing", 4, 9) for name in ("source", "destination")}

_COPIED = COPYING["collectionCopy"]
# Several instances share the copy: as the coordinator sees it, and as another one does.
SHARED = {**COPYING, "collectionCopy": {**_COPIED, "estimatedCopiedBytesInAll": 2_000_000}}
PART = {**COPYING, "collectionCopy": {**_COPIED, "estimatedCopiedBytesInAll": None}}


@pytest.mark.parametrize(
    "progress, reason",
    [
        (IDLE, "The sync is IDLE"),
        (COPYING, "Copied: 25 %; estimated total: 2.0 MB."),
        (SHARED, "Copied: 100 %; estimated total: 2.0 MB."),
        (PART, "Copied by this instance: 500.0 kB; estimated total of all instances: 2.0 MB."),
        ({**COPYING, "info": "building indexes"}, "Indexes are being built"),
        ({**COPYING, "info": "initializing collections and indexes"}, "copy has not begun"),
        ({**COPYING, "info": "something new"}, "something new"),
        ({**APPLYING, "ceaStage": "collection copy drain"}, "still being applied; the lag is 0 s"),
        ({**APPLYING, "lagTimeSeconds": 90}, "1 min 30 s behind"),
        ({**APPLYING, "lagTimeSeconds": None}, "not known"),
        ({**APPLYING, "repairs": {"inProgress": True}}, "are being repaired"),
        ({**APPLYING, "verification": COMPARING}, "Documents compared: 4; estimated total: 9."),
        ({**APPLYING, "verification": BEHIND}, "40 s behind the changes of the source"),
        (
            {**APPLYING, "verification": UNCOMPARED},
            "documents of the source that changed during its first pass",
        ),
        (
            {**APPLYING, "verification": LATE},
            "1 min 1 s behind in comparing the changed documents of the destination",
        ),
        (APPLYING, "is still checking"),
    ],
)
def test_the_reason_against_a_commit_is_named(progress: dict[str, Any], reason: str) -> None:
    assert reason in " ".join(obstacles(progress))


def test_another_instance_waits_for_its_coordinator() -> None:
    begun = {**APPLYING, "verification": COPYING["verification"]}
    assert obstacles(begun) == ["Verification has not begun."]
    (reason,) = obstacles({**begun, "mongosyncID": "b", "coordinatorID": "a"})
    assert reason == "The coordinator a has not reported that a commit is possible."


def test_a_lag_above_the_limit_of_the_operator_is_an_obstacle() -> None:
    progress = {**COMMITTABLE, "lagTimeSeconds": 6}
    assert obstacles(progress) == []
    assert obstacles(progress, 6) == []
    assert "is 6 s;" in obstacles(progress, 5)[0]
    assert obstacles({**COMMITTABLE, "lagTimeSeconds": None}, 5)


@pytest.mark.parametrize(
    "progress, step",
    [
        (IDLE, "syncctl start"),
        (COPYING, "syncctl watch --until canCommit"),
        (COMMITTABLE, "syncctl commit --wait"),
        ({**APPLYING, "state": "PAUSED"}, "syncctl resume"),
        (COMMITTING, "--until canWrite"),
        (WRITABLE, "point the applications"),
        (
            COMMITTED,
            "Point the applications to the destination. To keep the report: syncctl report.",
        ),
        ({**FAILED, "error": "Superseded"}, "stop this daemon"),
        ({**FAILED, "error": "Superseded", "role": "active"}, "becomes a standby"),
        ({**COMMITTABLE, "role": "standby"}, "active daemon"),
    ],
)
def test_the_next_step_fits_the_state(progress: dict[str, Any], step: str) -> None:
    assert step in next_step(progress, "syncctl")


@pytest.mark.parametrize(
    "progress, advice, step",
    [
        (
            FAILED,
            {"text": "Remove the cause, then resume.", "command": "resume"},
            "Remove the cause, then resume: syncctl resume",
        ),
        (FAILED, {"text": "Keep both clusters.", "command": None}, "Keep both clusters."),
        (FAILED, None, "look up the error in docs/reference/errors."),
    ],
)
def test_the_next_step_after_a_failure_is_that_of_the_daemon(
    progress: dict[str, Any], advice: dict[str, Any] | None, step: str
) -> None:
    assert next_step(progress, "syncctl", advice) == step


def test_the_daemon_says_whether_a_committed_sync_can_be_reversed() -> None:
    advice = {"text": "Point the applications there. You can reverse the sync.", "command": None}
    assert next_step(COMMITTED, "syncctl", advice) == (
        "Point the applications there. You can reverse the sync. To keep the report: syncctl report."
    )


def test_the_largest_lag_is_that_of_the_daemon() -> None:
    assert (MAX_LAG_SECONDS, MAX_RECHECK_LAG_SECONDS) == (MOST_LAG, MOST_RECHECK_LAG)


@pytest.mark.parametrize("state", [each.value for each in State])
def test_every_state_has_a_next_step(state: str) -> None:
    assert "--json" not in next_step({**COMMITTED, "state": state}, "syncctl")


def test_the_destination_is_named_after_a_start() -> None:
    assert (destination_name(IDLE), destination_name(COPYING)) == (None, "cluster1")
