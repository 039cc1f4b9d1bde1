"""The figures behind `GET /api/v1/progress`: counters that the engine updates, and a frozen snapshot of them."""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from math import inf
from time import monotonic, time

from bson.timestamp import Timestamp

from syncsvc.figures.collections import Collections
from syncsvc.figures.durations import Stopwatch
from syncsvc.figures.throttling import Throttling
from syncsvc.figures.trends import Lag, with_newest
from syncsvc.state import Phase, State
from verifier.compare.check_progress import CheckProgress
from verifier.runtime.waits import LongWait

_log = logging.getLogger(__name__)

# The largest lag of the destination, or of the change readers of its verification, at which a commit is possible, in
# seconds.
MOST_LAG = 30
# The largest lag of the verification's rechecks (of changed documents) at which a commit is possible, in seconds. It is
# larger than MOST_LAG, because one generation compares many documents, and the lag grows until that generation ends.
MOST_RECHECK_LAG = 60
# How long a measured lag counts if no newer one is measured, in seconds.
_LAG_COUNTS_FOR = 15.0
# The maximum number of states in a snapshot. Readers miss no state, because they read the states once a second.
_MOST_STATES = 50


class WarningKind(Enum):
    """The kinds of warnings in the progress; at most one warning of each kind is active at a time."""

    OPLOG_SHORT = "oplog short"
    OPLOG_UNKNOWN = "oplog unknown"
    SPOOL_FILLING = "event spool filling"
    PAUSE_UNSPOOLED = "pause unspooled"
    NOTHING_SELECTED = "nothing selected"
    INDEXES_WITHHELD = "indexes withheld"
    ORPHAN_AWAITED = "orphan awaited"
    CHECK_REPEATED = "check repeated"
    INSTANCE_AWAITED = "instance awaited"
    INSTANCE_SILENT = "instance silent"
    WRONG_INSTANCE = "wrong instance"
    BALANCER_ON = "balancer on"
    DEFINITIONS_CHANGED = "definitions changed"
    MEASUREMENTS_HIDDEN = "measurements hidden"
    SOURCE_WRITTEN = "source written"
    WRITTEN_AFTER_COMMIT = "written after commit"
    UNCHECKED_AFTER_COMMIT = "unchecked after commit"
    FOREIGN_BLOCK = "foreign block"
    LIMIT_SUSPENDED = "limit suspended"
    DASHBOARDS_STALE = "dashboards stale"


@dataclass(frozen=True)
class Ping:
    """The time a cluster took to answer a ping, in seconds; None if it did not answer."""

    seconds: float | None


@dataclass(frozen=True)
class SpoolFigures:
    """The figures of the event spool at one moment."""

    # Whether events are being added now, or will be as soon as there is room for them.
    active: bool
    # The size of the saved events, and the size limit, in compressed bytes.
    size: int
    limit: int
    # The time between the oldest and the newest saved event, in seconds.
    seconds: int
    # How many compressed bytes are added per second, on average over the last minute.
    bytes_per_second: float

    @property
    def replaces_oplog(self) -> bool:
        """Return whether new events are saved, so that the sync does not need the source's oplog for them."""
        return self.active and self.size < self.limit


@dataclass(frozen=True)
class CopiedAmount:
    """The numbers of bytes and documents that are copied."""

    bytes: int
    documents: int


@dataclass(frozen=True)
class OtherInstance:
    """Another instance of the sync, as its saved record shows it.

    `applied_until` is the cluster time of the source up to which the instance has applied all events, in UNIX seconds;
    None until it is known. `heard_at` is when this process last saw a new heartbeat of the instance, or saw the
    instance in a state in which it sends no heartbeats, in seconds of the monotonic clock. The numbers of
    repaired differences are those of all instances, and zeros unless this one coordinates.
    """

    name: str
    state: State
    phase: Phase
    applied_until: int | None
    heard_at: float
    repaired_documents: int = 0
    repaired_definitions: int = 0


@dataclass(frozen=True)
class StateChange:
    """A state that this process has entered, or found at its start. `number` counts these states, from 1.

    `at` is in UNIX seconds. `error` and `description` are those of the failure; None unless the state is FAILED.
    """

    number: int
    state: State
    at: float
    error: str | None = None
    description: str | None = None


