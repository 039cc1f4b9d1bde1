"""What is told of a failure: why the sync failed, and where users are kept from writing because of it. Pure."""

from __future__ import annotations

from syncsvc.saved.run import RunRecord

# How anybody with the privilege lets users write again.
UNBLOCK = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"


def failure_description(record: RunRecord) -> str | None:
    """None where the sync has not failed."""
    if record.failure is None:
        return None
    return " ".join(filter(None, (record.failure.description, _blocked(record))))


def _blocked(record: RunRecord) -> str | None:
    """As it is now: a failed sync may still be giving clusters back."""
    if not record.options.blocks_destination:
        return None
    if not record.found_blocked:
        return "This sync blocks user writes on neither cluster."
    roles = {record.source: "source", record.destination: "destination"}
    names = " and ".join(f"{name} (the {roles[name]})" for name in sorted(record.found_blocked))
    return f"User writes are blocked on {names}; to give this sync up, lift the block there: {UNBLOCK}."
