"""Decides whether two documents are equal, and where they differ. The functions here have no side effects.

Documents are compared as raw bytes, including the types of numbers and the payloads of NaN. The order of fields can be
ignored, but never the order of array elements. Fields are compared as a multiset of names and values, because servers
store field names that are empty, contain dots or occur twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from enum import Enum
from itertools import islice, zip_longest
from typing import NamedTuple

from verifier.cluster import rawbson
from verifier.cluster.rawbson import elements, int32, int32_at
from verifier.cluster.values import shown, shown_apart
from verifier.compare.mismatch import FieldDifference

_MOST_DIFFERENCES = 20
# Longer field names are cut, in characters: a name may have megabytes.
_LONGEST_NAME = 100
_NESTED = (rawbson.DOCUMENT, rawbson.ARRAY)


class Mode(Enum):
    """The method to compare documents. The values are those of the option `docCompareMethod`.

    BINARY: all bytes must be equal. IGNORE_FIELD_ORDER: the fields may have any order, and everything else must be
    equal.
    """

    BINARY = "binary"
    IGNORE_FIELD_ORDER = "ignoreFieldOrder"


def equal(source: bytes, destination: bytes, mode: Mode) -> bool:
    """Return whether two documents are equal in this mode."""
    if source == destination or mode is Mode.BINARY:
        return source == destination
    return _in_order_of_names(source) == _in_order_of_names(destination)


def differences(source: bytes, destination: bytes, mode: Mode) -> tuple[FieldDifference, ...]:
    """Return the first twenty places where two documents differ; empty if and only if they are equal in this mode.

    A different order of fields is reported with the path of the document that contains the fields.
    """
    if mode is Mode.IGNORE_FIELD_ORDER:
        source, destination = _in_order_of_names(source), _in_order_of_names(destination)
    return tuple(islice(_differences(source, destination), _MOST_DIFFERENCES))


def _in_order_of_names(raw: bytes, at: int = 0, kind: int = rawbson.DOCUMENT) -> bytes:
    fields = []
    for element in elements(raw, at):
        value = raw[element.start : element.end]
        if element.kind in _NESTED:
            value = _in_order_of_names(raw, element.start, element.kind)
        elif element.kind == rawbson.CODE_WITH_SCOPE:
            scope = _scope(raw, element.start)
            value = raw[element.start : scope] + _in_order_of_names(raw, scope)
        fields.append((element.name, element.kind, value))
    if kind != rawbson.ARRAY:
        fields.sort()
    body = b"".join(b"%c%b\0%b" % (kind, name, value) for name, kind, value in fields)
    return b"%b%b\0" % (int32(len(body) + 5), body)


def _scope(raw: bytes, at: int) -> int:
    """Return the offset of the scope document within the BSON value "code with scope" that begins at offset `at`."""
    return at + 8 + int(int32_at(raw, at + 4)[0])


class _Pair(NamedTuple):
    """An embedded document or array that both documents have: its path, and its offset in each document."""

    path: str
    source: int
    destination: int


class _Field(NamedTuple):
    """A field: its type byte and encoded value, which are compared, and the offset of the value in the document."""

    kind: int
    value: bytes
    start: int


def _differences(source: bytes, destination: bytes) -> Iterator[FieldDifference]:
    # A list instead of recursion: documents are nested up to two hundred levels deep.
    pairs = [_Pair("", 0, 0)] if source != destination else []
    while pairs:
        pair = pairs.pop()
        left, right = _by_name(source, pair.source), _by_name(destination, pair.destination)
        same_fields = True
        for name in {**left, **right}:
            for one, other in _unmatched(left.get(name, []), right.get(name, [])):
                same_fields = False
                path = _path(pair.path, name)
                inner = _inner(path, one, other)
                if inner is None:
                    yield FieldDifference(path, _detail(one, other))
                else:
                    pairs.append(inner)
        common = {name for name in left if len(left[name]) == len(right.get(name, ()))}
        orders = (
            [each.name for each in elements(raw, at) if each.name in common]
            for raw, at in ((source, pair.source), (destination, pair.destination))
        )
        if same_fields or next(orders) != next(orders):
            yield FieldDifference(pair.path, "the order of the fields differs")


def _by_name(raw: bytes, at: int) -> dict[bytes, list[_Field]]:
    fields: dict[bytes, list[_Field]] = {}
    for kind, name, start, end in elements(raw, at):
        fields.setdefault(name, []).append(_Field(kind, raw[start:end], start))
    return fields


def _unmatched(
    source: list[_Field], destination: list[_Field]
) -> Iterator[tuple[_Field | None, _Field | None]]:
    """Return pairs of the fields (source, destination) that remain when equal fields are removed from both lists.

    The given fields all have the same name. If one list has fewer fields left, None takes the place of a missing field.
    """
    values = [Counter(field[:2] for field in side) for side in (source, destination)]
    left = _without(source, values[1])
    right = _without(destination, values[0])
    return zip_longest(left, right)


def _without(fields: list[_Field], others: Counter[tuple[int, bytes]]) -> Iterator[_Field]:
    for field in fields:
        if others[field[:2]]:
            others[field[:2]] -= 1
        else:
            yield field


def _inner(path: str, source: _Field | None, destination: _Field | None) -> _Pair | None:
    """Return the two embedded documents or arrays that the fields contain, so that their contents can be compared.

    Return None if a field is missing, or if the fields differ in another way, such as in their types.
    """
    if source is None or destination is None or source.kind != destination.kind:
        return None
    if source.kind in _NESTED:
        return _Pair(path, source.start, destination.start)
    if source.kind == rawbson.CODE_WITH_SCOPE:
        code = [field.value[4 : _scope(field.value, 0)] for field in (source, destination)]
        if code[0] == code[1]:
            scopes = [_scope(field.value, 0) + field.start for field in (source, destination)]
            return _Pair(path, *scopes)
    return None


def _detail(source: _Field | None, destination: _Field | None) -> str:
    if destination is None:
        assert source is not None
        return f"missing on the destination ({shown(source.kind, source.value)})"
    if source is None:
        return f"extra on the destination ({shown(destination.kind, destination.value)})"
    left, right = shown_apart(source[:2], destination[:2])
    return f"{left} on the source, {right} on the destination"


def _path(parent: str, name: bytes) -> str:
    step = name.decode(errors="replace")
    if len(step) > _LONGEST_NAME:
        step = f"{step[:_LONGEST_NAME]}..."
    if not step or "." in step:
        step = f'"{step}"'
    return f"{parent}.{step}" if parent else step
