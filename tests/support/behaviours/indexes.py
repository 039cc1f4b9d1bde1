"""Behaviours that create and drop indexes of every kind."""

from __future__ import annotations

import contextlib
from datetime import datetime
from typing import Any

from pymongo import ASCENDING, DESCENDING
from pymongo.errors import OperationFailure

from tests.support.behaviours.behaviour import (
    AnyDatabase,
    behaviour,
    documents,
    few_documents,
    indexed,
    nothing,
    use,
)
from tests.support.waiting import wait_for


def _create(db: AnyDatabase, collection: str, *indexes: dict[str, Any]) -> None:
    """Create several indexes in one command. An index can have options that the driver does not support."""
    db.command({"createIndexes": collection, "indexes": list(indexes)})


@behaviour(fill=few_documents)
def create_ordinary_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("n", DESCENDING), ("sub.a", ASCENDING)])
    db.c.create_index([("list", 1)], name="multikey")
    _create(db, "c", {"key": {"sub.b.c": 1, "n": -2.5}, "name": "nested. $ multikey"})
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_hidden_and_sparse_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("n", 1)], hidden=True)
    db.c.create_index([("m", 1)], sparse=True)
    db.c.create_index([("o", 1)], sparse=True, hidden=True, unique=True)
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_partial_indexes(db: AnyDatabase) -> None:
    exists = {"u": {"$exists": True}}
    db.c.create_index([("u", 1)], unique=True, partialFilterExpression=exists)
    either = {"$or": [{"n": {"$gt": 5}}, {"n": {"$lte": 2}, "m": {"$type": "string"}}]}
    db.c.create_index([("n", 1)], partialFilterExpression=either)
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_unique_indexes(db: AnyDatabase) -> None:
    """Create unique indexes, and move unique values between documents.

    If a sync applies the events of different documents in another order than the source, the destination can
    contain duplicate values for a moment.
    """
    db.c.create_index([("n", 1)], unique=True)
    db.c.create_index([("sub.a", 1), ("n", -1)], unique=True)
    db.c.update_one({"_id": 1}, {"$set": {"n": "aside"}})
    db.c.update_one({"_id": 2}, {"$set": {"n": 1}})
    db.c.update_one({"_id": 1}, {"$set": {"n": 2}})
    db.c.delete_one({"_id": 3})
    db.c.insert_one({"_id": "heir", "n": 3})


@behaviour(fill=few_documents)
def create_expiring_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("when", 1)], expireAfterSeconds=10**8)
    db.c.create_index([("then", 1)], expireAfterSeconds=0, sparse=True)
    db.c.create_index([("later", 1)], expireAfterSeconds=2**31 - 1, hidden=True)
    db.c.create_index([("half", 1)], expireAfterSeconds=1000.5)
    db.c.create_index([("partial", 1)], expireAfterSeconds=9, partialFilterExpression={"n": -1})
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_collated_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("s", 1)], collation={"locale": "fr"}, unique=True, sparse=True)
    db.c.create_index([("s", 1)], collation={"locale": "en", "strength": 1}, name="english")
    db.c.create_index([("s", 1)], collation={"locale": "simple"}, name="simple")
    use(db.c, "after")


@behaviour(fill=nothing)
def create_indexes_on_a_collated_collection(db: AnyDatabase) -> None:
    db.create_collection("c", collation={"locale": "en", "strength": 2})
    db.c.insert_one({"_id": "a", "s": "b"})
    db.c.create_index("s")
    db.c.create_index([("s", 1), ("t", 1)], collation={"locale": "simple"})
    db.c.create_index([("s", 1)], collation={"locale": "simple"}, name="simple")
    db.c.create_index([("s", 1)], collation={"locale": "fr"}, name="french", hidden=True)
    old = {"key": {"q": 1}, "name": "old format", "v": 1}
    db.command({"createIndexes": "c", "indexes": [old]})
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_hashed_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("n", "hashed")])
    db.c.create_index([("m", 1), ("n", "hashed")])
    db.c.create_index([("_id", "hashed")])
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_a_text_index(db: AnyDatabase) -> None:
    db.c.create_index(
        [("m", 1), ("text", "text"), ("title", "text"), ("n", -1)],
        weights={"text": 5},
        default_language="german",
        language_override="idioma",
    )
    db.wild.insert_one({"_id": 1, "words": "some of them"})
    db.wild.create_index([("$**", "text")], textIndexVersion=2)
    use(db.c, "after")
    use(db.wild, "after")


@behaviour(fill=few_documents)
def create_wildcard_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("$**", 1)], wildcardProjection={"sub": 1, "_id": 0})
    db.c.create_index([("sub.$**", 1)], hidden=True)
    db.c.create_index([("$**", 1)], name="excluding", wildcardProjection={"pad": 0})
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_geographic_indexes(db: AnyDatabase) -> None:
    db.c.create_index([("flat", "2d")], bits=20, min=-500.0, max=500.0)
    db.c.create_index([("place", "2dsphere")], sparse=True)
    version: dict[str, Any] = {"2dsphereIndexVersion": 2}
    db.c.create_index([("n", 1), ("old", "2dsphere")], **version)
    db.c.insert_one(
        {
            "_id": "here",
            "flat": [1, 2],
            "place": {"type": "Point", "coordinates": [5, 6]},
            "old": [3, 4],
        }
    )


@behaviour(fill=few_documents)
def create_prepared_indexes(db: AnyDatabase) -> None:
    _create(db, "c", {"key": {"n": 1}, "name": "prepared", "prepareUnique": True})
    _create(db, "c", {"key": {"m": 1}, "name": "rare", "prepareUnique": True, "sparse": True})
    db.c.insert_one({"_id": "new", "n": "new"})


