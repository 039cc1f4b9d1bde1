"""Behaviours that change definitions with collMod."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.support.behaviours.behaviour import (
    AnyDatabase,
    behaviour,
    few_documents,
    indexed,
    nothing,
    use,
)

_FAR = datetime(2099, 1, 1, tzinfo=UTC)


def _modify(db: AnyDatabase, **change: Any) -> None:
    db.command({"collMod": "c", **change})


def _modify_index(db: AnyDatabase, name: str, **change: Any) -> None:
    _modify(db, index={"name": name, **change})


def _capped(db: AnyDatabase) -> None:
    db.create_collection("c", capped=True, size=1 << 20, max=100)
    db.c.insert_many({"_id": 100 - n, "pad": "p" * 100} for n in range(50))


def _expiring(db: AnyDatabase) -> None:
    key = {"key": {"_id": 1}, "unique": True}
    db.create_collection("c", clusteredIndex=key, expireAfterSeconds=10**8)
    db.c.insert_many({"_id": _FAR + timedelta(seconds=n)} for n in range(10))


@behaviour(fill=few_documents)
def modify_the_validator(db: AnyDatabase) -> None:
    """Change the validator so that existing documents and some later documents violate it."""
    _modify(db, validator={"n": {"$type": "string"}})
    db.c.insert_one({"_id": "good", "n": "n"})
    db.c.insert_one({"_id": "bad", "n": 1}, bypass_document_validation=True)
    db.c.update_one({"_id": 1}, {"$set": {"more": 1}}, bypass_document_validation=True)
    _modify(db, validationLevel="moderate")
    db.c.update_one({"_id": 2}, {"$set": {"more": 1}})
    _modify(db, validationAction="warn")
    use(db.c, "after")


@behaviour(fill=few_documents)
def modify_the_validator_and_take_it_away(db: AnyDatabase) -> None:
    _modify(db, validator={"n": {"$type": "string"}}, validationLevel="off")
    use(db.c, "off")
    _modify(db, validator={}, validationLevel="strict", validationAction="error")
    use(db.c, "after")


@behaviour(fill=nothing)
def modify_a_new_collection(db: AnyDatabase) -> None:
    db.create_collection("c", validator={"n": {"$exists": True}})
    db.c.insert_one({"_id": "first", "n": 1})
    _modify(db, validator={})
    use(db.c, "after")


@behaviour(fill=_capped)
def modify_a_capped_size(db: AnyDatabase) -> None:
    _modify(db, cappedSize=4000)
    db.c.insert_many({"_id": 200 + n, "pad": "p" * 100} for n in range(40))


@behaviour(fill=_capped)
def modify_a_capped_maximum(db: AnyDatabase) -> None:
    _modify(db, cappedMax=20)
    db.c.insert_many({"_id": 200 + n} for n in range(5))
    _modify(db, cappedMax=30, cappedSize=9999)
    db.c.insert_many({"_id": 300 + n} for n in range(15))


@behaviour(fill=_capped)
def modify_a_capped_maximum_away(db: AnyDatabase) -> None:
    _modify(db, cappedMax=0)
    db.c.insert_many({"_id": 200 + n} for n in range(100))


@behaviour(fill=indexed)
def modify_expiry(db: AnyDatabase) -> None:
    _modify_index(db, "when_1", expireAfterSeconds=5)
    _modify(db, index={"keyPattern": {"when": 1}, "expireAfterSeconds": 10**7})
    use(db.c, "after")


@behaviour(fill=indexed)
def modify_expiry_of_an_index_without(db: AnyDatabase) -> None:
    _modify_index(db, "n_1", expireAfterSeconds=10**9)
    db.c.create_index("later")
    _modify_index(db, "later_1", expireAfterSeconds=2**40)
    use(db.c, "after")


@behaviour(fill=_expiring)
def modify_expiry_of_a_clustered_collection(db: AnyDatabase) -> None:
    _modify(db, expireAfterSeconds=10**7)
    db.c.insert_one({"_id": _FAR + timedelta(days=1)})


@behaviour(fill=_expiring)
def modify_expiry_of_a_clustered_collection_away(db: AnyDatabase) -> None:
    _modify(db, expireAfterSeconds="off")
    db.c.insert_one({"_id": datetime(1990, 1, 1, tzinfo=UTC)})


@behaviour(fill=indexed)
def modify_visibility(db: AnyDatabase) -> None:
    _modify_index(db, "n_1", hidden=True)
    _modify_index(db, "sub.a_1", hidden=False)
    use(db.c, "after")


@behaviour(fill=indexed)
def modify_visibility_there_and_back(db: AnyDatabase) -> None:
    for hidden in (True, False):
        _modify_index(db, "n_1", hidden=hidden)
        _modify_index(db, "sub.a_1", hidden=not hidden)
    use(db.c, "after")


@behaviour(fill=few_documents)
def modify_to_unique(db: AnyDatabase) -> None:
    db.c.create_index("n")
    _modify_index(db, "n_1", prepareUnique=True)
    db.c.insert_one({"_id": "between", "n": "between"})
    _modify_index(db, "n_1", unique=True)
    db.c.insert_one({"_id": "after", "n": "after"})


@behaviour(fill=few_documents)
def modify_to_unique_and_back(db: AnyDatabase) -> None:
    db.c.create_index("n")
    for change in ("prepareUnique", "unique", "forceNonUnique"):
        _modify_index(db, "n_1", **{change: True})
    db.c.insert_many([{"_id": n, "n": "equal"} for n in ("one", "two")])


@behaviour(fill=indexed)
def modify_to_prepared(db: AnyDatabase) -> None:
    db.c.create_index("m")
    db.c.insert_many([{"_id": n, "n": n} for n in ("one", "two")])
    _modify_index(db, "m_1", prepareUnique=True)
    _modify_index(db, "sub.a_1", prepareUnique=True)
    _modify_index(db, "sub.a_1", prepareUnique=False)
    db.c.update_one({"_id": 5}, {"$set": {"m": 1}})


@behaviour(fill=indexed)
def modify_several_at_once(db: AnyDatabase) -> None:
    _modify_index(db, "when_1", hidden=True, expireAfterSeconds=10**7)
    _modify(
        db,
        validator={"n": {"$exists": True}},
        validationLevel="moderate",
        index={"name": "sub.a_1", "hidden": False, "expireAfterSeconds": 10**6},
    )
    use(db.c, "after")


@behaviour(fill=indexed)
def modify_nothing(db: AnyDatabase) -> None:
    _modify(db)
    _modify_index(db, "sub.a_1", hidden=True)
    use(db.c, "after")


@behaviour(fill=indexed)
def modify_an_index_and_create_it_again(db: AnyDatabase) -> None:
    _modify_index(db, "when_1", expireAfterSeconds=5, hidden=True)
    _modify_index(db, "sub.a_1", prepareUnique=True)
    db.c.drop_indexes()
    db.c.create_index([("other", 1)], name="when_1")
    db.c.create_index([("sub.a", -1)], name="sub.a_1")
    use(db.c, "after")


@behaviour(fill=indexed)
def modify_and_drop(db: AnyDatabase) -> None:
    _modify(db, validator={"n": 1})
    _modify_index(db, "n_1", hidden=True)
    db.drop_collection("c")
    use(db.c, "after")


@behaviour(fill=indexed)
def modify_and_rename(db: AnyDatabase) -> None:
    _modify_index(db, "n_1", hidden=True)
    db.c.rename("d")
    db.command({"collMod": "d", "index": {"name": "when_1", "expireAfterSeconds": 77}})
    use(db.c, "new")
    use(db.d, "renamed")


@behaviour(fill=few_documents)
def modify_images(db: AnyDatabase) -> None:
    _modify(db, changeStreamPreAndPostImages={"enabled": True})
    use(db.c, "on")
    db.create_collection("d", changeStreamPreAndPostImages={"enabled": True})
    db.command({"collMod": "d", "changeStreamPreAndPostImages": {"enabled": False}})
    use(db.d, "off")


@behaviour(fill=few_documents)
def modify_a_view(db: AnyDatabase) -> None:
    db.command({"create": "view", "viewOn": "c", "pipeline": []})
    db.command({"collMod": "view", "viewOn": "c", "pipeline": [{"$match": {"n": {"$gt": 3}}}]})
    db.command({"create": "upper", "viewOn": "view", "pipeline": []})
    db.command({"collMod": "upper", "viewOn": "missing", "pipeline": [{"$limit": 1}]})
    use(db.c, "after")
