"""Defines the input of the reports: everything that a process knows about its sync at one moment."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from syncsvc.desired import Goal
from syncsvc.figures.collections import CollectionFigures
from syncsvc.figures.progress import CopiedAmount, Ping, ProgressSnapshot
from syncsvc.reports.standing import Standing
from syncsvc.rules.deferral import deferred_names
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State

_UNTOUCHED = CollectionFigures()
# The states in which reports say for how long the source's oplog keeps the needed entries.
OPLOG_WATCHED = frozenset({State.RUNNING, State.PAUSED})


@dataclass(frozen=True)
class Sync:
    """The state of a sync at one moment, as one process knows it."""

    state: State
    # None if this process has no sync.
    record: RunRecord | None
    snapshot: ProgressSnapshot
    can_commit: bool
    # The saved records of all collections.
    collections: tuple[CollectionRecord, ...] = ()
    # This process's figures of the collections, by UUID.
    figures: Mapping[bytes, CollectionFigures] = field(default_factory=dict)
    # When this object was made, in seconds of the monotonic clock.
    now: float = 0.0
    # Whether the process is active or a standby, and the lease; None without `--standby`.
    standing: Standing | None = None
    # The ID of the process in the sync (`--id`), which its standbys share.
    instance: str = ""
    # The state that the configuration declares; None if it declares none.
    goal: Goal | None = None

    @property
    def is_standby(self) -> bool:
        return self.standing is not None and self.standing.is_standby

    def figures_of(self, collection: CollectionRecord) -> CollectionFigures:
        return self.figures.get(collection.uuid, _UNTOUCHED)


# A function that is called every second with a snapshot of the sync, always by the same thread. It must not block.
Watcher = Callable[[Sync], None]


@dataclass(frozen=True)
class Indexes:
    """The progress of the index builds after the copy.

    `built` and `total` are numbers of indexes; `collections_finished` and `collections` are numbers of collections.
    Indexes on `_id`, indexes that only the commit can build, and collections without other indexes are not counted.
    """

    built: int
    total: int
    collections_finished: int
    collections: int


def phase_shown(record: RunRecord) -> Phase:
    """Return the phase to report: CUTTING_OVER while the sync is committing, else the saved phase."""
    return Phase.CUTTING_OVER if record.state is State.COMMITTING else record.phase


def lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """Return the lag of the destination behind the source, in seconds; None if it is unknown.

    The last measurement is out of date, and the lag therefore unknown, while the sync is paused or being reset, and
    after a failure.
    """
    stopped = record.state in (State.PAUSED, State.FAILED, State.RESETTING)
    return None if stopped else snapshot.lag_seconds


def write_lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """Return the lag of inserts, updates and deletes, in seconds; None if it is unknown.

    The lag is unknown until this process has read such a change event. After that, it equals the overall lag, because
    all events are in one change stream.
    """
    return lag_seconds(record, snapshot) if snapshot.events_read else None


def definition_lag_seconds(record: RunRecord, snapshot: ProgressSnapshot) -> int | None:
    """Return the lag of DDL events, in seconds; None if it is unknown.

    The lag is unknown until this process has applied a DDL event. After that, it equals the overall lag.
    """
    return lag_seconds(record, snapshot) if snapshot.definitions_applied else None


def total_bytes(snapshot: ProgressSnapshot) -> int | None:
    """Return the estimated number of bytes to copy; None if unknown, as before the collections are listed.

    The result is never less than the number of bytes already copied.
    """
    total, in_all = snapshot.total_bytes, snapshot.copied_in_all
    copied = max(snapshot.copied_bytes, 0 if in_all is None else in_all.bytes)
    return None if total is None else max(total, copied)


def copied_in_all(sync: Sync) -> CopiedAmount | None:
    """Return the amounts that all instances of the sync have copied; None if this instance does not know them.

    After a reversal, each instance knows them, because its own copied amounts are those of the whole copy.
    """
    record, snapshot = sync.record, sync.snapshot
    if record is not None and record.instances and not record.reversals:
        return snapshot.copied_in_all
    return CopiedAmount(snapshot.copied_bytes, snapshot.copied_documents)


def oplog_seconds_left(record: RunRecord, snapshot: ProgressSnapshot) -> float | None:
    """Return the time until the source's oplog drops entries that the sync still needs, in seconds.

    Return infinity if nothing is written to the source. Return None if the time is unknown, or if the sync is neither
    running nor paused.
    """
    return snapshot.oplog_seconds_left if record.state in OPLOG_WATCHED else None


def is_drained(record: RunRecord, snapshot: ProgressSnapshot) -> bool:
    """Return whether all changes made during the copy are applied: the saved position is after the end of the copy.

    Also return True if the sync has caught up, or if the time of the end of the copy is unknown.
    """
    if snapshot.caught_up or record.copy_end is None:
        return True
    return record.is_past(record.copy_end)


def ping_of(record: RunRecord, snapshot: ProgressSnapshot, source: bool) -> Ping | None:
    """Return the last ping of one cluster; None before its first ping.

    The cluster is the sync's source if `source` is true, otherwise its destination.
    """
    return snapshot.pings.get(record.source if source else record.destination)


def indexes_built(sync: Sync, collection: CollectionRecord) -> int | None:
    """Return the number of indexes of the collection that are built on the destination, except the index on `_id`.

    Return 0 while the indexes are withheld. Return None while they are being created before the copy and, on a
    follower, during the index builds after the copy: only the coordinator knows which ones it has built.
    """
    record = sync.record
    assert record is not None
    if collection.withheld:
        return 0
    if record.phase is Phase.DONE:
        return len(collection.definition.indexes)
    built = _before_commit(collection)
    if not record.options.build_indexes.after_copy:
        return None if record.phase is Phase.INITIALIZING else built
    if record.phase is Phase.INDEXING:
        done = built if sync.figures_of(collection).indexed else 0
        return done if record.coordinates else None
    return built if record.phase.copied else 0


def _before_commit(collection: CollectionRecord) -> int:
    """Return the number of indexes that are built before the commit; the others are deferred until then."""
    return len(collection.definition.indexes) - len(deferred_names(collection.definition))


def index_building(sync: Sync) -> Indexes | None:
    """Return the progress of the index builds after the copy. Indexes that only the commit can build are not counted.

    Return None if the sync builds no indexes after the copy, in all phases except INDEXING and APPLYING, and on a
    follower also in INDEXING.
    """
    record = sync.record
    if record is None or not record.options.build_indexes.after_copy:
        return None
    phases = (Phase.INDEXING, Phase.APPLYING) if record.coordinates else (Phase.APPLYING,)
    if record.phase not in phases:
        return None
    totals = [(each, total) for each in sync.collections if (total := _before_commit(each))]
    built = [(indexes_built(sync, each) or 0, total) for each, total in totals]
    finished = sum(done == total for done, total in built)
    return Indexes(
        sum(done for done, _ in built), sum(total for _, total in built), finished, len(built)
    )


def is_active(sync: Sync) -> bool:
    """Return whether the sync is running, committing or reversing."""
    return sync.record is not None and sync.state in ACTIVE
