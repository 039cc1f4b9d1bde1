"""Which collections of a replica set are sharded on the destination, and by which keys, after `sharding`. Pure."""

from __future__ import annotations

from typing import Any

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import Document


def key_of(namespace: Namespace, sharding: dict[str, Any] | None) -> Document | None:
    """The shard key that is asked for of that collection, as `CollectionSpec.shard_key` has it.

    Empty where it is not to be sharded, None where nothing is to be, since the destination is a replica set, or
    the source tells.
    """
    if sharding is None:
        return None
    for entry in sharding["shardingEntries"]:
        if (entry["database"], entry["collection"]) == tuple(namespace):
            fields = entry["shardCollection"]["key"]
            key = {name: direction for each in fields for name, direction in each.items()}
            return {"key": key, "unique": False}
    return {}
