"""Tests that the sandbox's comparison reports exactly the documents that differ, for many types of `_id`.

It must also compare the order of capped collections, and the buckets of time-series collections.
"""

from collections.abc import Callable, Iterator
from datetime import datetime
from typing import Any

import pytest
from bson import Binary, DatetimeMS, Decimal128, Int64, MaxKey, MinKey, ObjectId, Regex, Timestamp
from bson.raw_bson import RawBSONDocument
from pymongo.collection import Collection

from tests.sandbox.pair import Pair, started_pair

ODD_IDS = [
    MinKey(), None, float("nan"), -1, 0.5, Int64(2), Decimal128("3"), "", "a", "B", "ä", "9", "10", {"a": 1},
    {"a": 1, "b": [1]}, {"b": 1}, Binary(b"x"), Binary(b"x", 5), ObjectId(), False, True,
    datetime(2020, 1, 1), DatetimeMS(-(2**62)), Timestamp(1, 1), MaxKey(),
]  # fmt: skip


@pytest.fixture(scope="module")
def clusters() -> Iterator[Pair]:
    with started_pair() as pair:
        yield pair


@pytest.fixture
def pair(clusters: Pair) -> Pair:
    clusters.empty()
    return clusters


@pytest.mark.full
def test_one_document_missing_or_extra(pair: Pair) -> None:
    pair.fill([{"_id": number} for number in range(30_000)])
    for side, kind in ((pair.destination, "missing"), (pair.source, "extra")):
        for number in (0, 1, 4_000, 9_999, 10_000, 29_999):
            side.c.delete_one({"_id": number})
            assert pair.differences() == [f"db.c: _id {number} {kind} on destination"]
            side.c.insert_one({"_id": number})
    assert pair.compare().equal


def test_ranges_missing_and_extra(pair: Pair) -> None:
    pair.fill([{"_id": number} for number in range(30_000)])
    pair.destination.c.delete_many({"_id": {"$gte": 5_000, "$lt": 17_000}})
    pair.source.c.delete_many({"_id": {"$gte": 20_000, "$lt": 20_010}})
    differences = pair.differences()
    assert differences[:50] == [
        f"db.c: _id {number} missing on destination" for number in range(5_000, 5_050)
    ]
    assert differences[50:] == ["more differences: 11960"]


def test_a_collection_that_is_empty_on_one_side(pair: Pair) -> None:
    pair.both(lambda db: db.create_collection("c"))
    pair.source.c.insert_many([{"_id": "a"}, {"_id": "b"}])
    pair.destination.d.insert_one({"_id": 1})
    pair.source.create_collection("d")
    assert pair.differences() == [
        'db.c: _id "a" missing on destination',
        'db.c: _id "b" missing on destination',
        "db.d: _id 1 extra on destination",
    ]


@pytest.mark.parametrize(
    "left, right, what",
    [
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, "b"),
        ({"a": 1, "b": 2}, {"a": 2, "c": 2}, "a, b, c"),
        ({"a": 1}, {"a": 1.0}, "a"),
        ({"a": 1}, {"a": Int64(1)}, "a"),
        ({"a": 0.0}, {"a": -0.0}, "a"),
        ({"a": "1"}, {"a": Regex("1")}, "a"),
        ({"a": {"b": 1, "c": 2}}, {"a": {"c": 2, "b": 1}}, "a"),
        ({"a": [1, 2]}, {"a": [1]}, "a"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "order of fields"),
        ({"a": DatetimeMS(2**62)}, {"a": DatetimeMS(2**62 + 1)}, "a"),
    ],
)
def test_different_contents(
    pair: Pair, left: dict[str, Any], right: dict[str, Any], what: str
) -> None:
    pair.fill([{"_id": number} for number in (1, 3)])
    pair.source.c.insert_one({"_id": 2, **left})
    pair.destination.c.insert_one({"_id": 2, **right})
    assert pair.differences() == [f"db.c: _id 2 content differs: {what}"]


