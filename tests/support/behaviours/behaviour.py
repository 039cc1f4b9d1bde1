"""What a behaviour of a source is: a change in databases of its own, so that one sync carries many of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from pymongo.collection import Collection
from pymongo.database import Database

AnyDatabase = Database[Any]
AnyCollection = Collection[Any]
Action = Callable[[AnyDatabase], object]

_PAD = "p" * 2000


@dataclass(frozen=True)
class Behaviour:
    """`fill` runs before the sync begins, `change` in one of its phases; both are given the database of this name.

    `change` may use a second database, see `beside`.
    """

    name: str
    fill: Action
    change: Action

    def owns(self, database: str) -> bool:
        return database.casefold() in (self.name, f"{self.name}_other")


def beside(db: AnyDatabase) -> AnyDatabase:
    """The second database of a behaviour."""
    return db.client[f"{db.name}_other"]


def behaviour(fill: Action) -> Callable[[Action], Behaviour]:
    """Makes a behaviour of its change, named after it."""

    def make(change: Callable[..., object]) -> Behaviour:
        return Behaviour(change.__name__, fill, change)

    return make


def nothing(db: AnyDatabase) -> None:
    """For behaviours that begin without a database."""


def documents(db: AnyDatabase) -> None:
    """Padded documents: the server writes changes of small ones as replacements, which would hide the updates."""
    _fill(db.c, 100)
    db.other.insert_many({"_id": n} for n in range(10))


def few_documents(db: AnyDatabase) -> None:
    _fill(db.c, 20)


def _fill(collection: AnyCollection, count: int) -> None:
    collection.insert_many(
        {
            "_id": n,
            "n": n,
            "list": list(range(10)),
            "sub": {"a": n, "b": [{"c": 1}] * 3},
            "pad": _PAD,
        }
        for n in range(count)
    )


def indexed(db: AnyDatabase) -> None:
    """A collection whose indexes are not on the destination as they are, until commit."""
    # Before the documents: a build on an empty collection takes no time.
    db.c.create_index("n", unique=True)
    db.c.create_index("sub.a", hidden=True)
    db.c.create_index("when", expireAfterSeconds=10**8)
    _fill(db.c, 20)


def two_collections(db: AnyDatabase) -> None:
    """`a` and `b`, which differ in all but their `_id`s."""
    db.a.create_index("n", unique=True, name="of a")
    db.b.create_index("sub.a", name="of b")
    for name in ("a", "b"):
        _fill(db[name], 15)
        db[name].update_many({}, {"$set": {"in": name}})


def use(collection: AnyCollection, tag: str) -> None:
    """Every kind of write, so that it shows where the events of a collection go; `tag` names the place in the tale.

    No two documents have the same `n`, as some tests have a unique index on it.
    """
    texts = [f"{tag} {number}" for number in range(6)]
    collection.insert_many({"_id": text, "n": text, "number": 1, "pad": _PAD} for text in texts)
    collection.update_one({"_id": texts[0]}, {"$set": {"changed": tag}, "$unset": {"number": 1}})
    collection.replace_one({"_id": texts[1]}, {"n": texts[1], "replaced": True})
    collection.delete_one({"_id": texts[2]})
    collection.update_many({"_id": {"$in": [1, 2]}}, {"$set": {f"seen {tag}": 1, "sub.a": tag}})
    collection.delete_one({"_id": {"$gte": 10, "$lt": 20}})
    collection.update_one({"_id": f"{tag} upserted"}, {"$set": {"n": tag}}, upsert=True)
