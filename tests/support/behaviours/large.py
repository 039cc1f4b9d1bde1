"""Behaviours with documents of 1 MB and more, up to the maximum size, and updates of such documents."""

from __future__ import annotations

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, beside, nothing

_LIMIT = 16 << 20
_KEY = "k" * 3_000_000
_LONG = "l" * 1_000_000


def _documents(db: AnyDatabase) -> None:
    db.c.insert_many({"_id": n, "blob": b"\0" * 5_000_000} for n in range(3))
    db.c.insert_one({"_id": 3, "blob": b"\x22" * (_LIMIT - 60)})
    db.c.insert_one({"_id": _KEY, "n": 1, "pad": "p" * 2000})


@behaviour(fill=_documents)
def large_documents(db: AnyDatabase) -> None:
    db.c.insert_one({"_id": "new", "blob": b"\x11" * (_LIMIT - 60)})
    db.c.update_one({"_id": 0}, {"$set": {"more": "m" * 5_000_000}})
    db.c.update_one({"_id": 0}, {"$set": {"blob": b"\x01" * 9_000_000}})
    db.c.update_one({"_id": _KEY}, {"$set": {"n": 2}})
    db.c.update_one({"_id": 3}, {"$set": {"n": 1}})
    db.c.replace_one({"_id": 3}, {"blob": b"\x23" * (_LIMIT - 60)})


def _grown(db: AnyDatabase) -> None:
    """Create a document of almost 16 MB that servers do not accept in an insert, because its `_id` has 1 MB."""
    db.c.insert_one({"_id": _LONG, "z": b"z" * 8_000_000})
    db.c.update_one({"_id": _LONG}, {"$set": {"a": b"a" * 7_000_000}})


@behaviour(fill=_grown)
def large_documents_of_large_keys(db: AnyDatabase) -> None:
    _grown(beside(db))
    db.c.update_one({"_id": _LONG}, {"$set": {"n": 1}})


@behaviour(fill=nothing)
def many_middling_documents(db: AnyDatabase) -> None:
    db.c.insert_many({"_id": n, "blob": bytes([n]) * 1_000_000} for n in range(12))
    for n in range(12):
        db.c.update_one({"_id": n}, {"$set": {"blob": bytes([n + 100]) * 1_100_000}})
