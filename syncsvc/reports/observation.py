"""Extracts the values that the history of a sync records for the web page."""

from __future__ import annotations

from syncsvc.figures.history import Sample, Value
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.limits import Limit
from syncsvc.options import CLUSTERS
from syncsvc.reports.sync import Sync, copied_in_all, lag_seconds
from verifier.compare.check_progress import CheckProgress

# The limits of the copy, of change events, and of threads.
_LIMITED = ((Limit.COPY_BYTES, Limit.COPY_DOCUMENTS), (Limit.EVENTS,), (Limit.THREADS,))


def sample_of(sync: Sync, time: float) -> Sample:
    """Return the figures for the charts. `time` is the current time in UNIX seconds."""
    record, snapshot = sync.record, sync.snapshot
    # Before the total is known, the amounts of an earlier process are not known either.
    copied: tuple[Value, Value] = (None, None)
    if snapshot.total_bytes is not None:
        copied = _copied(sync)
    waits = (_waited(snapshot, limits) for limits in _LIMITED)
    names = CLUSTERS if record is None else (record.source, record.destination)
    return Sample(
        time=round(time, 1),
        at=sync.now,
        counts=(*copied, snapshot.events_read, snapshot.events_applied, *waits),
        levels=(
            None if record is None else lag_seconds(record, snapshot),
            *(_latency(snapshot, name) for name in names),
        ),
    )


def _copied(sync: Sync) -> tuple[int, int]:
    """Return the numbers of copied bytes and documents: on the coordinator, those of all instances.

    Any other instance returns its own numbers, even after the copy, when it knows the numbers of all instances:
    otherwise, its rate would jump.
    """
    in_all = copied_in_all(sync) if sync.record is None or sync.record.coordinates else None
    if in_all is not None:
        return in_all.bytes, in_all.documents
    return sync.snapshot.copied_bytes, sync.snapshot.copied_documents


def _waited(snapshot: ProgressSnapshot, limits: tuple[Limit, ...]) -> float:
    """Return the seconds for which these limits have held up threads, summed over the threads.

    The rate of this figure is the average number of waiting threads.
    """
    return sum(snapshot.throttling.waited.get(each, 0.0) for each in limits)


def _latency(snapshot: ProgressSnapshot, cluster: str) -> Value:
    """Return how long the cluster took to answer the last ping, in milliseconds; None without an answer."""
    ping = snapshot.pings.get(cluster)
    return None if ping is None or ping.seconds is None else round(1000 * ping.seconds, 2)


def is_clean(check: CheckProgress | None) -> bool:
    """Return whether the verification has completed its first pass, and knows of no difference."""
    if check is None or check.first is None:
        return False
    return not any(check.mismatches.documents.values()) and not check.mismatches.definitions
