"""The clusters of the benchmarks: replica sets of one server each, whose cache is large enough for all data.

When changed data fills a twentieth of the cache, a server begins to write it to disk, which doubles the cost of small
writes. With the default cache size, half of the machine's memory, that would depend on the machine.
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
