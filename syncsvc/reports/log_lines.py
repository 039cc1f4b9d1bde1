"""The log lines that report the progress of a sync every half minute.

The messages and fields are those of mongosync, so log tools for mongosync can read them. A "partition" in these
messages is a whole collection, even if the collection is copied in ranges. Unlike mongosync, this service logs no lines
about sampling, because sampling is a part of its initialization.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from syncsvc.figures.durations import NONE, Durations, Operation
from syncsvc.figures.progress import MOST_LAG
from syncsvc.reports.progress_answer import lag_shown, oplog_shown, ping_shown
from syncsvc.reports.sync import Sync, is_active, lag_seconds, ping_of
from syncsvc.saved.registry import copy_summary
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase
from verifier.compare.check_progress import CheckProgress


class Line(NamedTuple):
    """A line of the log: its message, fields and level."""

    message: str
    fields: Mapping[str, Any] = {}
    level: int = logging.INFO


def lines(before: Sync, now: Sync, durations: Mapping[Operation, Durations]) -> Iterator[Line]:
    """Yield the log lines for a sync that is running, committing or reversing; for any other sync, yield nothing.

    Rates are averages since the snapshot `before`. `durations` contains the durations of the calls to the clusters
    since then.
    """
    record = now.record
    if record is None or not is_active(now):
        return
    seconds = max(1.0, now.now - before.now)
    yield _progress(before, now, record, seconds)
    yield _durations(now, record, durations)
    yield _writes(now)
    if record.phase is Phase.COPYING:
        yield Line(copy_summary(now.collections))
    if record.phase is Phase.APPLYING:
        read = _increase(before.snapshot.events_read, now.snapshot.events_read)
        rate = round(read / seconds, 2)
        yield Line("Average Source CRUD events rate", {"srcCRUDEventsPerSec": rate})
    if now.snapshot.check is not None:
        yield from _verification(now.snapshot.check)


def _increase(before: int, now: int) -> int:
    """Return the increase of a counter; if it has shrunk, it was set to 0 in between, so return its value `now`."""
    return now - before if now >= before else now


def _progress(before: Sync, now: Sync, record: RunRecord, seconds: float) -> Line:
    snapshot = now.snapshot
    applied = _increase(before.snapshot.events_applied, snapshot.events_applied)
    return Line(
        "Replication progress.",
        {
            "totalEventsApplied": snapshot.events_applied,
            "eventApplicationRatePerSecond": round(applied / seconds, 2),
            "lagTimeSeconds": lag_seconds(record, snapshot),
            "lag": lag_shown(record, snapshot),
            **oplog_shown(record, snapshot),
        },
    )


def _durations(now: Sync, record: RunRecord, durations: Mapping[Operation, Durations]) -> Line:
    fields: dict[str, Any] = {each.value: _shown(durations.get(each, NONE)) for each in Operation}
    for side in ("source", "destination"):
        ping = ping_shown(ping_of(record, now.snapshot, source=side == "source"))
        fields |= {f"{side}PingLatencyMs": latency for latency in ping.values()}
    return Line("Operation duration stats.", fields)


def _shown(durations: Durations) -> dict[str, str | int]:
    return {
        "averageDurationMs": f"{1000 * durations.average:.2f}",
        "maximumDurationMs": f"{1000 * durations.longest:.2f}",
        "numOperations": durations.calls,
    }


def _writes(now: Sync) -> Line:
    """Return the line with the numbers of change events read and of documents written by this process.

    Events and documents of earlier processes of the sync are not included.
    """
    snapshot = now.snapshot
    return Line(
        "Write Stats to Source and Destination Clusters.",
        {
            "EstimatedNumWritesOnSourceCluster": snapshot.events_read,
            "NumWritesOnDestinationCluster": snapshot.documents_copied + snapshot.documents_written,
        },
    )


def _verification(check: CheckProgress) -> Iterator[Line]:
    lags = {
        "verifierSrcLagTimeSeconds": check.source.lag_seconds,
        "verifierDstLagTimeSeconds": check.destination.lag_seconds,
    }
    known = {name: lag for name, lag in lags.items() if lag is not None}
    if known:
        # With a lag above MOST_LAG, no commit is possible.
        behind = max(known.values()) > MOST_LAG
        yield Line("Verifier lag.", known, logging.WARNING if behind else logging.INFO)
