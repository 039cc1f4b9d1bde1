"""The clusters of the benchmarks: of one server each, with a cache that holds all data.

A server begins to write changed data back when it fills a twentieth of its cache, and that doubles what a small write
costs it. By default the cache is half of the machine's memory.
"""

from __future__ import annotations

from syncsvc.sandbox import ReplicaSet
from tests.bench.data import fingerprint

CACHE_GB = 4.0


def cluster(name: str) -> ReplicaSet:
    return ReplicaSet(name=name, cache_size_gb=CACHE_GB)


def servers(*clusters: ReplicaSet) -> list[int]:
    """The process ids of their servers."""
    pids = (member.pid for each in clusters for member in each.members)
    return [pid for pid in pids if pid is not None]


def check_equal(source: ReplicaSet, destination: ReplicaSet) -> None:
    """A candidate that left something out must not win."""
    with source.client() as expected, destination.client() as found:
        if fingerprint(expected) != fingerprint(found):
            raise RuntimeError("the clusters differ after the run")
