"""Change event application: the same backlog is read only, applied by plain pymongo, and applied by the service.

The service is suspended while the backlog is written. Each round has its own clusters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from bson.timestamp import Timestamp

from syncsvc.sandbox import ReplicaSet
from tests.bench import backlog, probe
from tests.bench.backlog import BACKLOGS, Backlog
from tests.bench.clusters import check_equal, cluster, servers
from tests.bench.daemon import Daemon, running, wait_for
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.report import Result

_CANDIDATES = ["daemon", "pymongo", "stream"]
# How often to check whether the whole backlog has reached the destination, in seconds.
_POLL_INTERVAL = 0.02


@dataclass(frozen=True)
class Round:
    """The clusters of one round.

    `source` has a backlog from `start` on, which the suspended `daemon` has not read yet. The other candidates use
    `base`, which has the documents without the backlog.
    """

    source: ReplicaSet
    destination: ReplicaSet
    daemon: Daemon
    start: Timestamp
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
    """Measure all candidates with the backlog of this name. `asked` is the approximate number of events."""
    chosen = BACKLOGS[name]
    result = Result(f"apply {name}", "event", chosen.events(asked), "stream", _CANDIDATES)
    for turn in turns(_CANDIDATES, rounds):
        with _prepared(chosen, asked) as prepared:
            for candidate in turn:
                measurement = prepared.measure(candidate)
                result.add(candidate, measurement)
                say(f"{result.title}: {candidate}: {measurement.seconds:.2f} s")
    return result


def memory(events: int) -> Measurement:
    """Measure the service once while it applies this many events of the backlog "mixed"."""
    with _prepared(BACKLOGS["mixed"], events) as prepared:
        return prepared.measure("daemon")


@contextmanager
def _prepared(chosen: Backlog, asked: int) -> Iterator[Round]:
    with (
        cluster("source") as source,
        cluster("destination") as destination,
        cluster("base") as base,
        source.client() as writer,
        base.client() as loader,
    ):
        backlog.load_base(writer, chosen)
        backlog.load_base(loader, chosen)
        with running(source, destination) as daemon:
            daemon.start(chosen.verified)
            daemon.wait_until_caught_up()
            daemon.suspend()
            start = writer.admin.command("appendOplogNote", data={})["operationTime"]
            backlog.write(writer, chosen, asked)
            yield Round(source, destination, daemon, start, base)
