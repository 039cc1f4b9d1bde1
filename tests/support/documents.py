"""Creates documents of every BSON type, and documents with unusual field names that servers accept."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import bson
from bson import Binary, Code, DBRef, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

_NAN = float("nan")


def raw_field(kind: int, name: bytes, value: bytes) -> bytes:
    """Return the BSON of one field: its type, its name and its encoded value."""
    return bytes([kind]) + name + b"\0" + value


def raw_document(*fields: bytes) -> RawBSONDocument:
    """Return the BSON document with these encoded fields, for example results of `raw_field`."""
    body = b"".join(fields)
    return RawBSONDocument((len(body) + 5).to_bytes(4, "little") + body + b"\0")


VALUES: dict[str, Any] = {
    "double": 1.5,
    "negative zero": -0.0,
    "nan": _NAN,
    "infinity": float("inf"),
    "string": "text \x00 with zero, ünïcödé \U0001f600",
    "empty string": "",
    "document": {"b": 1, "a": {"": []}},
    "array": [1, [2, [3, {"x": None}]]],
    "binary": Binary(b"\x00\x11\x00" * 20, 0),
    "uuid": Binary.from_uuid(UUID(int=7)),
    "object id": ObjectId("0123456789abcdef01234567"),
    "true": True,
    "false": False,
    "date": datetime(2020, 2, 29, 12, 30, tzinfo=UTC),
    "null": None,
    "regex": Regex("^a.*b", "imsx"),
    "code": Code("function() { return 1; }"),
    "code with scope": Code("x", {"x": 1}),
    "int": 7,
    "timestamp": Timestamp(1700000000, 3),
    "zero timestamp": Timestamp(0, 0),
    "nested zero timestamp": {"t": Timestamp(0, 0), "l": [Timestamp(0, 0)]},
    "long": Int64(7),
    "large long": Int64(2**62),
    "decimal": Decimal128("1.10"),
    "decimal nan": Decimal128("NaN"),
    "min key": MinKey(),
    "max key": MaxKey(),
    "reference": DBRef("other", 1),
}

# Encoded fields: types that the driver no longer writes, values beyond Python's range, and unusual or duplicate names.
RAW_FIELDS: dict[str, bytes] = {
    "undefined": raw_field(0x06, b"v", b""),
    "symbol": raw_field(0x0E, b"v", b"\x04\0\0\0abc\0"),
    "database pointer": raw_field(0x0C, b"v", b"\x04\0\0\0a.b\0" + bytes(range(12))),
    "early date": raw_field(0x09, b"v", (-(2**62)).to_bytes(8, "little", signed=True)),
    "late date": raw_field(0x09, b"v", (2**62).to_bytes(8, "little", signed=True)),
    "nan with a payload": raw_field(0x01, b"v", b"\x01\0\0\0\0\0\xf8\x7f"),
    "old binary": raw_field(0x05, b"v", b"\x07\0\0\0\x02\x03\0\0\0abc"),
    "zero timestamp at top": raw_field(0x11, b"v", bytes(8)),
    "duplicate names": raw_field(0x10, b"v", b"\x01\0\0\0") + raw_field(0x10, b"v", b"\x02\0\0\0"),
    "empty name": raw_field(0x10, b"", b"\x01\0\0\0"),
    "dotted name": raw_field(0x10, b"a.b", b"\x01\0\0\0"),
    "dollar name": raw_field(0x10, b"$x", b"\x01\0\0\0"),
}

IDS: tuple[Any, ...] = (
    1.5,
    _NAN,
    "text",
    {"b": 1, "a": 2},
    Binary(b"\x00\x01", 0),
    ObjectId("0123456789abcdef01234567"),
    True,
    False,
    datetime(2021, 1, 1, tzinfo=UTC),
    None,
    Code("x"),
    7,
    Timestamp(5, 6),
    Timestamp(0, 0),
    Int64(2**60),
    Decimal128("2.50"),
    MinKey(),
    MaxKey(),
)


def odd_documents() -> Iterator[RawBSONDocument]:
    """Yield documents for each entry of VALUES and RAW_FIELDS, each `_id` in IDS, and an `_id` of type symbol."""
    for number, (name, value) in enumerate(VALUES.items()):
        yield RawBSONDocument(bson.encode({"_id": f"value {number}", "name": name, "v": value}))
    for number, (name, field) in enumerate(RAW_FIELDS.items()):
        head = bson.encode({"_id": f"raw {number}", "name": name})[4:-1]
        yield raw_document(head, field)
    for number, key in enumerate(IDS):
        yield RawBSONDocument(bson.encode({"_id": key, "number": number}))
    yield raw_document(raw_field(0x0E, b"_id", b"\x04\0\0\0sym\0"))


def insert_odd_documents(collection: Collection[Any]) -> None:
    """Insert all `odd_documents` into a collection.

    An update sets the zero timestamps at the top level afterwards, because the server replaces them in an insert by its
    own time.
    """
    collection.insert_many(odd_documents())
    for name in ("zero timestamp", "zero timestamp at top"):
        collection.update_many({"name": name}, [{"$set": {"v": Timestamp(0, 0)}}])