@behaviour(fill=few_documents)
def create_indexes_of_old_versions(db: AnyDatabase) -> None:
    _create(db, "c", {"key": {"n": 1}, "name": "one", "v": 1})
    _create(
        db, "c", {"key": {"m": 1}, "name": "unique one", "v": 1, "unique": True, "sparse": True}
    )
    _create(db, "c", {"key": {"o": 1}, "name": "background", "background": True})
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_several_indexes_at_once(db: AnyDatabase) -> None:
    _create(
        db,
        "c",
        {"key": {"n": 1}, "name": "n", "unique": True},
        {"key": {"m": 1}, "name": "m", "hidden": True},
        {"key": {"$**": "text"}, "name": "text"},
    )
    _create(db, "new", {"key": {"n": 1}, "name": "n"}, {"key": {"m": -1}, "name": "m"})
    use(db.c, "after")
    use(db.new, "after")


@behaviour(fill=few_documents)
def create_indexes_in_vain(db: AnyDatabase) -> None:
    """Create an index twice, and an index that the server refuses because of the existing documents."""
    db.c.create_index("n")
    db.c.create_index("n")
    with contextlib.suppress(OperationFailure):
        db.c.create_index("pad", unique=True)
    use(db.c, "after")


@behaviour(fill=few_documents)
def create_twin_indexes(db: AnyDatabase) -> None:
    """Create two pairs of indexes with the same keys: one pair differs only in `unique`, the other also in `sparse`.

    Until the commit, the destination builds indexes without `unique`. Without a special rule, the indexes of the first
    pair would be identical there.
    """
    db.c.create_index([("n", 1)], name="unique twin", unique=True)
    db.c.create_index([("n", 1)], name="plain twin")
    db.c.create_index([("twin", 1)], name="twin plain")
    db.c.create_index([("twin", 1)], name="twin unique", unique=True, sparse=True)
    use(db.c, "after")


@behaviour(fill=few_documents)
def drop_a_twin_index(db: AnyDatabase) -> None:
    create_twin_indexes.change(db)
    db.c.drop_index("unique twin")
    db.c.drop_index("twin plain")
    use(db.c, "at last")


@behaviour(fill=indexed)
def drop_indexes_by_name(db: AnyDatabase) -> None:
    db.c.drop_index("n_1")
    use(db.c, "after")
    db.c.insert_many([{"_id": "one", "n": 1}, {"_id": "two", "n": 1}])
    db.c.create_index([("n", 1)])


@behaviour(fill=indexed)
def drop_indexes_by_key(db: AnyDatabase) -> None:
    db.command({"dropIndexes": "c", "index": {"sub.a": 1}})
    db.c.create_index([("text", "text")])
    db.c.drop_index("text_text")
    use(db.c, "after")


@behaviour(fill=indexed)
def drop_several_indexes(db: AnyDatabase) -> None:
    db.command({"dropIndexes": "c", "index": ["n_1", "when_1"]})
    use(db.c, "after")


@behaviour(fill=indexed)
def drop_all_indexes(db: AnyDatabase) -> None:
    db.command({"dropIndexes": "c", "index": "*"})
    use(db.c, "after")
    db.c.create_index("when")
    db.c.drop_indexes()


@behaviour(fill=indexed)
def drop_and_create_indexes(db: AnyDatabase) -> None:
    """Replace indexes by others with the same name and other keys, or with the same keys and other options."""
    db.c.create_index("first")
    db.c.create_index("second", name="moving")
    db.c.drop_index("first_1")
    db.c.drop_index("moving")
    db.c.create_index([("third", 1)], name="moving")
    db.c.drop_index("n_1")
    db.c.create_index([("n", 1)], name="n_1", hidden=True)
    db.c.drop_index("when_1")
    db.c.create_index([("when", 1)], unique=True, sparse=True)
    use(db.c, "after")


@behaviour(fill=documents)
def unique_index_that_became_plain(db: AnyDatabase) -> None:
    db.c.create_index("n", name="x", unique=True)
    db.c.drop_index("x")
    db.c.create_index("n", name="y")


@behaviour(fill=documents)
def index_that_later_documents_refuse(db: AnyDatabase) -> None:
    db.c.create_index([("p", 1), ("q", 1)])
    db.c.drop_index("p_1_q_1")
    db.c.insert_one({"_id": "parallel", "p": [1, 2], "q": [1, 2]})


@behaviour(fill=few_documents)
def index_that_left_duplicates(db: AnyDatabase) -> None:
    """Create a unique and a TTL index, drop both, and insert duplicates of the unique values.

    The dropped indexes must not come back on the destination.
    """
    db.c.create_index("n", unique=True)
    db.c.create_index("when", expireAfterSeconds=0)
    db.c.drop_index("n_1")
    db.c.drop_index("when_1")
    db.c.insert_many([{"_id": f"duplicate {n}", "n": 1} for n in range(3)])


@behaviour(fill=few_documents)
def documents_that_expired(db: AnyDatabase) -> None:
    """Wait until a TTL index has deleted documents on the source.

    On the destination, no document may expire before the end of the sync.
    """
    db.c.update_many({"_id": {"$lt": 10}}, {"$set": {"when": datetime(2001, 1, 1)}})
    db.c.create_index("when", expireAfterSeconds=1)
    wait_for(lambda: not db.c.find_one({"_id": {"$lt": 10}}), "the source deletes what expired")
    db.c.insert_one({"_id": 3, "life": "second"})
