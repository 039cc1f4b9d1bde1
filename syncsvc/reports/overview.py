"""The answer to `GET /api/v1/overview`: everything that an operator watches, in one document."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from syncsvc.figures.history import COLUMNS, Points, Row
from syncsvc.figures.progress import CopiedAmount, OtherInstance, WarningKind
from syncsvc.reports.headroom import Headroom, Level, headroom
from syncsvc.reports.namespaces import NamespacePhase, phases_of
from syncsvc.reports.outlook import commands_now, next_step, summary, why_no_commit
from syncsvc.reports.progress_answer import seconds_until_caught_up
from syncsvc.reports.recovery import Step
from syncsvc.reports.sync import (
    OPLOG_WATCHED,
    Sync,
    copied_in_all,
    is_active,
    lag_seconds,
    oplog_seconds_left,
    total_bytes,
)
from syncsvc.reports.verification_answer import documents_expected, first_amounts, hashing
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase, State
from verifier.runtime.recent import RecentCommand, recent_answer
from verifier.runtime.version import DOCUMENTATION

_TROUBLESHOOT = f"{DOCUMENTATION}/howto/troubleshoot.html"
_OPLOG = "the-oplog-is-too-short"
_AFTER_COMMIT = "writes-reached-the-source-after-the-commit"
# For each kind of warning, the section of the troubleshooting page about it. Other kinds link to the whole page.
_SECTIONS = {
    WarningKind.OPLOG_SHORT: _OPLOG,
    WarningKind.OPLOG_UNKNOWN: _OPLOG,
    WarningKind.SPOOL_FILLING: _OPLOG,
    WarningKind.PAUSE_UNSPOOLED: _OPLOG,
    WarningKind.CHECK_REPEATED: _OPLOG,
    WarningKind.WRITTEN_AFTER_COMMIT: _AFTER_COMMIT,
    WarningKind.UNCHECKED_AFTER_COMMIT: _AFTER_COMMIT,
}
_OF_WAITS = "a-call-does-not-succeed"
# The rate below which the remaining time of a copy is not estimated, in bytes per second.
_LEAST_RATE = 1.0


@dataclass(frozen=True)
class Observed:
    """The history that this process keeps in memory for the overview: points of the charts, averages and commands.

    `last_minute` contains the figures of the last minute, `lately` those of the last 15 minutes: average rates, and the
    maxima of the other values. Both are empty before the first measurement. `last_clean` is the last time at which
    the verification had completed its first pass and knew of no difference, in UNIX seconds; None without a
    verification, or if this process has seen no such time.
    """

    history: Points
    last_minute: Row = ()
    lately: Row = ()
    last_clean: float | None = None
    commands: tuple[RecentCommand, ...] = ()


def overview_report(sync: Sync, progress: Mapping[str, Any], observed: Observed) -> dict[str, Any]:
    """Return the field `overview` of the answer. `progress` is the field `progress` of `GET /api/v1/progress`."""
    reasons = why_no_commit(sync)
    return {
        "progress": dict(progress),
        "summary": summary(sync),
        "commit": {"possible": sync.can_commit, "reasons": list(reasons)},
        "next": _step(next_step(sync)),
        "commands": commands_now(sync),
        "destination": _destination(sync),
        "phases": _phases(sync.record),
        "copy": _copy(sync, observed),
        "events": _events(sync, observed),
        "oplog": _oplog(sync, observed),
        "namespaces": _namespaces(sync),
        "verification": _verification(sync, observed),
        "instances": [*_instances(sync)],
        "warnings": [*_warnings(sync, progress)],
        "recentCommands": [recent_answer(each) for each in observed.commands],
        "history": _history(observed.history),
    }


def _step(step: Step | None) -> dict[str, Any] | None:
    if step is None:
        return None
    return {"text": step.text, "command": step.command, "body": step.body}


def _destination(sync: Sync) -> str | None:
    """Return the name that the user must type on the page to confirm a commit or reset; None before a start."""
    return None if sync.record is None else sync.record.destination


def _phases(record: RunRecord | None) -> list[dict[str, Any]]:
    """Return the saved phases with their start times and durations, the oldest first. The newest has no duration."""
    if record is None or not record.phases:
        return []
    ends: list[float | None] = [*(each.at for each in record.phases[1:]), None]
    return [
        {"phase": each.phase.value, "began": round(each.at, 3), "seconds": _between(each.at, end)}
        for each, end in zip(record.phases, ends, strict=True)
    ]


def _between(began: float, ended: float | None) -> float | None:
    # The clocks of two hosts may differ.
    return None if ended is None else round(max(0.0, ended - began), 3)


def _rate(rows: Row, column: str) -> float | None:
    return rows[COLUMNS.index(column)] if rows else None


def _copy(sync: Sync, observed: Observed) -> dict[str, Any]:
    snapshot, record = sync.snapshot, sync.record
    copying = record is not None and record.state is State.RUNNING and record.phase is Phase.COPYING
    total = None if record is None else total_bytes(snapshot)
    rates = [each if copying else () for each in (observed.last_minute, observed.lately)]
    left = _copy_seconds(sync, observed) if copying else None
    in_all = copied_in_all(sync)
    copied = in_all or CopiedAmount(snapshot.copied_bytes, snapshot.copied_documents)
    return {
        "copiedBytes": copied.bytes,
        "totalBytes": total,
        "copiedDocuments": copied.documents,
        "totalDocuments": _total_documents(sync),
        "byThisInstance": in_all is None,
        "bytesPerSecond": _rate(rates[0], "copiedBytesPerSecond"),
        "documentsPerSecond": _rate(rates[0], "copiedDocumentsPerSecond"),
        "leastSecondsLeft": None if left is None else left[0],
        "mostSecondsLeft": None if left is None else left[1],
    }


def _total_documents(sync: Sync) -> int | None:
    """Return the estimated number of documents to copy; None if no collections are known, as before a start."""
    if not sync.collections:
        return None
    return sum(
        (
            each.documents
            if each.status is CopyStatus.DONE
            else max(each.total_documents, each.documents)
        )
        for each in sync.collections
    )


def _copy_seconds(sync: Sync, observed: Observed) -> tuple[int, int] | None:
    """Return a low and a high estimate of the remaining seconds of the copy.

    The estimates use the rates of the last minute and of the last 15 minutes, with a margin of 10 %. Return None if the
    bytes to copy or the bytes that all instances have copied are unknown, or if both rates are unknown or almost 0.
    """
    total, copied = total_bytes(sync.snapshot), copied_in_all(sync)
    rates = [
        rate
        for rows in (observed.last_minute, observed.lately)
        if (rate := _rate(rows, "copiedBytesPerSecond")) is not None and rate > _LEAST_RATE
    ]
    if total is None or copied is None or not rates:
        return None
    left = total - copied.bytes
    return math.floor(left / (max(rates) * 1.1)), math.ceil(left / (min(rates) * 0.9))


def _events(sync: Sync, observed: Observed) -> dict[str, Any]:
    snapshot, record = sync.snapshot, sync.record
    return {
        "read": snapshot.events_read,
        "applied": snapshot.events_applied,
        "definitionsApplied": snapshot.definitions_applied,
        "readPerSecond": _rate(observed.last_minute, "eventsReadPerSecond"),
        "appliedPerSecond": _rate(observed.last_minute, "eventsAppliedPerSecond"),
        "lagSeconds": None if record is None else lag_seconds(record, snapshot),
        "catchUpSeconds": None if record is None else seconds_until_caught_up(record, snapshot),
    }


def _oplog(sync: Sync, observed: Observed) -> dict[str, Any]:
    found = _headroom(sync, observed)
    finite = found.left is not None and math.isfinite(found.left)
    return {
        "level": found.level.value,
        "secondsLeft": round(found.left) if finite and found.left is not None else None,
        "secondsNeeded": None if found.needed is None else round(found.needed),
        "text": found.text,
    }


def _headroom(sync: Sync, observed: Observed) -> Headroom:
    record, snapshot = sync.record, sync.snapshot
    if record is None or record.state not in OPLOG_WATCHED:
        return Headroom(
            Level.UNKNOWN,
            None,
            None,
            "How long the source's oplog keeps changes is shown only while the sync is running or paused, and not by a "
            "standby.",
        )
    spooling = snapshot.spool is not None and snapshot.spool.replaces_oplog
    return headroom(oplog_seconds_left(record, snapshot), _needed(sync, record, observed), spooling)


def _needed(sync: Sync, record: RunRecord, observed: Observed) -> float | None:
    """Return for how many seconds the oplog must still keep the oldest change that the sync needs; None if unknown.

    During the copy, the result is the high estimate of its remaining time. While change events are applied, the result
    is the lag or the time until the lag is 0, whichever is longer. In other phases, and while the sync is paused, the
    result is None.
    """
    if record.state is State.PAUSED:
        return None
    if record.phase is Phase.COPYING:
        left = _copy_seconds(sync, observed)
        return None if left is None else float(left[1])
    if record.phase is not Phase.APPLYING:
        return None
    lag, catch_up = lag_seconds(record, sync.snapshot), seconds_until_caught_up(
        record, sync.snapshot
    )
    known = [float(each) for each in (lag, catch_up) if each is not None]
    return max(known, default=None)


def _namespaces(sync: Sync) -> dict[str, Any]:
    counts = Counter(phases_of(sync))
    return {
        "total": len(sync.collections),
        "phases": {each.value: counts[each] for each in NamespacePhase},
    }


def _verification(sync: Sync, observed: Observed) -> dict[str, Any] | None:
    """Return the progress of the verification; None if it is disabled or there is no sync."""
    if sync.record is None or not sync.record.options.verification:
        return None
    check = sync.snapshot.check
    return {
        "phase": hashing(check).value,
        "comparedDocuments": first_amounts(check).documents,
        "totalDocuments": documents_expected(check),
        "recheckedDocuments": 0 if check is None else check.rechecked,
        "differentDocuments": 0 if check is None else sum(check.mismatches.documents.values()),
        "differentDefinitions": 0 if check is None else check.mismatches.definitions,
        "lastClean": observed.last_clean,
        "verdict": None if check is None or check.verdict is None else check.verdict.outcome.value,
        "notes": [] if check is None else list(check.notes),
    }


def _instances(sync: Sync) -> Iterator[dict[str, Any]]:
    """Yield the known instances, this instance first; nothing before a start, or if this instance runs alone."""
    record = sync.record
    if record is None or not record.instances:
        return
    applied = None if record.position is None else record.position.time.time
    own = OtherInstance(record.instance, record.state, record.phase, applied, sync.now)
    for each in (own, *sync.snapshot.others):
        yield {
            "name": each.name,
            "coordinates": each.name == record.coordinator,
            "state": each.state.value,
            "phase": each.phase.value,
            "appliedUntil": each.applied_until,
            "silentSeconds": _silence(sync, each),
        }


def _silence(sync: Sync, instance: OtherInstance) -> int:
    """Return the seconds since the last heartbeat of an instance, rounded down to a multiple of five.

    Return 0 if the sync is not active, because heartbeats are not read then.
    """
    silent = sync.now - instance.heard_at if is_active(sync) else 0.0
    # Rounded, so that the answer does not change with every request.
    return max(0, int(silent // 5) * 5)


def _warnings(sync: Sync, progress: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Yield the warnings that the progress shows, each with a link to the documentation."""
    sections = {text: _SECTIONS.get(kind) for kind, text in sync.snapshot.warnings.items()}
    # A standby also shows the warnings of the active daemon, and does not know their kinds.
    others = None if sync.is_standby else _OF_WAITS
    for text in progress.get("warnings", ()):
        section = sections.get(text, others)
        yield {"text": text, "help": f"{_TROUBLESHOOT}#{section}" if section else _TROUBLESHOOT}


def _history(points: Points) -> dict[str, Any]:
    return {
        "columns": list(COLUMNS),
        "rows": [list(row) for row in points.rows],
        "stepSeconds": points.step,
        "cursor": points.cursor,
        "restart": points.restart,
    }
