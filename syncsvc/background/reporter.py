"""Pings both clusters and saves the journal of the sync every few seconds; logs an active sync every half minute.

Runs in one thread, from the time when the process knows its clusters until the process ends. No other thread waits for
it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from time import monotonic, perf_counter

import pymongo
from pymongo.errors import PyMongoError

from syncsvc.figures.progress import Ping, Progress
from syncsvc.reports.log_lines import lines
from syncsvc.reports.sync import Sync
from syncsvc.tuning import Tuning
from verifier.cluster.cluster import Cluster
from verifier.cluster.connect import Client
from verifier.runtime.tasks import StopToken

_log = logging.getLogger(__name__)

# How long a cluster may take to answer a ping, in seconds.
_PATIENCE = 5.0


class Reporter:
    """Pings the clusters, and logs the progress of the sync while it is active.

    `take` returns a snapshot of the sync. `after_pings` is called after each round of pings; it saves the journal.
    """

    def __init__(
        self,
        clusters: Mapping[str, Cluster],
        progress: Progress,
        take: Callable[[], Sync],
        after_pings: Callable[[], None],
        tuning: Tuning,
        stop: StopToken,
    ) -> None:
        self._clusters = clusters
        self._progress = progress
        self._take = take
        self._after_pings = after_pings
        self._tuning = tuning
        self._stop = stop

    def run(self) -> None:
        """Ping the clusters, save the journal and log the progress, until stopped; then raise `Cancelled`."""
        before = self._take()
        interval = self._tuning.report_interval
        due = monotonic() + interval
        while True:
            self._ping()
            self._after_pings()
            self._stop.sleep(min(self._tuning.ping_interval, interval))
            if monotonic() >= due:
                now = self._take()
                self._log_progress(before, now)
                before, due = now, monotonic() + interval

    def _log_progress(self, before: Sync, now: Sync) -> None:
        for line in lines(before, now, self._progress.stopwatch.take()):
            _log.log(line.level, line.message, extra=dict(line.fields))

    def _ping(self) -> None:
        for name, cluster in self._clusters.items():
            self._stop.check()
            self._progress.set_ping(name, _ping(cluster.client))


def _ping(client: Client) -> Ping:
    began = perf_counter()
    try:
        with pymongo.timeout(_PATIENCE):
            client.admin.command("ping")
    except PyMongoError:
        return Ping(None)
    return Ping(perf_counter() - began)
