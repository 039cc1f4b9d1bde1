"""Measures the event spool: a backlog is applied from the oplog, or first spooled in a pause and then applied.

The service is suspended while the backlog is written. Each run has its own clusters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from syncsvc.sandbox import ReplicaSet
from tests.bench import backlog
from tests.bench.backlog import BACKLOGS, Backlog
from tests.bench.clusters import check_equal, cluster, servers
from tests.bench.daemon import Daemon, running, wait_for
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.report import Result

_FROM_OPLOG, _SPOOLED, _FROM_SPOOL = "apply from the oplog", "spool", "apply from the spool"
_POLL_INTERVAL = 0.02
# Only this share of the events is measured, because the last ones wait up to half a minute for their row to be full.
_MEASURED = 0.9


def benchmark(name: str, asked: int, rounds: int, say: Callable[[str], None]) -> Result:
    """Measure the spooling of a backlog, its application from the spool, and its application from the oplog.

    `name` is the name of the backlog, and `asked` is its requested number of events.
    """
    chosen = BACKLOGS[name]
    candidates = [_FROM_OPLOG, _SPOOLED, _FROM_SPOOL]
    result = Result(f"spool {name}", "event", chosen.events(asked), _FROM_OPLOG, candidates)
    for turn in turns(["never", "always"], rounds):
        for option in turn:
            for candidate, measurement in _run(chosen, asked, option):
                result.add(candidate, measurement)
                say(f"{result.title}: {candidate}: {measurement.seconds:.2f} s")
    return result


def _run(chosen: Backlog, asked: int, option: str) -> Iterator[tuple[str, Measurement]]:
    with _paused(chosen, asked, option) as (source, destination, daemon):
        ours = [os.getpid(), *servers(source, destination)]
        if option == "always":
            yield _SPOOLED, _spool(daemon, ours, chosen.events(asked))
        else:
            daemon.resume()
        stopwatch = Stopwatch(daemon.pid, ours)
        with destination.client() as client:
            daemon.resume_sync()
            wait_for(lambda: backlog.is_applied(client), _POLL_INTERVAL)
            applied = stopwatch.read()
        check_equal(source, destination)
        yield _FROM_SPOOL if option == "always" else _FROM_OPLOG, applied


def _spool(daemon: Daemon, ours: list[int], events: int) -> Measurement:
    """Measure the spooling of the first 90 % of the events, wait until all are spooled, and return the measurement.

    The measurement is scaled to all events.
    """

    def spooled(share: float) -> Callable[[], bool]:
        return lambda: daemon.metric("mongosync_events_spooled_total") >= share * events

    stopwatch = Stopwatch(daemon.pid, ours)
    daemon.resume()
    wait_for(spooled(_MEASURED), _POLL_INTERVAL)
    found = stopwatch.read()
    scale = events / daemon.metric("mongosync_events_spooled_total")
    wait_for(spooled(1.0), _POLL_INTERVAL)
    return replace(found, seconds=found.seconds * scale, cpu_seconds=found.cpu_seconds * scale)


@contextmanager
def _paused(
    chosen: Backlog, asked: int, option: str
) -> Iterator[tuple[ReplicaSet, ReplicaSet, Daemon]]:
    """Yield a source, a destination, and a suspended daemon whose sync is paused and has not read the backlog yet.

    `asked` is the requested number of events in the backlog `chosen`, and `option` is the start option `eventSpool`.
    """
    with (
        cluster("source") as source,
        cluster("destination") as destination,
        source.client() as writer,
    ):
        backlog.load_base(writer, chosen)
        with running(source, destination) as daemon:
            daemon.start(chosen.verified, eventSpool=option)
            daemon.wait_until_caught_up()
            daemon.pause_sync()
            daemon.suspend()
            backlog.write(writer, chosen, asked)
            yield source, destination, daemon
