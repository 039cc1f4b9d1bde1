"""Applies the speed limits of the sync: saves them, and sets the pace of all work once a second.

The rates are totals for the sync, and each of several instances obeys an equal share; the limit of threads applies to
each instance. The pace also depends on the time of day (`syncsvc.limits`), on the load of the clusters
(`figures.overload`), and on how long the oplog still keeps the change events or how full the event spool is
(`figures.headroom`).
"""

from __future__ import annotations

import logging
import math
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from time import monotonic
from typing import Any

import pymongo
from pymongo.errors import PyMongoError

from syncsvc.engine.run.pace import Pace
from syncsvc.figures.headroom import danger
from syncsvc.figures.overload import Ceiling, Flow, Pressure, adjusted, pressure, typical
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.figures.throttling import Throttling, Waits
from syncsvc.limits import Document, Limit, Limits, limits_of, merged, share_of
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.options import CLUSTERS
from syncsvc.reports.sync import Sync, is_active, lag_seconds, oplog_seconds_left
from syncsvc.saved.limits import LIMITS, LimitsStore
from syncsvc.saved.run import RunRecord
from syncsvc.source.cluster_load import Load, read_load
from syncsvc.state import Phase, State
from verifier.cluster.bounds import one_save
from verifier.cluster.cluster import Cluster
from verifier.cluster.connect import Client
from verifier.runtime.commands import Commands
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# The interval at which the pace is set, and the longest wait for the saved limits, in seconds.
_INTERVAL = 1.0
_PATIENCE = 2.0
# The throughput is averaged over this many intervals, and this many measurements of the load are kept.
_MEASURED = 3
# In each phase, the limit that `auto` lowers; and for each of these limits, a rate that hardly loads any cluster.
_WORK = {Phase.COPYING: Limit.COPY_BYTES, Phase.APPLYING: Limit.EVENTS}
_HARMLESS = {Limit.COPY_BYTES: 100_000, Limit.EVENTS: 100}
_SUSPENDED = (
    "The limit of change events per second is suspended: {}. With the limit, the sync could fail. The limit applies "
    "again when this danger has passed. If the change events overload a cluster before that, write less to the source, "
    "or enlarge what is named here: the oplog of the source (replSetResizeOplog), or the event spool (restart the "
    "process with a larger --eventSpoolMB)."
)


