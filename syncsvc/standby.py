"""Runs a daemon with `--standby`: it waits for the lease, is active while it holds the lease, and waits again.

Each active period is a term. A term ends when another daemon has taken the lease, when another process has begun or
taken over the run of this instance, or when this daemon cannot continue the saved run because it cannot reach or use a
cluster. Then the engine is stopped, and the process becomes a standby; it does not exit. If the process still holds the
lease, it releases the lease. The next holder, perhaps this process again, then takes over the run.

A failed renewal alone does not end a term: when cluster1, which holds the lease, answers again, this daemon continues
if no other daemon has taken the lease. Once another daemon has taken over the run, the destination refuses late
writes of this daemon (see `syncsvc.saved.fence`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from time import monotonic

from pymongo.errors import PyMongoError

from syncsvc import errors
from syncsvc.engine.run.points import Point
from syncsvc.reports.standing import Role, Standing
from syncsvc.saved.lease import HOME, LeaseKeeper
from syncsvc.saved.run import RunRecord
from syncsvc.service import Service
from syncsvc.state import State
from syncsvc.tuning import Tuning
from verifier.cluster import failures
from verifier.cluster.cluster import Cluster, refreshed
from verifier.cluster.reading import read
from verifier.runtime import waits
from verifier.runtime.errors import OperationError
from verifier.runtime.observer import Observer
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

_log = logging.getLogger(__name__)

# Failures to continue a saved sync after which this process waits for the lease again.
_REPEATED = (errors.SUPERSEDED, *failures.CLUSTER_ERRORS)
# How long a daemon that has become active may take to continue the sync if a cluster does not answer, in seconds.
_LONGEST_BEGINNING = 30.0
_REMEDY = (
    "The failed call is retried. Check that the servers of cluster1 run and have a primary, and that the user "
    "has the documented roles. An active daemon continues the sync as long as no other daemon takes the lease."
)
_ENDING = "This daemon stops being active, and waits until its calls to the clusters have returned"
_END_REMEDY = (
    "The calls to the clusters end within three minutes. Meanwhile, another daemon can be active; then the destination "
    "refuses the writes of this daemon."
)


class Standby:
    """Runs the terms of this process: the periods in which it holds the lease and is the active daemon.

    `keeper` returns a new LeaseKeeper, with a new random name, for each term.
    """

    def __init__(
        self,
        service: Service,
        clusters: Mapping[str, Cluster],
        keeper: Callable[[], LeaseKeeper],
        tuning: Tuning,
        observe: Observer,
    ) -> None:
        self._service = service
        self._clusters = clusters
        self._keeper = keeper
        self._tuning = tuning
        self._observe = observe
        self._outage = _Outage()

    def run(self, stop: StopToken) -> None:
        """Wait for the lease and run a term, again and again. This never returns.

        Raises Cancelled when `stop` is stopped, and OperationError if the process cannot continue a saved sync and
        waiting for the lease again would not help.
        """
        try:
            while True:
                keeper = self._keeper()
                self._await_lease(keeper, stop)
                self._be_active(keeper, stop)
                stop.check()
                self._service.forget()
        finally:
            self._outage.end()

    def _await_lease(self, keeper: LeaseKeeper, stop: StopToken) -> None:
        """Poll the lease until this process holds it. Meanwhile, the API answers show the newest lease that was read.

        This process claims a free or expired lease only while both clusters answer. Raises Cancelled.
        """
        trusted_at = monotonic()
        while True:
            try:
                lease = keeper.read()
                free = lease is None or lease.expired and monotonic() >= trusted_at
                # A daemon that does not reach both clusters could not continue the sync.
                if free and not self._service.silent_clusters:
                    lease = keeper.claim()
            except PyMongoError as error:
                self._outage.note(error)
                # The holder may not have been able to renew the lease either, so it gets time to do so.
                trusted_at = monotonic() + self._tuning.lease_seconds
            else:
                self._outage.end()
                if lease is not None and keeper.holds(lease):
                    self._service.gate.show_standing(Standing(Role.ACTIVE, lease))
                    return
                self._service.gate.show_standing(Standing(Role.STANDBY, lease))
            stop.sleep(self._tuning.lease_poll)

    def _be_active(self, keeper: LeaseKeeper, stop: StopToken) -> None:
        """Continue the saved run, if there is one, and accept commands, until the term ends or the process stops.

        Wait until all threads of the term have ended, and then release the lease. Raises OperationError if the saved
        run cannot be continued, and waiting for the lease again would not help.
        """
        _log.info("This daemon is active.")
        self._observe(Point.LEASE_TAKEN, "")
        try:
            with ExitStack() as ending, suppress(Cancelled), TaskGroup("active", stop) as term:
                term.spawn("initialize", self._initialize, keeper, term)
                try:
                    self._keep(keeper, term.stop)
                finally:
                    # This wait is shown until all threads of the term have ended.
                    ending.enter_context(waits.waiting(_ENDING, _END_REMEDY))
                self._service.gate.show_standing(Standing())
                term.stop.stop("the term has ended")
                # Commands start threads, which this block must join.
                self._service.gate.wait_for_commands()
        finally:
            self._release(keeper)
        _log.info("This daemon is no longer active.")

    def _initialize(self, keeper: LeaseKeeper, term: TaskGroup) -> None:
        try:
            with failures.named_errors():
                # The process may have been suspended since it took the lease.
                if (
                    read(lambda: keeper.renew(self._service.queries.own_progress()), term.stop)
                    is None
                ):
                    return
                # Retried: the source may fail over at the moment of the takeover.
                clusters = read(self._current_clusters, term.stop)
                saved = read(lambda: self._service.find_run(clusters), term.stop)
                _refuse_other_home(saved)
                self._service.use(clusters)
                self._service.initialize(saved, term)
        except OperationError as error:
            if error.kind not in _REPEATED:
                raise
            _log.warning(
                "This daemon cannot read or continue the saved sync now, so it releases the lease and waits for the "
                "lease again.",
                extra={"error": str(error)},
            )
            self._service.gate.show_standing(Standing())
            term.stop.stop("not continued")

    def _current_clusters(self) -> dict[str, Cluster]:
        """Return both clusters by name, with topology and version read again, because they may have changed."""
        return {name: refreshed(each) for name, each in self._clusters.items()}

    def _keep(self, keeper: LeaseKeeper, stop: StopToken) -> None:
        """Renew the lease every second; return when this process must no longer be active. Raises Cancelled.

        The second is counted from the beginning of the previous renewal, so that a lost call hardly delays the next
        renewal: the lease survives two lost calls in a row. After a failed renewal, the interval is `lease_poll`.
        """
        began = due = monotonic()
        while True:
            stop.sleep(max(0.0, due - monotonic()))
            renewed_at = monotonic()
            due = renewed_at + self._tuning.lease_interval
            try:
                lease = keeper.renew(self._service.queries.own_progress())
            except PyMongoError as error:
                self._outage.note(error)
                due = renewed_at + self._tuning.lease_poll
            else:
                self._outage.end()
                if lease is None:
                    _log.warning(
                        "Another daemon has taken the lease, so this daemon becomes a standby."
                    )
                    return
                stop.check()
                self._service.gate.show_standing(Standing(Role.ACTIVE, lease))
            if self._is_superseded():
                _log.warning(
                    "Another process has begun or taken over the sync, so this daemon waits for the lease again."
                )
                return
            if self._cannot_begin(began):
                _log.warning(
                    "This daemon releases the lease, because a cluster does not answer. Another daemon can become "
                    "active; this daemon waits until both clusters answer."
                )
                return

    def _is_superseded(self) -> bool:
        with suppress(PyMongoError):
            return self._service.is_superseded()
        return False

    def _cannot_begin(self, began: float) -> bool:
        """Return whether this process did not continue the sync within 30 seconds, because a cluster does not answer.

        `began` is the time when this process became active, in seconds of the monotonic clock.
        """
        return (
            monotonic() - began > _LONGEST_BEGINNING
            and self._service.state is State.INITIALIZING
            and bool(self._service.silent_clusters)
        )

    def _release(self, keeper: LeaseKeeper) -> None:
        try:
            keeper.release()
        except PyMongoError as error:
            _log.warning(
                "The lease could not be released. If this process still holds it, another daemon can take it when it "
                "expires.",
                extra={"error": str(error)},
            )


def _refuse_other_home(saved: RunRecord | None) -> None:
    if saved is not None and saved.home != HOME:
        raise OperationError(
            errors.WRONG_CLUSTERS,
            f"The saved sync has the destination {saved.home}, but with --standby, the destination of "
            f"every sync is {HOME}. Start the process without --standby to continue that sync.",
        )


class _Outage:
    """Tracks whether the lease can be read and renewed. The progress shows a warning about a long outage."""

    def __init__(self) -> None:
        self._wait: waits.Wait | None = None

    def note(self, error: PyMongoError) -> None:
        """Begin an outage: log the error, and register a wait, so that the progress warns if the outage is long.

        This is a no-op during an outage.
        """
        if self._wait is None:
            text = failures.text_of(error)
            _log.warning(
                "The lease cannot be read or renewed. The call is retried; if the lease expires, another daemon can "
                "take the lease and become active.",
                extra={"error": text},
            )
            self._wait = waits.begin(f"The lease cannot be read or renewed: {text}", _REMEDY)

    def end(self) -> None:
        if self._wait is not None:
            waits.end(self._wait)
            self._wait = None
