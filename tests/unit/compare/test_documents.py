"""The comparison of two documents reports exactly the fields that differ, at any depth, up to 20 of them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import bson
import pytest
from bson import Binary, Code, Decimal128, Int64, MaxKey, ObjectId, Regex, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.documents import Field, array, document, double, field_lists, int32
from verifier.cluster import rawbson
from verifier.compare.documents import Mode, differences, equal

BINARY, ANY_ORDER = Mode.BINARY, Mode.IGNORE_FIELD_ORDER
ORDER = "the order of the fields differs"


def found(source: Any, destination: Any, mode: Mode = BINARY) -> dict[str, str]:
    ours, theirs = bson.encode(source), bson.encode(destination)
    named = differences(ours, theirs, mode)
    assert equal(ours, theirs, mode) is (not named)
    return {each.path: each.detail for each in named}


def sides(source: str, destination: str) -> str:
    return f"{source} on the source, {destination} on the destination"


@pytest.mark.parametrize(
    "source, destination, path, detail",
    [
        ({"a": 1}, {}, "a", "missing on the destination (int 1)"),
        ({"a": None}, {}, "a", "missing on the destination (null)"),
        ({}, {"a": "x"}, "a", 'extra on the destination (string "x")'),
        ({"a": 1}, {"a": 2}, "a", sides("int 1", "int 2")),
        ({"a": 1}, {"a": Int64(1)}, "a", sides("int 1", "long 1")),
        ({"a": 1}, {"a": 1.0}, "a", sides("int 1", "double 1.0")),
        ({"a": 0.0}, {"a": -0.0}, "a", sides("double 0.0", "double -0.0")),
        ({"a": True}, {"a": MaxKey()}, "a", sides("bool true", "maxKey")),
        ({"a": {"b": 1}}, {"a": [1]}, "a", sides("object {'b': 1}", "array [1]")),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "a.0.b", sides("int 1", "int 2")),
        ({"a": [1, 2]}, {"a": [1]}, "a.1", "missing on the destination (int 2)"),
        ({"a": {"": 1}}, {"a": {"": 2}}, 'a.""', sides("int 1", "int 2")),
        ({"a.b": 1}, {"a.b": 2}, '"a.b"', sides("int 1", "int 2")),
        ({"a": {"b": 1}, "a.b": 1}, {"a": {"b": 1}}, '"a.b"', "missing on the destination (int 1)"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "", ORDER),
        ({"x": {"a": 1, "b": 2}}, {"x": {"b": 2, "a": 1}}, "x", ORDER),
        ({"x": [{"a": 1, "b": 2}]}, {"x": [{"b": 2, "a": 1}]}, "x.0", ORDER),
        ({"c": Code("f", {"a": 1})}, {"c": Code("f", {"a": 2})}, "c.a", sides("int 1", "int 2")),
        (
            {"c": Code("f", {})},
            {"c": Code("g", {})},
            "c",
            sides("javascriptWithScope f", "javascriptWithScope g"),
        ),
        (
            {"a": Decimal128("1.0")},
            {"a": Decimal128("1.00")},
            "a",
            sides("decimal 1.0", "decimal 1.00"),
        ),
    ],
)
def test_a_difference_is_named(source: Any, destination: Any, path: str, detail: str) -> None:
    assert found(source, destination) == {path: detail}


@pytest.mark.parametrize(
    "value, text",
    [
        (ObjectId("0123456789abcdef01234567"), "objectId 0123456789abcdef01234567"),
        (Timestamp(5, 6), "timestamp Timestamp(5, 6)"),
        (Binary(b"\1\2", 4), "binData 02000000040102"),
        (Code("x"), 'javascript "x"'),
        ("ü\n", 'string "ü\\n"'),
        ("x" * 100, 'string "' + "x" * 59 + "..."),
        (["x" * 20_000], "array of 20,013 bytes"),
    ],
)
def test_values_are_shown_with_their_types(value: Any, text: str) -> None:
    assert found({"a": value}, {}) == {"a": f"missing on the destination ({text})"}


def test_values_of_other_types_can_be_shown() -> None:
    for value in (Regex("a", "i"), Code("x", {"a": 1}), 1.5, Int64(7)):
        assert found({"a": value}, {})


def test_a_value_that_cannot_be_decoded_is_shown_as_bytes() -> None:
    # Binary data of subtype 2 must begin with a second length, which is missing.
    malformed = array((0x05, int32(1) + b"\2x"))
    (difference,) = differences(document(Field(0x04, b"a", malformed)), document(), BINARY)
    assert difference.detail == f"missing on the destination (array {malformed.hex()})"


def test_long_values_are_cut_around_the_difference() -> None:
    detail = found({"a": "x" * 500 + "y" + "x" * 500}, {"a": "x" * 500 + "z" + "x" * 500})["a"]
    left, right = detail.split(" on the source, ")
    assert "xy" in left and "xz" in right and len(detail) < 250


def test_payloads_with_equal_texts_are_shown_as_bytes() -> None:
    one, other = (
        document(Field(0x01, b"a", bytes([low]) + b"\0\0\0\0\0\xf8\x7f")) for low in (0, 1)
    )
    (difference,) = differences(one, other, BINARY)
    assert difference.detail == (
        "double 000000000000f87f on the source, double 010000000000f87f on the destination"
    )


def test_a_different_order_is_reported_with_other_differences() -> None:
    assert set(found({"a": 1, "b": 2, "c": 3}, {"b": 2, "a": 9, "d": 3})) == {"", "a", "c", "d"}


@pytest.mark.parametrize(
    "source, destination",
    [
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        ({"x": [{"a": 1, "b": {"c": 1, "d": 2}}]}, {"x": [{"b": {"d": 2, "c": 1}, "a": 1}]}),
        ({"c": Code("f", {"a": 1, "b": 2})}, {"c": Code("f", {"b": 2, "a": 1})}),
    ],
)
def test_the_order_of_fields_can_be_ignored(source: Any, destination: Any) -> None:
    assert found(source, destination) and not found(source, destination, ANY_ORDER)


@pytest.mark.parametrize(
    "source, destination, path",
    [
        ({"a": [1, 2]}, {"a": [2, 1]}, "a.0"),
        ({"a": 1, "b": 2}, {"b": 2.0, "a": 1}, "b"),
        ({"a": [{"x": 1, "y": 2}]}, {"a": [{"y": 2, "x": 3}]}, "a.0.x"),
    ],
)
def test_only_the_order_of_fields_is_ignored(source: Any, destination: Any, path: str) -> None:
    assert path in found(source, destination, ANY_ORDER)


def fields(*named: tuple[bytes, int]) -> bytes:
    return document(*(Field(0x10, name, int32(number)) for name, number in named))


A1, A2, A3, B1 = (b"a", 1), (b"a", 2), (b"a", 3), (b"b", 1)


@pytest.mark.parametrize(
    "source, destination, expected",
    [
        ([A1, A1], [A1], [("a", "missing on the destination (int 1)")]),
        ([A1, A2], [A1, A3], [("a", "int 2 on the source, int 3 on the destination")]),
        ([A1, A2], [A2], [("a", "missing on the destination (int 1)")]),
        ([A1, A2], [A2, A1], [("", ORDER)]),
        ([A1, B1, A2], [A1, A2, B1], [("", ORDER)]),
    ],
)
def test_duplicate_field_names_are_matched(
    source: list[tuple[bytes, int]],
    destination: list[tuple[bytes, int]],
    expected: list[tuple[str, str]],
) -> None:
    named = differences(fields(*source), fields(*destination), BINARY)
    assert [(each.path, each.detail) for each in named] == expected


def test_embedded_documents_of_one_name_match_in_any_order() -> None:
    inner = [fields(A1, B1), fields(A2, B1), fields(B1, A1), fields(B1, A2)]
    one, two, swapped_one, swapped_two = (Field(0x03, b"d", each) for each in inner)
    assert equal(document(one, two), document(swapped_two, swapped_one), ANY_ORDER)
    assert not equal(document(one, two), document(swapped_two, swapped_two), ANY_ORDER)


def test_a_field_name_with_invalid_utf8_is_shown() -> None:
    odd = document(Field(0x0A, b"a\xff", b""))
    assert [each.path for each in differences(odd, document(), BINARY)] == ["a\ufffd"]


def nested(depth: int, number: int) -> bytes:
    raw = fields((b"n", number))
    for _ in range(depth):
        raw = document(Field(0x03, b"d", raw))
    return raw


@pytest.mark.parametrize("mode", Mode)
def test_the_deepest_documents_are_compared(mode: Mode) -> None:
    (difference,) = differences(nested(250, 1), nested(250, 2), mode)
    assert difference.path == "d." * 250 + "n"


def test_only_the_first_differences_are_named() -> None:
    assert len(found({str(n): n for n in range(100)}, {str(n): -1 for n in range(100)})) == 20


MANY = 21_000
NUMBERS = range(MANY)
MAP = {f"k{number}": number for number in NUMBERS}


@pytest.mark.parametrize(
    "source, destination, number, path",
    [
        ({"a": [*NUMBERS, 1]}, {"a": [*NUMBERS, 2]}, 1, f"a.{MANY}"),
        ({"a": [*NUMBERS]}, {"a": [-1, *NUMBERS]}, 20, "a.0"),
        ({"a": [*NUMBERS]}, {"a": []}, 20, "a.0"),
        ({"a": [{"n": 1}] * MANY}, {"a": [{"n": 2}] * MANY}, 20, "a"),
        (MAP, {**MAP, "k7": -1}, 1, "k7"),
        ({"first": 1, **MAP}, {**MAP, "last": 1}, 2, "first"),
        (MAP, dict(reversed(MAP.items())), 1, ""),
    ],
)
def test_the_comparison_of_large_documents_needs_little_memory(
    source: Any, destination: Any, number: int, path: str
) -> None:
    before, after = (bson.encode(each) for each in (source, destination))
    longest = max(len(before), len(after))
    for mode in Mode:
        tracemalloc.start()
        try:
            named = differences(before, after, mode)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 5_000_000 + 7 * longest
        if mode is BINARY:
            assert (len(named), named[0].path) == (number, path)


def test_a_document_with_too_many_differences_says_so() -> None:
    many = "too many fields differ, or are in a different order, to list them all"
    half = dict([*MAP.items()][MANY // 2 :])
    assert found(MAP, half) == {"": many}
    # Only k1 is found in both documents before the comparison ends.
    assert found(MAP, {"k1": -1, **half}) == {"k1": sides("int 1", "int -1"), "": many}


@dataclass
class Node:
    """One field of a document that a test changes.

    If the value is a document or an array, `children` are its fields, and `value` is ignored.
    """

    kind: int
    name: bytes
    value: bytes
    children: list[Node] | None = None

    @property
    def field(self) -> Field:
        inside = self.value if self.children is None else encoded(self.children)
        return Field(self.kind, self.name, inside)


def encoded(nodes: list[Node]) -> bytes:
    return document(*(node.field for node in nodes))


def tree(raw: bytes) -> list[Node]:
    return [
        Node(
            each.kind,
            each.name,
            raw[each.start : each.end],
            tree(raw[each.start : each.end]) if each.kind in (0x03, 0x04) else None,
        )
        for each in rawbson.elements(raw)
    ]


def levels(nodes: list[Node], path: tuple[bytes, ...] = ()) -> Iterator[tuple[str, list[Node]]]:
    yield shown_path(path), nodes
    for node in nodes:
        if node.children is not None:
            yield from levels(node.children, (*path, node.name))


def shown_path(names: tuple[bytes, ...]) -> str:
    steps = (name.decode() for name in names)
    return ".".join(f'"{step}"' if not step or "." in step else step for step in steps)


NEW = Node(0x01, b"new.name", double(0.123456789))


def change(nodes: list[Node], at: int, how: str) -> list[bytes]:
    """Change `nodes`, the fields of one document, at the index `at`; return the names of the fields that then differ.

    `how` is "add", "remove" or "replace"; any other text swaps the field with the field before it. If there is no field
    before it, or that field has the same name, the field is replaced instead. If `nodes` is empty, a field is added.
    After a swap, only the order differs, and the returned list is empty.
    """
    if how == "add" or not nodes:
        nodes.insert(at, NEW)
        return [NEW.name]
    name = nodes[at].name
    if how == "remove":
        del nodes[at]
    elif how == "replace" or not at or nodes[at - 1].name == name:
        nodes[at] = replace(NEW, name=name)
    else:
        nodes[at - 1 : at + 1] = nodes[at], nodes[at - 1]
        return []
    return [name]


@given(field_lists, st.sampled_from(["remove", "replace", "add", "swap"]), st.randoms())
def test_exactly_the_changed_field_is_reported(
    raw_fields: list[Field], how: str, random: Random
) -> None:
    before = document(*raw_fields)
    nodes = tree(before)
    path, level = random.choice([*levels(nodes)])
    names = change(level, random.randrange(len(level) or 1), how)
    expected = ".".join(filter(None, [path, *(shown_path((name,)) for name in names)]))
    after = encoded(nodes)
    assert [each.path for each in differences(before, after, BINARY)] == [expected]
    assert equal(before, after, ANY_ORDER) is (not differences(before, after, ANY_ORDER))
    assert names == [] or not equal(before, after, ANY_ORDER)


@given(field_lists)
def test_a_document_is_equal_to_itself(raw_fields: list[Field]) -> None:
    raw = document(*raw_fields)
    assert equal(raw, raw, BINARY) and differences(raw, raw, BINARY) == ()
    swapped = document(*reversed(raw_fields))
    assert equal(raw, swapped, ANY_ORDER) and differences(raw, swapped, ANY_ORDER) == ()