class Limiter:
    """Manages the sync's limits in one process. `take` returns a snapshot of the sync, and contacts no cluster.

    `home` returns the store of the limits; None during a reset, and while it is unknown which cluster holds the saved
    state. Meanwhile, changes are kept in memory.
    """

    def __init__(
        self,
        pace: Pace,
        progress: Progress,
        take: Callable[[], Sync],
        home: Callable[[], LimitsStore | None],
    ) -> None:
        self._pace = pace
        self._progress = progress
        self._take = take
        self._home = home
        # A change occupies an HTTP request thread until the cluster answers, so other changes must not wait for it.
        self._changes = Commands()
        self._changing = threading.Lock()  # held while the limits are read, changed or saved
        self._applying = threading.Lock()  # held while the pace is set
        self._limits = Limits()
        # The changes that are not saved yet.
        self._unsaved: dict[str, Any] = {}
        # The limits before a reset, which dropped the saved ones. They are saved again as soon as `home` returns a
        # store, unless another instance has saved limits first.
        self._kept: dict[str, Any] = {}
        # The newest measurements by "source" and "destination", and the ceiling of the current work. Neither mapping is
        # ever changed: a new one replaces it.
        self._loads: Mapping[str, tuple[Load, ...]] = {}
        self._ceilings: Mapping[Limit, Ceiling] = {}
        self._flows = _no_flows()
        # The run and direction in which the flows were measured. Another run or direction may be faster or slower.
        self._measured_in: object = None
        # The newest times (monotonic clock) with the amounts that were admitted until then.
        self._admitted: deque[tuple[float, Mapping[Limit, int]]] = deque(maxlen=_MEASURED + 1)
        self._overload = ""
        self._waits = Waits()

    @property
    def limits(self) -> Limits:
        return self._limits

    @property
    def are_saved(self) -> bool:
        """Return whether all limits are saved, so that a restarted process knows them."""
        return not self._unsaved and not self._kept

    def change(self, changes: Document) -> None:
        """Change some limits: save them if `home` returns a store, otherwise later; then apply them at once.

        `changes` has the form of the body of `PATCH /api/v1/limits`. Raises OperationError, for example
        CommandInProgress during another call, and the driver's errors.
        """
        with self._changes.one():
            with one_save(self._changing, "the limits"):
                self._change(changes)
            self._apply()
        _log.info("The limits were changed.", extra={"limits": self._limits.shown()})

    def _change(self, changes: Document) -> None:
        unsaved, store = merged(self._unsaved, changes), self._home()
        if store is not None:
            self._save(store, unsaved)
        else:
            self._limits = limits_of(merged(self._limits.shown(), changes))
            self._unsaved = unsaved

    def _save(self, store: LimitsStore, changes: Document) -> None:
        self._limits = store.change(changes, self._kept)
        self._unsaved, self._kept = {}, {}

    def begin_at(self, store: LimitsStore) -> None:
        """Take over the limits saved in `store`, which belongs to a sync that is about to begin or to continue.

        Limits that were set in this process before, and are not saved yet, replace the saved ones in `store`. If no
        limits are saved there, the limits that `forget_home` has kept are saved. Raises OperationError and the driver's
        errors.
        """
        with one_save(self._changing, "the limits"):
            # The changes stay in `_unsaved` until the sync has begun, because its start may still be refused.
            found = store.load() if self.are_saved else store.change(self._unsaved, self._kept)
            self._limits = found or self._limits
        self._apply()

    def forget_home(self) -> None:
        """Keep the current limits in memory, because a reset has dropped the saved ones. No-op if no limit is set.

        They are saved again as soon as `home` returns a store, unless another instance has saved its limits first: a
        user may have changed the limits of that instance since the reset.
        """
        with self._changing:
            if self._limits != Limits():
                self._kept = self._limits.shown()

    def run(self, clusters: Mapping[str, Cluster], stop: StopToken) -> None:
        """Once a second, read the limits again, measure the load of the clusters, and set the pace.

        Raises `Cancelled` when stopped.
        """
        while True:
            began = monotonic()
            self._refresh()
            self._measure(clusters)
            self._apply()
            stop.sleep(max(_INTERVAL / 10, began + _INTERVAL - monotonic()))

    def _refresh(self) -> None:
        """Read the limits again if other processes may change them, and save those that are not saved yet.

        Errors are ignored, because the next call tries again.
        """
        sync = self._take()
        several = sync.standing is not None or sync.record is not None and sync.record.instances
        if not several and self.are_saved or not self._changing.acquire(blocking=False):
            return
        try:
            with (
                suppress(PyMongoError, OperationError),
                impatient(_PATIENCE, in_total=_PATIENCE),
                pymongo.timeout(_PATIENCE),
            ):
                store = self._home()
                if store is not None and not self.are_saved:
                    self._save(store, self._unsaved)
                elif store is not None:
                    self._limits = store.glance() or self._limits
        finally:
            self._changing.release()

    def _measure(self, clusters: Mapping[str, Cluster]) -> None:
        """Measure the sync's throughput; with `auto`, measure the clusters' load, and adjust the automatic limit."""
        sync, auto = self._take(), self._limits.auto
        self._admitted.append((monotonic(), self._pace.amounts))
        work = work_of(sync)
        measured_in = sync.record and (sync.record.fence, sync.record.reversals)
        if measured_in != self._measured_in:
            self._measured_in, self._flows = measured_in, _no_flows()
        if work is not None:
            # Measured even while `auto` is off, because `auto` needs the full rate as soon as it is switched on.
            self._flows[work] = self._flows[work].at(self._rate(work))
        # Measured even without a sync, so that an operator can choose the thresholds before the start.
        names = _measured(sync) if auto.enabled else {}
        self._loads = {
            side: self._with_newest(side, clusters[name].client) for side, name in names.items()
        }
        if not names or work is None:
            self._ceilings = {}
            return
        found, why = pressure({side: typical(each) for side, each in self._loads.items()}, auto)
        if found is Pressure.HIGH:
            self._overload = why
        ceiling = adjusted(
            self._ceilings.get(work, Ceiling()), found, self._flows[work], monotonic()
        )
        self._ceilings = with_ceiling(self._ceilings, work, ceiling)

    def _rate(self, work: Limit) -> float:
        """Return the amount of this work, in bytes or events, admitted per second in the newest intervals."""
        (began, before), (now, amounts) = self._admitted[0], self._admitted[-1]
        return (amounts[work] - before[work]) / (now - began) if now > began else 0.0

    def _with_newest(self, side: str, client: Client) -> tuple[Load, ...]:
        """Measure the load of a cluster, and return its newest loads, at most `_MEASURED`, the oldest first."""
        newest = read_load(client, METADATA_DATABASE, LIMITS)
        return (*self._loads.get(side, ()), newest)[-_MEASURED:]

    def _apply(self) -> None:
        """Set the pace to the limits in force now, and publish these limits in the progress."""
        with self._applying:
            sync = self._take()
            rates, window = self._limits.at(datetime.now(UTC))
            instances = len(sync.record.instances) if sync.record else 0
            shares = share_of(rates, instances or 1)
            when = "" if window is None else f" from {window}"
            reasons = {each: f"{each.value} is {amount}{when}." for each, amount in rates.items()}
            for limit, ceiling in self._ceilings.items():
                if ceiling.rate is not None and ceiling.rate < shares.get(limit, math.inf):
                    shares[limit] = int(ceiling.rate)
                    reasons[limit] = f"auto: {self._overload} (at the last overload)."
            self._suspend(sync, shares)
            self._pace.set_rates(shares)
            waited = self._pace.waited
            in_force = {each: reasons[each] for each in shares}
            throttled = self._waits.throttled(waited, in_force, monotonic(), datetime.now(UTC))
            loads = {side: each[-1] for side, each in self._loads.items() if each}
            self._progress.set(throttling=Throttling(shares, throttled, waited, loads))

    def _suspend(self, sync: Sync, shares: dict[Limit, int]) -> None:
        """Remove all limits from `shares` during a commit, and the limit of change events while it endangers the sync.

        Show a warning while that limit endangers the sync; a commit causes no warning.
        """
        record, snapshot = sync.record, sync.snapshot
        why = None
        if record is not None and record.state is State.COMMITTING:
            shares.clear()
        elif record is not None and _is_applying(record) and Limit.EVENTS in shares:
            warned = WarningKind.LIMIT_SUSPENDED in snapshot.warnings
            left, lag = oplog_seconds_left(record, snapshot), lag_seconds(record, snapshot)
            why = danger(left, lag, snapshot.spool, warned)
        if why is None:
            self._progress.end_warning(WarningKind.LIMIT_SUSPENDED)
        else:
            del shares[Limit.EVENTS]
            self._progress.warn(WarningKind.LIMIT_SUSPENDED, _SUSPENDED.format(why))


