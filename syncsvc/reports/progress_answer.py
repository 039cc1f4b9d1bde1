"""The answer to `GET /api/v1/progress`."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Any

from syncsvc.figures.progress import OtherInstance, Ping, ProgressSnapshot, SpoolFigures
from syncsvc.figures.trends import in_words, seconds_to_catch_up
from syncsvc.metadata import DEFAULT_ID
from syncsvc.reports.failure import failure_description
from syncsvc.reports.limits import throttled_by
from syncsvc.reports.principals import copied_report
from syncsvc.reports.sync import (
    OPLOG_WATCHED,
    Sync,
    copied_in_all,
    definition_lag_seconds,
    index_building,
    is_drained,
    lag_seconds,
    oplog_seconds_left,
    phase_shown,
    ping_of,
    total_bytes,
    write_lag_seconds,
)
from syncsvc.reports.verification_answer import (
    collections_scanned,
    documents_expected,
    first_amounts,
    hashing,
)
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State
from verifier.compare.check_progress import Changes, CheckProgress

# The value of `estimatedTotalBytes` before the collections are listed. It is not 0, because scripts that were written
# for mongosync divide by it.
_NOTHING_LISTED_YET = 1


class Stage(Enum):
    """The stages of change event application. DRAIN: changes made during the copy are applied. STEADY: afterwards."""

    DRAIN = "collection copy drain"
    STEADY = "steady state"


# The value of `collectionCopy` while this process has no sync. Dashboards for mongosync calculate with these numbers.
_NOTHING_COPIED = {"estimatedTotalBytes": 0, "estimatedCopiedBytes": 0}
_UNKNOWN = (
    *("info", "ceaStage", "lag", "lagTimeSeconds", "totalEventsApplied"),
    *("directionMapping", "enableUserWriteBlocking", "source", "destination"),
    *("error", "errorDescription", "throttledBy"),
)


def progress_report(sync: Sync, addresses: Mapping[str, str], instance: str) -> dict[str, Any]:
    """Return the `progress` document of the answer. `addresses` are the clusters' addresses (host:port) by name.

    `instance` is the ID of this instance. While this process has no sync, the figures of the copy are zeros, and all
    other fields are null or absent, except `state`, `canCommit`, `canWrite`, the IDs, `desiredState` and `warnings`.
    """
    record, snapshot = sync.record, sync.snapshot
    ids = {"mongosyncID": instance, "coordinatorID": _coordinator(record, instance)}
    declared = {} if sync.goal is None else {"desiredState": sync.goal.state.value}
    if record is None:
        permissions = {"canCommit": False, "canWrite": False}
        unknown = dict.fromkeys(_UNKNOWN)
        known = {"state": sync.state.value, **permissions, "collectionCopy": _NOTHING_COPIED}
        return {**known, **unknown, **ids, **declared, **_warnings(snapshot)}
    failure = record.failure
    return {
        "state": sync.state.value,
        "canCommit": sync.can_commit,
        "canWrite": record.can_write,
        "info": phase_shown(record).value,
        "ceaStage": _stage(record, snapshot),
        "lag": lag_shown(record, snapshot),
        "lagTimeSeconds": lag_seconds(record, snapshot),
        "totalEventsApplied": snapshot.events_applied,
        "collectionCopy": _copy(sync, record),
        "directionMapping": {
            "Source": f"{record.source}: {addresses[record.source]}",
            "Destination": f"{record.destination}: {addresses[record.destination]}",
        },
        "enableUserWriteBlocking": record.options.write_blocking.value,
        "source": ping_shown(ping_of(record, snapshot, source=True)),
        "destination": ping_shown(ping_of(record, snapshot, source=False)),
        "error": None if failure is None else failure.name,
        "errorDescription": failure_description(record),
        "throttledBy": throttled_by(snapshot.throttling.throttled),
        **ids,
        **declared,
        **_estimates(sync, record),
    }


def _coordinator(record: RunRecord | None, instance: str) -> str | None:
    """Return the ID of the coordinator; None if it is unknown.

    Without a sync, only an instance with the default ID is known to run alone, and so to be the coordinator.
    """
    if record is not None:
        return record.coordinator
    return instance if instance == DEFAULT_ID else None


def lag_shown(record: RunRecord, snapshot: ProgressSnapshot) -> dict[str, int | None] | None:
    """Return the value of the field `lag`: the lag of each kind of change, in seconds; None while the sync is paused.

    A lag that is unknown is None.
    """
    if record.state is State.PAUSED:
        return None
    return {
        "overallLagSeconds": lag_seconds(record, snapshot),
        "crudLagSeconds": write_lag_seconds(record, snapshot),
        "ddlLagSeconds": definition_lag_seconds(record, snapshot),
    }


def _stage(record: RunRecord, snapshot: ProgressSnapshot) -> str | None:
    if record.phase is not Phase.APPLYING:
        return None
    stage = Stage.STEADY if is_drained(record, snapshot) else Stage.DRAIN
    return stage.value


def _copy(sync: Sync, record: RunRecord) -> dict[str, int | None]:
    total = total_bytes(sync.snapshot)
    if record.phase is Phase.INITIALIZING:
        total = _NOTHING_LISTED_YET
    shown = {"estimatedTotalBytes": total, "estimatedCopiedBytes": sync.snapshot.copied_bytes}
    if record.instances:
        copied = copied_in_all(sync)
        shown["estimatedCopiedBytesInAll"] = None if copied is None else copied.bytes
    return shown


def ping_shown(ping: Ping | None) -> dict[str, int]:
    """Return the field `pingLatencyMs`: whole milliseconds, at least 1, or -1 if the cluster did not answer.

    Return an empty dict before the first ping: dashboards for mongosync then show the cluster as unreachable.
    """
    if ping is None:
        return {}
    if ping.seconds is None:
        return {"pingLatencyMs": -1}
    return {"pingLatencyMs": max(1, int(1000 * ping.seconds))}


def oplog_shown(record: RunRecord, snapshot: ProgressSnapshot) -> dict[str, str]:
    """Return the field `estimatedOplogTimeRemaining`: a duration in words, or "not checked yet" if it is unknown.

    Return an empty dict unless the sync is running or paused. If the source is sharded, or its oplog may not be read,
    the duration stays unknown.
    """
    if record.state not in OPLOG_WATCHED:
        return {}
    left = oplog_seconds_left(record, snapshot)
    return {"estimatedOplogTimeRemaining": "not checked yet" if left is None else in_words(left)}


def _estimates(sync: Sync, record: RunRecord) -> dict[str, Any]:
    """Return the optional fields of `progress` that have a value now."""
    snapshot = sync.snapshot
    shown: dict[str, Any] = {}
    if record.options.verification:
        shown["verification"] = _verification(snapshot.check)
    shown.update(_repairs(record, snapshot))
    shown.update(copied_report(record))
    shown.update(oplog_shown(record, snapshot))
    if snapshot.spool is not None:
        shown["eventSpool"] = _spool(record, snapshot.spool)
    seconds = seconds_until_caught_up(record, snapshot)
    if seconds is not None:
        shown["estimatedSecondsToCEACatchup"] = seconds
    indexes = index_building(sync)
    if indexes is not None:
        shown["indexBuilding"] = {
            "indexesBuilt": indexes.built,
            "totalIndexesToBuild": indexes.total,
            "collectionsFinished": indexes.collections_finished,
            "collectionsTotal": indexes.collections,
        }
    return {**shown, **_warnings(snapshot)}


def _warnings(snapshot: ProgressSnapshot) -> dict[str, list[str]]:
    """Return the field `warnings`, also before a start; an empty dict if there are none."""
    warnings = [*snapshot.warnings.values(), *(each.text for each in snapshot.waits)]
    return {"warnings": warnings} if warnings else {}


def _repairs(record: RunRecord, snapshot: ProgressSnapshot) -> dict[str, Any]:
    """Return the field `repairs`, with the figures of the coordinator, who counts the repairs of all instances.

    Return an empty dict before the first repair, and while the figures of the coordinator are unknown.
    """
    named: dict[str, RunRecord | OtherInstance] = {each.name: each for each in snapshot.others}
    coordinator = {**named, record.instance: record}.get(record.coordinator)
    if coordinator is None or not (record.repair or record.repair_requests):
        return {}
    counted = {
        "inProgress": record.repairs_now,
        "documents": coordinator.repaired_documents,
        "definitions": coordinator.repaired_definitions,
    }
    return {"repairs": counted}


def _spool(record: RunRecord, spool: SpoolFigures) -> dict[str, Any]:
    # After a failure, the figures stay as they were, although nothing spools any more.
    stopped = record.state in (State.FAILED, State.RESETTING)
    return {
        "active": spool.active and not stopped,
        "bytes": spool.size,
        "limitBytes": spool.limit,
        "seconds": spool.seconds,
        "bytesPerSecond": round(spool.bytes_per_second),
    }


def seconds_until_caught_up(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """Return the estimated seconds until the lag is 0; None unless change events are applied and the lag falls."""
    if record.state not in ACTIVE or record.phase is not Phase.APPLYING:
        return None
    return seconds_to_catch_up(snapshot.lags)


def _verification(check: CheckProgress | None) -> dict[str, Any]:
    """Return the progress of the verification, separately for each cluster.

    Only the lags of the two clusters differ, because a comparison reads each document on both clusters.
    """
    none = Changes()
    return {
        "source": _side(check, none if check is None else check.source),
        "destination": _side(check, none if check is None else check.destination),
    }


def _side(check: CheckProgress | None, changes: Changes) -> dict[str, Any]:
    amounts = first_amounts(check)
    return {
        "phase": hashing(check).value,
        "estimatedDocumentCount": documents_expected(check),
        "hashedDocumentCount": amounts.documents,
        "totalCollectionCount": amounts.namespaces or None,
        "scannedCollectionCount": collections_scanned(check),
        "lagTimeSeconds": changes.lag_seconds,
        "recheckLagTimeSeconds": changes.recheck_lag_seconds,
    }
