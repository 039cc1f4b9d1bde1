"""Document keys as the server tells them apart: which `_id` values are one key. Pure.

The server compares numbers by value across their types, and strings with symbols; inside embedded documents and arrays
too. Two events of one document must never look like events of two.
"""

from __future__ import annotations

import math
from collections.abc import Hashable
from struct import Struct

from bson.decimal128 import Decimal128

from verifier.cluster import rawbson
from verifier.cluster.rawbson import Element

_DOUBLE = Struct("<d").unpack_from
_INT64 = Struct("<q").unpack_from
_NUMBERS = frozenset({rawbson.DOUBLE, rawbson.INT32, rawbson.INT64, rawbson.DECIMAL128})
# Strings compare by collation; embedded values may hold strings.
_COLLATABLE = frozenset({rawbson.STRING, rawbson.SYMBOL, rawbson.DOCUMENT, rawbson.ARRAY})


_MOST_SHOWN = 200


class KeyWithoutId(ValueError):
    """A document key or document has no `_id`."""


def id_element(document: bytes) -> Element:
    """The `_id` of a document or document key. Raises KeyWithoutId."""
    # Nearly always the first field, of a name that needs no search.
    if document[5:9] == b"_id\0":
        kind = document[4]
        return Element(kind, b"_id", 9, 9 + rawbson.value_size(document, kind, 9))
    element = rawbson.find(document, b"_id")
    if element is None:
        raise KeyWithoutId("a document without _id")
    return element


def canonical(document: bytes, element: Element) -> Hashable:
    """A value that is equal for two `_id`s exactly when the server takes them for one key (simple collation)."""
    kind = element.kind
    if kind in _NUMBERS:
        return _number(document, kind, element.start)
    if kind in (rawbson.DOCUMENT, rawbson.ARRAY):
        return (kind, _embedded(document, element.start))
    if kind == rawbson.CODE_WITH_SCOPE:
        scope = element.start + 8 + rawbson.int32_at(document, element.start + 4)[0]
        return (kind, document[element.start + 8 : scope], _embedded(document, scope))
    if kind == rawbson.SYMBOL:
        kind = rawbson.STRING
    return (kind, document[element.start : element.end])


def depends_on_collation(element: Element) -> bool:
    """Whether a collation other than the simple one can make two different values of this type one key."""
    return element.kind in _COLLATABLE


def id_only(document: bytes) -> bytes:
    """The document cut down to its `_id`."""
    element = id_element(document)
    return rawbson.single(element.kind, b"_id", document[element.start : element.end])


def shown(key: bytes) -> str:
    """A key as people are told of it, cut where it is long."""
    text = str(rawbson.decode(key))
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def _number(document: bytes, kind: int, at: int) -> Hashable:
    if kind == rawbson.INT32:
        return int(rawbson.int32_at(document, at)[0])
    if kind == rawbson.INT64:
        return int(_INT64(document, at)[0])
    if kind == rawbson.DECIMAL128:
        return _decimal(document[at : at + 16])
    number = float(_DOUBLE(document, at)[0])
    return "NaN" if math.isnan(number) else number


def _decimal(value: bytes) -> Hashable:
    # Python's numbers are equal, and hash alike, across types when their values are equal, decimals included.
    number = Decimal128.from_bid(value).to_decimal()
    return "NaN" if number.is_nan() else number


def _embedded(document: bytes, at: int) -> tuple[Hashable, ...]:
    return tuple(
        (element.name, canonical(document, element)) for element in rawbson.elements(document, at)
    )
