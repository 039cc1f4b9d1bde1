"""Shards collections for the model test, and recognizes operations that it leaves out if a cluster is sharded."""

from __future__ import annotations

from typing import Any, NamedTuple

from bson import MaxKey

from tests.model import values
from tests.model.operation import Document, Operation
from tests.support.pair import Pair


class _Sharded(NamedTuple):
    """A collection with its shard key.

    The documents from the shard key `middle` on are moved to the second shard. If `middle` is None, all documents stay
    on one shard.
    """

    name: str
    key: Document
    middle: Document | None = None


# Some shard keys never change; others are changed, removed and set again by updates.
_ON_DESTINATION = (
    _Sharded("m0.a", {"_id": "hashed"}),
    _Sharded("m0.b", {"n": 1}),
    _Sharded("m0.c", {"sub.y.z": 1, "n": 1}),
    _Sharded("m1.a", {"n": "hashed"}),
    _Sharded("m1.b", {"_id": 1}),
)
# An `_id` that is used again stays on the same shard: a source with two documents with the same `_id` cannot be synced.
_ON_SOURCE = (
    _Sharded("m0.a", {"_id": "hashed"}),
    _Sharded("m0.b", {"_id": 1, "n": 1}, {"_id": 4, "n": values.FIRST}),
    _Sharded("m0.k", {"n": 1}, {"n": 25}),
    _Sharded("m1.b", {"_id": 1}, {"_id": "a"}),
    _Sharded("m1.l", {"n": 1, "s": 1}, {"n": 10, "s": values.FIRST}),
)


def shard(pair: Pair) -> None:
    """Shard some collections of the source at once, and spread their documents over two shards.

    If only the destination is sharded, nothing is sharded yet: the start of the sync will request the shard keys.
    """
    for each in _ON_SOURCE if pair.source.shards else _ON_DESTINATION:
        pair.shard(each.name, each.key)
        if pair.source.shards and each.middle:
            _move(pair, each.name, each.middle)


def _move(pair: Pair, name: str, middle: Document) -> None:
    client = pair.source.client
    (listed,) = client.config.collections.find({"_id": name})
    owner = next(each["shard"] for each in client.config.chunks.find({"uuid": listed["uuid"]}))
    other = next(each.name for each in pair.source.shards if each.name != owner)
    client.admin.command("moveRange", name, min=middle, toShard=other)


def is_untargetable(operation: Operation) -> bool:
    """Return whether the operation names the `_id` MaxKey: if `_id` is the shard key, no shard accepts the document."""
    return any(map(_names_greatest_id, operation.commands))


def _names_greatest_id(value: Any) -> bool:
    if isinstance(value, dict):
        return value.get("_id") == MaxKey() or any(map(_names_greatest_id, value.values()))
    return isinstance(value, list) and any(map(_names_greatest_id, value))


def unfit(operation: Operation) -> bool:
    """Return whether the model test leaves out the operation if a cluster is sharded.

    Such an operation renames a collection to another database, creates a clustered collection, or has an unfit index
    (see `_is_unfit_index`).
    """
    return any(map(_is_unfit, operation.commands))


def _is_unfit(command: Document) -> bool:
    if "renameCollection" in command:
        names = command["renameCollection"], command["to"]
        return len({name.partition(".")[0] for name in names}) > 1
    if "create" in command:
        return command["create"] in values.PLAIN and "clusteredIndex" in command
    changed = [*command.get("indexes", ()), command.get("index")]
    return any(isinstance(each, dict) and _is_unfit_index(each) for each in changed)


def _is_unfit_index(index: Document) -> bool:
    """Return whether the index is unique or a TTL index. With sharded clusters, the model test has none of them.

    A unique index would have to begin with the shard key. WARNING: a sharded cluster of MongoDB 6.0 crashes if
    `expireAfterSeconds` is set on a wildcard index.
    """
    return any(index.get(each) for each in ("unique", "prepareUnique", "expireAfterSeconds"))
