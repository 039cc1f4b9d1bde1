"""Two `_id` values have equal canonical forms if and only if the server treats the values as equal.

The classes of equal values in CLASSES were verified on a server: a collection cannot hold two documents whose `_id`s
are of the same class, but can hold documents whose `_id`s are of different classes.

Also tests how the `_id` of a document is found, and which types of `_id` a collation concerns.
"""

from __future__ import annotations

import struct

import pytest
from bson import Decimal128
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import documents
from tests.unit.documents import Field, array, code_with_scope, document, double, int32, int64, key
from verifier.cluster.keys import (
    KeyWithoutId,
    canonical,
    canonical_id,
    depends_on_collation,
    id_element,
    id_only,
)
from verifier.cluster.rawbson import Element

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY, UNDEFINED = 0x01, 0x02, 0x03, 0x04, 0x05, 0x06
OBJECT_ID, BOOLEAN, DATE, NULL, REGEX = 0x07, 0x08, 0x09, 0x0A, 0x0B
CODE, SYMBOL, CODE_WITH_SCOPE = 0x0D, 0x0E, 0x0F
INT32, TIMESTAMP, INT64, DECIMAL = 0x10, 0x11, 0x12, 0x13
MIN_KEY, MAX_KEY = 0xFF, 0x7F


def i32(number: int) -> bytes:
    return key(INT32, int32(number))


def i64(number: int) -> bytes:
    return key(INT64, int64(number))


def dbl(number: float) -> bytes:
    return key(DOUBLE, double(number))


def bits(number: int) -> bytes:
    return key(DOUBLE, struct.pack("<Q", number))


def dec(text: str) -> bytes:
    return key(DECIMAL, Decimal128(text).bid)


def text(kind: int, value: bytes) -> bytes:
    return key(kind, documents.string(value))


def sub(*fields: tuple[int, bytes, bytes]) -> bytes:
    """Return a key, an encoded document, whose `_id` is an embedded document with these fields.

    Each field is given as its BSON type, its name and its encoded value.
    """
    return key(DOCUMENT, document(*(Field(*field) for field in fields)))


A1 = (INT32, b"a", int32(1))
B2 = (INT32, b"b", int32(2))

CLASSES: dict[str, list[bytes]] = {
    "one": [i32(1), i64(1), dbl(1.0), dec("1"), dec("1.000"), dec("10E-1")],
    "zero": [i32(0), i64(0), dbl(0.0), dbl(-0.0), dec("0"), dec("-0"), dec("0E+90"), dec("0E-90")],
    "nan": [
        bits(0x7FF8000000000000),
        bits(0x7FF8000000000001),
        bits(0xFFF8000000000000),
        bits(0x7FF0000000000001),
        dec("NaN"),
        dec("-NaN"),
        dec("sNaN"),
    ],
    "infinity": [dbl(float("inf")), dec("Infinity")],
    "-infinity": [dbl(float("-inf")), dec("-Infinity")],
    "2**53": [i64(2**53), dbl(2.0**53), dec(str(2**53))],
    "2**53 + 1": [i64(2**53 + 1), dec(str(2**53 + 1))],
    "2**63 - 1": [i64(2**63 - 1), dec(str(2**63 - 1))],
    "2**63": [dbl(2.0**63), dec(str(2**63))],
    "a half": [dbl(0.5), dec("0.5"), dec("0.50")],
    "a tenth": [dec("0.1"), dec("1E-1")],
    "about a tenth": [dbl(0.1)],
    "a tenth in 34 digits": [dec("0.1000000000000000055511151231257827")],
    "10**23": [dec("1E23")],
    "about 10**23": [dbl(1e23), dec("99999999999999991611392")],
    "large": [dec("1E+6000")],
    "small": [dec("1E-6000")],
    "smallest double": [dbl(5e-324)],
    "5E-324": [dec("5E-324")],
    "text": [text(STRING, b"a"), text(SYMBOL, b"a")],
    "no text": [text(STRING, b""), text(SYMBOL, b"")],
    "large letter": [text(STRING, b"A")],
    "text with zero": [text(STRING, b"a\0b")],
    "digit": [text(STRING, b"1")],
    "code": [text(CODE, b"a")],
    "true": [key(BOOLEAN, b"\1")],
    "false": [key(BOOLEAN, b"\0")],
    "null": [key(NULL)],
    "min": [key(MIN_KEY)],
    "max": [key(MAX_KEY)],
    "date": [key(DATE, int64(1))],
    "date 0": [key(DATE, int64(0))],
    "timestamp": [key(TIMESTAMP, int64(1))],
    "timestamp 0": [key(TIMESTAMP, int64(0))],
    "object id": [key(OBJECT_ID, bytes(12))],
    "bytes": [key(BINARY, int32(1) + b"\0a")],
    "other bytes": [key(BINARY, int32(1) + b"\x05a")],
    "regex": [key(REGEX, b"a\0i\0")],
    "other regex": [key(REGEX, b"a\0im\0")],
    "{}": [sub()],
    "{a: 1}": [
        sub(A1),
        sub((DOUBLE, b"a", double(1.0))),
        sub((INT64, b"a", int64(1))),
        sub((DECIMAL, b"a", Decimal128("1.00").bid)),
    ],
    "{a: true}": [sub((BOOLEAN, b"a", b"\1"))],
    "{b: 1}": [sub((INT32, b"b", int32(1)))],
    "{a: 1, b: 2}": [sub(A1, B2), sub(A1, (DOUBLE, b"b", double(2.0)))],
    "{b: 2, a: 1}": [sub(B2, A1)],
    "{a: 1, a: 1}": [sub(A1, A1)],
    "{a: 0}": [sub((INT32, b"a", int32(0))), sub((DOUBLE, b"a", double(-0.0)))],
    "{a: nan}": [
        sub((DOUBLE, b"a", double(float("nan")))),
        sub((DECIMAL, b"a", Decimal128("NaN").bid)),
    ],
    "{a: null}": [sub((NULL, b"a", b""))],
    "{a: undefined}": [sub((UNDEFINED, b"a", b""))],
    "{a: text}": [
        sub((STRING, b"a", documents.string(b"x"))),
        sub((SYMBOL, b"a", documents.string(b"x"))),
    ],
    "{a: [1]}": [
        sub((ARRAY, b"a", array((INT32, int32(1))))),
        sub((ARRAY, b"a", array((DOUBLE, double(1.0))))),
    ],
    "{a: [1, 2]}": [sub((ARRAY, b"a", array((INT32, int32(1)), (INT32, int32(2)))))],
    "{a: [2, 1]}": [sub((ARRAY, b"a", array((INT32, int32(2)), (INT32, int32(1)))))],
    "{a: {0: 1}}": [sub((DOCUMENT, b"a", array((INT32, int32(1)))))],
    "{a: {a: 1}}": [
        sub((DOCUMENT, b"a", document(Field(*A1)))),
        sub((DOCUMENT, b"a", document(Field(DOUBLE, b"a", double(1))))),
    ],
    "code with scope": [key(CODE_WITH_SCOPE, code_with_scope(b"a", document()))],
    "other code with a scope": [key(CODE_WITH_SCOPE, code_with_scope(b"b", document(Field(*A1))))],
    "code with a scope": [key(CODE_WITH_SCOPE, code_with_scope(b"a", document(Field(*A1))))],
}


