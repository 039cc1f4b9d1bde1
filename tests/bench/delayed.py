"""The copy of one large collection through proxies that delay every message, by the service and by plain pymongo.

For the service, only the copy phase is measured: preflight and listing take the same time for a small collection.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from tests.bench import data, probe
from tests.bench.clusters import CACHE_GB, check_equal, servers
from tests.bench.daemon import running
from tests.bench.data import DataSet
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.report import Result
from tests.support.proxy import Network, Proxy, Rule

# The round-trip times, in milliseconds.
DELAYS = (0, 20, 100)


class _Proxied(ReplicaSet):
    """A replica set of one member that clients reach only through a proxy."""

    def __init__(self, name: str, network: Network) -> None:
        super().__init__(name=name, cache_size_gb=CACHE_GB)
        self._network = network
        self._proxy: Proxy | None = None

    def _advertised(self, member: Mongod) -> str:
        self._proxy = self._proxy or self._network.proxy(member.port)
        return self._proxy.address


def benchmark(data_set: DataSet, rounds: int, say: Callable[[str], None]) -> Iterator[Result]:
    """Measure all candidates at each of the round-trip times `DELAYS`, and yield a result for each."""
    candidates = {"daemon": _daemon, "pymongo": partial(probe.run, "pymongo")}
    with Network() as network, _Proxied("source", network) as source:
        with source.client() as client:
            data.load(client, data_set)
        for delay in DELAYS:
            title = f"copy at {delay} ms"
            result = Result(title, "document", data_set.count, "pymongo", list(candidates))
            for turn in turns(list(candidates), rounds):
                for name in turn:
                    with _destination(network, source) as destination, _delayed(network, delay):
                        result.add(name, candidates[name](source, destination))
                    say(f"{title}: {name}: {result.runs[name][-1].seconds:.2f} s")
            yield result


@contextmanager
def _destination(network: Network, source: ReplicaSet) -> Iterator[ReplicaSet]:
    """Start an empty destination for the block; after the block, raise RuntimeError if it differs from the source."""
    with _Proxied("destination", network) as destination:
        yield destination
        check_equal(source, destination)


@contextmanager
def _delayed(network: Network, delay: int) -> Iterator[None]:
    # Delay all applications: the empty name is part of every name.
    with network.obeying(Rule(application="", latency=delay / 2000)):
        yield


def _daemon(source: ReplicaSet, destination: ReplicaSet) -> Measurement:
    with running(source, destination) as daemon:
        daemon.start()
        daemon.wait_until(
            lambda progress: progress["info"] != "initializing collections and indexes"
        )
        stopwatch = Stopwatch(daemon.pid, [os.getpid(), *servers(source, destination)])
        daemon.wait_until_copied()
        return stopwatch.read()
