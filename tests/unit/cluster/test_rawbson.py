"""Documents and arrays are split at the right bytes regardless of their contents; wrong types and lengths are errors.

Decoding keeps the order of fields and the types of values. A value that cannot be decoded stays bytes where possible.
"""

from __future__ import annotations

import struct
from datetime import datetime
from itertools import islice, pairwise
from typing import Any

import bson
import pytest
from bson import DatetimeMS
from bson.codec_options import DatetimeConversion
from bson.errors import BSONError
from bson.raw_bson import RawBSONDocument
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit import documents
from tests.unit.deadlines import no_more_work_than
from tests.unit.documents import Field, array, document, int32, string
from verifier.cluster import rawbson

KNOWN_KINDS = {*documents.SIMPLE, 0x03, 0x04, 0x0F}
LENIENT: bson.CodecOptions[dict[str, Any]] = bson.CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_MS
)


def cut(raw: bytes, at: int = 0) -> list[Field]:
    found = rawbson.elements(raw, at)
    return [Field(each.kind, each.name, raw[each.start : each.end]) for each in found]


# One value of every type in https://bsonspec.org/spec.html.
SAMPLES = {
    0x01: bytes(8),
    0x02: string(b"text"),
    0x03: document(Field(0x0A, b"n", b"")),
    0x04: array((0x0A, b""), (0x10, int32(1))),
    0x05: int32(3) + b"\x80abc",
    0x06: b"",
    0x07: bytes(range(12)),
    0x08: b"\x01",
    0x09: bytes(range(8)),
    0x0A: b"",
    0x0B: b"^a\0im\0",
    0x0C: string(b"d.c") + bytes(range(12)),
    0x0D: string(b"code"),
    0x0E: string(b"symbol"),
    0x0F: documents.code_with_scope(b"code", document(Field(0x0A, b"n", b""))),
    0x10: int32(7),
    0x11: bytes(range(8)),
    0x12: bytes(range(8)),
    0x13: bytes(range(16)),
    0xFF: b"",
    0x7F: b"",
}


class TestElements:
    @pytest.mark.parametrize("kind", sorted(KNOWN_KINDS))
    def test_values_of_every_type_are_delimited_exactly(self, kind: int) -> None:
        end = Field(0x10, b"end", int32(1))
        fields = [Field(kind, b"a", SAMPLES[kind]), Field(kind, b"", SAMPLES[kind]), end]
        assert cut(document(*fields)) == fields

    @given(documents.field_lists)
    def test_fields_are_delimited_exactly(self, fields: list[Field]) -> None:
        raw = document(*fields)
        bson.decode(raw, LENIENT)  # the handwritten bytes are valid BSON
        assert cut(raw) == fields

    @given(documents.field_lists, st.binary(max_size=20), st.binary(max_size=20))
    def test_bytes_around_a_document_are_ignored(
        self, fields: list[Field], before: bytes, after: bytes
    ) -> None:
        assert cut(before + document(*fields) + after, len(before)) == fields

    @given(documents.field_lists)
    def test_an_embedded_document_is_parsed_in_place(self, fields: list[Field]) -> None:
        raw = document(Field(0x10, b"n", int32(1)), Field(0x03, b"d", document(*fields)))
        found = rawbson.find(raw, b"d")
        assert found is not None and cut(raw, found.start) == fields

    @given(documents.field_lists, st.data())
    def test_find_gives_the_first_field_of_a_name(
        self, fields: list[Field], data: st.DataObject
    ) -> None:
        name = data.draw(st.sampled_from([b"absent", *(field.name for field in fields)]))
        raw = document(*fields)
        found = rawbson.find(raw, name)
        first = next((field for field in fields if field.name == name), None)
        assert (None if found is None else raw[found.start : found.end]) == (
            None if first is None else first.value
        )


