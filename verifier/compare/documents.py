"""Decides whether two documents are equal, and where they differ. The functions here have no side effects.

Documents are compared as raw bytes, including the types of numbers and the payloads of NaN. The order of fields can be
ignored, but never the order of array elements. To find where documents differ, their fields are matched by name and
value, not only by name, because a field name can occur twice in a document. It can also be empty, or contain dots.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from enum import Enum
from itertools import islice, zip_longest
from typing import NamedTuple

from verifier.cluster import rawbson
from verifier.cluster.rawbson import Element, elements, int32, int32_at
from verifier.cluster.values import shown, shown_apart
from verifier.compare.mismatch import FieldDifference

_MOST_DIFFERENCES = 20
# The maximum number of fields without a counterpart that are kept in memory while two documents are compared. Each
# needs about 400 bytes, and a document of 16 MB can have more than a million.
_MOST_UNMATCHED = 10_000
_TOO_MANY = "too many fields differ, or are in a different order, to list them all"
# The number of characters to which a field name is cut in a path: a name may have megabytes.
_LONGEST_NAME = 100
_NESTED = (rawbson.DOCUMENT, rawbson.ARRAY)


class Mode(Enum):
    """A method of comparing documents. The values are the values of the option `docCompareMethod`.

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


def differences(
    source: bytes, destination: bytes, mode: Mode, wanted: str = "on the source"
) -> tuple[FieldDifference, ...]:
    """Return up to twenty places where two documents differ; empty if and only if they are equal in this mode.

    A different order of fields is reported with the path of the document that contains the fields. `wanted` is the
    phrase that the texts append to a value of the first document.
    """
    if mode is Mode.IGNORE_FIELD_ORDER:
        source, destination = _in_order_of_names(source), _in_order_of_names(destination)
    return tuple(islice(_differences(source, destination, wanted), _MOST_DIFFERENCES))


def _in_order_of_names(raw: bytes, at: int = 0, kind: int = rawbson.DOCUMENT) -> bytes:
    fields = (
        # The name comes first, for sorting.
        b"%b\0%c%b" % (element.name, element.kind, _value_in_order(raw, element))
        for element in elements(raw, at)
    )
    # Do not collect the elements of an array in a list: a list needs much more memory than the array.
    document = bytearray(4)
    for field in fields if kind == rawbson.ARRAY else sorted(fields):
        end = field.index(0) + 1
        document += b"%c%b" % (field[end], field[:end])
        document += field[end + 1 :]
    document += b"\0"
    document[:4] = int32(len(document))
    return bytes(document)


def _value_in_order(raw: bytes, element: Element) -> bytes:
    if element.kind in _NESTED:
        return _in_order_of_names(raw, element.start, element.kind)
    if element.kind == rawbson.CODE_WITH_SCOPE:
        scope = _scope(raw, element.start)
        return raw[element.start : scope] + _in_order_of_names(raw, scope)
    return raw[element.start : element.end]


def _scope(raw: bytes, at: int) -> int:
    """Return the offset of the scope document within the BSON value "code with scope" that begins at offset `at`."""
    return at + 8 + int(int32_at(raw, at + 4)[0])


class _Pair(NamedTuple):
    """Two documents or arrays to compare: the path that both have, and the offset of each in its whole document."""

    path: str
    source: int
    destination: int


class _Field(NamedTuple):
    """A field: its name, its type byte and its encoded value."""

    name: bytes
    kind: int
    value: bytes


class _Found(NamedTuple):
    """A field that was found in a document, and the offset of its value there."""

    field: _Field
    start: int


# The fields of a document by name.
_Fields = dict[bytes, list[_Found]]
# Fields without a counterpart so far, each with the offsets of its values.
_Kept = dict[_Field, list[int]]


def _differences(source: bytes, destination: bytes, wanted: str) -> Iterator[FieldDifference]:
    # A queue instead of recursion: documents are nested up to two hundred levels deep. Every pair has a difference, and
    # the last pair is compared first, so the pairs that a full queue drops would never be reached.
    pairs = deque([_Pair("", 0, 0)] if source != destination else [], _MOST_DIFFERENCES)
    while pairs:
        pair = pairs.pop()
        documents = (source, pair.source), (destination, pair.destination)
        left, right, complete = _unmatched(*documents)
        for name in {**left, **right}:
            for one, other in zip_longest(left.get(name, ()), right.get(name, ())):
                path = _path(pair.path, name)
                inner = _inner(path, one, other)
                if inner is None:
                    yield FieldDifference(path, _detail(one, other, wanted))
                else:
                    pairs.append(inner)
        if not complete:
            yield FieldDifference(pair.path, _TOO_MANY)
        elif not left and not right or not _in_same_order(left, right, *documents):
            yield FieldDifference(pair.path, "the order of the fields differs")


