"""Builds the answers to `GET /api/v1/progress` and `GET /api/v1/summary` from the progress and mismatches of a check.

The functions here have no side effects.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bson.timestamp import Timestamp

from verifier.compare.check_progress import (
    Amounts,
    Changes,
    CheckProgress,
    Phase,
    TaskCounts,
    Verdict,
)
from verifier.compare.mismatch import Difference, StoredMismatch
from verifier.compare.mismatch_lines import line
from verifier.runtime.waits import LongWait


def progress_answer(progress: CheckProgress, waits: Sequence[LongWait] = ()) -> dict[str, Any]:
    """Return the field `progress` of the answer to `GET /api/v1/progress`, in which unknown values are None.

    `waits` are the long waits of this process. If there are none, the field `warnings` is left out.
    """
    verdict = progress.verdict
    source, destination = progress.source, progress.destination
    warnings = {"warnings": [each.text for each in waits]} if waits else {}
    return {
        "phase": progress.phase.value,
        "error": None if verdict is None else _error(verdict),
        "verificationStatus": _tasks(progress.tasks),
        "verdict": None if verdict is None else verdict.outcome.value,
        "verdictReasons": [] if verdict is None else [*verdict.reasons],
        "writesOff": progress.writes_off,
        "generation": progress.generation,
        "generationStats": _amounts(progress.amounts),
        "gen0Stats": None if progress.first is None else _amounts(progress.first),
        "recentRecheckSecs": _durations(progress),
        "totalRechecksDone": progress.rechecked,
        "docsComparedPerSecond": _number(progress.documents_per_second),
        "srcBytesComparedPerSecond": _number(progress.size_per_second),
        "srcChangeStats": _changes(source),
        "dstChangeStats": _changes(destination),
        "srcLastRecheckedTS": _timestamp(source.rechecked),
        "dstLastRecheckedTS": _timestamp(destination.rechecked),
        "notes": [*progress.notes],
        **warnings,
    }


def summary_answer(
    progress: CheckProgress, definitions: Sequence[StoredMismatch]
) -> dict[str, Any]:
    """Return the answer to `GET /api/v1/summary`, without the field `success`.

    `definitions` are the differences in definitions and in numbers of documents to list. Their total number, and all
    figures of documents, come from `progress`.
    """
    mismatches, verdict = progress.mismatches, progress.verdict
    return {
        "verdict": None if verdict is None else verdict.outcome.value,
        "verdictReasons": [] if verdict is None else [*verdict.reasons],
        "estCheckSecsRemaining": seconds_left(progress),
        "recentRecheckSecs": _durations(progress),
        "checkStats": _amounts(progress.first or progress.amounts),
        "nsMismatches": [line(each) for each in definitions],
        "nsMismatchesTotal": mismatches.definitions,
        "docMismatches": {
            "total": sum(mismatches.documents.values()),
            "byType": {each.value: mismatches.documents.get(each, 0) for each in Difference},
            "byNamespace": {str(name): count for name, count in mismatches.namespaces.items()},
        },
        "totalRechecksDone": progress.rechecked,
        "srcChangeEvents": dict(progress.source.seen),
        "dstChangeEvents": dict(progress.destination.seen),
        "notes": [*progress.notes],
    }


def _error(verdict: Verdict) -> str | None:
    return None if verdict.error is None else f"{verdict.error}: {' '.join(verdict.reasons)}"


def _tasks(tasks: TaskCounts) -> dict[str, int]:
    return {
        "totalTasks": tasks.total,
        "addedTasks": tasks.added,
        "processingTasks": tasks.processing,
        "failedTasks": tasks.failed,
        "completedTasks": tasks.completed,
        "metadataMismatchTasks": tasks.metadata_mismatch,
        "recheckTasks": tasks.recheck,
    }


def _amounts(amounts: Amounts) -> dict[str, int | None]:
    return {
        "docsCompared": amounts.documents,
        "totalDocs": amounts.total_documents,
        "srcBytesCompared": amounts.size,
        "totalSrcBytes": amounts.total_size,
        "totalNamespaces": amounts.namespaces,
    }


def _changes(changes: Changes) -> dict[str, Any]:
    return {
        "eventsPerSecond": _number(changes.per_second),
        "lagSecs": changes.lag_seconds,
        "eventCounts": dict(changes.seen),
    }


def _durations(progress: CheckProgress) -> list[float | None]:
    return [_number(seconds) for seconds in progress.recent_recheck_seconds]


def _number(value: float | None) -> float | None:
    """Return the number rounded to three decimals; None if it is unknown or infinite, which JSON cannot represent."""
    return round(value, 3) if value is not None and math.isfinite(value) else None


def _timestamp(time: Timestamp | None) -> dict[str, Any] | None:
    return None if time is None else {"$timestamp": {"t": time.time, "i": time.inc}}


def seconds_left(progress: CheckProgress) -> float | None:
    """Estimate the remaining seconds of generation 0 at the current rate; None if unknown, or if it is not running."""
    total, rate = progress.amounts.total_size, progress.size_per_second
    if progress.phase is not Phase.CHECK or total is None or not rate:
        return None
    return _number(max(total - progress.amounts.size, 0) / rate)
