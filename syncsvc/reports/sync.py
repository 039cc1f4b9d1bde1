"""What the reports are made of: all that a process knows of its sync at one moment. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from syncsvc.figures.collections import CollectionFigures
from syncsvc.figures.progress import Ping, ProgressSnapshot
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State

_UNTOUCHED = CollectionFigures()


@dataclass(frozen=True)
class Sync:
    """Without a record there is no sync. `now` is the moment by the monotonic clock.

    `collections` is what is saved of each, `figures` what this process did with it, by UUID.
    """

    state: State
    record: RunRecord | None
    snapshot: ProgressSnapshot
    can_commit: bool
    collections: tuple[CollectionRecord, ...] = ()
    figures: Mapping[bytes, CollectionFigures] = field(default_factory=dict)
    now: float = 0.0

    def figures_of(self, collection: CollectionRecord) -> CollectionFigures:
        return self.figures.get(collection.uuid, _UNTOUCHED)


@dataclass(frozen=True)
class Indexes:
    """How far the building of indexes after the copy is; collections without any do not count."""

    built: int
    total: int
    collections_finished: int
    collections: int


def phase_shown(record: RunRecord) -> Phase:
    """The phase; once a commit is asked for, that it goes on."""
    return Phase.CUTTING_OVER if record.state is State.COMMITTING else record.phase


def lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """What was measured before a pause or a failure says nothing of now."""
    return None if record.state in (State.PAUSED, State.FAILED) else snapshot.lag_seconds


def write_lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """The lag of writes: one change stream has everything, so it is that of all, once a write came."""
    return lag_seconds(record, snapshot) if snapshot.events_read else None


def definition_lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """The lag of changes of definitions, once one was applied."""
    return lag_seconds(record, snapshot) if snapshot.definitions_applied else None


def total_bytes(snapshot: ProgressSnapshot) -> int | None:
    """The estimate, raised to what was copied where that is more already."""
    total = snapshot.total_bytes
    return None if total is None else max(total, snapshot.copied_bytes)


def oplog_seconds_left(record: RunRecord, snapshot: ProgressSnapshot) -> float | None:
    """Before a commit is asked for."""
    return snapshot.oplog_seconds_left if record.state is State.RUNNING else None


def is_drained(record: RunRecord, snapshot: ProgressSnapshot) -> bool:
    """Whether everything is applied that was written during the copy, as far as it is saved."""
    if snapshot.caught_up or record.copy_end is None:
        return True
    return record.position is not None and record.position.time > record.copy_end


def ping_of(record: RunRecord, snapshot: ProgressSnapshot, source: bool) -> Ping | None:
    """How the source, or the destination, answered last; None where it was not asked yet."""
    return snapshot.pings.get(record.source if source else record.destination)


def indexes_built(sync: Sync, collection: CollectionRecord) -> int | None:
    """How many of its indexes the destination has, beside the one on `_id`; None while they are being made."""
    assert sync.record is not None
    if collection.withheld:
        return 0
    total = len(collection.definition.indexes)
    if not sync.record.options.build_indexes.after_copy:
        return None if sync.record.phase is Phase.INITIALIZING else total
    if sync.record.phase is Phase.INDEXING:
        return total if sync.figures_of(collection).indexed else 0
    return total if sync.record.phase.copied else 0


def index_building(sync: Sync) -> Indexes | None:
    """From the end of the copy to the commit, where indexes are built after the copy."""
    record = sync.record
    if record is None or not record.options.build_indexes.after_copy:
        return None
    if record.phase not in (Phase.INDEXING, Phase.APPLYING):
        return None
    indexed = [each for each in sync.collections if each.definition.indexes]
    totals = [len(each.definition.indexes) for each in indexed]
    built = [indexes_built(sync, each) or 0 for each in indexed]
    finished = sum(done == total for done, total in zip(built, totals, strict=True))
    return Indexes(sum(built), sum(totals), finished, len(indexed))


def is_active(sync: Sync) -> bool:
    """Whether the sync is being carried out."""
    return sync.record is not None and sync.state in ACTIVE
