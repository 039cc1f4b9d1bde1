"""Behaviours in which the server itself writes the documents of a collection.

They use `$out`, `$merge`, mapReduce, convertToCapped and cloneCollectionAsCapped.
"""

from __future__ import annotations

from typing import Any

import pytest
from bson import Code
from pymongo.errors import OperationFailure

from tests.support.behaviours.behaviour import (
    AnyDatabase,
    behaviour,
    beside,
    documents,
    indexed,
    two_collections,
    use,
)

_SOME = {"$match": {"n": {"$lt": 12}}}


def _out(db: AnyDatabase, source: str, target: str | dict[str, str], *stages: Any) -> None:
    list(db[source].aggregate([_SOME, *stages, {"$out": target}]))


def _merge(db: AnyDatabase, source: str, *stages: Any, **merge: Any) -> None:
    list(db[source].aggregate([_SOME, *stages, {"$merge": merge}]))


@behaviour(fill=documents)
def out_to_a_new_collection(db: AnyDatabase) -> None:
    _out(db, "c", "new")
    use(db.new, "after")


@behaviour(fill=two_collections)
def out_over_a_collection(db: AnyDatabase) -> None:
    """Replace a collection by `$out`, which keeps the options and indexes of the collection."""
    db.b.create_index("n", unique=True)
    _out(db, "a", "b", {"$set": {"copied": True}})
    use(db.b, "after")


@behaviour(fill=documents)
def out_again_and_again(db: AnyDatabase) -> None:
    for number in range(4):
        _out(db, "c", "report", {"$set": {"number": number}})
    use(db.report, "after")


@behaviour(fill=two_collections)
def out_over_itself(db: AnyDatabase) -> None:
    _out(db, "a", "a", {"$set": {"copied": True}})
    use(db.a, "after")


@behaviour(fill=two_collections)
def out_to_another_database(db: AnyDatabase) -> None:
    two_collections(beside(db))
    _out(db, "a", {"db": beside(db).name, "coll": "new"})
    _out(db, "a", {"db": beside(db).name, "coll": "b"})
    use(beside(db).new, "after")
    use(beside(db).b, "after")


@behaviour(fill=two_collections)
def merge(db: AnyDatabase) -> None:
    _merge(db, "a", into="new")
    _merge(db, "a", {"$set": {"copied": 1}}, into="b", whenMatched="merge")
    _merge(db, "a", {"$set": {"n": -1}}, into="b", whenMatched="replace", whenNotMatched="discard")
    _merge(db, "b", into={"db": beside(db).name, "coll": "new"})
    use(db.new, "after")
    use(db.b, "after")


@behaviour(fill=indexed)
def convert_to_capped(db: AnyDatabase) -> None:
    """Convert a collection to a capped one: the server writes its documents again, without change events."""
    use(db.c, "before")
    db.command({"convertToCapped": "c", "size": 1 << 20})
    use(db.c, "after")


@behaviour(fill=indexed)
def convert_to_capped_and_lose_documents(db: AnyDatabase) -> None:
    db.command({"convertToCapped": "c", "size": 16384})
    use(db.c, "after")


@behaviour(fill=indexed)
def convert_to_capped_and_rename(db: AnyDatabase) -> None:
    db.command({"convertToCapped": "c", "size": 1 << 20})
    db.c.rename("d")
    use(db.c, "new")
    use(db.d, "old")


@behaviour(fill=indexed)
def convert_to_capped_and_drop(db: AnyDatabase) -> None:
    db.command({"convertToCapped": "c", "size": 1 << 20})
    use(db.c, "capped")
    db.drop_collection("c")
    use(db.c, "after")


@behaviour(fill=indexed)
def clone_as_capped(db: AnyDatabase) -> None:
    db.command({"cloneCollectionAsCapped": "c", "toCollection": "clone", "size": 1 << 20})
    use(db.clone, "after")
    db.command({"cloneCollectionAsCapped": "c", "toCollection": "small", "size": 16384})
    use(db.c, "after")


@behaviour(fill=documents)
def map_and_reduce(db: AnyDatabase) -> None:
    for out in ({"replace": "new"}, {"replace": "other"}, {"merge": "new"}, {"reduce": "new"}):
        db.command(
            {
                "mapReduce": "c",
                "map": Code("function() { emit(this.n % 5, 1); }"),
                "reduce": Code("function(key, values) { return Array.sum(values); }"),
                "out": out,
            }
        )
    use(db.new, "after")


@behaviour(fill=two_collections)
def out_that_fails(db: AnyDatabase) -> None:
    """Run an `$out` that fails: the server leaves the target unchanged, and no temporary collection behind."""
    with pytest.raises(OperationFailure):
        _out(db, "a", "b", {"$set": {"n": {"$divide": ["$n", 0]}}})
    use(db.b, "after")
