"""Values read from Extended JSON have the exact types in the text, and invalid text is rejected with a reason.

A written value is one line of JSON, from which the same value is read; only a small Int64 becomes an int.
"""

from __future__ import annotations

import json
import math
from datetime import datetime
from typing import Any

import bson
import pytest
from bson.binary import Binary
from bson.code import Code
from bson.codec_options import CodecOptions, DatetimeConversion
from bson.datetime_ms import DatetimeMS
from bson.decimal128 import Decimal128
from bson.int64 import Int64
from bson.max_key import MaxKey
from bson.min_key import MinKey
from bson.objectid import ObjectId
from bson.regex import Regex
from bson.timestamp import Timestamp
from hypothesis import given
from hypothesis import strategies as st

from verifier.cluster import extended

ID = "65a0c3f1e4b0a1b2c3d4e5f6"
_LENIENT: CodecOptions[dict[str, Any]] = CodecOptions(
    datetime_conversion=DatetimeConversion.DATETIME_AUTO
)

VALUES: list[tuple[str, Any]] = [
    ("5", 5),
    ("2147483648", Int64(2147483648)),
    ("5.0", 5.0),
    ('{"$numberInt": "5"}', 5),
    ('{"$numberLong": "5"}', Int64(5)),
    ('{"$numberDouble": "5"}', 5.0),
    ('{"$numberDouble": "Infinity"}', math.inf),
    ('{"$numberDecimal": "5.10"}', Decimal128("5.10")),
    (f'{{"$oid": "{ID}"}}', ObjectId(ID)),
    ('{"$date": "2024-01-02T03:04:05.678Z"}', datetime(2024, 1, 2, 3, 4, 5, 678000)),
    ('{"$date": {"$numberLong": "-1"}}', datetime(1969, 12, 31, 23, 59, 59, 999000)),
    ('{"$date": {"$numberLong": "9000000000000000"}}', DatetimeMS(9000000000000000)),
    ('{"$timestamp": {"t": 1, "i": 2}}', Timestamp(1, 2)),
    ('{"$binary": {"base64": "AAE=", "subType": "00"}}', b"\0\1"),
    ('{"$binary": {"base64": "AAE=", "subType": "80"}}', Binary(b"\0\1", 0x80)),
    (
        '{"$uuid": "00112233-4455-6677-8899-aabbccddeeff"}',
        Binary(bytes.fromhex("00112233445566778899aabbccddeeff"), 4),
    ),
    ('{"$regularExpression": {"pattern": "a", "options": "i"}}', Regex("a", "i")),
    ('{"$code": "f"}', Code("f")),
    ('{"$minKey": 1}', MinKey()),
    ('{"$maxKey": 1}', MaxKey()),
    ("null", None),
    ("true", True),
    ('[1, {"$gt": 2}]', [1, {"$gt": 2}]),
    ('{"$regex": "a", "$options": "z", "$ne": "b"}', {"$regex": "a", "$options": "z", "$ne": "b"}),
    ('{"$type": "string", "$exists": true}', {"$type": "string", "$exists": True}),
]


@pytest.mark.parametrize("text, value", VALUES, ids=[text for text, _ in VALUES])
def test_values_are_parsed_to_their_exact_types(text: str, value: Any) -> None:
    read = extended.read(f'{{"a": {text}}}')
    assert bson.encode(read) == bson.encode({"a": value})


def test_fields_keep_their_order() -> None:
    document = extended.read('{"z": 1, "a": {"y": 1, "b": 2}}')
    assert ([*document], [*document["a"]]) == (["z", "a"], ["y", "b"])


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "{'a': 1}",
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1, "a": 2}',
        '{"a": {"$oid": 1}}',
        '{"a": {"$oid": "x"}}',
        '{"a": {"$numberLong": "x"}}',
        '{"a": {"$numberDecimal": "x"}}',
        '{"a": {"$date": "yesterday"}}',
        '{"a": {"$date": null}}',
        '{"a": {"$timestamp": 1}}',
        '{"a": {"$timestamp": {}}}',
        '{"a": {"$binary": 1}}',
        '{"a": {"$binary": {}}}',
        '{"a": {"$uuid": "x"}}',
        '{"a": {"$minKey": 2}}',
        '{"a": {"$regularExpression": "a"}}',
        b"\xff",
    ],
)
def test_invalid_extended_json_is_refused(text: Any) -> None:
    with pytest.raises(ValueError, match="."):
        extended.read(text)


_WORDS = ["$oid", "$date", "$numberLong", "$numberInt", "$numberDouble", "$numberDecimal"]
_WORDS += ["$timestamp", "$binary", "$uuid", "$regularExpression", "$regex", "$code", "$scope"]
_WORDS += ["$ref", "$id", "$minKey", "$undefined", "$symbol", "$dbPointer", "$type", "a", "t"]
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(_WORDS), inner, max_size=2),
    max_leaves=5,
)


@given(json_values)
def test_any_text_is_parsed_or_refused(value: Any) -> None:
    try:
        extended.read(json.dumps(value))
    except ValueError as error:
        assert str(error)


# JSON has a single NaN, but a double can be one of many: of either sign, signaling, or with a payload.
_floats = st.floats().map(lambda value: math.nan if math.isnan(value) else value)
bson_values = st.sampled_from([value for _, value in VALUES]) | _floats | st.text(max_size=5)


@given(bson_values)
def test_a_written_value_is_one_line_of_json_with_the_same_meaning(value: Any) -> None:
    value = bson.decode(bson.encode({"_id": value}), _LENIENT)["_id"]
    line = extended.written({"_id": value})
    assert "\n" not in line
    json.loads(line, parse_constant=pytest.fail)
    again = bson.encode(extended.read(line))
    assert again == bson.encode({"_id": int(value) if isinstance(value, Int64) else value})
