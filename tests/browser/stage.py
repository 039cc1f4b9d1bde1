"""Serves the real app of the sync service with a sync state that the test chooses, to show rare states.

Subclasses of `Service` and `ClusterQueries` answer with the chosen state instead of the state of a running sync.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from math import sin
from time import monotonic, time
from typing import Any

from flask import Flask
from pymongo import MongoClient
from waitress.server import create_server

from syncsvc.app import create_app
from syncsvc.cluster_queries import ClusterQueries
from syncsvc.figures.history import Sample
from syncsvc.figures.progress import Ping, ProgressSnapshot
from syncsvc.figures.throttling import Throttled, Throttling
from syncsvc.limits import Limit, Limits
from syncsvc.reports.report import Subject, report
from syncsvc.reports.sync import Sync
from syncsvc.saved.evidence import Evidence
from syncsvc.saved.journal import Site
from syncsvc.service import Service
from syncsvc.state import State
from syncsvc.tuning import LOAD_LEVELS
from verifier.cluster.cluster import Cluster
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.runtime.observer import ignore
from verifier.runtime.tasks import StopToken

PINGS = {"cluster0": Ping(0.0012), "cluster1": Ping(0.0034)}


class StagedQueries(ClusterQueries):
    """Queries whose report is made from the chosen state and needs no cluster."""

    def report(self) -> dict[str, Any]:
        clusters = self._run.process.clusters
        sites = tuple(Site.of(each.name, each.facts) for each in clusters.values())
        evidence, limits = Evidence(views=("shop0.open_orders",)), Limits()
        return report(
            Subject(self._take(), evidence, sites, limits, "0.1.0", "sync-a.example", time())
        )


class StagedService(Service):
    """A service whose answers show `staged`, the sync state that a test sets."""

    staged = Sync(State.IDLE, None, ProgressSnapshot(pings=PINGS), can_commit=False)

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.cluster_queries = StagedQueries(
            self._run, self.gate, self.sync, self.keep_journal, Limits, self._stop
        )

    def sync(self) -> Sync:
        return replace(self.staged, now=monotonic())

    def throttle(self) -> None:
        """Make the answers show that the limit of copied bytes slows the sync down."""
        throttled = Throttled(Limit.COPY_BYTES, "The limit is reached.", datetime.now(UTC))
        self._progress.set(throttling=Throttling(throttled=throttled))

    def fill_history(self, points: int = 180, clean: bool = False) -> None:
        """Fill the history with wave-shaped figures of the last minutes, as if this process had run that long.

        There is a point every five seconds. If `clean`, the last verification without differences was 30 seconds ago.
        """
        history = self.queries._history
        end, copied, read, applied, waited = time(), 0.0, 0.0, 0.0, 0.0
        for number in range(points + 1):
            copied += 5 * (60e6 + 25e6 * sin(number / 9))
            read += 5 * (900 + 500 * sin(number / 11))
            applied += 5 * (900 + 500 * sin((number - 4) / 11))
            lag = max(0.0, round(6 + 6 * sin(number / 7)))
            levels = (lag, 1.2 + 0.4 * sin(number / 3), 3.4 + 1.2 * sin(number / 5))
            moment = end - 5 * (points - number)
            waited += 5 * max(0.0, 2 * sin(number / 13))
            counts = (copied, copied / 800, read, applied, waited, 0.0, 0.0)
            sample = Sample(moment, moment, counts, levels)
            history.record(sample)
        history.last_clean = end - 30 if clean else None


@contextmanager
def on_stage(
    change: Callable[[Flask], None] = lambda app: None,
) -> Iterator[tuple[StagedService, str]]:
    """Apply `change` to the app, serve it on a free port of this machine, and yield its service and its URL."""
    service = StagedService("coordinator", LOAD_LEVELS[1], _nothing, ignore, StopToken())
    with MongoClient[dict[str, Any]]("mongodb://nowhere", connect=False) as client:
        names = {"cluster0": "source.example", "cluster1": "destination.example"}
        service.connect({name: _cluster(name, host, client) for name, host in names.items()})
        service.initialize(None)
        app, sockets = create_app(service), dict[int, Any]()
        change(app)
        server: Any = create_server(app, sockets, host="127.0.0.1", port=0, threads=8)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield service, f"http://127.0.0.1:{server.effective_port}/"
        finally:
            server.close()
            thread.join()


def _cluster(name: str, host: str, client: MongoClient[dict[str, Any]]) -> Cluster:
    facts = ClusterFacts(Topology.REPLICA_SET, f"{host}:27017", (6, 0, 5), name, False, None)
    return Cluster(name, client, facts)


def _nothing(name: str, work: object) -> None:
    """Start no thread, because a staged service has no work to do."""