@dataclass(frozen=True)
class ProgressSnapshot:
    """The engine's figures at one moment. A value that is unknown is None; times are in seconds."""

    # The estimated size of all collections to copy; the copied size once all are copied; None until they are listed.
    total_bytes: int | None = None
    copied_bytes: int = 0
    copied_documents: int = 0
    # What all instances have copied. None if the sync has only this instance, after a reversal, and in a follower also
    # during the copy.
    copied_in_all: CopiedAmount | None = None
    # Documents that this process has copied, counted again in each repeated copy.
    documents_copied: int = 0
    # Documents that the copy read, but did not insert, because the destination already had them.
    documents_copied_again: int = 0
    # Change events of documents.
    events_read: int = 0
    events_applied: int = 0
    # Applied DDL events, and applied changes of definitions for which a source before MongoDB 6.0 sends no event.
    definitions_applied: int = 0
    # Writes and deletes of documents to apply change events and repairs; one can combine several events.
    documents_written: int = 0
    # Documents that were read again from the source, for repairs or because their change events were not enough.
    documents_refetched: int = 0
    # The last measured lag, and until when it counts (monotonic clock).
    lag_seconds: int | None = None
    lag_until: float = inf
    # The lags of the last minutes, oldest first.
    lags: tuple[Lag, ...] = ()
    # Whether a collection that joined the sync after the start is being copied.
    adopts_collection: bool = False
    # The cluster time of the destination at the end of the last such copy.
    adopted_until: Timestamp | None = None
    # Whether the lag, the indexes, the definitions and the verification allow a commit.
    caught_up: bool = False
    # The reasons why a commit is not possible that no other figure shows, as sentences.
    hindrances: tuple[str, ...] = ()
    # For how long the oplog of the source will hold the entries that the sync needs.
    oplog_seconds_left: float | None = None
    # The texts of the active warnings.
    warnings: Mapping[WarningKind, str] = field(default_factory=dict)
    # The oldest waits of this process that have lasted at least 15 seconds.
    waits: tuple[LongWait, ...] = ()
    # The last ping of each cluster, by the name of the cluster; without clusters that were not pinged yet.
    pings: Mapping[str, Ping] = field(default_factory=dict)
    # The progress of the verification, once it has begun.
    check: CheckProgress | None = None
    # Change events that were saved in the event spool.
    events_spooled: int = 0
    # None while the spool is empty and no events are being added.
    spool: SpoolFigures | None = None
    # The other instances of the sync.
    others: tuple[OtherInstance, ...] = ()
    # The speed limits in effect, the one that slows the sync down, the waits for each, and the loads of the clusters.
    throttling: Throttling = Throttling()
    # The newest states of this process, the oldest first.
    states: tuple[StateChange, ...] = ()

    def at(self, now: float) -> ProgressSnapshot:
        """Return the snapshot with an unknown lag, and no earlier lags, if the lag no longer counts at the time `now`.

        `now` is a time of the monotonic clock.
        """
        if self.lag_seconds is None or now <= self.lag_until:
            return self
        return replace(self, lag_seconds=None, lags=())


