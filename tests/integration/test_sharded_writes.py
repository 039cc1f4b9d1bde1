"""Tests that documents of sharded collections are synced exactly in several phases, even if their shard keys change.

`make test` runs only the tests of changed shard keys, collated collections, and a shard key within the `_id`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import Binary, Decimal128, Int64, MinKey, ObjectId, Regex, Timestamp
from pymongo import UpdateOne
from pymongo.collection import Collection

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.phases import When, writes_in
from tests.support.waiting import wait_for

Key = dict[str, Any]

# Larger than any update: the server logs an update of a small document as a replacement.
PAD = "p" * 1000
# Values below and above the boundary of the chunks.
LOW, MIDDLE, HIGH = 1, 50, 100
VALUES: tuple[Any, ...] = (
    *(LOW, HIGH, 2.5, Int64(3), Decimal128("70"), "s", "", True, None, ObjectId(), Binary(b"b")),
    *(datetime(2020, 1, 1, tzinfo=UTC), Timestamp(1, 1), MinKey()),
    *({"x": 1}, {"a.b": 1, "": 2}, {}),
)
# Values with which a server fails to move a document to another shard, because it does not find the document.
STAYING: tuple[Any, ...] = (Regex("x", "i"), {"$x": 1})

everywhere, to_shards = across(TO_SHARDED, SHARDED, FROM_SHARDED), across(TO_SHARDED, SHARDED)


class Keyed:
    """A sharded collection. In each of its documents, all fields of the shard key have the same value.

    The value `MISSING` stands for a document without these fields.
    """

    MISSING = object()

    def __init__(self, name: str, key: Key) -> None:
        self.name = name
        self.key = key

    def fields(self, value: Any) -> dict[str, Any]:
        """Return a document with only the fields of the shard key, each with this value."""
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
        """Return a filter with the `_id` and the shard key of a document. A router needs both to change the shard key.

        `value` is the current value of all fields of the shard key.
        """
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
    spread(pair.source)
    for each in WITH_VALUES:
        collection = pair.source.client.d[each.name]
        collection.insert_many(
            each.document(f"{kind} {number}", value)
            for number, value in all_values()
            for kind in ("kept", "moved", "replaced", "deleted", "again", "written")
        )
    pair.source.client.d.by_id.insert_many({"_id": number, "pad": PAD} for number in range(30))


def spread(source: Side) -> None:
    """Move a range of each collection of a sharded source to another shard, if one shard has all of its chunks.

    This is a no-op on a replica set.
    """
    for each in COLLECTIONS:
        name = f"d.{each.name}"
        metadata = source.client.config.collections.find_one({"_id": name}) or {}
        owners = {
            row["shard"] for row in source.client.config.chunks.find({"uuid": metadata.get("uuid")})
        }
        if len(owners) == 1:
            (other,) = {shard.name for shard in source.shards} - owners
            lowest = {path: MIDDLE if not n else MinKey() for n, path in enumerate(each.key)}
            source.client.admin.command("moveRange", name, min=lowest, toShard=other)


def churn(collection: Collection[Any], each: Keyed) -> None:
    """Insert, update, replace and delete documents of the collection that `each` describes.

    Some of these writes change the shard key of a document.
    """
    for number, value in all_values():
        other = value if value in STAYING else VALUES[number - 3]

        def update(kind: str, before: Any, change: Any, number: int = number) -> None:
            query = each.query(f"{kind} {number}", before)
            assert collection.update_one(query, change).matched_count

        collection.insert_one(each.document(f"new {number}", value))
        update("moved", value, each.change(other))
        update("written", value, {"$set": {"n": 1}, "$inc": {"c": 1}})
        update("written", value, {"$push": {"list": number}})
        # Change the shard key, and change it back.
        query = each.query(f"replaced {number}", value)
        collection.replace_one(query, each.document(f"replaced {number}", other, n=1))
        update("replaced", other, each.change(value))
        update("replaced", value, {"$set": {"n": 2}})
        collection.delete_one({"_id": f"deleted {number}"})
        collection.delete_one({"_id": f"again {number}"})
        collection.insert_one(each.document(f"again {number}", other, again=True))
        update("again", other, [{"$set": {"again": "$_id"}}])


def more_churn(collection: Collection[Any]) -> None:
    """Make unusual writes. Every collection gets the same documents, regardless of its shard key."""
    literal = {"$literal": {"_id": "zero", "k": HIGH, "a": {"b": 1}, "t": Timestamp(0, 0)}}
    collection.insert_one({"_id": "zero", "k": HIGH, "a": {"b": 1}})
    collection.update_one({"_id": "zero"}, [{"$replaceWith": literal}])
    odd = {"field": {"$literal": "$a.b"}, "input": "$$ROOT", "value": {"$literal": "odd"}}
    collection.insert_one({"_id": "odd", "k": 1, "a": {"b": 1}, "$x": 1, "c.d": 1, "pad": PAD})
    collection.update_one({"_id": "odd"}, [{"$replaceWith": {"$setField": odd}}])
    collection.insert_one({"_id": "many", "k": HIGH, "a": {"b": HIGH}, "pad": PAD})
    collection.bulk_write(
        [UpdateOne({"_id": "many"}, {"$set": {f"f{n % 7}": n}}) for n in range(150)]
    )


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


@pytest.mark.in_turns(1)
@everywhere
@pytest.mark.parametrize("when", [When.BEFORE, When.LISTED, When.COPY, When.APPLY])
def test_shard_keys_change_in_each_phase(pair: Pair, daemon: Daemon, when: When) -> None:
    fill(pair)
    with writes_in(when, daemon):
        write(pair)
    daemon.commit()
    pair.assert_equal()
    for shard in pair.destination.shards:
        with shard.client() as client:
            assert all(client.d[each.name].find_one() for each in COLLECTIONS)


@pytest.mark.full
@everywhere
def test_ambiguous_update_descriptions_are_handled(pair: Pair, daemon: Daemon) -> None:
    daemon.force_classic_updates()
    fill(pair)
    with writes_in(When.APPLY, daemon):
        write(pair)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@everywhere
@pytest.mark.parametrize("when", [When.COPY, When.APPLY])
def test_large_documents(pair: Pair, daemon: Daemon, when: When) -> None:
    """Insert, change and move documents of the maximum size: the clusters must be equal after the commit."""

    def large(**fields: Any) -> dict[str, Any]:
        rest = len(bson.encode({**fields, "pad": b""}))
        return {**fields, "pad": bytes((16 << 20) - rest)}

    pair.source.client.d.c.create_index("k")
    pair.shard("d.c", {"k": 1})
    c = pair.source.client.d.c
    c.insert_many({"_id": number, "k": number} for number in range(HIGH))
    c.insert_one(large(_id="first", k=LOW))
    with writes_in(when, daemon):
        c.insert_one(large(_id="new", k=HIGH))
        c.update_one({"_id": "new", "k": HIGH}, {"$set": {"k": LOW}})
        c.replace_one({"_id": "first", "k": LOW}, large(_id="first", k=HIGH))
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@everywhere
@pytest.mark.each_once
@pytest.mark.parametrize("when", [When.BEFORE, When.LISTED, When.COPY, When.APPLY])
def test_collated_collections(pair: Pair, daemon: Daemon, when: When) -> None:
    """Replace documents by others whose `_id`s or shard keys differ only in case.

    Such values are equal under the collection's collation, but a shard key is compared without a collation. The
    clusters must be equal after the commit.
    """
    database, each = pair.source.client.d, Keyed("collated", {"k": 1})
    collated = database.create_collection("collated", collation={"locale": "en", "strength": 2})
    collated.create_index("k", collation={"locale": "simple"})
    pair.shard("d.collated", each.key)
    collated.insert_many(each.document(letter, letter) for letter in "abcdefghijklm")
    with writes_in(when, daemon):
        for letter in "abc":
            collated.delete_one({"_id": letter})
            collated.insert_one(each.document(letter.upper(), letter.upper()))
        for letter in "def":
            collated.delete_one({"_id": letter})
            collated.insert_one(each.document(letter, letter.upper()))
            collated.update_one({"_id": letter.upper()}, {"$set": {"n": letter}})
        collated.delete_one({"_id": "J"})
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@to_shards
def test_a_daemon_killed_between_a_delete_and_its_insert(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    daemon.kill_at(Point.IDS_CLEARED, "d.ranged")
    daemon.start()
    daemon.wait_until_committable()
    write(pair)
    daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@everywhere
def test_a_document_that_an_older_or_newer_index_refuses(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    ranged = pair.source.client.d.ranged
    ranged.create_index([("p", 1), ("q", 1)], name="both")
    with writes_in(When.LISTED, daemon):
        ranged.drop_index("both")
        ranged.insert_one({"_id": "parallel", "k": LOW, "p": [1, 2], "q": [1, 2]})
    daemon.wait_until_committable()
    assert "The indexes of a collection are withheld" in daemon.log
    ranged.update_one({"_id": "parallel", "k": LOW}, {"$set": {"k": HIGH}})
    ranged.update_one({"_id": "parallel", "k": HIGH}, {"$set": {"q": 1}})
    ranged.create_index([("p", 1), ("q", 1)], name="both")
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@everywhere
def test_a_field_of_the_id_can_be_the_shard_key(pair: Pair, daemon: Daemon) -> None:
    collection = pair.source.client.d.inside
    collection.create_index("_id.x")
    pair.shard("d.inside", {"_id.x": 1})
    spread(pair.source)
    collection.insert_many({"_id": {"x": n, "y": 1}, "n": 0} for n in range(-50, 50))
    daemon.start()
    daemon.wait_until_committable()
    collection.update_many({"_id.x": {"$lt": 0}}, {"$set": {"n": 1}})
    collection.replace_one({"_id": {"x": 0, "y": 1}}, {"n": 2})
    collection.delete_many({"_id.x": {"$gt": 40}})
    collection.insert_one({"_id": {"x": 41, "y": 2}})
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@to_shards
def test_an_orphaned_document_is_awaited(pair: Pair, daemon: Daemon) -> None:
    """Move a document back to a shard that still has an orphaned copy of the document.

    The sync must warn of the orphaned copy, and must continue when the shard has deleted the copy.
    """
    pair.source.client.d.c.create_index("k")
    pair.shard("d.c", {"k": 1})
    pair.source.client.d.c.insert_many({"_id": number, "k": number} for number in range(HIGH))
    daemon.start()
    daemon.wait_until_committable()
    admin = pair.destination.client.admin
    one, other = pair.destination.shards
    with one.client() as client:
        (document,) = client.d.c.find().sort("k", 1).limit(1)
        (last,) = client.d.c.find().sort("k", -1).limit(1)
    admin.command("moveChunk", "d.c", find={"k": document["k"]}, to=other.name)
    query = {"_id": document["_id"]}
    pair.source.client.d.c.update_one(document, {"$set": {"k": last["k"] + 0.5}})
    (warning,) = wait_for(daemon.warnings, "a warning")
    assert "an orphaned document with that _id" in warning
    with one.client() as client:
        # Delete the orphan, as the shard itself does later.
        assert client.d.c.delete_one(query).deleted_count
    daemon.wait_without_warning()
    daemon.commit()
    pair.assert_equal()