def test_different_contents_that_decode_to_equal_values(pair: Pair) -> None:
    null, undefined = b"\x0aa\x00", b"\x06a\x00"
    for db, element in ((pair.source, null), (pair.destination, undefined)):
        body = b"\x10_id\x00\x01\x00\x00\x00" + element + b"\x00"
        document = RawBSONDocument((len(body) + 4).to_bytes(4, "little") + body)
        db.command({"insert": "c", "documents": [document]})
    assert pair.differences() == ["db.c: _id 1 content differs: bytes only"]


def test_equal_ids_of_different_types(pair: Pair) -> None:
    pair.source.c.insert_many([{"_id": 1}, {"_id": 2}])
    pair.destination.c.insert_many([{"_id": 1.0}, {"_id": 2}])
    assert pair.differences() == ["db.c: _id 1 content differs: _id"]


@pytest.mark.parametrize("collation", [None, {"locale": "en", "numericOrdering": True}])
def test_ids_of_many_types(pair: Pair, collation: dict[str, Any] | None) -> None:
    pair.both(lambda db: db.create_collection("c", collation=collation))
    pair.fill([{"_id": value} for value in ODD_IDS])
    assert pair.compare().equal
    for value in ODD_IDS:
        pair.destination.c.delete_one({"_id": value})
        [difference] = pair.differences()
        assert difference.startswith("db.c: _id ")
        assert difference.endswith(" missing on destination")
        pair.destination.c.insert_one({"_id": value, "more": 1})
        [difference] = pair.differences()
        assert difference.endswith(" content differs: more")
        pair.destination.c.replace_one({"_id": value}, {})
    assert pair.compare().equal


def test_ids_are_written_as_extended_json(pair: Pair) -> None:
    pair.both(lambda db: db.create_collection("c"))
    key = ObjectId()
    pair.source.c.insert_many([{"_id": {"a": 1, "b": key}}, {"_id": key}])
    assert pair.differences() == [
        f'db.c: _id {{"a": 1, "b": {{"$oid": "{key}"}}}} missing on destination',
        f'db.c: _id {{"$oid": "{key}"}} missing on destination',
    ]


def test_every_second_document_differs(pair: Pair) -> None:
    pair.source.c.insert_many([{"_id": number} for number in range(0, 40)])
    pair.destination.c.insert_many([{"_id": number} for number in range(1, 41)])
    pair.source.c.delete_many({"_id": {"$mod": [2, 1]}})
    pair.destination.c.delete_many({"_id": {"$mod": [2, 0]}})
    differences = pair.differences()
    assert len(differences) == 40
    assert differences[:2] == [
        "db.c: _id 0 missing on destination",
        "db.c: _id 1 extra on destination",
    ]


def capped(*ids: int) -> Callable[[Collection[dict[str, Any]]], None]:
    def write(collection: Collection[dict[str, Any]]) -> None:
        collection.database.create_collection("c", capped=True, size=4096)
        collection.insert_many([{"_id": number} for number in ids])

    return write


def test_order_of_a_capped_collection(pair: Pair) -> None:
    capped(5, 1, 2, 3)(pair.source.c)
    capped(5, 2, 1, 3)(pair.destination.c)
    assert pair.differences() == [
        "db.c: natural order differs at document 1: _id 1 on source, 2 on destination"
    ]


def test_order_of_other_collections_does_not_matter(pair: Pair) -> None:
    pair.source.c.insert_many([{"_id": 1}, {"_id": 2}])
    pair.destination.c.insert_many([{"_id": 2}, {"_id": 1}])
    assert pair.compare().equal


def test_time_series_buckets_are_compared(pair: Pair) -> None:
    pair.both(lambda db: db.create_collection("s", timeseries={"timeField": "t"}))
    pair.source.s.insert_one({"t": datetime(2020, 1, 1)})
    [difference] = pair.differences()
    assert difference.startswith('db.s: _id {"$oid": ')
    assert difference.endswith(" missing on destination")
