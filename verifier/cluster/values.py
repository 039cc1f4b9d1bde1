"""Formats BSON values as readable text, such as `long 7` and `string "abc"`.

The functions here have no side effects.
"""

from __future__ import annotations

import json
from os.path import commonprefix
from typing import Any

from bson.errors import BSONError

from verifier.cluster import rawbson

_MOST_SHOWN = 60
# How many characters before the first difference of two long values are shown.
_LEAD = 20
# Larger values are not decoded just to show a few characters. In bytes.
_MOST_DECODED = 10_000

_NAMES = {
    rawbson.DOUBLE: "double",
    rawbson.STRING: "string",
    rawbson.DOCUMENT: "object",
    rawbson.ARRAY: "array",
    rawbson.BINARY: "binData",
    rawbson.UNDEFINED: "undefined",
    rawbson.OBJECT_ID: "objectId",
    rawbson.BOOLEAN: "bool",
    rawbson.DATE: "date",
    rawbson.NULL: "null",
    rawbson.REGEX: "regex",
    rawbson.DB_POINTER: "dbPointer",
    rawbson.CODE: "javascript",
    rawbson.SYMBOL: "symbol",
    rawbson.CODE_WITH_SCOPE: "javascriptWithScope",
    rawbson.INT32: "int",
    rawbson.TIMESTAMP: "timestamp",
    rawbson.INT64: "long",
    rawbson.DECIMAL128: "decimal",
    rawbson.MIN_KEY: "minKey",
    rawbson.MAX_KEY: "maxKey",
}
_TEXTS = (rawbson.STRING, rawbson.SYMBOL, rawbson.CODE)
_NOTHING_TO_SAY = (rawbson.UNDEFINED, rawbson.NULL, rawbson.MIN_KEY, rawbson.MAX_KEY)
_AS_BYTES = (rawbson.BINARY, rawbson.DB_POINTER, rawbson.OBJECT_ID)

Value = tuple[int, bytes]


def shown(kind: int, value: bytes) -> str:
    """Return the type and the value of a BSON value as text; a long value is shortened, or replaced by its size.

    `kind` is the type byte of the value, and `value` its encoded bytes.
    """
    return _named(kind, _cut(_text(kind, value), 0))


def type_name(kind: int) -> str:
    """Return the name of a BSON type, as in the server's operator `$type`. `kind` is the type byte."""
    return _NAMES.get(kind, f"type 0x{kind:02x}")


def shown_apart(one: Value, other: Value) -> tuple[str, str]:
    """Return two different BSON values as texts of type and value, shortened so that their difference is visible.

    Each value is given as its type byte and its encoded bytes. The texts of long values begin shortly before the first
    difference. If values of the same type would have the same text, they are shown as the hexadecimal digits of their
    bytes.
    """
    texts = [_text(*one), _text(*other)]
    if texts[0] == texts[1] and one[0] == other[0]:
        texts = [one[1].hex(), other[1].hex()]
    first = len(commonprefix(texts))
    shown_from = max(0, first - _LEAD) if first > _MOST_SHOWN - _LEAD else 0
    left, right = (
        _named(each[0], _cut(text, shown_from)) for each, text in zip((one, other), texts)
    )
    return left, right


def _named(kind: int, text: str) -> str:
    return f"{type_name(kind)} {text}".rstrip()


def _cut(text: str, start: int) -> str:
    head = "..." if start else ""
    tail = "..." if len(text) - start > _MOST_SHOWN else ""
    return f"{head}{text[start : start + _MOST_SHOWN]}{tail}"


def _text(kind: int, value: bytes) -> str:
    if kind in _NOTHING_TO_SAY:
        return ""
    if kind in _TEXTS:
        return json.dumps(value[4:-1].decode(errors="replace"), ensure_ascii=False)
    if kind in _AS_BYTES:
        return value.hex()
    if len(value) > _MOST_DECODED:
        return f"of {len(value):,} bytes"
    try:
        return _decoded(rawbson.decode(rawbson.single(kind, b"v", value))["v"])
    except BSONError:
        # The value is malformed, or contains a malformed value, such as a binary of subtype 2 without its inner length.
        return value.hex()


def _decoded(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return repr(value) if isinstance(value, float) else str(value)