class Progress:
    """Holds the newest snapshot of the figures; reading it takes no lock.

    `collections` contains the figures of each collection, `stopwatch` the durations of calls to the clusters.
    """

    def __init__(self) -> None:
        self.collections = Collections()
        self.stopwatch = Stopwatch()
        self._lock = threading.Lock()  # guards the replacement of _snapshot, and _begun
        self._begun: dict[str, str] = {}
        self._snapshot = ProgressSnapshot()

    @property
    def snapshot(self) -> ProgressSnapshot:
        """Return the newest figures. If the last measured lag no longer counts, the lag is unknown."""
        return self._snapshot.at(monotonic())

    def set(self, **values: object) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **values)  # type: ignore[arg-type] # checked by replace

    def set_lag(self, seconds: int) -> None:
        """Set the current lag to `seconds`, and add it to the lags of the last minutes.

        The current lag becomes unknown if it is not set again within 15 seconds.
        """
        newest = Lag(seconds, monotonic())
        with self._lock:
            now = self._snapshot.at(newest.at)
            self._snapshot = replace(
                now,
                lag_seconds=seconds,
                lag_until=newest.at + _LAG_COUNTS_FOR,
                lags=with_newest(now.lags, newest),
            )

    def set_ping(self, cluster: str, ping: Ping) -> None:
        """Replace the last ping of the cluster with that name."""
        with self._lock:
            pings = {**self._snapshot.pings, cluster: ping}
            self._snapshot = replace(self._snapshot, pings=pings)

    def forget_pace(self) -> None:
        """Mark the lag, the oplog estimate, `adopted_until` and `hindrances` as unknown, and the sync as not caught up.

        Call this when a new engine begins, because these figures belong to the previous engine.
        """
        self.set(
            lag_seconds=None,
            lags=(),
            caught_up=False,
            hindrances=(),
            oplog_seconds_left=None,
            adopted_until=None,
        )

    def clear(self) -> None:
        """Forget the figures and warnings of a sync that this process no longer runs.

        Keep the long waits of threads, the pings, the throttling, the states and the stopwatch: they belong to the
        process.
        """
        self.collections = Collections()
        with self._lock:
            now = self._snapshot
            self._begun.clear()
            self._snapshot = ProgressSnapshot(
                waits=now.waits, pings=now.pings, throttling=now.throttling, states=now.states
            )

    def add(self, **amounts: int) -> None:
        """Add to counters of the snapshot: each argument names a field, and its value is added to this field."""
        with self._lock:
            now = self._snapshot
            sums = {name: getattr(now, name) + amount for name, amount in amounts.items()}
            self._snapshot = replace(now, **sums)

    def enter(self, state: State, error: str | None = None, description: str | None = None) -> None:
        """Append the state to the states of this process; a no-op if it is the same as the last one.

        If the state is FAILED, `error` is the name of the failure, and `description` its text.
        """
        with self._lock:
            known = self._snapshot.states
            if known and known[-1].state is state:
                return
            number = known[-1].number + 1 if known else 1
            newest = StateChange(number, state, time(), error, description)
            self._snapshot = replace(self._snapshot, states=(*known, newest)[-_MOST_STATES:])

    def warn(self, kind: WarningKind, text: str) -> None:
        """Begin a warning and log it, or replace the text of the active warning of this kind.

        The warning lasts until `end_warning` or `clear` is called.
        """
        with self._lock:
            warnings = self._snapshot.warnings
            begins = kind not in warnings
            self._begun[kind.value] = text
            self._snapshot = replace(self._snapshot, warnings={**warnings, kind: text})
        if begins:
            _log.warning(
                "The progress shows a new warning; the text of the warning says what to do.",
                extra={"warning": kind.value, "text": text},
            )

    def end_warning(self, kind: WarningKind) -> None:
        """End the active warning of this kind, and log its end; a no-op if no such warning is active."""
        with self._lock:
            left = dict(self._snapshot.warnings)
            ends = left.pop(kind, None) is not None
            self._snapshot = replace(self._snapshot, warnings=left)
        if ends:
            _log.info("A warning in the progress has ended.", extra={"warning": kind.value})

    def show_waits(self, waits: tuple[LongWait, ...]) -> None:
        """Replace the long waits in the snapshot: the waits of threads that have lasted for 15 seconds or more."""
        with self._lock:
            self._begun.update({each.what: each.text for each in waits})
            self._snapshot = replace(self._snapshot, waits=waits)

    @property
    def begun(self) -> Mapping[str, str]:
        """Return the texts of the warnings and long waits that `forget_begun` has not removed yet, by name.

        Unlike the snapshot, the result includes ended warnings and waits. The caller saves or discards the result, and
        then calls `forget_begun` with it.
        """
        with self._lock:
            return dict(self._begun)

    def forget_begun(self, saved: Mapping[str, str]) -> None:
        """Forget the warnings and waits in `saved`, which an earlier call of `begun` returned.

        `saved` maps names to texts. A warning or wait whose text has changed since that call is kept.
        """
        with self._lock:
            self._begun = {
                name: text for name, text in self._begun.items() if saved.get(name) != text
            }
