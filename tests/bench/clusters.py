"""The clusters of the benchmarks: servers whose caches are large enough for all data.

When changed data fills a twentieth of the cache, a server begins to write it to disk, which doubles the cost of small
writes. The default cache size is half of the machine's memory, so the results would depend on the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

from syncsvc.sandbox import ReplicaSet
from tests.bench import plain
from tests.bench.data import fingerprint

if TYPE_CHECKING:
    # Do not import this module in the candidates: it imports many packages, and the memory of the candidates is
    # measured.
    from tests.support.sharded.cluster import ShardedCluster

CACHE_GB = 4.0

Cluster: TypeAlias = "ReplicaSet | ShardedCluster"


def cluster(name: str) -> ReplicaSet:
    """Return a replica set of one server, which is not started yet."""
    return ReplicaSet(name=name, cache_size_gb=CACHE_GB)


def servers(*clusters: Cluster) -> list[int]:
    """Return the process IDs of all running servers and routers of the given clusters."""
    return [pid for each in clusters for pid in _pids(each) if pid is not None]


def check_equal(source: Cluster, destination: Cluster) -> None:
    """Raise RuntimeError if the documents of the clusters differ: a candidate that omits documents must not win."""
    if not (isinstance(source, ReplicaSet) and isinstance(destination, ReplicaSet)):
        # A router cannot hash documents.
        plain.verify(source.uri, destination.uri)
        return
    with source.client() as expected, destination.client() as found:
        if fingerprint(expected) != fingerprint(found):
            raise RuntimeError("the clusters differ after the run")


def _pids(cluster: Cluster) -> Iterator[int | None]:
    if isinstance(cluster, ReplicaSet):
        yield from (member.pid for member in cluster.members)
        return
    for part in (cluster.config, *cluster.shards):
        yield from _pids(part)
    yield from (router.pid for router in cluster.routers)
