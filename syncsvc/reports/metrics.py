"""The metrics of a sync in `GET /metrics`: a table of functions without side effects, which read a `Sync`.

The metrics do not use the names of mongosync's metrics, which have other meanings (a lag in milliseconds, a number for
the phase).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime

from syncsvc.errors import SUPERSEDED
from syncsvc.figures.progress import Ping, ProgressSnapshot, WarningKind
from syncsvc.limits import Limit
from syncsvc.options import CLUSTERS
from syncsvc.reports.namespaces import NamespacePhase, phases_of
from syncsvc.reports.progress_answer import seconds_until_caught_up
from syncsvc.reports.sync import (
    Indexes,
    Sync,
    index_building,
    lag_seconds,
    oplog_seconds_left,
    phase_shown,
    total_bytes,
)
from syncsvc.reports.verification_answer import (
    Hashing,
    collections_scanned,
    documents_expected,
    first_amounts,
    hashing,
)
from syncsvc.saved.lease import HOME, Lease
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase, State
from verifier.compare.check_progress import LASTING, Changes, CheckProgress
from verifier.runtime.metrics import Kind, Metric, Values, one_hot, single
from verifier.runtime.webhook import metrics_of

Read = Callable[[RunRecord, ProgressSnapshot], float | None]


def _of_run(read: Read) -> Callable[[Sync], Values]:
    """Return a function that reads a metric from the run record and the snapshot.

    Without a sync, the metric has no value.
    """
    return single(lambda sync: None if sync.record is None else read(sync.record, sync.snapshot))


def _state(sync: Sync) -> Values:
    return one_hot(State, sync.state)


def _phase(sync: Sync) -> Values:
    return {} if sync.record is None else one_hot(Phase, phase_shown(sync.record))


def _failure(sync: Sync) -> Values:
    failure = None if sync.record is None else sync.record.failure
    # A daemon with `--standby` that was superseded is about to become a standby: the sync has not failed.
    if failure is None or sync.standing is not None and failure.name == SUPERSEDED.name:
        return {}
    return {(failure.name,): 1.0}


def _warnings(sync: Sync) -> Values:
    if sync.is_standby:
        # A standby does not know the warnings of the active daemon.
        return {}
    return {(kind.value,): float(kind in sync.snapshot.warnings) for kind in WarningKind}


def _limits(sync: Sync) -> Values:
    if sync.record is None:
        return {}
    return {(limit.value,): amount for limit, amount in sync.snapshot.throttling.effective.items()}


def _waited(sync: Sync) -> Values:
    if sync.record is None:
        return {}
    return {(limit.value,): each for limit, each in sync.snapshot.throttling.waited.items()}


def _throttled(sync: Sync) -> Values:
    if sync.record is None:
        return {}
    throttled = sync.snapshot.throttling.throttled
    return {
        (each.value,): float(throttled is not None and throttled.limit is each) for each in Limit
    }


def _longest_wait(sync: Sync) -> float:
    return max((each.seconds for each in sync.snapshot.waits if not each.expected), default=0.0)


def _copied(snapshot: ProgressSnapshot, amount: int) -> int | None:
    """Return `amount`, a number of copied bytes or documents; None while the total is unknown.

    The total and `amount` are read from the saved state together, so as long as the total is unknown, so is `amount`.
    """
    return None if snapshot.total_bytes is None else amount


def _namespaces(sync: Sync) -> Values:
    if sync.record is None:
        return {}
    counts = Counter(phases_of(sync))
    return {(each.value,): counts[each] for each in NamespacePhase}


def _of_indexes(read: Callable[[Indexes], float]) -> Callable[[Sync], Values]:
    """Return a function that reads a metric of index builds.

    The metric has a value only in the phases INDEXING and APPLYING, and only if indexes are built after the copy.
    """

    def of(sync: Sync) -> float | None:
        indexes = index_building(sync)
        return None if indexes is None else read(indexes)

    return single(of)


def _answers(sync: Sync) -> Values:
    return {
        (side,): None if ping is None else float(ping.seconds is not None)
        for side, ping in _pings(sync).items()
    }


def _ping_seconds(sync: Sync) -> Values:
    return {(side,): None if ping is None else ping.seconds for side, ping in _pings(sync).items()}


def _pings(sync: Sync) -> dict[str, Ping | None]:
    return {side: sync.snapshot.pings.get(name) for side, name in _sides(sync).items()}


def _sides(sync: Sync) -> dict[str, str]:
    """Return the names of the source and the destination; empty if there is neither a sync nor `--standby`.

    With `--standby`, the destination of a start is always cluster1 (HOME). A standby has no record, so it does not know
    whether the sync was reversed.
    """
    if sync.record is not None:
        return {"source": sync.record.source, "destination": sync.record.destination}
    if sync.standing is not None:
        return {"source": CLUSTERS[0], "destination": HOME}
    return {}


def _verification_phase(sync: Sync) -> Values:
    if sync.record is None or not sync.record.options.verification:
        return {}
    return one_hot(Hashing, hashing(sync.snapshot.check))


def _of_check(read: Callable[[CheckProgress], float | None]) -> Callable[[Sync], Values]:
    """Return a function that reads a metric of the verification. The metric has no value before the check begins."""

    def of(sync: Sync) -> float | None:
        check = sync.snapshot.check
        known = sync.record is not None and hashing(check) is not Hashing.NOT_STARTED
        return read(check) if known and check is not None else None

    return single(of)


def _of_changes(read: Callable[[Changes], int | None]) -> Callable[[Sync], Values]:
    """Return a function that reads a metric of the verification for each cluster; no value if there is no check."""

    def of(sync: Sync) -> Values:
        check = sync.snapshot.check
        if sync.record is None or check is None:
            return {}
        return {("source",): read(check.source), ("destination",): read(check.destination)}

    return of


def _unless_standby(read: Callable[[Sync], float]) -> Callable[[Sync], Values]:
    """Return a function that reads a metric.

    On a standby, the metric has no value, because only the active daemon knows it.
    """
    return single(lambda sync: None if sync.is_standby else read(sync))


def _active(sync: Sync) -> Values:
    return {} if sync.standing is None else {(sync.instance,): float(not sync.standing.is_standby)}


def _of_lease(read: Callable[[Lease], datetime]) -> Callable[[Sync], Values]:
    """Return a function that reads a UTC time of the lease, in seconds since 1970.

    Without a lease, the metric has no value.
    """

    def of(sync: Sync) -> float | None:
        lease = None if sync.standing is None else sync.standing.lease
        return None if lease is None else read(lease).replace(tzinfo=UTC).timestamp()

    return single(of)


TABLE: tuple[Metric[Sync], ...] = (
    Metric(
        Kind.GAUGE,
        "mongosync_state",
        "1 for the current state of the sync, 0 for the other states.",
        ("state",),
        _state,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_sync_phase",
        "1 for the current phase of the sync, as in the field `info` of the progress; 0 for the other phases.",
        ("phase",),
        _phase,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_can_commit",
        "1 if a commit is possible, else 0; no value on a standby.",
        (),
        _unless_standby(lambda sync: sync.can_commit),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_can_write",
        "1 if applications may write to the destination, else 0; no value on a standby.",
        (),
        _unless_standby(lambda sync: sync.record is not None and sync.record.can_write),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_failure",
        "1 for the name of the error that the sync failed with; no value unless the sync has failed.",
        ("error",),
        _failure,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_active",
        "1 if this daemon is active, 0 if it is a standby; the label `id` is its --id; only with --standby.",
        ("id",),
        _active,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_lease_since_timestamp_seconds",
        "When the active daemon took the lease, in UNIX seconds, by the clock of cluster1; only with --standby.",
        (),
        _of_lease(lambda lease: lease.since),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_lease_expires_timestamp_seconds",
        "When the lease expires unless it is renewed, in UNIX seconds, by the clock of cluster1; only with "
        "--standby.",
        (),
        _of_lease(lambda lease: lease.expires),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_long_waits",
        "Number of current waits of this process, such as for a cluster's answer, that have lasted at least 15 "
        "seconds; at most 10.",
        (),
        single(lambda sync: len(sync.snapshot.waits)),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_longest_wait_seconds",
        "Duration of the longest current wait of this process, such as for a cluster's answer, in seconds, not "
        "counting index builds; 0 if shorter than 15 seconds.",
        (),
        single(_longest_wait),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_warning",
        "1 for each active kind of warning, 0 for the other kinds.",
        ("warning",),
        _warnings,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_lag_seconds",
        "How far the destination is behind the source, in seconds.",
        (),
        _of_run(lag_seconds),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_catch_up_seconds",
        "Estimated time until the lag is zero, in seconds, at the rate of the last two minutes; only while the lag "
        "falls.",
        (),
        _of_run(seconds_until_caught_up),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_oplog_left_seconds",
        "Estimated time until the source's oplog drops entries that the sync needs, in seconds; +Inf if nothing is "
        "written to the source; no value if unknown, as for a sharded source.",
        (),
        _of_run(oplog_seconds_left),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_event_spool_bytes",
        "Compressed size of the change events in the event spool, in bytes; 0 if the spool is empty.",
        (),
        _of_run(lambda record, snapshot: snapshot.spool.size if snapshot.spool else 0),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_event_spool_limit_bytes",
        "Size limit of the event spool, in bytes; only while the spool is used.",
        (),
        _of_run(lambda record, snapshot: snapshot.spool.limit if snapshot.spool else None),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_event_spool_seconds",
        "Time between the oldest and the newest event in the event spool, in seconds; 0 if the spool is empty.",
        (),
        _of_run(lambda record, snapshot: snapshot.spool.seconds if snapshot.spool else 0),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_events_spooled_total",
        "Change events that this process saved in the event spool.",
        (),
        _of_run(lambda record, snapshot: snapshot.events_spooled),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_limit",
        "The limits of the sync's speed that this process obeys now; no value for a limit that does not apply.",
        ("limit",),
        _limits,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_throttled",
        "1 for the limit that slows the sync down now, 0 for the other limits.",
        ("limit",),
        _throttled,
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_throttled_seconds_total",
        "Total time for which each limit has delayed the threads of this process, in seconds.",
        ("limit",),
        _waited,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_copy_size_bytes",
        "Estimated bytes that all instances together copy.",
        (),
        _of_run(lambda record, snapshot: total_bytes(snapshot)),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_copied_bytes",
        "Bytes that this instance has copied, including those copied before a restart; after a reversal, those of "
        "all instances.",
        (),
        _of_run(lambda record, snapshot: _copied(snapshot, snapshot.copied_bytes)),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_copied_documents",
        "Documents that this instance has copied, including those copied before a restart; after a reversal, those "
        "of all instances.",
        (),
        _of_run(lambda record, snapshot: _copied(snapshot, snapshot.copied_documents)),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_documents_copied_again_total",
        "Documents that this process read again although the destination already had them, for example after a "
        "restart, a resume or a failover. Documents of sharded collections are not counted.",
        (),
        _of_run(lambda record, snapshot: snapshot.documents_copied_again),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_events_read_total",
        "Change events, not counting DDL events, that this process read from the source.",
        (),
        _of_run(lambda record, snapshot: snapshot.events_read),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_events_applied_total",
        "Change events, not counting DDL events, that this process applied.",
        (),
        _of_run(lambda record, snapshot: snapshot.events_applied),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_definitions_applied_total",
        "DDL events, such as create, drop, rename, collMod and createIndexes, that this process applied; from a source "
        "older than MongoDB 6.0, also changes of definitions without an event.",
        (),
        _of_run(lambda record, snapshot: snapshot.definitions_applied),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_documents_written_total",
        "Document writes by which this process applied change events or repairs; one write can combine several events.",
        (),
        _of_run(lambda record, snapshot: snapshot.documents_written),
    ),
    Metric(
        Kind.COUNTER,
        "mongosync_documents_refetched_total",
        "Documents that this process reread from the source, for a repair or because their events alone were not "
        "sufficient.",
        (),
        _of_run(lambda record, snapshot: snapshot.documents_refetched),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_namespaces",
        "Number of collections in each phase, as in /api/v1/namespaces.",
        ("phase",),
        _namespaces,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_indexes_built",
        "Number of indexes built so far after the copy, during the builds only those that this process has built; no "
        "value before the copy ends, after the cut-over begins, or if buildIndexes does not delay builds.",
        (),
        _of_indexes(lambda indexes: indexes.built),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_indexes_to_build",
        "Total number of indexes to build after the copy; no value before the copy ends, after the cut-over begins, or "
        "if buildIndexes does not delay builds.",
        (),
        _of_indexes(lambda indexes: indexes.total),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_cluster_answers",
        "1 if the cluster answered the last ping, else 0. Each cluster is pinged every 5 seconds. For a standby, the "
        "source is always cluster0.",
        ("cluster",),
        _answers,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_ping_seconds",
        "How long the cluster took to answer the last ping, in seconds.",
        ("cluster",),
        _ping_seconds,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_phase",
        "1 for the current phase of the verification, 0 for the other phases; `not started`, too, while this process "
        "has no figures of it, as in an instance that is not the coordinator.",
        ("phase",),
        _verification_phase,
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_documents",
        "Documents that the first pass of the verification has compared.",
        (),
        _of_check(lambda check: first_amounts(check).documents),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_estimated_documents",
        "Estimated number of documents that the first pass of the verification compares.",
        (),
        _of_check(documents_expected),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_collections",
        "Collections that the first pass of the verification has compared completely.",
        (),
        _of_check(collections_scanned),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_mismatches",
        "Documents that differ now, as far as the verification knows; each is compared again before the verdict.",
        (),
        _of_check(lambda check: sum(check.mismatches.documents.values())),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_lasting_mismatches",
        f"Documents that have differed, and not changed, for at least {LASTING} seconds; 0 during the first pass.",
        (),
        _of_check(lambda check: check.mismatches.lasting),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_repaired_documents",
        "Documents that were repaired because they differed, since the start of the sync or its last reversal. With "
        "several instances, only the coordinator counts them.",
        (),
        _of_run(lambda record, snapshot: record.repaired_documents),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_repaired_definitions",
        "Differences in definitions that were repaired since the start of the sync or its last reversal. With several "
        "instances, only the coordinator counts them.",
        (),
        _of_run(lambda record, snapshot: record.repaired_definitions),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_lag_seconds",
        "How far the verification is behind the change events of each cluster, in seconds.",
        ("cluster",),
        _of_changes(lambda changes: changes.lag_seconds),
    ),
    Metric(
        Kind.GAUGE,
        "mongosync_verification_recheck_lag_seconds",
        "The lag with which the verification compares changed documents of each cluster again, in seconds; no value "
        "until those that changed during the first pass are compared.",
        ("cluster",),
        _of_changes(lambda changes: changes.recheck_lag_seconds),
    ),
)
WEBHOOK_TABLE = metrics_of("mongosync")
