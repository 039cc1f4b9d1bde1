"""The class Behaviour: a change that users may make during a sync. Each behaviour has its own databases."""

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
    """A change of the source, with a name. `fill` runs before the sync, and `change` runs during one of its phases.

    Both functions get the database that has the behaviour's name. If they need a second database, they call `beside`.
    """

    name: str
    fill: Action
    change: Action

    def owns(self, database: str) -> bool:
        return database.casefold() in (self.name, f"{self.name}_other")


def beside(db: AnyDatabase) -> AnyDatabase:
    """Return the second database of the behaviour whose first database is `db`."""
    return db.client[f"{db.name}_other"]


def behaviour(fill: Action) -> Callable[[Action], Behaviour]:
    """Return a decorator that turns a function into a Behaviour with the name of the function.

    The function becomes the `change` of the Behaviour, and `fill` becomes its `fill`.
    """

    def make(change: Callable[..., object]) -> Behaviour:
        return Behaviour(change.__name__, fill, change)

    return make


def nothing(db: AnyDatabase) -> None:
    """Insert nothing before the sync. This is the `fill` of behaviours that create their collections in `change`."""


def documents(db: AnyDatabase) -> None:
    """Insert 100 padded documents into `c` and ten small ones into `other`.

    The padding matters: for small documents, the server logs updates as replacements.
    """
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
    """Create a collection of 20 documents with a unique, a hidden and a TTL index.

    Until the commit, the destination has stand-ins for these indexes: not unique, not hidden, and without expiration.
    """
    # Create the indexes before the documents: an index build on an empty collection takes no time.
    db.c.create_index("n", unique=True)
    db.c.create_index("sub.a", hidden=True)
    db.c.create_index("when", expireAfterSeconds=10**8)
    _fill(db.c, 20)


def two_collections(db: AnyDatabase) -> None:
    """Create the collections `a` and `b` with the same `_id`s, but with different indexes and documents."""
    db.a.create_index("n", unique=True, name="of a")
    db.b.create_index("sub.a", name="of b")
    for name in ("a", "b"):
        _fill(db[name], 15)
        db[name].update_many({}, {"$set": {"in": name}})


def use(collection: AnyCollection, tag: str) -> None:
    """Insert, update, replace, delete and upsert documents of a collection.

    A test then detects events that are applied to a wrong collection. `tag` makes the documents of each call different.
    Each document has another value of `n`, because some behaviours have a unique index on `n`.
    """
    texts = [f"{tag} {number}" for number in range(6)]
    collection.insert_many({"_id": text, "n": text, "number": 1, "pad": _PAD} for text in texts)
    collection.update_one({"_id": texts[0]}, {"$set": {"changed": tag}, "$unset": {"number": 1}})
    collection.replace_one({"_id": texts[1]}, {"n": texts[1], "replaced": True})
    collection.delete_one({"_id": texts[2]})
    collection.update_many({"_id": {"$in": [1, 2]}}, {"$set": {f"seen {tag}": 1, "sub.a": tag}})
    collection.delete_one({"_id": {"$gte": 10, "$lt": 20}})
    collection.update_one({"_id": f"{tag} upserted"}, {"$set": {"n": tag}}, upsert=True)