def work_of(sync: Sync) -> Limit | None:
    """Return the limit that `auto` lowers to slow down the present work of the sync; None if there is no such work."""
    if sync.record is None or not is_active(sync):
        return None
    if sync.snapshot.adopts_collection:
        # A collection that joined the sync after the start is being copied. No change events are applied meanwhile.
        return Limit.COPY_BYTES
    return _WORK.get(sync.record.phase)


def with_ceiling(
    ceilings: Mapping[Limit, Ceiling], work: Limit, ceiling: Ceiling
) -> dict[Limit, Ceiling]:
    """Return the ceilings with `ceiling` for the present work, and without those of finished work.

    The ceiling of change events is kept while a collection is copied, because events are applied again after the copy
    (see `work_of`).
    """
    return {each: ceilings[each] for each in ceilings if each is Limit.EVENTS} | {work: ceiling}


def _measured(sync: Sync) -> dict[str, str]:
    """Return the names of the clusters whose load is measured, by "source" and "destination"; empty on a standby."""
    if sync.is_standby:
        return {}
    if sync.record is None:
        return dict(zip(("source", "destination"), CLUSTERS, strict=True))
    return {"source": sync.record.source, "destination": sync.record.destination}


def _is_applying(record: RunRecord) -> bool:
    return record.state is State.RUNNING and record.phase is Phase.APPLYING


def _no_flows() -> dict[Limit, Flow]:
    return {work: Flow(rate) for work, rate in _HARMLESS.items()}