@pytest.mark.parametrize("name", CLASSES)
def test_keys_that_the_server_treats_as_equal_have_equal_forms(name: str) -> None:
    values = [canonical(each, id_element(each)) for each in CLASSES[name]]
    assert all(value == values[0] and hash(value) == hash(values[0]) for value in values)


@pytest.mark.parametrize("name", CLASSES)
def test_keys_that_the_server_distinguishes_have_different_forms(name: str) -> None:
    one, *_ = CLASSES[name]
    ours = canonical(one, id_element(one))
    others = [each for other, members in CLASSES.items() if other != name for each in members]
    assert [each for each in others if canonical(each, id_element(each)) == ours] == []


def test_numbers_in_the_scope_of_code_are_compared_by_value() -> None:
    scopes = [document(Field(*A1)), document(Field(DOUBLE, b"a", double(1.0)))]
    one, other = (key(CODE_WITH_SCOPE, code_with_scope(b"a", scope)) for scope in scopes)
    assert canonical(one, id_element(one)) == canonical(other, id_element(other))


@given(documents.values)
def test_the_form_of_a_key_depends_only_on_its_value(value: tuple[int, bytes]) -> None:
    alone = key(*value)
    among = document(Field(INT32, b"a", int32(1)), Field(value[0], b"_id", value[1]))
    one, other = canonical(alone, id_element(alone)), canonical(among, id_element(among))
    assert one == other and hash(one) == hash(other)


@given(documents.stored_field_lists)
def test_the_form_of_an_id_is_that_of_its_element(fields: list[Field]) -> None:
    raw = document(*fields)
    assert canonical_id(raw) == canonical(raw, id_element(raw))
    moved = document(Field(INT32, b"a", int32(1)), *fields)
    assert canonical_id(moved) == canonical_id(raw)


@given(st.integers(-(2**63), 2**63 - 1), st.integers(-(2**63), 2**63 - 1))
def test_equal_integers_of_different_types_are_the_same_key(one: int, other: int) -> None:
    for number, decimal in ((one, other), (one, one)):
        same = canonical(i64(number), id_element(i64(number))) == canonical(
            dec(str(decimal)), id_element(dec(str(decimal)))
        )
        assert same is (number == decimal)


@given(documents.stored_field_lists)
def test_a_document_is_reduced_to_its_id(fields: list[Field]) -> None:
    assert id_only(document(*fields)) == document(fields[0])


@pytest.mark.parametrize("before", [[], [Field(*A1)], [Field(*A1), Field(*B2)]])
def test_the_id_is_found_at_any_position(before: list[Field]) -> None:
    identity = Field(STRING, b"_id", documents.string(b"x"))
    raw = document(*before, identity, Field(*B2))
    element = id_element(raw)
    assert (element.kind, element.name) == (STRING, b"_id")
    assert raw[element.start : element.end] == identity.value


@pytest.mark.parametrize(
    "fields", [[], [A1], [(INT32, b"_id2", int32(1))], [(INT32, b"x_id", b"____")]]
)
def test_a_document_without_an_id_is_refused(fields: list[tuple[int, bytes, bytes]]) -> None:
    with pytest.raises(KeyWithoutId):
        id_element(document(*(Field(*field) for field in fields)))


def test_an_id_below_the_top_does_not_count() -> None:
    below = Field(DOCUMENT, b"d", key(INT32, int32(1)))
    with pytest.raises(KeyWithoutId):
        id_element(document(below))


@pytest.mark.parametrize(
    "kind, depends",
    [
        (STRING, True),
        (SYMBOL, True),
        (DOCUMENT, True),
        (ARRAY, True),
        (INT32, False),
        (OBJECT_ID, False),
        (BINARY, False),
        (NULL, False),
        (CODE, False),
    ],
)
def test_only_types_that_can_hold_text_depend_on_collation(kind: int, depends: bool) -> None:
    assert depends_on_collation(Element(kind, b"_id", 0, 0)) is depends
