"""Measures copy, verification and change event application through proxies that delay every message.

Each table compares the service with a simple program, at several round-trip times (default: `DELAYS`).

One large collection is copied and verified. Other phases are not measured, because their duration does not depend on
the amount of data.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from syncsvc.sandbox import ReplicaSet
from tests.bench import applying, data, probe
from tests.bench.backlog import BACKLOGS
from tests.bench.clusters import check_equal, servers
from tests.bench.daemon import running
from tests.bench.data import DataSet
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.proxied import Proxied
from tests.bench.report import Result
from tests.support.proxy import Network, Rule

# The round-trip times, in milliseconds.
DELAYS = (0, 20, 100)


def documents(
    data_set: DataSet, delays: Sequence[int], rounds: int, say: Callable[[str], None]
) -> Iterator[Result]:
    """Measure copy and verification at each of the round-trip times `delays`, in milliseconds.

    Yield the result of the copy, then the result of the verification. Two candidates take part: a verified sync by the
    service, and plain pymongo.
    """
    names = _names(("daemon", "pymongo"), delays)
    copy, verify = (
        Result(
            f"{title} over a network",
            "document",
            data_set.count,
            f"daemon {delays[0]} ms",
            [*names],
        )
        for title in ("copy", "verify")
    )
    with Network() as network, Proxied("source", network) as source:
        with source.client() as client:
            data.load(client, data_set)
        for turn in turns(list(names), rounds):
            for name in turn:
                candidate, delay = names[name]
                measure = _sync if candidate == "daemon" else _plain
                with Proxied("destination", network) as destination:
                    with _delayed(network, delay):
                        measured = measure(source, destination)
                    check_equal(source, destination)
                for result, measurement in zip((copy, verify), measured):
                    result.add(name, measurement)
                    say(f"{result.title}: {name}: {measurement.seconds:.2f} s")
    yield copy
    yield verify


def events(
    backlog: str, asked: int, delays: Sequence[int], rounds: int, say: Callable[[str], None]
) -> Result:
    """Measure how the service applies the backlog `backlog` at each of the round-trip times `delays`, in milliseconds.

    The other candidate only reads the change stream: a plain loop that applies events would need hours at 100 ms.
    """
    names = _names(("daemon", "stream"), delays)
    count = BACKLOGS[backlog].events(asked)
    limit = f"daemon {delays[0]} ms"
    result = Result(f"apply {backlog} over a network", "event", count, limit, [*names])
    for turn in turns(delays, rounds):
        for delay in turn:
            with Network() as network, _delayed(network, delay) as rule:
                with applying.prepared(
                    backlog,
                    asked,
                    lambda name: Proxied(name, network),
                    lambda: _suspended(rule),
                ) as prepared:
                    for candidate in ("stream", "daemon"):
                        measurement = prepared.measure(candidate)
                        name = _name(candidate, delay)
                        result.add(name, measurement)
                        say(f"{result.title}: {name}: {measurement.seconds:.2f} s")
    return result


def _names(candidates: Sequence[str], delays: Sequence[int]) -> dict[str, tuple[str, int]]:
    return {_name(each, delay): (each, delay) for each in candidates for delay in delays}


def _name(candidate: str, delay: int) -> str:
    return f"{candidate} {delay} ms"


@contextmanager
def _delayed(network: Network, delay: int) -> Iterator[Rule]:
    # Delay all applications: the empty name is part of every name.
    with network.obeying(Rule(application="", latency=delay / 2000)) as rule:
        yield rule


@contextmanager
def _suspended(rule: Rule) -> Iterator[None]:
    """Let the proxy forward messages without the delay of `rule` during the block."""
    latency, rule.latency = rule.latency, 0.0
    try:
        yield
    finally:
        rule.latency = latency


def _sync(source: ReplicaSet, destination: ReplicaSet) -> tuple[Measurement, Measurement]:
    """Return the measurements of the copy and of the first pass of the verification."""
    ours = [os.getpid(), *servers(source, destination)]
    with running(source, destination) as daemon:
        daemon.start(verified=True)
        daemon.wait_until_initialized()
        stopwatch = Stopwatch(daemon.pid, ours)
        daemon.wait_until_copied()
        copied = stopwatch.read()
        daemon.wait_until_comparing()
        stopwatch = Stopwatch(daemon.pid, ours)
        daemon.wait_until_compared()
        return copied, stopwatch.read()


def _plain(source: ReplicaSet, destination: ReplicaSet) -> tuple[Measurement, Measurement]:
    return (
        probe.run("pymongo", source, destination),
        probe.run("pymongo verify", source, destination),
    )
