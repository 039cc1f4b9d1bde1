"""Computes canonical forms of key values, which compare as the server compares the values with the simple collation.

Keys are values of `_id` and of shard key fields. The functions here have no side effects. The server compares numbers
by value, whatever their types, and treats symbols as strings, also inside embedded documents and arrays. Two events of
one document must never look like events of two documents.
"""

from __future__ import annotations

from decimal import Decimal
from struct import Struct
from typing import Any

from bson.decimal128 import Decimal128

from verifier.cluster import rawbson, values
from verifier.cluster.rawbson import Element, elements, int32_at

# The offset of the value of an `_id` that is the first field.
_ID_AT = 9
_DOUBLE = Struct("<d").unpack_from
_INT64 = Struct("<q").unpack_from
_UNSIGNED64 = Struct("<Q").unpack_from
# Strings compare by collation; embedded values may hold strings.
_COLLATABLE = frozenset({rawbson.STRING, rawbson.SYMBOL, rawbson.DOCUMENT, rawbson.ARRAY})

# The order of types in an index; values of types with the same rank are compared by value.
_NUMBER, _TEXT, _OBJECT_ID_RANK = 10, 15, 35
_RANKS = {
    rawbson.MIN_KEY: -1,
    rawbson.UNDEFINED: 0,
    rawbson.NULL: 5,
    rawbson.DOUBLE: _NUMBER,
    rawbson.INT32: _NUMBER,
    rawbson.INT64: _NUMBER,
    rawbson.DECIMAL128: _NUMBER,
    rawbson.STRING: _TEXT,
    rawbson.SYMBOL: _TEXT,
    rawbson.DOCUMENT: 20,
    rawbson.ARRAY: 25,
    rawbson.BINARY: 30,
    rawbson.OBJECT_ID: _OBJECT_ID_RANK,
    rawbson.BOOLEAN: 40,
    rawbson.DATE: 45,
    rawbson.TIMESTAMP: 47,
    rawbson.REGEX: 50,
    rawbson.DB_POINTER: 55,
    rawbson.CODE: 60,
    rawbson.CODE_WITH_SCOPE: 65,
    rawbson.MAX_KEY: 127,
}

# The rank of a value's type, and what is compared within that rank.
Canonical = tuple[Any, ...]


class KeyWithoutId(ValueError):
    """Raised if a document key or document has no `_id`."""


def id_element(document: bytes) -> Element:
    """Return the element `_id` of a document or document key. Raise KeyWithoutId if there is no `_id`."""
    # Fast path: `_id` is nearly always the first field.
    if document[5:9] == b"_id\0":
        kind = document[4]
        return Element(kind, b"_id", 9, 9 + rawbson.value_size(document, kind, 9))
    element = rawbson.find(document, b"_id")
    if element is None:
        raise KeyWithoutId("the document has no _id")
    return element


def canonical(document: bytes, element: Element) -> Canonical:
    """Return the canonical form of `element`, a value in `document`, such as its `_id` or a shard key field.

    Forms compare as in the server's index with the simple collation. Two forms are equal exactly if the server treats
    the two values as the same key.
    """
    kind, start = element.kind, element.start
    rank = _RANKS[kind]
    if rank == _NUMBER:
        return _number(document, kind, start)
    if rank == _TEXT or kind == rawbson.CODE:
        return (rank, document[start + 4 : element.end - 1])
    if kind == rawbson.DOCUMENT:
        return (rank, _fields(document, start))
    if kind == rawbson.ARRAY:
        return (rank, tuple(canonical(document, each) for each in elements(document, start)))
    if kind == rawbson.BINARY:
        # The index sorts by length first, and then by subtype.
        return (rank, int32_at(document, start)[0], document[start + 4 : element.end])
    if kind == rawbson.DATE:
        return (rank, _INT64(document, start)[0])
    if kind == rawbson.TIMESTAMP:
        return (rank, _UNSIGNED64(document, start)[0])
    if kind == rawbson.DB_POINTER:
        return (rank, int32_at(document, start)[0], document[start + 4 : element.end])
    if kind == rawbson.CODE_WITH_SCOPE:
        scope = start + 8 + int32_at(document, start + 4)[0]
        return (rank, document[start + 8 : scope - 1], _fields(document, scope))
    return (rank, document[start : element.end])


def canonical_id(document: bytes) -> Canonical:
    """Return the canonical form of the `_id` of a document or document key. Raise KeyWithoutId if it has none."""
    # Fast path: the usual types, in the first field.
    if document[5:9] == b"_id\0":
        kind = document[4]
        if kind == rawbson.OBJECT_ID:
            return (_OBJECT_ID_RANK, document[9:21])
        if kind == rawbson.INT32:
            return (_NUMBER, True, int32_at(document, 9)[0])
        if kind == rawbson.STRING:
            return (_TEXT, document[13 : 12 + int32_at(document, 9)[0]])
    return canonical(document, id_element(document))


def is_nan(form: Canonical) -> bool:
    """Return whether `form` is the canonical form of NaN."""
    return form == (_NUMBER, False)


def depends_on_collation(element: Element) -> bool:
    """Return whether a collation can treat different values of this element's type as the same key."""
    return element.kind in _COLLATABLE


def id_only(document: bytes) -> bytes:
    """Return a document with only the `_id` of `document`. Raise KeyWithoutId if there is no `_id`."""
    element = id_element(document)
    return rawbson.single(element.kind, b"_id", document[element.start : element.end])


def is_only_id(key: bytes) -> bool:
    """Return whether `_id` is the only field of a document key. Raise KeyWithoutId if there is no `_id`."""
    element = id_element(key)
    return element.start == _ID_AT and element.end == len(key) - 1


def shown(key: bytes) -> str:
    """Return the `_id` of a document key as text for messages: its type and value, shortened if it is long.

    Raise KeyWithoutId if there is no `_id`.
    """
    element = id_element(key)
    return values.shown(element.kind, key[element.start : element.end])


def _number(document: bytes, kind: int, at: int) -> Canonical:
    # Python's numbers compare, and hash, by value across types, decimals included.
    number: int | float | Decimal
    if kind == rawbson.INT32:
        number = int32_at(document, at)[0]
    elif kind == rawbson.INT64:
        number = _INT64(document, at)[0]
    elif kind == rawbson.DECIMAL128:
        number = Decimal128.from_bid(document[at : at + 16]).to_decimal()
    else:
        number = _DOUBLE(document, at)[0]
    # All NaNs are one key, and the lowest number. Python could not order a signaling NaN.
    return (_NUMBER, False) if _is_nan(number) else (_NUMBER, True, number)


def _is_nan(number: int | float | Decimal) -> bool:
    return number.is_nan() if isinstance(number, Decimal) else number != number


def _fields(document: bytes, at: int) -> Canonical:
    # The server compares the type before the name.
    return tuple(
        (_RANKS[each.kind], each.name, canonical(document, each)) for each in elements(document, at)
    )
