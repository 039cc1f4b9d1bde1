"""Measures change event application: the service and plain pymongo apply the same backlog.

A third candidate only reads the backlog. The service is suspended while the backlog is written. Each round has its own
clusters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass

from bson.timestamp import Timestamp

from syncsvc.sandbox import ReplicaSet
from tests.bench import backlog, probe
from tests.bench.backlog import BACKLOGS
from tests.bench.clusters import check_equal, cluster, servers
from tests.bench.daemon import Daemon, running, wait_for
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.report import Result

_CANDIDATES = ["daemon", "pymongo", "stream"]
# How often to check whether the whole backlog has reached the destination, in seconds.
_POLL_INTERVAL = 0.02


@dataclass(frozen=True)
class Round:
    """The clusters and the daemon of one round."""

    source: ReplicaSet
    destination: ReplicaSet
    # Suspended before the backlog was written.
    daemon: Daemon
    # The cluster time of the source before the backlog.
    start: Timestamp
    # A cluster with the documents before the backlog, for the candidates other than the daemon.
    base: ReplicaSet

    def measure(self, candidate: str) -> Measurement:
        if candidate == "stream":
            return probe.run("stream", self.source, self.base, self.start)
        if candidate == "pymongo":
            measurement = probe.run("pymongo apply", self.source, self.base, self.start)
            check_equal(self.source, self.base)
            return measurement
        measurement = self._resume()
        check_equal(self.source, self.destination)
        return measurement

    def _resume(self) -> Measurement:
        ours = [os.getpid(), *servers(self.source, self.destination)]
        stopwatch = Stopwatch(self.daemon.pid, ours)
        with self.destination.client() as client:
            self.daemon.resume()
            wait_for(lambda: backlog.is_applied(client), _POLL_INTERVAL)
            return stopwatch.read()


def benchmark(name: str, asked: int, rounds: int, say: Callable[[str], None]) -> Result:
    """Measure all candidates `rounds` times with the backlog `name`.

    `asked` is the requested number of events, and `say` prints a line.
    """
    chosen = BACKLOGS[name]
    result = Result(f"apply {name}", "event", chosen.events(asked), "stream", _CANDIDATES)
    for turn in turns(_CANDIDATES, rounds):
        with prepared(name, asked) as prepared_round:
            for candidate in turn:
                measurement = prepared_round.measure(candidate)
                result.add(candidate, measurement)
                say(f"{result.title}: {candidate}: {measurement.seconds:.2f} s")
    return result


def memory(events: int) -> Measurement:
    """Run the service once with a backlog of about `events` events of the kind "mixed", and return its measurement."""
    with prepared("mixed", events) as prepared_round:
        return prepared_round.measure("daemon")


@contextmanager
def prepared(
    name: str,
    asked: int,
    new_cluster: Callable[[str], ReplicaSet] = cluster,
    loading: Callable[[], AbstractContextManager[None]] = nullcontext,
) -> Iterator[Round]:
    """Prepare a round with the backlog `name`; `asked` is the requested number of events.

    `new_cluster` starts a cluster with the given name. The context manager `loading` surrounds each phase that writes
    documents or the backlog.
    """
    chosen = BACKLOGS[name]
    with (
        new_cluster("source") as source,
        new_cluster("destination") as destination,
        new_cluster("base") as base,
        source.client() as writer,
        base.client() as loader,
    ):
        with loading():
            backlog.load_base(writer, chosen)
            backlog.load_base(loader, chosen)
        with running(source, destination) as daemon:
            daemon.start(chosen.verified)
            daemon.wait_until_caught_up()
            daemon.suspend()
            start = writer.admin.command("appendOplogNote", data={})["operationTime"]
            with loading():
                backlog.write(writer, chosen, asked)
            yield Round(source, destination, daemon, start, base)
