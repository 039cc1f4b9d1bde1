"""Writes that tests do on the source in one phase or another, each a function of a client."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from bson import Timestamp
from pymongo import ASCENDING, DESCENDING, MongoClient

from tests.support.documents import insert_odd_documents
from tests.support.waiting import wait_for

AnyClient = MongoClient[Any]

_FAR = datetime(2099, 1, 1, tzinfo=UTC)


def fill(client: AnyClient, documents: int = 300) -> None:
    """What every test finds on the source before it begins."""
    client.d.c.insert_many(
        {
            "_id": n,
            "n": n,
            "list": list(range(10)),
            "sub": {"a": n, "b": [{"c": 1}] * 3},
            "pad": "p" * 2000,
        }
        for n in range(documents)
    )
    client.d.other.insert_many({"_id": n} for n in range(10))


@contextmanager
def started(call: Callable[[], Any]) -> Iterator[Future[Any]]:
    """The call runs beside the block; it has ended when the block is left."""
    with ThreadPoolExecutor(max_workers=1) as executor:
        yield executor.submit(call)


def wait_for_index_build(client: AnyClient) -> None:
    def building() -> bool:
        operations = client.admin.aggregate([{"$currentOp": {}}])
        return any("createIndexes" in each.get("command", {}) for each in operations)

    wait_for(building, "an index build")


def single_document_writes(client: AnyClient) -> None:
    c = client.d.c
    c.insert_many([{"_id": f"new {n}", "n": n} for n in range(20)])
    for n in range(0, 40):
        c.update_one(
            {"_id": n}, {"$set": {"n": -n, "sub.a": "x", "added": 1}, "$unset": {"pad": 1}}
        )
    for n in range(40, 60):
        c.replace_one({"_id": n}, {"replaced": n, "when": datetime(2020, 1, 1)})
    c.delete_many({"_id": {"$gte": 60, "$lt": 80}})
    c.insert_many([{"_id": n, "again": True} for n in range(60, 70)])


def array_updates(client: AnyClient) -> None:
    c = client.d.c
    for n in range(30):
        c.update_one({"_id": n}, {"$push": {"list": n}, "$set": {"sub.b.1.c": n}})
        c.update_one({"_id": n}, [{"$set": {"list": {"$slice": ["$list", 3]}}}])
        c.update_one({"_id": n}, {"$pop": {"sub.b": 1}, "$pull": {"list": 2}})
        c.update_one({"_id": n}, {"$set": {"list.7": "far"}})


def odd_names(client: AnyClient) -> None:
    """Fields that a path cannot name, next to paths that look the same."""
    c = client.d.c
    c.insert_one(
        {"_id": "odd", "a": {"x.y": 1, "x": {"y": 2}}, "a.b": 1, "$d": 1, "pad": "p" * 2000}
    )
    for number in range(3):
        c.update_one(
            {"_id": "odd"},
            [{"$replaceWith": {"$setField": {"field": "a.b", "input": "$$ROOT", "value": number}}}],
        )
        c.update_one(
            {"_id": "odd"},
            [
                {
                    "$replaceWith": {
                        "$setField": {
                            "field": {"$literal": "$d"},
                            "input": "$$ROOT",
                            "value": number,
                        }
                    }
                }
            ],
        )
        c.update_one({"_id": "odd"}, {"$set": {"a.x.y": number, f"z{9 - number}": 1}})


def zero_timestamps(client: AnyClient) -> None:
    c = client.d.c
    c.insert_one({"_id": "zero", "pad": "p" * 2000})
    c.update_one({"_id": "zero"}, [{"$set": {"t": Timestamp(0, 0)}}])
    c.update_one(
        {"_id": 5}, [{"$replaceWith": {"_id": 5, "t": Timestamp(0, 0), "u": [Timestamp(0, 0)]}}]
    )


def keys_of_changing_type(client: AnyClient) -> None:
    """Keys that are one for the server and several for their bytes."""
    c = client.d.c
    for before, after in ((1, 1.0), (2, 2.0), (3, 3.0)):
        c.delete_one({"_id": before})
        c.insert_one({"_id": after, "type": "double"})
    c.insert_one({"_id": {"k": 1}, "v": 1})
    c.delete_one({"_id": {"k": 1}})
    c.insert_one({"_id": {"k": 1.0}, "v": 2})


def hot_document(client: AnyClient) -> None:
    for n in range(300):
        client.d.c.update_one({"_id": 7}, {"$inc": {"n": 1}, "$set": {f"sub.k{n % 7}": n}})


def transactions(client: AnyClient) -> None:
    with client.start_session() as session:
        with session.start_transaction():
            for n in range(10):
                client.d.c.update_one({"_id": n}, {"$set": {"tx": n}}, session=session)
            client.d.other.insert_one({"_id": "tx"}, session=session)
        session.start_transaction()
        client.d.other.insert_one({"_id": "aborted"}, session=session)
        session.abort_transaction()


def odd_documents(client: AnyClient) -> None:
    insert_odd_documents(client.d.odd)


def many_collections(client: AnyClient) -> None:
    for n in range(30):
        client[f"db{n % 3}"][f"c{n}"].insert_many({"_id": i, "n": n} for i in range(5))
    client.db0.drop_collection("c0")


def new_collections(client: AnyClient) -> None:
    d = client.d
    d.create_collection("capped", capped=True, size=4096, max=20)
    d.capped.insert_many({"n": n} for n in range(50))
    d.create_collection("collated", collation={"locale": "en", "strength": 2})
    d.collated.insert_many({"_id": letter, "s": letter} for letter in "aBcD")
    d.collated.delete_one({"_id": "A"})
    d.collated.insert_one({"_id": "A", "s": 1})
    d.collated.create_index("s")
    d.collated.create_index([("s", 1), ("t", 1)], collation={"locale": "simple"})
    d.create_collection(
        "clustered", clusteredIndex={"key": {"_id": 1}, "unique": True}, expireAfterSeconds=10**8
    )
    d.clustered.insert_many({"_id": _FAR + timedelta(seconds=n)} for n in range(10))
    d.create_collection(
        "validated",
        validator={"n": {"$type": "int"}},
        validationLevel="strict",
        validationAction="error",
    )
    d.validated.insert_one({"_id": 1, "n": 1})
    d.validated.insert_one({"_id": 2, "n": "no"}, bypass_document_validation=True)
    d.create_collection("images", changeStreamPreAndPostImages={"enabled": True})
    d.images.insert_one({"_id": 1})
    d.images.update_one({"_id": 1}, {"$set": {"n": 1}})


def time_series(client: AnyClient) -> None:
    options = {"timeField": "at", "metaField": "place"}
    client.d.create_collection("series", timeseries=options, expireAfterSeconds=10**9)
    client.d.series.insert_many(
        {"at": _FAR + timedelta(seconds=n), "place": n % 3} for n in range(50)
    )
    client.d.series.create_index("place")


def renames(client: AnyClient) -> None:
    client.d.other.rename("renamed")
    client.d.renamed.insert_one({"_id": "renamed"})
    client.admin.command({"renameCollection": "d.renamed", "to": "d2.other"})
    client.d.c.aggregate([{"$match": {"n": {"$lt": 9}}}, {"$out": "out"}])
    client.d.command({"convertToCapped": "out", "size": 100_000})


def modifications(client: AnyClient) -> None:
    validator = {"_id": {"$exists": True}}
    client.d.command({"collMod": "c", "validator": validator, "validationLevel": "moderate"})
    client.d.c.create_index("n", name="modified")
    index = {"name": "modified", "hidden": True, "expireAfterSeconds": 10**9}
    client.d.command({"collMod": "c", "index": index})


def indexes(client: AnyClient) -> None:
    c = client.d.c
    c.create_index([("n", DESCENDING), ("sub.a", ASCENDING)])
    c.create_index([("list", 1)], name="multikey", hidden=True)
    c.create_index([("u", 1)], unique=True, partialFilterExpression={"u": {"$exists": True}})
    c.create_index([("when", 1)], expireAfterSeconds=10**8)
    c.create_index([("text", "text")], weights={"text": 5}, default_language="german")
    c.create_index([("$**", 1)], wildcardProjection={"sub": 1})
    c.create_index([("n", "hashed")])
    c.create_index([("place", "2dsphere")], sparse=True)
    c.create_index([("collated", 1)], collation={"locale": "fr"}, unique=True, sparse=True)
    c.create_index([("twin", 1)], name="twin plain")
    c.create_index([("twin", 1)], name="twin unique", unique=True, sparse=True)


def twin_indexes(client: AnyClient) -> None:
    """A unique and a plain index on the same keys, which are one when uniqueness is taken away."""
    client.d.other.update_many({}, [{"$set": {"t": "$_id"}}])
    client.d.other.create_index([("t", 1)], name="unique twin", unique=True)
    client.d.other.create_index([("t", 1)], name="plain twin")


def dropped_indexes(client: AnyClient) -> None:
    c = client.d.c
    c.create_index("first")
    c.create_index("second", name="moving")
    c.drop_index("first_1")
    c.drop_index("moving")
    c.create_index([("third", 1)], name="moving")
    client.d.other.create_index("gone")
    client.d.other.drop_indexes()


def drop_and_create_again(client: AnyClient) -> None:
    client.d.drop_collection("c")
    client.d.c.insert_many({"_id": n, "second": True} for n in range(25))
    client.d.c.create_index("second")
    client.d.drop_collection("other")


def views(client: AnyClient) -> None:
    client.d.command({"create": "view", "viewOn": "c", "pipeline": [{"$match": {"n": {"$gt": 3}}}]})
    client.d.command({"create": "on view", "viewOn": "view", "pipeline": []})
    client.d.command(
        {"create": "collated view", "viewOn": "c", "pipeline": [], "collation": {"locale": "en"}}
    )
    client.d.command({"create": "gone", "viewOn": "c", "pipeline": []})
    client.d.drop_collection("gone")
    client.d.command({"create": "was view", "viewOn": "c", "pipeline": []})
    client.d.drop_collection("was view")
    client.d["was view"].insert_one({"_id": 1})


def drop_database(client: AnyClient) -> None:
    client.gone.c.insert_one({"_id": 1})
    client.gone.command({"create": "view", "viewOn": "c", "pipeline": []})
    client.drop_database("gone")
    client.gone.d.insert_one({"_id": 2})


def large_documents(client: AnyClient) -> None:
    client.d.large.insert_one({"_id": 1, "blob": b"\x11" * (16 * 1024 * 1024 - 60)})
    client.d.large.insert_many({"_id": n, "blob": b"\0" * 5_000_000} for n in range(2, 6))
    client.d.large.update_one({"_id": 2}, {"$set": {"more": "m" * 5_000_000}})
    client.d.large.update_one({"_id": 2}, {"$set": {"blob": b"\x01" * 9_000_000}})


UPDATES: tuple[Callable[[AnyClient], None], ...] = (
    single_document_writes,
    array_updates,
    odd_names,
    zero_timestamps,
    hot_document,
    transactions,
)

ALL: tuple[Callable[[AnyClient], None], ...] = (
    *UPDATES,
    keys_of_changing_type,
    odd_documents,
    many_collections,
    new_collections,
    indexes,
    twin_indexes,
    dropped_indexes,
    drop_and_create_again,
    views,
    drop_database,
    large_documents,
)
