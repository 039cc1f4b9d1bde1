"""Reads the metadata of a sync in the same way as dashboards for mongosync do."""

from __future__ import annotations

from typing import Any

from tests.support.pair import Side

_METADATA = "mongosync_reserved_for_internal_use"
_NAMESPACE = {"$concat": ["$namespace.db", ".", "$namespace.coll"]}
# A dashboard fails if a single document has no phase: $arrayToObject needs a key.
_PHASES: list[dict[str, Any]] = [
    {"$group": {"_id": {"n": _NAMESPACE, "phase": "$partitionPhase"}, "count": {"$sum": 1}}},
    {"$group": {"_id": "$_id.n", "phases": {"$push": {"k": "$_id.phase", "v": "$count"}}}},
    {"$project": {"phases": {"$arrayToObject": "$phases"}}},
]
_BYTES = {"_id": None, "copied": {"$sum": "$copiedByteCount"}, "total": {"$sum": "$totalByteCount"}}


def resume_data(side: Side, instance: str = "coordinator") -> dict[str, Any]:
    found = side.client[_METADATA].resumeData.find_one({"_id": instance})
    return found or {}


def global_state(side: Side) -> dict[str, Any]:
    (found,) = side.client[_METADATA].globalState.find()
    return dict(found)


def copied_phases(side: Side) -> dict[str, dict[str, int]]:
    """Return the number of partitions in each phase, by collection and then by phase."""
    rows = side.client[_METADATA].partitions.aggregate(_PHASES)
    return {row["_id"]: row["phases"] for row in rows}


def copied_bytes(side: Side) -> tuple[int, int]:
    """Return the copied and the total number of bytes of all partitions."""
    (row,) = side.client[_METADATA].partitions.aggregate([{"$group": _BYTES}])
    return row["copied"], row["total"]


def overwrite(side: Side, collection: str, **fields: Any) -> None:
    """Set these fields in all documents of a metadata collection, even while user writes are blocked."""
    update = {"q": {}, "u": {"$set": fields}, "multi": True}
    side.client[_METADATA].command(
        {"update": collection, "updates": [update], "mayBypassWriteBlocking": True}
    )