class TestGarbage:
    @pytest.mark.parametrize("kind", sorted({*range(256)} - KNOWN_KINDS))
    def test_an_unknown_type_is_malformed(self, kind: int) -> None:
        with pytest.raises(rawbson.MalformedBson):
            list(rawbson.elements(document(Field(kind, b"a", bytes(20)))))

    @given(st.binary(min_size=5, max_size=60))
    @example(document(Field(0x03, b"a", int32(-3)))[4:])
    def test_fields_lie_within_the_bytes_or_are_an_error(self, body: bytes) -> None:
        raw = int32(len(body) + 4) + body
        try:
            found = list(islice(rawbson.elements(raw), len(raw)))
        except (ValueError, IndexError, struct.error):
            return
        ends = [4, *(each.end for each in found)]
        assert all(one < next_one for one, next_one in pairwise(ends)) and ends[-1] <= len(raw)

    @pytest.mark.parametrize("kind", [0x02, 0x03, 0x04, 0x05, 0x0C, 0x0D, 0x0E, 0x0F])
    def test_a_negative_length_is_malformed(self, kind: int) -> None:
        back = {0x02: -4, 0x05: -5, 0x0C: -16, 0x0D: -4, 0x0E: -4}.get(kind, 0)
        raw = document(Field(kind, b"a", int32(back - len(b"?a\0")) + bytes(30)))
        with pytest.raises(rawbson.MalformedBson):
            list(islice(rawbson.elements(raw), len(raw)))

    def test_a_value_that_is_longer_than_the_document_is_malformed(self) -> None:
        raw = document(Field(0x02, b"a", int32(1000) + b"abc\0"))
        with pytest.raises(rawbson.MalformedBson):
            list(rawbson.elements(raw))

    @pytest.mark.parametrize("size", [-3, 0, 4])
    def test_an_array_of_documents_without_a_size_is_malformed(self, size: int) -> None:
        raw = array((0x03, int32(size) + b"\0"))
        with no_more_work_than(0.1), pytest.raises(rawbson.MalformedBson):
            rawbson.array_documents(raw, 0)


def reply(raws: list[bytes]) -> tuple[bytes, int]:
    """Return a server's reply with these documents in its first batch, and the offset of the batch in the reply."""
    batch = Field(0x04, b"firstBatch", array(*((0x03, each) for each in raws)))
    cursor = Field(0x03, b"cursor", document(batch, Field(0x12, b"id", bytes(8))))
    raw = document(cursor, Field(0x01, b"ok", bytes(8)))
    return raw, raw.index(batch.value)


