"""Behaviours with unusual `_id`s.

They are of many types, of mixed types, equal with different bytes, large, or not decodable by the driver.
"""

from __future__ import annotations

from typing import Any

from bson import Decimal128, Int64, MaxKey, MinKey, Regex, Timestamp
from bson.raw_bson import RawBSONDocument

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, documents
from tests.support.documents import IDS, raw_document, raw_field

_PAD = "p" * 2000
_MORE_IDS: tuple[Any, ...] = (
    *(1, 2.25, "1", "", "a" * 3000, float("inf"), float("-inf"), -0.0, Int64(3)),
    *({}, {"a": {"b": [1, {"c": None}]}}, {"a.b": 1}, {"": 1}, {"0": 1}, {"r": Regex("x", "i")}),
    *({"t": Timestamp(0, 0)}, {"nan": float("nan")}, {"x": MinKey(), "y": MaxKey()}),
)


def _keys(db: AnyDatabase) -> None:
    db.create_collection("inserted")
    for name in ("updated", "replaced", "deleted", "made again"):
        db[name].insert_many({"_id": key, "pad": _PAD, "sub": {"a": 1}} for key in _all_keys())


def _all_keys() -> list[Any]:
    return [*IDS, *_MORE_IDS]


def _id(key: Any) -> dict[str, Any]:
    return {"_id": {"$eq": key}}


@behaviour(fill=_keys)
def keys_of_every_type(db: AnyDatabase) -> None:
    for key in _all_keys():
        db.inserted.insert_one({"_id": key})
        assert db.updated.update_one(_id(key), {"$set": {"sub.a": 2}}).modified_count
        assert db.replaced.replace_one(_id(key), {"new": 1}).modified_count
        assert db.deleted.delete_one(_id(key)).deleted_count
        assert db["made again"].delete_one(_id(key)).deleted_count
        db["made again"].insert_one({"_id": key, "again": True})


@behaviour(fill=documents)
def keys_of_changing_type(db: AnyDatabase) -> None:
    """Replace documents by others whose `_id`s the server considers equal, but which have other types and bytes."""
    c = db.c
    for before, after in ((1, 1.0), (2, 2.0), (3, Int64(3)), (4, Decimal128("4.0"))):
        c.delete_one({"_id": before})
        c.insert_one({"_id": after, "type": "another", "pad": _PAD})
        c.update_one({"_id": before}, {"$set": {"more": 1}})
    c.insert_one({"_id": {"k": 1}, "v": 1})
    c.delete_one({"_id": {"k": 1}})
    c.insert_one({"_id": {"k": 1.0}, "v": 2})
    c.delete_one({"_id": 0})
    c.insert_one({"_id": -0.0, "v": 1})
    c.insert_one({"_id": float("nan"), "v": 1})
    c.delete_one({"_id": Decimal128("NaN")})
    c.insert_one({"_id": Decimal128("NaN"), "v": 2})


def _undecodable(label: bytes) -> list[RawBSONDocument]:
    """Return eight documents whose `_id`s the driver cannot decode by default: late dates, and binaries.

    The binaries have the subtype 2, but not the inner length that belongs to it. `label` is a letter; each letter
    returns other documents.
    """
    keys = [
        *(raw_field(0x09, b"_id", label + bytes([number]) * 6 + b"\x40") for number in range(4)),
        *(raw_field(0x05, b"_id", b"\3\0\0\0\2%c%b%c" % (n, label, n)) for n in range(4)),
    ]
    tail = raw_field(0x02, b"pad", b"\x02\0\0\0p\0")
    return [raw_document(key, tail) for key in keys]


def _undecodable_keys(db: AnyDatabase) -> None:
    db.c.insert_many(_undecodable(b"a"))
    db.c.create_index("pad")


@behaviour(fill=_undecodable_keys)
def keys_that_the_driver_cannot_decode(db: AnyDatabase) -> None:
    db.c.insert_many(_undecodable(b"b"))
    for document in _undecodable(b"a")[::3]:
        assert db.c.update_one(document, {"$set": {"n": 1}}).modified_count
    for document in _undecodable(b"a")[1::3]:
        assert db.c.delete_one(document).deleted_count


def _collated(db: AnyDatabase) -> None:
    db.create_collection("c", collation={"locale": "en", "strength": 2})
    db.c.insert_many({"_id": {"key": letter}, "pad": _PAD} for letter in "abc")
    db.c.insert_one({"_id": "A", "sub": {"n": 1}, "pad": _PAD})


@behaviour(fill=_collated)
def keys_that_a_collation_makes_one(db: AnyDatabase) -> None:
    """Change documents whose `_id`s are equal under the collation of the collection.

    A sync that reads a document again by its `_id` may find another document, whose `_id` is equal under the collation.
    """
    db.c.update_one({"_id": "A"}, {"$set": {"sub.n": 2}})
    db.c.delete_one({"_id": "A"})
    db.c.insert_one({"_id": "a", "sub": {"n": 3}})
    for letter in "abc":
        db.c.update_one({"_id": {"key": letter.upper()}}, {"$set": {"sub.n": letter}})
    db.c.delete_one({"_id": {"key": "B"}})
    db.c.insert_one({"_id": {"key": "B"}})


def _mixed(db: AnyDatabase) -> None:
    keys: list[Any] = [*range(50), *(n + 0.5 for n in range(50)), *map(str, range(50))]
    keys += [{"n": n} for n in range(50)]
    db.c.insert_many({"_id": key, "pad": "p" * 200} for key in keys)
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.clustered.insert_many({"_id": key, "pad": "p" * 200} for key in reversed(keys))


@behaviour(fill=_mixed)
def mixed_keys(db: AnyDatabase) -> None:
    for c in (db.c, db.clustered):
        c.update_many({"_id": {"$gte": 10, "$lt": 20}}, {"$set": {"n": 1}})
        c.delete_many({"_id": {"$gte": "2", "$lt": "3"}})
        c.update_many({"_id": {"$type": "object"}}, {"$set": {"n": 2}})
        c.insert_many({"_id": [n, str(n), {"n": n}][n % 3]} for n in range(200, 230))


def capped_and_collated(db: AnyDatabase) -> None:
    collation = {"locale": "en", "strength": 2}
    db.create_collection("c", capped=True, size=100_000, collation=collation)
    db.c.insert_many({"_id": letter, "pad": "p" * 2000} for letter in "abc")


@behaviour(fill=capped_and_collated)
def updates_of_a_capped_and_collated_collection(db: AnyDatabase) -> None:
    db.c.insert_many({"_id": letter, "pad": "p" * 2000} for letter in "def")
    db.c.update_one({"_id": "a"}, {"$set": {"n": 1}})
    db.c.update_one({"_id": "e"}, {"$set": {"n": 1}})
    db.c.insert_one({"_id": "g", "$x": 1})
    db.c.insert_one({"_id": "h"})


def large_keys(db: AnyDatabase) -> None:
    db.c.insert_many({"_id": f"{n}" + "k" * 5000} for n in range(6000))


@behaviour(fill=large_keys)
def many_documents_of_large_keys(db: AnyDatabase) -> None:
    """Update and delete many documents with `_id`s of 5 kB, which limit the number of statements in one command."""
    db.c.update_many({}, {"$inc": {"n": 1}})
    db.c.delete_many({"_id": {"$gt": "3"}})
