"""Tests how changes of a sharded collection are prepared for a destination on which the collection is not sharded.

Each change gets a query that finds its document by shard key and `_id`. If the event does not say for certain which
document has changed, or the collection has a collation, the document is read again instead.
"""

from __future__ import annotations

from typing import Any

import bson
import pytest

from syncsvc.engine.documents.from_shards import prepared
from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.translate import Outcome

BY_K = ShardKey.of({"key": {"k": 1}, "unique": False})
BY_ID = ShardKey.of({"key": {"_id": "hashed"}, "unique": False})
AGAIN = {"_id": 1}


def outcome(key: dict[str, Any], **fields: Any) -> Outcome:
    return Outcome(bson.encode(key), **fields)


@pytest.mark.parametrize(
    "shard_key, key, fields, query",
    [
        (BY_K, {"k": 2, "_id": 1}, {"document": b"d", "new": True}, {"k": {"$eq": 2}, "_id": 1}),
        (BY_K, {"k": 2, "_id": 1}, {"stages": [b"s"], "sets": {}}, {"k": {"$eq": 2}, "_id": 1}),
        (BY_K, {"k": 2, "_id": 1}, {"deleted": True}, {"k": {"$eq": 2}, "_id": 1}),
        # The key of the event may belong to a shard key that was refined later.
        (
            BY_K,
            {"k": 2, "m": 3, "_id": 1},
            {"deleted": True},
            {"k": {"$eq": 2}, "m": {"$eq": 3}, "_id": 1},
        ),
        (BY_ID, {"_id": 1}, {"deleted": True}, {"_id": 1}),
        (BY_ID, {"_id": 1}, {"document": b"d"}, {"_id": 1}),
        (None, {"_id": 1}, {"deleted": True}, {"_id": 1}),
        (None, {"_id": 1}, {"document": b"d"}, {"_id": 1}),
    ],
)
def test_outcomes_keep_what_they_do(
    shard_key: ShardKey | None, key: dict[str, Any], fields: dict[str, Any], query: dict[str, Any]
) -> None:
    found = prepared(outcome(key, **fields), shard_key, collated=False)
    assert bson.decode(found.key) == query
    assert not found.refetch
    assert all(getattr(found, name) == value for name, value in fields.items())


@pytest.mark.parametrize(
    "shard_key, key, fields, collated",
    [
        (BY_K, {"k": 2, "_id": 1}, {"refetch": True}, False),
        # The document lacks the field, or had another shard key: another document may now have the same `_id`.
        (BY_K, {"_id": 1}, {"deleted": True}, False),
        (BY_K, {"_id": 1}, {"stages": [b"s"], "sets": {}}, False),
        (BY_K, {"_id": 1}, {"document": b"d", "new": True}, False),
        # The event that shards the collection comes later.
        (None, {"k": 2, "_id": 1}, {"deleted": True}, False),
        (None, {"k": 2, "_id": 1}, {"document": b"d"}, False),
        (BY_K, {"k": 2, "_id": 1}, {"deleted": True}, True),
        (BY_K, {"k": 2, "_id": 1}, {"document": b"d"}, True),
    ],
)
def test_documents_without_a_certain_key_are_read_again(
    shard_key: ShardKey | None, key: dict[str, Any], fields: dict[str, Any], collated: bool
) -> None:
    found = prepared(outcome(key, **fields), shard_key, collated)
    assert found == Outcome(bson.encode(AGAIN), refetch=True)
