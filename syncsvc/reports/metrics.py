"""What `GET /metrics` shows of a sync. Pure: a table over the saved record and the engine's snapshot.

No name is one of mongosync's own: those mean something else (a lag in milliseconds, a number for the phase).
"""

from __future__ import annotations

from collections.abc import Callable

from syncsvc.figures.progress import ProgressSnapshot, WarningKind
from syncsvc.reports.progress import (
    lag_seconds,
    oplog_seconds_left,
    phase_shown,
    seconds_until_caught_up,
    total_bytes,
)
from syncsvc.reports.sync import Sync
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase, State
from verifier.runtime.metrics import Kind, Metric, Values, one_hot, single

Read = Callable[[RunRecord, ProgressSnapshot], float | None]


def _of_run(read: Read) -> Callable[[Sync], Values]:
    """What is known of a sync that there is."""
    return single(lambda sync: None if sync.record is None else read(sync.record, sync.snapshot))


def _state(sync: Sync) -> Values:
    return one_hot(State, sync.state)


def _phase(sync: Sync) -> Values:
    return {} if sync.record is None else one_hot(Phase, phase_shown(sync.record))


def _failure(sync: Sync) -> Values:
    failure = None if sync.record is None else sync.record.failure
    return {} if failure is None else {(failure.name,): 1.0}


def _warnings(sync: Sync) -> Values:
    if sync.record is None:
        return {}
    return {(kind.value,): float(kind in sync.snapshot.warnings) for kind in WarningKind}


def _lag(record: RunRecord, snapshot: ProgressSnapshot) -> float | None:
    """A sync that failed does not look at its lag any more."""
    return None if record.state is State.FAILED else lag_seconds(record, snapshot)


def _copied(snapshot: ProgressSnapshot, amount: int) -> int | None:
    """What was copied is known together with how much there is to copy."""
    return None if snapshot.total_bytes is None else amount


TABLE: tuple[Metric[Sync], ...] = (
    Metric(
        Kind.GAUGE,
        "mongosync_state",
        "1 for the state that the sync is in, 0 for each other one.",
        ("state",),
        _state,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_sync_phase",
        "1 for the phase that progress.info names, 0 for each other one.",
        ("phase",),
        _phase,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_can_commit",
        "1 when a commit is possible, else 0.",
        (),
        single(lambda sync: sync.can_commit),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_can_write",
        "1 when the destination may be written, else 0.",
        (),
        single(lambda sync: sync.record is not None and sync.record.can_write),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_failure",
        "1 for the error that the sync failed with.",
        ("error",),
        _failure,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_warning",
        "1 for each kind of warning that holds, 0 for each other one.",
        ("warning",),
        _warnings,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_lag_seconds",
        "How far the destination is behind the source.",
        (),
        _of_run(_lag),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_catch_up_seconds",
        "When the lag will be gone if it falls as it did in the last two minutes; only while it falls.",
        (),
        _of_run(seconds_until_caught_up),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_oplog_left_seconds",
        "For how long the oplog of the source still holds what the sync needs; +Inf where nothing is written.",
        (),
        _of_run(oplog_seconds_left),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_copy_size_bytes",
        "How much there is to copy, by estimate.",
        (),
        _of_run(lambda record, snapshot: total_bytes(snapshot)),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_copied_bytes",
        "How much of that is copied, also by earlier processes.",
        (),
        _of_run(lambda record, snapshot: _copied(snapshot, snapshot.copied_bytes)),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_copied_documents",
        "How many documents are copied, also by earlier processes.",
        (),
        _of_run(lambda record, snapshot: _copied(snapshot, snapshot.copied_documents)),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_events_applied_total",
        "Change events that this process applied.",
        (),
        _of_run(lambda record, snapshot: snapshot.events_applied),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_documents_refetched_total",
        "Documents that this process read again from the source, because their events alone did not do.",
        (),
        _of_run(lambda record, snapshot: snapshot.documents_refetched),
    ),
)
