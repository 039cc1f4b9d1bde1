"""Documents of sharded collections are those of the source, whatever happens to their shard keys, and whenever."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from bson import Binary, Decimal128, Int64, MinKey, ObjectId, Regex, Timestamp
from pymongo.collection import Collection

from syncsvc.engine.observe import Point
from tests.support.daemon import Daemon
from tests.support.pair import SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.phases import When

Key = dict[str, Any]

# Longer than any update: of a small document the server logs a replacement.
PAD = "p" * 1000
# Below and above where chunks are cut.
LOW, MIDDLE, HIGH = 1, 50, 100
VALUES: tuple[Any, ...] = (
    *(LOW, HIGH, 2.5, Int64(3), Decimal128("70"), "s", "", True, None, ObjectId(), Binary(b"b")),
    *(datetime(2020, 1, 1, tzinfo=UTC), Timestamp(1, 1), MinKey()),
    *({"x": 1}, {"a.b": 1, "": 2}, {}),
)
# Values with which servers do not find their own document when it is to move.
STAYING: tuple[Any, ...] = (Regex("x", "i"), {"$x": 1})

pytestmark = across(TO_SHARDED, SHARDED)


class Keyed:
    """A sharded collection whose documents are told by a value of their shard key; MISSING is one without it."""

    MISSING = object()

    def __init__(self, name: str, key: Key) -> None:
        self.name = name
        self.key = key

    def fields(self, value: Any) -> dict[str, Any]:
        """The fields of a document whose shard key has that value."""
        fields: dict[str, Any] = {}
        for path in [] if value is self.MISSING else self.key:
            *parents, last = path.split(".")
            at = fields
            for parent in parents:
                at = at.setdefault(parent, {})
            at[last] = value
        return fields

    def document(self, identity: Any, value: Any, **more: Any) -> dict[str, Any]:
        return {"_id": identity, "pad": PAD, **self.fields(value), **more}

    def query(self, identity: Any, value: Any) -> dict[str, Any]:
        """What a router wants to know of a document whose shard key is changed."""
        known = None if value is self.MISSING else value
        return {"_id": identity, **{path: {"$eq": known} for path in self.key}}

    def change(self, value: Any) -> dict[str, Any]:
        if value is self.MISSING:
            return {"$unset": dict.fromkeys(self.key, 1)}
        return {"$set": dict.fromkeys(self.key, value)}


COLLECTIONS = (
    Keyed("ranged", {"k": 1}),
    Keyed("nested", {"a.b": 1}),
    Keyed("compound", {"k": 1, "a.b": 1}),
    Keyed("hashed", {"k": "hashed"}),
    Keyed("by_id", {"_id": "hashed"}),
)
WITH_VALUES = COLLECTIONS[:-1]


def all_values() -> Iterator[tuple[int, Any]]:
    return enumerate((*VALUES, Keyed.MISSING, *STAYING))


def fill(pair: Pair) -> None:
    for each in COLLECTIONS:
        collection = pair.source.client.d[each.name]
        collection.create_index([*each.key.items()])
        pair.shard(f"d.{each.name}", each.key)
    if pair.source.shards:
        spread(pair.source)
    for each in WITH_VALUES:
        collection = pair.source.client.d[each.name]
        for number, value in all_values():
            for kind in ("kept", "moved", "replaced", "deleted", "again", "written"):
                collection.insert_one(each.document(f"{kind} {number}", value))
    pair.source.client.d.by_id.insert_many({"_id": number, "pad": PAD} for number in range(30))


def spread(side: Side) -> None:
    """Let each shard have a part of every collection."""
    admin, config = side.client.admin, side.client.config
    for each in COLLECTIONS:
        name = f"d.{each.name}"
        (metadata,) = config.collections.find({"_id": name})
        owners = {row["shard"] for row in config.chunks.find({"uuid": metadata["uuid"]})}
        if len(owners) == 1:
            (other,) = {shard.name for shard in side.shards} - owners
            lowest = {path: MIDDLE if not n else MinKey() for n, path in enumerate(each.key)}
            admin.command("moveRange", name, min=lowest, toShard=other)


def churn(collection: Collection[Any], each: Keyed) -> None:
    """Change shard keys in every way."""
    for number, value in all_values():
        other = value if value in STAYING else VALUES[number - 3]

        def update(kind: str, before: Any, change: Any, number: int = number) -> None:
            query = each.query(f"{kind} {number}", before)
            assert collection.update_one(query, change).matched_count

        collection.insert_one(each.document(f"new {number}", value))
        update("moved", value, each.change(other))
        update("written", value, {"$set": {"n": 1}, "$inc": {"c": 1}})
        update("written", value, {"$push": {"list": number}})
        # Back and forth.
        query = each.query(f"replaced {number}", value)
        collection.replace_one(query, each.document(f"replaced {number}", other, n=1))
        update("replaced", other, each.change(value))
        update("replaced", value, {"$set": {"n": 2}})
        collection.delete_one({"_id": f"deleted {number}"})
        collection.delete_one({"_id": f"again {number}"})
        collection.insert_one(each.document(f"again {number}", other, again=True))
        update("again", other, [{"$set": {"again": "$_id"}}])


def more_churn(collection: Collection[Any]) -> None:
    """What needs no shard key of its own."""
    literal = {"$literal": {"_id": "zero", "k": HIGH, "a": {"b": 1}, "t": Timestamp(0, 0)}}
    collection.insert_one({"_id": "zero", "k": HIGH, "a": {"b": 1}})
    collection.update_one({"_id": "zero"}, [{"$replaceWith": literal}])
    odd = {"field": {"$literal": "$a.b"}, "input": "$$ROOT", "value": {"$literal": "odd"}}
    collection.insert_one({"_id": "odd", "k": 1, "a": {"b": 1}, "$x": 1, "c.d": 1, "pad": PAD})
    collection.update_one({"_id": "odd"}, [{"$replaceWith": {"$setField": odd}}])
    collection.insert_one({"_id": "many", "k": HIGH, "a": {"b": HIGH}, "pad": PAD})
    for number in range(150):
        collection.update_one({"_id": "many"}, {"$set": {f"f{number % 7}": number}})


def write(pair: Pair) -> None:
    database = pair.source.client.d
    for each in WITH_VALUES:
        churn(database[each.name], each)
        more_churn(database[each.name])
    for number in range(20):
        database.by_id.update_one({"_id": number}, {"$set": {"n": number}})
        database.by_id.replace_one({"_id": number + 3}, {"replaced": number})
        database.by_id.delete_one({"_id": number + 10})
        database.by_id.update_one({"_id": number + 100}, {"$set": {"made": 1}}, upsert=True)


def write_in(when: When, pair: Pair, daemon: Daemon) -> None:
    """Start a sync, let the destination's shards share its collections, and write in that phase."""
    if when is When.BEFORE:
        write(pair)
    with daemon.held_at(Point.BATCH_WRITTEN):
        with daemon.held_at(Point.LISTED):
            daemon.start()
            daemon.wait_until_reached(Point.LISTED)
            spread(pair.destination)
            if when is When.LISTED:
                write(pair)
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        if when is When.COPY:
            write(pair)
    daemon.wait_until_committable()
    if when is When.APPLY:
        write(pair)


@pytest.mark.parametrize("when", [When.BEFORE, When.LISTED, When.COPY, When.APPLY])
def test_shard_keys_change_in_each_phase(pair: Pair, daemon: Daemon, when: When) -> None:
    fill(pair)
    write_in(when, pair, daemon)
    daemon.commit()
    pair.assert_equal()
    assert all(each.client().d.hashed.count_documents({}) for each in pair.destination.shards)
