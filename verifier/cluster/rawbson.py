"""Parses, builds and decodes BSON. The format is described at https://bsonspec.org/spec.html.

Documents are parsed by the offsets of their fields, and the reply of a server is split into its documents, without
decoding values. Splitting takes a third of a microsecond per document; decoding would take twenty times as long.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from typing import Any, NamedTuple

import bson
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument

Buffer = bytes | memoryview

# Dates outside Python's range and invalid UTF-8 must not raise.
DECODE_OPTIONS: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO, unicode_decode_error_handler="replace"
)
RAW_LENIENT: CodecOptions[RawBSONDocument] = DECODE_OPTIONS.with_options(
    document_class=RawBSONDocument
)

# The fields of a definition in which users write expressions, with values of any type.
EXPRESSIONS = ("validator", "pipeline", "partialFilterExpression")
# A definition with one of these field names cannot be decoded as a whole: expressions must stay raw, and the driver
# would decode a document with `$ref` as a DBRef.
_NOT_PLAIN = tuple(name.encode() + b"\0" for name in (*EXPRESSIONS, "$ref"))

_INT32 = Struct("<i")
int32_at = _INT32.unpack_from
int32 = _INT32.pack

DOUBLE, STRING, DOCUMENT, ARRAY, BINARY = 0x01, 0x02, 0x03, 0x04, 0x05
UNDEFINED, OBJECT_ID, BOOLEAN, DATE, NULL, REGEX, DB_POINTER = (
    0x06,
    0x07,
    0x08,
    0x09,
    0x0A,
    0x0B,
    0x0C,
)
MIN_KEY, MAX_KEY = 0xFF, 0x7F
CODE, SYMBOL, CODE_WITH_SCOPE, INT32, TIMESTAMP, INT64, DECIMAL128 = (
    0x0D,
    0x0E,
    0x0F,
    0x10,
    0x11,
    0x12,
    0x13,
)

_FIXED_SIZES = {
    DOUBLE: 8,
    UNDEFINED: 0,
    OBJECT_ID: 12,
    BOOLEAN: 1,
    DATE: 8,
    NULL: 0,
    INT32: 4,
    TIMESTAMP: 8,
    INT64: 8,
    DECIMAL128: 16,
    MIN_KEY: 0,
    MAX_KEY: 0,
}


# A value of these types begins with a length. The size of the value is that length plus this number of bytes.
_HEADS = {
    STRING: 4,
    CODE: 4,
    SYMBOL: 4,
    DOCUMENT: 0,
    ARRAY: 0,
    CODE_WITH_SCOPE: 0,
    BINARY: 5,
    DB_POINTER: 16,
}


class Element(NamedTuple):
    """One field of a document: its type byte, its name, and the offsets of its value in the buffer."""

    kind: int
    name: bytes
    start: int
    end: int


class MalformedBson(ValueError):
    """Raised if bytes are not valid BSON."""


def value_size(raw: bytes, kind: int, at: int) -> int:
    """Return the size in bytes of the value of type `kind` at the offset `at`.

    Raises MalformedBson for an unknown type or a negative length, and ValueError or struct.error if `raw` ends before
    the size is known. A value that continues beyond the end of `raw` is not detected.
    """
    size = _FIXED_SIZES.get(kind)
    if size is not None:
        return size
    if kind == REGEX:
        return raw.index(0, raw.index(0, at) + 1) + 1 - at
    head = _HEADS.get(kind)
    if head is None:
        raise MalformedBson(f"unknown BSON type 0x{kind:02x} at byte {at}")
    length = int(int32_at(raw, at)[0])
    if length < 0:
        raise MalformedBson(f"the length at byte {at} is {length}, which is negative")
    return head + length


def size_bytes(kind: int, size: int) -> int:
    """Return the number of leading bytes of a BSON value from which the size of the value can be computed.

    The value has the type `kind` and `size` bytes. The result is 0 if the type alone determines the size.
    """
    if kind in _FIXED_SIZES:
        return 0
    return size if kind == REGEX else 4


def elements(raw: bytes, at: int = 0) -> Iterator[Element]:
    """Yield the top-level fields of the document that begins at the offset `at`.

    `raw` must contain the whole document. Raises MalformedBson if a value is malformed or extends beyond the end of the
    document; for truncated bytes also ValueError or struct.error.
    """
    end = at + int32_at(raw, at)[0] - 1
    at += 4
    while at < end:
        name_end = raw.index(0, at + 1)
        start = name_end + 1
        stop = start + value_size(raw, raw[at], start)
        if stop > end:
            raise MalformedBson(f"the value at byte {start} extends beyond the end of its document")
        yield Element(raw[at], raw[at + 1 : name_end], start, stop)
        at = stop


def find(raw: bytes, name: bytes, at: int = 0) -> Element | None:
    """Return the first field with this name in the document that begins at the offset `at`; None if there is none.

    Raises the errors of `elements`.
    """
    for element in elements(raw, at):
        if element.name == name:
            return element
    return None


def array_documents(raw: bytes, at: int) -> list[memoryview]:
    """Return the bytes of each document in the array that begins at the offset `at`, in order, without copying them.

    The array must contain nothing but documents. Raises MalformedBson, and struct.error for truncated bytes.
    """
    end = at + int32_at(raw, at)[0] - 1
    view = memoryview(raw)
    documents: list[memoryview] = []
    add = documents.append
    # Element names are "0", "1", ...: their lengths are known, so the names are skipped.
    header, left = 3, 10
    at += 4
    while at < end:
        start = at + header
        size = int32_at(raw, start)[0]
        if size < 5:
            raise MalformedBson(
                f"the document at byte {start} has a length of {size} bytes, but even an empty document has 5 bytes"
            )
        at = start + size
        add(view[start:at])
        left -= 1
        if not left:
            header += 1
            left = 9 * 10 ** (header - 3)
    if at != end:
        raise MalformedBson(
            f"the last document of the array ends at byte {at}, but the array ends at byte {end}"
        )
    return documents


def decode(raw: Buffer) -> dict[str, Any]:
    """Decode a document to a dict, keeping the order of its fields. Invalid UTF-8 is replaced by U+FFFD."""
    return bson.decode(raw, DECODE_OPTIONS)


def decode_definition(raw: Buffer) -> dict[str, Any]:
    """Decode the definition of a collection, view or index; the fields in EXPRESSIONS stay raw documents.

    Decoding and encoding an expression would change Symbol, Undefined and DBPointer values, duplicate field names and
    invalid UTF-8. The decoded fields cannot contain any of these except invalid UTF-8, which is replaced by U+FFFD.
    """
    whole = bytes(raw)
    # Nearly all definitions have no such field, and are decoded as a whole, which takes a seventh of the time.
    if not any(name in whole for name in _NOT_PLAIN):
        return decode(whole)
    opened: dict[str, Any] = _opened(RawBSONDocument(whole, RAW_LENIENT))
    return opened


def decode_reply(reply: RawBSONDocument) -> dict[str, Any]:
    """Decode the reply to a command, except embedded documents that cannot be decoded, which stay raw documents.

    Write errors quote values of users' documents. A malformed value, such as a binary of subtype 2 without its inner
    length, must not hide the reply.
    """
    try:
        return decode(reply.raw)
    except BSONError:
        return {name: _decodable(each) for name, each in reply.items()}


def _decodable(value: Any) -> Any:
    """Decode the parts of a value that can be decoded. `value` was decoded with RAW_LENIENT."""
    if isinstance(value, list):
        return [*map(_decodable, value)]
    if not isinstance(value, RawBSONDocument):
        return value
    try:
        return decode_reply(value)
    except BSONError:
        return value


def _opened(value: Any) -> Any:
    if isinstance(value, RawBSONDocument):
        return {
            name: each if name in EXPRESSIONS else _opened(each) for name, each in value.items()
        }
    return [*map(_opened, value)] if isinstance(value, list) else value


def single(kind: int, name: bytes, value: bytes) -> bytes:
    """Return the document with one field: its type byte, its name, and its value as encoded in BSON."""
    return b"%b%c%b\0%b\0" % (int32(len(name) + len(value) + 7), kind, name, value)


def document(*parts: bytes) -> bytes:
    """Return the BSON document with the given fields, each of which is already encoded: type, name and value."""
    return b"".join((int32(sum(map(len, parts)) + 5), *parts, b"\0"))


class RawDocuments(RawBSONDocument):
    """Concatenated documents that the driver sends unchanged, as the documents of one write command.

    The driver sends the `raw` bytes of a raw document as they are. In the wire protocol, a document sequence is a
    concatenation of documents, so the driver can send the bytes of many documents as one raw document.
    """

    def __init__(self, raw: bytes) -> None:
        # Skips the constructor of the base class, whose checks and parsing are for one document.
        self._documents = raw

    @property
    def raw(self) -> bytes:
        return self._documents
