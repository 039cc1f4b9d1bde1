"""The shape of the progress answer. Pure: a function of the saved record and the engine's snapshot."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.figures.trends import in_words, seconds_to_catch_up
from syncsvc.reports.failure import failure_description
from syncsvc.reports.sync import Sync
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State


def progress_report(sync: Sync, addresses: Mapping[str, str], instance: str) -> dict[str, Any]:
    """The `progress` document. Without a sync, all but the state, the two permissions and the ids is null or absent."""
    record, snapshot = sync.record, sync.snapshot
    if record is None:
        return {
            "state": sync.state.value,
            "canCommit": False,
            "canWrite": False,
            "info": None,
            "lagTimeSeconds": None,
            "totalEventsApplied": None,
            "collectionCopy": None,
            "directionMapping": None,
            "mongosyncID": instance,
            "coordinatorID": instance,
            "error": None,
            "errorDescription": None,
        }
    failure = record.failure
    return {
        "state": sync.state.value,
        "canCommit": sync.can_commit,
        "canWrite": record.can_write,
        "info": phase_shown(record).value,
        "lagTimeSeconds": lag_seconds(record, snapshot),
        "totalEventsApplied": snapshot.events_applied,
        "collectionCopy": {
            "estimatedTotalBytes": total_bytes(snapshot),
            "estimatedCopiedBytes": snapshot.copied_bytes,
        },
        "directionMapping": {
            "Source": _mapping(record.source, addresses),
            "Destination": _mapping(record.destination, addresses),
        },
        "mongosyncID": instance,
        "coordinatorID": instance,
        "error": None if failure is None else failure.name,
        "errorDescription": failure_description(record),
        **_estimates(record, snapshot),
    }


def _estimates(record: RunRecord, snapshot: ProgressSnapshot) -> dict[str, Any]:
    """What is shown only where it means something."""
    shown: dict[str, Any] = {}
    if record.state is State.RUNNING:
        left = oplog_seconds_left(record, snapshot)
        shown["estimatedOplogTimeRemaining"] = "not checked yet" if left is None else in_words(left)
    seconds = seconds_until_caught_up(record, snapshot)
    if seconds is not None:
        shown["estimatedSecondsToCEACatchup"] = seconds
    if snapshot.warnings:
        shown["warnings"] = list(snapshot.warnings.values())
    return shown


def oplog_seconds_left(record: RunRecord, snapshot: ProgressSnapshot) -> float | None:
    """Before a commit is asked for."""
    return snapshot.oplog_seconds_left if record.state is State.RUNNING else None


def seconds_until_caught_up(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """While change events are applied."""
    if record.state not in ACTIVE or record.phase is not Phase.APPLYING:
        return None
    return seconds_to_catch_up(snapshot.lags)


def phase_shown(record: RunRecord) -> Phase:
    """The phase; once a commit is asked for, that it goes on."""
    return Phase.CUTTING_OVER if record.state is State.COMMITTING else record.phase


def lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """What was measured before a pause says nothing of now."""
    return None if record.state is State.PAUSED else snapshot.lag_seconds


def total_bytes(snapshot: ProgressSnapshot) -> int | None:
    """The estimate, raised to what was copied where that is more already."""
    total = snapshot.total_bytes
    return None if total is None else max(total, snapshot.copied_bytes)


def _mapping(name: str, addresses: Mapping[str, str]) -> str:
    return f"{name}: {addresses[name]}"
