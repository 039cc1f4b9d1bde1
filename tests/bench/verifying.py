"""Measures verification of two equal clusters by the verifier, by its comparison code alone, and by hashes."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack

from syncsvc.sandbox import ReplicaSet
from tests.bench import data, probe
from tests.bench.clusters import cluster
from tests.bench.data import DATABASE, DataSet
from tests.bench.measure import Measurement, turns
from tests.bench.report import Result

_CANDIDATES = ["verifier", "comparison", "dbHash"]


def benchmark(data_set: DataSet, rounds: int, say: Callable[[str], None]) -> Result:
    result = Result(f"verify {data_set.name}", "document", data_set.count, "dbHash", _CANDIDATES)
    with ExitStack() as clusters:
        source, destination = _filled(clusters, data_set)
        with source.client() as client:
            result.bytes = int(client[DATABASE].command("dbStats")["dataSize"])
        for turn in turns(_CANDIDATES, rounds):
            for name in turn:
                measurement = probe.run(name, source, destination)
                result.add(name, measurement)
                say(f"{result.title}: {name}: {measurement.seconds:.2f} s")
    return result


def memory(documents: int) -> Measurement:
    """Run the verifier once on `documents` documents of the data set "medium", and return its measurement."""
    with ExitStack() as clusters:
        return probe.run("verifier", *_filled(clusters, data.data_set("medium", documents)))


def _filled(clusters: ExitStack, data_set: DataSet) -> tuple[ReplicaSet, ReplicaSet]:
    source, destination = (
        clusters.enter_context(cluster(name)) for name in ("source", "destination")
    )
    for each in (source, destination):
        with each.client() as client:
            data.load(client, data_set)
    return source, destination