class TestArrayDocuments:
    @pytest.mark.parametrize("count", [0, 1, 2, 9, 10, 11, 99, 100, 101, 999, 1000, 1001, 10_001])
    def test_every_document_of_an_array_is_extracted(self, count: int) -> None:
        raws = [bson.encode({"_id": number, "x": "x" * (number % 7)}) for number in range(count)]
        raw, at = reply(raws)
        assert [bytes(each) for each in rawbson.array_documents(raw, at)] == raws

    @given(st.integers(0, 1500), documents.field_lists)
    def test_documents_of_different_sizes_are_extracted(
        self, count: int, fields: list[Field]
    ) -> None:
        raws = [document(), document(*fields)] * (count // 2)
        raw, at = reply(raws)
        assert rawbson.array_documents(raw, at) == raws

    def test_documents_are_not_copied(self) -> None:
        raw, at = reply([bson.encode({"_id": 1})])
        (view,) = rawbson.array_documents(raw, at)
        assert view.obj is raw


class TestWriting:
    @given(documents.values, st.binary(max_size=8).filter(lambda name: b"\0" not in name))
    def test_a_document_of_one_field(self, value: tuple[int, bytes], name: bytes) -> None:
        assert rawbson.single(value[0], name, value[1]) == document(Field(value[0], name, value[1]))

    def test_documents_end_to_end_pass_as_one_raw_document(self) -> None:
        both = bson.encode({"a": 1}) + bson.encode({"b": 2})
        assert rawbson.RawDocuments(both).raw == both

    def test_the_driver_sends_documents_end_to_end_as_they_are(self) -> None:
        both = bson.encode({"a": 1}) + bson.encode({"b": 2})
        sent = bson.encode({"d": rawbson.RawDocuments(both)})
        assert both in sent


class TestDecode:
    def test_order_and_types_are_kept(self) -> None:
        decoded = rawbson.decode(bson.encode({"b": 1, "a": bson.Int64(2)}))
        assert list(decoded.items()) == [("b", 1), ("a", 2)]
        assert type(decoded["a"]) is bson.Int64

    @pytest.mark.parametrize("milliseconds", [-(2**63), 2**63 - 1])
    def test_dates_outside_of_pythons_range_are_kept(self, milliseconds: int) -> None:
        raw = bson.encode({"d": DatetimeMS(milliseconds)})
        assert rawbson.decode(raw) == {"d": DatetimeMS(milliseconds)}

    def test_dates_within_pythons_range_are_datetimes(self) -> None:
        raw = bson.encode({"d": datetime(2024, 2, 29)})
        assert rawbson.decode(raw) == {"d": datetime(2024, 2, 29)}

    def test_invalid_utf8_is_replaced(self) -> None:
        raw = document(Field(0x02, b"a", string(b"x\xff")))
        assert rawbson.decode(raw) == {"a": "x\ufffd"}


MALFORMED = rawbson.single(rawbson.BINARY, b"_id", int32(1) + b"\x02x")


class TestDecodeReply:
    @pytest.mark.parametrize("key", [1, DatetimeMS(2**62), {"a": [1.5]}])
    def test_a_reply_is_decoded_to_dicts(self, key: Any) -> None:
        reply = {"ok": 1.0, "writeErrors": [{"code": 11000, "keyValue": {"_id": key}}]}
        assert rawbson.decode_reply(raw_document(bson.encode(reply))) == reply

    def test_a_value_that_cannot_be_decoded_hides_nothing_else(self) -> None:
        error = {"index": 0, "code": 11000, "keyPattern": {"_id": 1}}
        failed = {"ok": 1.0, "writeErrors": [{**error, "keyValue": raw_document(MALFORMED)}]}
        reply = rawbson.decode_reply(raw_document(bson.encode(failed)))
        value = reply["writeErrors"][0].pop("keyValue")
        assert value.raw == MALFORMED
        assert reply == {"ok": 1.0, "writeErrors": [error]}

    def test_a_reply_that_cannot_be_decoded_is_an_error(self) -> None:
        with pytest.raises(BSONError):
            rawbson.decode_reply(raw_document(MALFORMED))


def raw_document(raw: bytes) -> RawBSONDocument:
    return RawBSONDocument(raw, rawbson.RAW_LENIENT)


@pytest.mark.parametrize(
    "definition",
    [
        {"name": "a", "key": {"b": bson.Int64(1), "c": "2dsphere"}, "expireAfterSeconds": 5.0},
        {"name": "c", "options": {"capped": True}, "indexes": [{"spec": {"v": 2}, "ready": True}]},
        {"name": "reference", "key": {"$ref": "c", "$id": 1}},
    ],
)
def test_a_definition_without_expressions_is_decoded_to_dicts(definition: dict[str, Any]) -> None:
    found = rawbson.decode_definition(bson.encode(definition))
    assert found == definition
    assert bson.encode(found) == bson.encode(definition)


def test_the_expressions_of_a_definition_stay_bytes() -> None:
    odd = rawbson.document(b"\x0ef\0" + rawbson.int32(2) + b"s\0")
    raw = rawbson.document(
        b"\x02name\0" + rawbson.int32(2) + b"c\0",
        b"\x03options\0" + rawbson.document(b"\x03validator\0" + odd, b"\x10size\0" + bytes(4)),
        b"\x04pipeline\0" + rawbson.document(b"\x030\0" + odd),
        b"\x04indexes\0" + rawbson.document(b"\x030\0" + bson.encode({"key": {"validator": 1}})),
    )
    found = rawbson.decode_definition(raw)
    assert found["name"] == "c" and found["options"]["size"] == 0
    assert found["options"]["validator"].raw == odd
    assert [each.raw for each in found["pipeline"]] == [odd]
    assert found["indexes"] == [{"key": {"validator": 1}}]
    assert bson.encode(found) == raw
