"""Behaviours that update documents in ways whose change events are difficult to apply."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import bson
from bson import Timestamp
from bson.raw_bson import RawBSONDocument

from tests.support.behaviours.behaviour import AnyDatabase, behaviour, documents
from tests.support.documents import raw_document, raw_field

_PAD = "p" * 2000


def _set_field(name: str, value: Any) -> list[dict[str, Any]]:
    """Return an update pipeline that sets the field with this name, which may contain any characters, such as dots."""
    field = {"field": {"$literal": name}, "input": "$$ROOT", "value": value}
    return [{"$replaceWith": {"$setField": field}}]


def _unset_field(name: str) -> list[dict[str, Any]]:
    field = {"field": {"$literal": name}, "input": "$$ROOT"}
    return [{"$replaceWith": {"$unsetField": field}}]


@behaviour(fill=documents)
def single_document_writes(db: AnyDatabase) -> None:
    c = db.c
    c.insert_many([{"_id": f"new {n}", "n": n} for n in range(20)])
    for n in range(0, 40):
        c.update_one(
            {"_id": n}, {"$set": {"n": -n, "sub.a": "x", "added": 1}, "$unset": {"pad": 1}}
        )
    for n in range(40, 60):
        c.replace_one({"_id": n}, {"replaced": n, "when": datetime(2020, 1, 1)})
    c.delete_many({"_id": {"$gte": 60, "$lt": 80}})
    c.insert_many([{"_id": n, "again": True} for n in range(60, 70)])


@behaviour(fill=documents)
def array_updates(db: AnyDatabase) -> None:
    for n in range(30):
        db.c.update_one({"_id": n}, {"$push": {"list": n}, "$set": {"sub.b.1.c": n}})
        db.c.update_one({"_id": n}, [{"$set": {"list": {"$slice": ["$list", 3]}}}])
        db.c.update_one({"_id": n}, {"$pop": {"sub.b": 1}, "$pull": {"list": 2}})
        db.c.update_one({"_id": n}, {"$set": {"list.7": "far"}})


def _nested_arrays(db: AnyDatabase) -> None:
    nested = [{"l": list(range(9)), "m": [[1, 2, 3], [4, 5, 6]]} for _ in range(4)]
    db.c.insert_many({"_id": n, "a": nested, "b": list(range(20)), "pad": _PAD} for n in range(5))


@behaviour(fill=_nested_arrays)
def nested_truncations(db: AnyDatabase) -> None:
    """Truncate arrays and the arrays in their elements. The first update also sets an element of a nested array."""
    first = {"$mergeObjects": [{"$first": "$a"}, {"l": [0, 1], "m": [[1], [4, 5, "new"]]}]}
    shorter = {"$concatArrays": [[first], {"$slice": ["$a", 1, 1]}]}
    db.c.update_one({"_id": 0}, [{"$set": {"a": shorter}}])
    db.c.update_one({"_id": 1}, [{"$set": {"a": shorter, "b": {"$slice": ["$b", 5]}, "n": 1}}])
    db.c.update_one({"_id": 1}, {"$push": {"a": {"$each": ["x", "y"]}, "b": "z"}})
    db.c.update_one({"_id": 1}, [{"$set": {"a": {"$slice": ["$a", 3]}}}])
    db.c.update_one({"_id": 2}, [{"$set": {"a": [], "b": {"$slice": ["$b", 1]}}}])
    db.c.update_one({"_id": 3}, {"$push": {"a.0.l": {"$each": [], "$slice": 2}}})


@behaviour(fill=documents)
def updates_that_change_shapes(db: AnyDatabase) -> None:
    """Change the types of nested fields repeatedly.

    A sync that applies all these events to the final document finds a subdocument in place of an array, and a string in
    place of a subdocument.
    """
    for n in range(5):
        one = {"_id": n}
        db.c.update_one(one, {"$set": {"sub.b.2.c": "deep", "list.3": "set"}})
        db.c.update_one(one, {"$set": {"sub": [1, {"a": 2}], "list": {"0": "not an array"}}})
        db.c.update_one(one, {"$set": {"sub.1.a": 3, "list.0": "a field"}})
        db.c.update_one(one, {"$set": {"sub": "scalar"}, "$unset": {"list": 1}})
        db.c.update_one(one, {"$set": {"list.a.b.c": n}})


@behaviour(fill=documents)
def numeric_names(db: AnyDatabase) -> None:
    """Update fields whose names are numbers: at the top level, in subdocuments and in elements of arrays."""
    db.c.insert_one({"_id": "o", "o": {"0": "a", "1": {"5": 1}}, "l": [{"0": 1}], "pad": _PAD})
    db.c.update_one({"_id": "o"}, {"$set": {"o.1.5": 2, "o.7": 3, "l.0.0": 4, "l.1": 5}})
    db.c.update_one({"_id": "o"}, {"$unset": {"o.0": 1, "l.0.0": 1}, "$set": {"9": 9}})


@behaviour(fill=documents)
def odd_names(db: AnyDatabase) -> None:
    """Update fields whose names contain dots, begin with $ or are empty; nested fields have the same paths as some."""
    c = db.c
    c.insert_one(
        {"_id": "odd", "a": {"x.y": 1, "x": {"y": 2}}, "a.b": 1, "$d": 1, "": 1, "pad": _PAD}
    )
    one = {"_id": "odd"}
    for number in range(3):
        c.update_one(one, _set_field("a.b", number))
        c.update_one(one, _set_field("$d", number))
        c.update_one(one, _set_field("", number))
        c.update_one(one, {"$set": {"a.x.y": number, f"z{9 - number}": 1}})
    c.update_one(one, _set_field("a.x.y", "a name"))
    c.update_one(one, _set_field("$unset", {"$literal": {"$set": {"$x": 1}}}))
    c.update_one(one, _unset_field("a.b"))
    c.update_one(one, _unset_field("$d"))
    odd = raw_document(bson.encode({"$set": 1, "a.b": {"$inc": 1, "": {"": 2}}, "pad": _PAD})[4:-1])
    c.update_one(one, [{"$replaceWith": {"$literal": odd}}])
    c.update_one(one, {"$set": {"later": 1}})


def _duplicates(number: object) -> RawBSONDocument:
    """Return a document with duplicate field names, at the top level and in a subdocument."""
    twice = raw_field(0x10, b"x", b"\x01\0\0\0") + raw_field(0x10, b"x", b"\x02\0\0\0")
    deeper = raw_field(0x03, b"sub", bytes(raw_document(twice).raw))
    head = bson.encode({"_id": number, "list": [1, 2, 3], "pad": _PAD})[4:-1]
    return raw_document(head, twice, deeper)


def _with_duplicate_names(db: AnyDatabase) -> None:
    db.c.insert_many([_duplicates(number) for number in range(8)])


@behaviour(fill=_with_duplicate_names)
def duplicate_names(db: AnyDatabase) -> None:
    """Update documents that have duplicate field names. The documents are built as raw bytes.

    WARNING: a server crashes with a failed invariant if an update with `$_internalApplyOplogUpdate` contains the diff
    of such a document. No update here changes a duplicate field: even the secondaries of the source would apply that
    incorrectly.
    """
    db.c.insert_one(_duplicates("new"))
    for key in (0, "new"):
        db.c.update_one({"_id": key}, {"$set": {"added": 1, "sub.y": 1}, "$push": {"list": 4}})
    db.c.update_one({"_id": 1}, {"$unset": {"pad": 1}})
    db.c.update_one({"_id": 4}, [{"$set": {"list": {"$slice": ["$list", 1]}}}])
    db.c.replace_one({"_id": 5}, _duplicates(5))
    db.c.delete_one({"_id": 6})
    db.c.insert_one(_duplicates(6))


def _with_timestamps(db: AnyDatabase) -> None:
    documents(db)
    db.c.insert_one({"_id": "copied", "pad": _PAD})
    db.c.update_one({"_id": "copied"}, {"$set": {"t": Timestamp(0, 0)}})


@behaviour(fill=_with_timestamps)
def zero_timestamps(db: AnyDatabase) -> None:
    """Write zero timestamps, which the server keeps in these writes.

    In a plain insert or replacement, the server replaces a zero timestamp at the top level, except `_id`, by its time.
    """
    zero = Timestamp(0, 0)
    db.c.insert_one({"_id": "zero", "pad": _PAD})
    db.c.update_one({"_id": "zero"}, [{"$set": {"t": zero}}])
    db.c.update_one({"_id": 5}, [{"$replaceWith": {"_id": 5, "t": zero, "u": [zero]}}])
    db.c.update_one({"_id": 6}, {"$set": {"t": zero, "sub.t": zero}})
    db.c.update_one({"_id": 7}, {"$set": {"t": zero}})
    db.c.update_one({"_id": 7}, {"$set": {"u": 1}, "$unset": {"n": 1}})
    db.c.update_one({"_id": "upserted"}, {"$setOnInsert": {"t": zero}}, upsert=True)
    db.c.insert_one({"_id": zero, "t": {"t": zero}})


@behaviour(fill=documents)
def order_of_fields(db: AnyDatabase) -> None:
    for n in range(10):
        one = {"_id": n}
        db.c.update_one(one, [{"$set": {"m": 1, "b": 2, "a": 3}}])
        db.c.update_one(one, {"$set": {"z": 1, "y": {"b": 1, "a": 2}, "x": 3}})
        db.c.update_one(one, {"$unset": {"n": 1, "b": 1}})
        db.c.update_one(one, {"$set": {"n": "moved", "sub.z": 1, "sub.y": 2}})
        db.c.update_one(one, [{"$set": {"sub": {"q": 1, "p": 2}}}, {"$unset": ["sub.a"]}])
        db.c.update_one(one, {"$set": {"b": "moved", "sub.a": "moved"}, "$rename": {"z": "first"}})


@behaviour(fill=documents)
def updates_without_change(db: AnyDatabase) -> None:
    for n in range(10):
        db.c.update_one({"_id": n}, {"$set": {"n": n}})
        db.c.replace_one({"_id": n}, db.c.find_one({"_id": n}) or {})


@behaviour(fill=documents)
def hot_document(db: AnyDatabase) -> None:
    for n in range(300):
        db.c.update_one({"_id": 7}, {"$inc": {"n": 1}, "$set": {f"sub.k{n % 7}": n}})


@behaviour(fill=documents)
def deletes_and_inserts_of_one_key(db: AnyDatabase) -> None:
    for n in range(60):
        db.c.delete_one({"_id": 7})
        db.c.insert_one({"_id": 7, "life": n, "pad": _PAD})
        db.c.update_one({"_id": 7}, {"$set": {"lives": {"now": n}}})
        db.c.replace_one({"_id": 8}, {"life": n, "pad": _PAD}, upsert=True)
        db.c.delete_one({"_id": 8})
    db.c.delete_one({"_id": 9})


@behaviour(fill=documents)
def all_kinds_in_bulks(db: AnyDatabase) -> None:
    db.c.update_many({}, {"$inc": {"n": 1}, "$push": {"list": {"$each": ["p"], "$position": 2}}})
    db.c.update_many({"_id": {"$lt": 50}}, [{"$set": {"sub.b": {"$reverseArray": "$sub.b"}}}])
    db.c.delete_many({"_id": {"$mod": [7, 3]}})
    db.c.update_many({}, {"$mul": {"n": 1.5}, "$currentDate": {"now": True}})
    db.c.update_many({}, {"$bit": {"sub.a": {"or": 5}}, "$min": {"low": 3}, "$addToSet": {"s": 1}})
