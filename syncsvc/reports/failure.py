"""The description of a failure: why the sync failed, and on which clusters it blocks user writes."""

from __future__ import annotations

from syncsvc.saved.run import UNBLOCK, RunRecord


def failure_description(record: RunRecord) -> str | None:
    """Describe why the sync failed, and where user writes are blocked. Return None if it has not failed."""
    if record.failure is None:
        return None
    return " ".join(filter(None, (record.failure.description, _blocked(record))))


def _blocked(record: RunRecord) -> str | None:
    """Return sentences that name the clusters on which user writes are blocked; None if the sync never blocks writes.

    The result can change after the failure, because a failed sync may still be unblocking clusters. Only the record of
    the coordinator contains the blocks; for another instance, the result refers to the coordinator.
    """
    if not record.options.blocks_destination:
        return None
    if not record.coordinates:
        return (
            f"Only the coordinator {record.coordinator} blocks user writes. If it is FAILED, too, its errorDescription "
            "says on which clusters they are blocked; otherwise, the blocks stay as they are."
        )
    if not record.found_blocked:
        return "This sync blocks user writes on neither cluster."
    roles = {record.source: "source", record.destination: "destination"}
    names = " and ".join(f"{name} (the {roles[name]})" for name in sorted(record.found_blocked))
    reset = " To give this sync up, reset it (POST /api/v1/reset), which also lifts the write blocks of this sync."
    return (
        f"User writes are blocked on {names}.{'' if record.in_use else reset} Only if you no longer use "
        f"this service, run this command on each named cluster to unblock it: {UNBLOCK}."
    )
