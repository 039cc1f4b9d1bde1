"""Functions that write to the cluster of a client, for tests that run their own sync."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any

from pymongo import ASCENDING, DESCENDING, MongoClient

from tests.support.waiting import wait_for

AnyClient = MongoClient[Any]

_FAR = datetime(2099, 1, 1, tzinfo=UTC)


def fill(client: AnyClient, documents: int = 300) -> None:
    """Insert documents into the collections d.c and d.other, which many other functions of this module change."""
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
    """Call a function in another thread during the block, and wait for its end after the block.

    Yield the future of its result; only the future raises an error of the function. If the block fails, the thread is
    abandoned, because the function may wait for an action that the block has not reached.
    """
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call())
        except BaseException as error:  # noqa: B036 - the caller gets it from the future
            future.set_exception(error)

    Thread(target=run, daemon=True).start()
    yield future
    wait_for(future.done, "the call in the thread has ended")


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
        c.replace_one({"_id": n}, {"replaced": n, "when": _FAR})
    c.delete_many({"_id": {"$gte": 60, "$lt": 80}})
    c.insert_many([{"_id": n, "again": True} for n in range(60, 70)])


def hot_document(client: AnyClient) -> None:
    for n in range(300):
        client.d.c.update_one({"_id": 7}, {"$inc": {"n": 1}, "$set": {f"sub.k{n % 7}": n}})


def many_collections(client: AnyClient) -> None:
    for n in range(12):
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


def indexes(client: AnyClient, unique: bool = True) -> None:
    """Create indexes of many kinds on d.c.

    Set `unique` to false if the shard key of the collection does not allow unique indexes.
    """
    c = client.d.c
    c.create_index([("n", DESCENDING), ("sub.a", ASCENDING)])
    c.create_index([("list", 1)], name="multikey", hidden=True)
    c.create_index([("u", 1)], unique=unique, partialFilterExpression={"u": {"$exists": True}})
    c.create_index([("when", 1)], expireAfterSeconds=10**8)
    c.create_index([("text", "text")], weights={"text": 5}, default_language="german")
    c.create_index([("$**", 1)], wildcardProjection={"sub": 1})
    c.create_index([("n", "hashed")])
    c.create_index([("place", "2dsphere")], sparse=True)
    c.create_index([("collated", 1)], collation={"locale": "fr"}, unique=unique, sparse=True)
    c.create_index([("twin", 1)], name="twin plain")
    c.create_index([("twin", 1)], name="twin unique", unique=unique, sparse=True)


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


def spoil(destination: AnyClient) -> None:
    """Change, delete and add documents in d.c, and drop its index `n_1`, even while user writes are blocked."""
    changes = [{"q": {"_id": n}, "u": {"$set": {"n": -1}}} for n in range(30)]
    deletes = [{"q": {"_id": n}, "limit": 1} for n in range(30, 60)]
    extra = [{"_id": f"extra {n}"} for n in range(30)]
    for command in (
        {"update": "c", "updates": changes},
        {"delete": "c", "deletes": deletes},
        {"insert": "c", "documents": extra},
        {"dropIndexes": "c", "index": "n_1"},
    ):
        reply = destination.d.command({**command, "mayBypassWriteBlocking": True})
        assert reply["ok"] == 1 and not reply.get("writeErrors")
