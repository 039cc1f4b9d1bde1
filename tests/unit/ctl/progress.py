"""Examples of the progress of a sync and of a check, as the API returns it."""

from __future__ import annotations

from typing import Any


def side(phase: str, compared: int, total: int | None, lag: int | None = 0) -> dict[str, Any]:
    return {
        "phase": phase,
        "estimatedDocumentCount": total,
        "hashedDocumentCount": compared,
        "totalCollectionCount": 2,
        "scannedCollectionCount": 1,
        "lagTimeSeconds": lag,
        "recheckLagTimeSeconds": lag,
    }


IDLE: dict[str, Any] = {
    "state": "IDLE",
    "canCommit": False,
    "canWrite": False,
    "info": None,
    "ceaStage": None,
    "lag": None,
    "lagTimeSeconds": None,
    "totalEventsApplied": None,
    "collectionCopy": None,
    "directionMapping": None,
    "source": None,
    "destination": None,
    "mongosyncID": "coordinator",
    "coordinatorID": None,
    "error": None,
    "errorDescription": None,
}
COPYING: dict[str, Any] = {
    **IDLE,
    "state": "RUNNING",
    "info": "collection copy",
    "totalEventsApplied": 0,
    "collectionCopy": {"estimatedTotalBytes": 2_000_000, "estimatedCopiedBytes": 500_000},
    "directionMapping": {"Source": "cluster0: a:27017", "Destination": "cluster1: b:27017"},
    "source": {"pingLatencyMs": 3},
    "destination": {},
    "verification": {
        name: side("not started", 0, None, None) for name in ("source", "destination")
    },
}
APPLYING: dict[str, Any] = {
    **COPYING,
    "info": "change event application",
    "ceaStage": "steady state",
    "lagTimeSeconds": 0,
    "totalEventsApplied": 12_345,
    "collectionCopy": {"estimatedTotalBytes": 2_000_000, "estimatedCopiedBytes": 2_000_000},
    "estimatedOplogTimeRemaining": "more than 72 hours",
    "verification": {name: side("stream hashing", 10, 10) for name in ("source", "destination")},
}
COMMITTABLE = {**APPLYING, "canCommit": True}
COMMITTING = {**APPLYING, "state": "COMMITTING", "info": "waiting for commit to complete"}
WRITABLE = {**COMMITTING, "canWrite": True}
COMMITTED = {**WRITABLE, "state": "COMMITTED", "info": "commit completed"}
FAILED = {
    **APPLYING,
    "state": "FAILED",
    "error": "EventNotApplicable",
    "errorDescription": "The destination refuses a change.",
}


def answer(progress: dict[str, Any]) -> dict[str, Any]:
    return {"progress": progress, "success": True}


_STATS = {
    "docsCompared": 50,
    "totalDocs": 100,
    "srcBytesCompared": 5_000,
    "totalSrcBytes": 10_000,
    "totalNamespaces": 2,
}
NO_CHECK: dict[str, Any] = {
    "phase": "idle",
    "error": None,
    "verificationStatus": {"totalTasks": 4, "completedTasks": 1, "failedTasks": 0},
    "verdict": None,
    "verdictReasons": [],
    "writesOff": False,
    "generation": None,
    "generationStats": _STATS,
    "gen0Stats": None,
    "totalRechecksDone": 0,
    "notes": [],
}
CHECKING = {**NO_CHECK, "phase": "check", "generation": 0}
PASSED = {
    **CHECKING,
    "phase": "idle",
    "verdict": "passed",
    "gen0Stats": {**_STATS, "docsCompared": 100},
    "writesOff": True,
}
DIFFERENT = {**PASSED, "verdict": "failed", "verdictReasons": ["2 documents are missing."]}
INCOMPLETE = {
    **PASSED,
    "verdict": "incomplete",
    "verdictReasons": ["The source reported the operation drop: d.c."],
    "error": "DefinitionChanged: The source reported the operation drop: d.c.",
}
