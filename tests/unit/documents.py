"""Encodes BSON without the code under test, so a test knows every offset; and draws BSON values with Hypothesis."""

from __future__ import annotations

import struct
from typing import NamedTuple

from hypothesis import strategies as st


class Field(NamedTuple):
    """One field of a document: its BSON type, its name, and its encoded value."""

    kind: int
    name: bytes
    value: bytes

    @property
    def raw(self) -> bytes:
        return bytes([self.kind]) + self.name + b"\0" + self.value


def int32(number: int) -> bytes:
    return struct.pack("<i", number)


def int64(number: int) -> bytes:
    return struct.pack("<q", number)


def double(number: float) -> bytes:
    return struct.pack("<d", number)


def string(text: bytes) -> bytes:
    return int32(len(text) + 1) + text + b"\0"


def document(*fields: Field) -> bytes:
    body = b"".join(field.raw for field in fields)
    return int32(len(body) + 5) + body + b"\0"


def array(*values: tuple[int, bytes]) -> bytes:
    """Return an encoded array of values; each value is given as its BSON type and its encoded bytes."""
    return document(*(Field(kind, b"%d" % n, value) for n, (kind, value) in enumerate(values)))


def key(kind: int, value: bytes = b"") -> bytes:
    """Return an encoded document with only an `_id`, which has this BSON type and this encoded value."""
    return document(Field(kind, b"_id", value))


def code_with_scope(code: bytes, scope: bytes) -> bytes:
    return int32(len(string(code)) + len(scope) + 4) + string(code) + scope


_cstrings = st.text(max_size=6).map(str.encode).filter(lambda text: b"\0" not in text)
_strings = st.text(max_size=12).map(lambda text: string(text.encode()))
_subtypes = st.sampled_from(sorted({*range(10), 0x80, 0xFF} - {2}))


def _binary(data: bytes, subtype: int) -> bytes:
    data = data[:16].ljust(16, b"\0") if subtype in (3, 4) else data
    return int32(len(data)) + bytes([subtype]) + data


def _old_binary(data: bytes) -> bytes:
    return int32(len(data) + 4) + b"\x02" + int32(len(data)) + data


def _bytes(size: int) -> st.SearchStrategy[bytes]:
    # Zero bytes are the usual source of bugs, so generate many of them.
    return st.just(bytes(size)) | st.binary(min_size=size, max_size=size)


# Every type in https://bsonspec.org/spec.html that contains no other values.
SIMPLE = {
    0x01: _bytes(8),
    0x02: _strings,
    0x05: st.builds(_binary, st.binary(max_size=20) | st.integers(0, 40).map(bytes), _subtypes)
    | st.binary(max_size=20).map(_old_binary),
    0x06: st.just(b""),
    0x07: _bytes(12),
    0x08: st.sampled_from([b"\0", b"\1"]),
    0x09: _bytes(8),
    0x0A: st.just(b""),
    0x0B: st.tuples(_cstrings, st.sampled_from([b"", b"i", b"imsx"])).map(
        lambda both: both[0] + b"\0" + both[1] + b"\0"
    ),
    0x0C: st.tuples(_strings, _bytes(12)).map(b"".join),
    0x0D: _strings,
    0x0E: _strings,
    0x10: _bytes(4),
    0x11: _bytes(8),
    0x12: _bytes(8),
    0x13: _bytes(16),
    0xFF: st.just(b""),
    0x7F: st.just(b""),
}

Value = tuple[int, bytes]

_simple_values: st.SearchStrategy[Value] = st.one_of(
    *(st.tuples(st.just(kind), values) for kind, values in SIMPLE.items())
)


def _containers(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    scopes = _documents_of(inner)
    codes = st.text(max_size=4).map(str.encode)
    return (
        st.tuples(st.just(0x03), scopes)
        | st.tuples(st.just(0x04), st.lists(inner, max_size=12).map(lambda each: array(*each)))
        | st.tuples(st.just(0x0F), st.builds(code_with_scope, codes, scopes))
    )


def _documents_of(values: st.SearchStrategy[Value]) -> st.SearchStrategy[bytes]:
    return st.lists(st.builds(_field, _cstrings, values), max_size=4).map(
        lambda fields: document(*fields)
    )


def _field(name: bytes, value: Value) -> Field:
    return Field(value[0], name, value[1])


values: st.SearchStrategy[Value] = st.recursive(_simple_values, _containers, max_leaves=8)
fields = st.builds(_field, _cstrings, values)
# Lists of fields; `document(*fields)` is the document.
field_lists = st.lists(fields, max_size=8)
# Lists of the fields of documents that begin with an `_id`, as in a collection.
stored_field_lists = st.builds(
    lambda value, rest: [Field(value[0], b"_id", value[1]), *rest],
    values.filter(lambda value: value[0] not in (0x04, 0x06, 0x0B)),
    st.lists(fields.filter(lambda field: field.name != b"_id"), max_size=6),
)
