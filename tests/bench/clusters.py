"""The clusters of the benchmarks: one server each, with a cache that is large enough for all data.

A server begins to write back dirty data when that fills a twentieth of its cache, which doubles the cost of small
writes. The default cache size is half of the machine's memory.
"""

from __future__ import annotations

from syncsvc.sandbox import ReplicaSet
from tests.bench.data import fingerprint

CACHE_GB = 4.0


def cluster(name: str) -> ReplicaSet:
    return ReplicaSet(name=name, cache_size_gb=CACHE_GB)


def servers(*clusters: ReplicaSet) -> list[int]:
    """Return the process IDs of the servers of these clusters."""
    pids = (member.pid for each in clusters for member in each.members)
    return [pid for pid in pids if pid is not None]


def check_equal(source: ReplicaSet, destination: ReplicaSet) -> None:
    """Raise RuntimeError if the clusters differ, because a candidate that omits documents must not win."""
    with source.client() as expected, destination.client() as found:
        if fingerprint(expected) != fingerprint(found):
            raise RuntimeError("the clusters differ after the run")
