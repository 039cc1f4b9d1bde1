"""The figures behind `GET /api/v1/progress`: counters that the engine updates, and a frozen snapshot of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from time import monotonic

from syncsvc.figures.collections import Collections
from syncsvc.figures.durations import Stopwatch
from syncsvc.figures.throttling import Throttling
from syncsvc.figures.trends import Lag, with_newest
from verifier.compare.check_progress import CheckProgress
from verifier.runtime.waits import LongWait

_log = logging.getLogger(__name__)

# The largest lag of the destination, or of its verification, at which a commit makes sense, in seconds.
MOST_LAG = 30


class WarningKind(Enum):
    """The kinds of warnings; at most one warning of each kind is active at a time."""

    OPLOG_SHORT = "oplog short"
    OPLOG_UNKNOWN = "oplog unknown"
    SPOOL_FILLING = "event spool filling"
    PAUSE_UNSPOOLED = "pause unspooled"
    INDEXES_WITHHELD = "indexes withheld"
    ORPHAN_AWAITED = "orphan awaited"
    CHECK_REPEATED = "check repeated"
    INSTANCE_AWAITED = "instance awaited"
    INSTANCE_SILENT = "instance silent"
    BALANCER_ON = "balancer on"
    DEFINITIONS_CHANGED = "definitions changed"
    SOURCE_WRITTEN = "source written"
    LIMIT_SUSPENDED = "limit suspended"


@dataclass(frozen=True)
class Ping:
    """The time a cluster took to answer a ping, in seconds; None if it did not answer."""

    seconds: float | None


@dataclass(frozen=True)
class SpoolFigures:
    """The event spool at one moment: sizes in bytes, compressed; `seconds` is the time that its events span.

    `active` is whether events are being added, at `bytes_per_second` on average over the last minute.
    """

    active: bool
    size: int
    limit: int
    seconds: int
    bytes_per_second: float


@dataclass(frozen=True)
class ProgressSnapshot:
    """The engine's figures at one moment: bytes, documents, seconds. None means unknown.

    `documents_copied_again` counts documents that the copy read although the destination already had them.
    `events_read` and `events_applied` count change events of documents, `definitions_applied` counts DDL events.
    `documents_refetched` counts documents that were read again from the source, because their events were not enough.
    `caught_up` is whether the applied events and the verification are close enough to the source for a commit. `lag_at`
    is when the lag was last measured (monotonic clock); `lags` are the lags of the last minutes. `waits` are the long
    waits of this process. `pings` has the answers by cluster name, for the clusters that were asked. `check` is the
    progress of the verification, once it has begun. `events_spooled` counts change events that were saved in the event
    spool; `spool` is None while no events are spooled. `throttling` has the limits in force.
    """

    total_bytes: int | None = None
    copied_bytes: int = 0
    copied_documents: int = 0
    documents_copied_again: int = 0
    events_read: int = 0
    events_applied: int = 0
    definitions_applied: int = 0
    documents_written: int = 0
    documents_refetched: int = 0
    lag_seconds: int | None = None
    lag_at: float = 0.0
    lags: tuple[Lag, ...] = ()
    caught_up: bool = False
    oplog_seconds_left: float | None = None
    warnings: Mapping[WarningKind, str] = field(default_factory=dict)
    waits: tuple[LongWait, ...] = ()
    pings: Mapping[str, Ping] = field(default_factory=dict)
    check: CheckProgress | None = None
    events_spooled: int = 0
    spool: SpoolFigures | None = None
    throttling: Throttling = Throttling()


class Progress:
    """Holds the newest snapshot; reading it takes no lock.

    `collections` has the figures of each collection, `stopwatch` the durations of calls.
    """

    def __init__(self) -> None:
        self.collections = Collections()
        self.stopwatch = Stopwatch()
        self._lock = threading.Lock()  # guards the replacement of _snapshot
        self._snapshot = ProgressSnapshot()

    @property
    def snapshot(self) -> ProgressSnapshot:
        return self._snapshot

    def set(self, **values: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **values)  # type: ignore[arg-type] # checked by replace

    def set_lag(self, seconds: int) -> None:
        """Replace the current lag, in seconds, by a new measurement."""
        newest = Lag(seconds, monotonic())
        with self._lock:
            lags = with_newest(self._snapshot.lags, newest)
            self._snapshot = replace(
                self._snapshot, lag_seconds=seconds, lag_at=newest.at, lags=lags
            )

    def set_ping(self, cluster: str, ping: Ping) -> None:
        """Replace the last ping of the cluster with that name."""
        with self._lock:
            pings = {**self._snapshot.pings, cluster: ping}
            self._snapshot = replace(self._snapshot, pings=pings)

    def forget_lag(self) -> None:
        """Mark the lag as unknown, and drop the earlier measurements."""
        with self._lock:
            self._snapshot = replace(self._snapshot, lag_seconds=None, lags=())

    def forget_pace(self) -> None:
        """Mark the lag and the oplog estimate as unknown, and the sync as not caught up: a new engine begins."""
        self.forget_lag()
        self.set(caught_up=False, oplog_seconds_left=None)

    def clear(self) -> None:
        """Forget the figures and warnings of a sync that is over; keep those of the process."""
        self.collections = Collections()
        with self._lock:
            now = self._snapshot
            self._snapshot = ProgressSnapshot(
                waits=now.waits, pings=now.pings, throttling=now.throttling
            )

    def add(self, **amounts: int) -> None:
        """Add to counters of the snapshot. The names of the arguments are those of the counters."""
        with self._lock:
            now = self._snapshot
            sums = {name: getattr(now, name) + amount for name, amount in amounts.items()}
            self._snapshot = replace(now, **sums)

    def warn(self, kind: WarningKind, text: str) -> None:
        """Begin a warning and log it, or replace the text of an active one; it lasts until `end_warning`."""
        with self._lock:
            warnings = self._snapshot.warnings
            begins = kind not in warnings
            self._snapshot = replace(self._snapshot, warnings={**warnings, kind: text})
        if begins:
            _log.warning("A warning begins.", extra={"warning": kind.value, "text": text})

    def end_warning(self, kind: WarningKind) -> None:
        """End a warning and log that; a no-op if it is not active."""
        with self._lock:
            left = dict(self._snapshot.warnings)
            ends = left.pop(kind, None) is not None
            self._snapshot = replace(self._snapshot, warnings=left)
        if ends:
            _log.info("A warning ends.", extra={"warning": kind.value})
