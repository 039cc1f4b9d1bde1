"""What `GET /api/v1/progress` shows: counters that the engine moves, and the frozen snapshot of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from time import monotonic

from syncsvc.figures.collections import Collections
from syncsvc.figures.durations import Stopwatch
from syncsvc.figures.trends import Lag, with_newest
from verifier.compare.check_progress import CheckProgress
from verifier.runtime.waits import LongWait

_log = logging.getLogger(__name__)

# How far the destination, or its verification, may be behind for a commit to be sensible, in seconds.
MOST_LAG = 30


class WarningKind(Enum):
    """What is warned of; of each kind there is one warning at a time."""

    OPLOG_SHORT = "oplog short"
    OPLOG_UNKNOWN = "oplog unknown"
    INDEXES_WITHHELD = "indexes withheld"
    ORPHAN_AWAITED = "orphan awaited"
    CHECK_REPEATED = "check repeated"
    INSTANCE_AWAITED = "instance awaited"
    INSTANCE_SILENT = "instance silent"
    BALANCER_ON = "balancer on"
    DEFINITIONS_CHANGED = "definitions changed"


@dataclass(frozen=True)
class Ping:
    """How long a cluster took to answer, in seconds; None when it did not."""

    seconds: float | None


@dataclass(frozen=True)
class ProgressSnapshot:
    """The engine's figures at one moment; None is unknown. Bytes, documents, seconds.

    `events_read` and `events_applied` count writes, `definitions_applied` the other change events. `lag_at` is when the
    lag was last known, by the monotonic clock; `lags` are those of the last minutes. `waits` are the long ones of this
    process. `pings` has the clusters by name, where they were asked. `check` is the verification, once it has begun.
    """

    total_bytes: int | None = None
    copied_bytes: int = 0
    copied_documents: int = 0
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


class Progress:
    """Holds the newest snapshot. Reading it never waits for anything but another reader's or writer's assignment.

    `collections` has the figures of each, `stopwatch` how long calls take.
    """

    def __init__(self) -> None:
        self.collections = Collections()
        self.stopwatch = Stopwatch()
        self._lock = threading.Lock()  # guards the change of snapshot
        self._snapshot = ProgressSnapshot()

    @property
    def snapshot(self) -> ProgressSnapshot:
        return self._snapshot

    def set(self, **values: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **values)  # type: ignore[arg-type] # checked by replace

    def set_lag(self, seconds: int) -> None:
        """The lag is known anew."""
        newest = Lag(seconds, monotonic())
        with self._lock:
            lags = with_newest(self._snapshot.lags, newest)
            self._snapshot = replace(
                self._snapshot, lag_seconds=seconds, lag_at=newest.at, lags=lags
            )

    def set_ping(self, cluster: str, ping: Ping) -> None:
        """The cluster was asked anew."""
        with self._lock:
            pings = {**self._snapshot.pings, cluster: ping}
            self._snapshot = replace(self._snapshot, pings=pings)

    def forget_lag(self) -> None:
        """The lag is not known any more."""
        with self._lock:
            self._snapshot = replace(self._snapshot, lag_seconds=None, lags=())

    def forget_pace(self) -> None:
        """What an earlier coordinator measured of lag and oplog is not true of the next one."""
        self.forget_lag()
        self.set(caught_up=False, oplog_seconds_left=None)

    def add(self, **amounts: int) -> None:
        """Raise counters."""
        with self._lock:
            now = self._snapshot
            sums = {name: getattr(now, name) + amount for name, amount in amounts.items()}
            self._snapshot = replace(now, **sums)

    def warn(self, kind: WarningKind, text: str) -> None:
        """Warn until told that it is over; of a warning that lasts, the newest text is shown."""
        with self._lock:
            warnings = self._snapshot.warnings
            begins = kind not in warnings
            self._snapshot = replace(self._snapshot, warnings={**warnings, kind: text})
        if begins:
            _log.warning("A warning begins.", extra={"warning": kind.value, "text": text})

    def end_warning(self, kind: WarningKind) -> None:
        """It is over, or never was."""
        with self._lock:
            left = dict(self._snapshot.warnings)
            ends = left.pop(kind, None) is not None
            self._snapshot = replace(self._snapshot, warnings=left)
        if ends:
            _log.info("A warning ends.", extra={"warning": kind.value})
