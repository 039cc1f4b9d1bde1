"""Variants of a sync: to a sharded cluster, and between sharded clusters, compared with one between replica sets.

The sharded clusters have two shards and two routers, and each collection is sharded by its hashed `_id`. Unless there
is a real mongos (in SYNCSVC_MONGOS or on PATH), the routers are the stand-in of the tests, which makes the first shard
do the work of mongos. Then that shard is the bottleneck, and the results are lower limits.
"""

from __future__ import annotations

from typing import Any

from syncsvc.sandbox.replica_set import Client
from tests.bench.clusters import CACHE_GB
from tests.bench.data import DATABASE, DataSet
from tests.bench.variants import Variant
from tests.support.sharded.cluster import ShardedCluster, find_mongos

_KEY = {"_id": "hashed"}


def variants() -> list[Variant]:
    return [
        Variant("replica sets"),
        Variant("to shards", destination=sharded_cluster, options=_options),
        Variant(
            "between shards", source=sharded_cluster, destination=sharded_cluster, prepare=_shard
        ),
    ]


def sharded_cluster(name: str) -> ShardedCluster:
    """Return a cluster of two shards and two routers, which is not started yet. Each shard is one server."""
    return ShardedCluster(name=name, cache_size_gb=CACHE_GB)


def routers() -> str:
    """Return the kind of the routers for the title of a result: "mongos", or "the stand-in for mongos"."""
    return "mongos" if find_mongos() else "the stand-in for mongos"


def _shard(client: Client, data_set: DataSet) -> None:
    for name in data_set.names:
        client.admin.command("shardCollection", f"{DATABASE}.{name}", key=_KEY)


def _options(data_set: DataSet) -> dict[str, Any]:
    """Return the start option that shards the collections on the destination."""
    key = [{name: kind} for name, kind in _KEY.items()]
    entries = [
        {"database": DATABASE, "collection": name, "shardCollection": {"key": key}}
        for name in data_set.names
    ]
    return {"sharding": {"createSupportingIndexes": True, "shardingEntries": entries}}
