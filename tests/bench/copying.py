"""Measures the copy: each candidate copies the same source to a new destination, and both are then compared."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial

from syncsvc.sandbox import ReplicaSet
from tests.bench import data, probe, tools
from tests.bench.clusters import check_equal, cluster, servers
from tests.bench.daemon import running
from tests.bench.data import DataSet
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.report import Result

Candidate = Callable[[ReplicaSet, ReplicaSet], Measurement]


def benchmark(data_set: DataSet, rounds: int, say: Callable[[str], None]) -> Result:
    candidates = _candidates(say)
    result = Result(f"copy {data_set.name}", "document", data_set.count, "limit", list(candidates))
    with cluster("source") as source:
        result.bytes = _fill(source, data_set)
        for turn in turns(list(candidates), rounds):
            for name in turn:
                measurement = _copy(candidates[name], source)
                result.add(name, measurement)
                say(f"{result.title}: {name}: {measurement.seconds:.2f} s")
    return result


def memory(documents: int) -> Measurement:
    """Run the service once to copy `documents` documents of the data set "medium", and return its measurement."""
    with cluster("source") as source:
        _fill(source, data.data_set("medium", documents))
        return _copy(_daemon, source)


def _candidates(say: Callable[[str], None]) -> dict[str, Candidate]:
    candidates: dict[str, Candidate] = {
        "daemon": _daemon,
        "limit": partial(probe.run, "limit"),
        "pymongo": partial(probe.run, "pymongo"),
    }
    if tools.are_installed():
        candidates["dump | restore"] = tools.dump_and_restore
    else:
        say("mongodump | mongorestore: left out, since they are not both on PATH")
    return candidates


def _fill(source: ReplicaSet, data_set: DataSet) -> int:
    """Load the data set, and return its size in bytes."""
    with source.client() as client:
        data.load(client, data_set)
        return int(client[data.DATABASE].command("dbStats")["dataSize"])


def _copy(candidate: Candidate, source: ReplicaSet) -> Measurement:
    with cluster("destination") as destination:
        measurement = candidate(source, destination)
        check_equal(source, destination)
        return measurement


def _daemon(source: ReplicaSet, destination: ReplicaSet) -> Measurement:
    """Measure the service from the start request to the end of the copy phase."""
    with running(source, destination) as daemon:
        stopwatch = Stopwatch(daemon.pid, [os.getpid(), *servers(source, destination)])
        daemon.start()
        daemon.wait_until_copied()
        return stopwatch.read()