def _unmatched(
    source: tuple[bytes, int], destination: tuple[bytes, int]
) -> tuple[_Fields, _Fields, bool]:
    """Return the fields that remain when equal fields are removed from both documents, and whether these are all.

    Each document is given as its bytes and the offset at which it begins. If too many fields remain, the rest of the
    documents is not read. A field is then returned only if its name was found in both documents, or if the document
    that lacks it was read completely.
    """
    left: _Kept = {}
    right: _Kept = {}
    number = 0
    # Most fields have their counterpart in the same place. Keeping all fields would take 70 times the documents' size.
    for one, other in zip_longest(_found(*source), _found(*destination)):
        if one is not None and other is not None and one.field == other.field:
            continue
        number += _keep(one, left, right) + _keep(other, right, left)
        if number > _MOST_UNMATCHED:
            of_source, of_destination = _by_name(left), _by_name(right)
            known = (
                of_source if other is None else _common(of_source, of_destination),
                of_destination if one is None else _common(of_destination, of_source),
            )
            return *known, False
    return _by_name(left), _by_name(right), True


def _found(raw: bytes, at: int) -> Iterator[_Found]:
    for kind, name, start, end in elements(raw, at):
        yield _Found(_Field(name, kind, raw[start:end]), start)


def _keep(found: _Found | None, own: _Kept, others: _Kept) -> int:
    """Add a field to `own`, or remove an equal field from `others`.

    Return the change in the total number of fields in both: 1 or -1, or 0 if `found` is None.
    """
    if found is None:
        return 0
    equal = others.get(found.field)
    if equal is None:
        own.setdefault(found.field, []).append(found.start)
        return 1
    equal.pop()
    if not equal:
        del others[found.field]
    return -1


def _by_name(kept: _Kept) -> _Fields:
    fields: _Fields = {}
    for field, starts in kept.items():
        fields.setdefault(field.name, []).extend(_Found(field, start) for start in starts)
    return fields


def _common(fields: _Fields, others: _Fields) -> _Fields:
    return {name: each for name, each in fields.items() if name in others}


def _in_same_order(
    left: _Fields, right: _Fields, source: tuple[bytes, int], destination: tuple[bytes, int]
) -> bool:
    """Return whether the fields of both documents have the same order, ignoring fields that one of them lacks.

    `left` and `right` are all unmatched fields of the documents.
    """
    lacked = {
        name for name in {**left, **right} if len(left.get(name, ())) != len(right.get(name, ()))
    }
    orders = (
        (each.name for each in elements(raw, at) if each.name not in lacked)
        for raw, at in (source, destination)
    )
    return all(one == other for one, other in zip_longest(*orders))


def _inner(path: str, source: _Found | None, destination: _Found | None) -> _Pair | None:
    """Return the two embedded documents or arrays that the fields contain, so that their contents can be compared.

    Return None if a field is missing, or if the fields differ in another way, such as in their types.
    """
    if source is None or destination is None or source.field.kind != destination.field.kind:
        return None
    if source.field.kind in _NESTED:
        return _Pair(path, source.start, destination.start)
    if source.field.kind == rawbson.CODE_WITH_SCOPE:
        values = [found.field.value for found in (source, destination)]
        scopes = [_scope(value, 0) for value in values]
        if values[0][4 : scopes[0]] == values[1][4 : scopes[1]]:
            return _Pair(path, source.start + scopes[0], destination.start + scopes[1])
    return None


def _detail(source: _Found | None, destination: _Found | None, wanted: str) -> str:
    if destination is None:
        assert source is not None
        return f"missing on the destination ({shown(*source.field[1:])})"
    if source is None:
        return f"extra on the destination ({shown(*destination.field[1:])})"
    left, right = shown_apart(source.field[1:], destination.field[1:])
    return f"{left} {wanted}, {right} on the destination"


def _path(parent: str, name: bytes) -> str:
    step = name.decode(errors="replace")
    if len(step) > _LONGEST_NAME:
        step = f"{step[:_LONGEST_NAME]}..."
    if not step or "." in step:
        step = f'"{step}"'
    return f"{parent}.{step}" if parent else step
