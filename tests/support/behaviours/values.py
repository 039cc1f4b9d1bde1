"""Behaviours (user changes during a sync) with documents of every BSON type, and with unusual field names."""

from __future__ import annotations

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, nothing
from tests.support.documents import VALUES, insert_odd_documents, odd_documents


def _odd(db: AnyDatabase) -> None:
    insert_odd_documents(db.c)


@behaviour(fill=nothing)
def insert_every_type(db: AnyDatabase) -> None:
    insert_odd_documents(db.c)


@behaviour(fill=_odd)
def update_every_type(db: AnyDatabase) -> None:
    for value in VALUES.values():
        literal = {"$literal": value}
        db.c.update_one({"_id": "value 0"}, [{"$set": {"v": literal, "l": [literal]}}])
        db.c.update_many({"_id": {"$type": "string"}}, {"$set": {"w": value}})
    db.c.update_many({}, {"$set": {"x": {"y": 1}}})
    db.c.update_many({"_id": {"$type": "string"}}, {"$unset": {"w": 1}})


@behaviour(fill=_odd)
def replace_every_type(db: AnyDatabase) -> None:
    for number in range(len(VALUES)):
        db.c.replace_one({"_id": f"value {number}"}, {"v": list(VALUES.values())[-number]})
        db.c.update_one({"_id": f"raw {number}"}, {"$set": {"more": number}})
    db.c.update_many({}, {"$set": {"seen": 1}})
    db.c.delete_many({"_id": {"$type": "string"}})
    db.c.delete_many({})
    db.c.insert_many(odd_documents())
