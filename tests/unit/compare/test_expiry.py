"""Documents count as expired if the query of a server's TTL deletion would match them.

A note says if the clocks of the clusters differ.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.expiry import expired, expires, note_on_clocks

NOW = datetime(2026, 1, 1)
MINUTE_AGO = NOW - timedelta(seconds=60)
TTL: dict[str, Any] = {"key": {"at": 1}, "expireAfterSeconds": 60}


def collection(
    indexes: list[dict[str, Any]],
    options: dict[str, Any] | None = None,
    kind: Kind = Kind.COLLECTION,
) -> CollectionSpec:
    named = {str(number): each for number, each in enumerate(indexes)}
    return CollectionSpec(Namespace("d", "c"), kind, b"", options or {}, named)


@pytest.mark.parametrize(
    "indexes, queries",
    [
        ([TTL], [{"$and": [{"at": {"$lte": MINUTE_AGO}}, {}]}]),
        ([{**TTL, "key": {"a.b": 1}}], [{"$and": [{"a.b": {"$lte": MINUTE_AGO}}, {}]}]),
        ([{**TTL, "expireAfterSeconds": 60.5}], [{"$and": [{"at": {"$lte": MINUTE_AGO}}, {}]}]),
        (
            [{**TTL, "expireAfterSeconds": Decimal128("60")}],
            [{"$and": [{"at": {"$lte": MINUTE_AGO}}, {}]}],
        ),
        ([{**TTL, "expireAfterSeconds": Decimal128("NaN")}], []),
        (
            [{**TTL, "partialFilterExpression": {"x": 1}}],
            [{"$and": [{"at": {"$lte": MINUTE_AGO}}, {"x": 1}]}],
        ),
        ([{**TTL, "expireAfterSeconds": float("nan")}], []),
        ([{"key": {"at": 1}}], []),
        # The server ignores the option on such indexes.
        ([{**TTL, "key": {"at": "hashed"}}], []),
        ([{**TTL, "key": {"at": 1, "x": 1}}], []),
    ],
)
def test_a_document_expires_by_its_dates(
    indexes: list[dict[str, Any]], queries: list[dict[str, Any]]
) -> None:
    assert expired([collection(indexes), None], NOW) == queries
    assert expired([None, collection(indexes)], NOW) == queries


def test_a_clustered_collection_expires_by_id() -> None:
    clustered = collection([], {"clusteredIndex": {"key": {"_id": 1}}, "expireAfterSeconds": 60})
    assert expired([clustered], NOW) == [{"_id": {"$lte": MINUTE_AGO}}]
    assert expires([clustered, None])


def test_measurements_expire_by_the_bucket() -> None:
    options = {"timeseries": {"bucketMaxSpanSeconds": 50}, "expireAfterSeconds": 10}
    (query,) = expired([collection([], options, Kind.TIME_SERIES)], NOW)
    assert query == {"_id": {"$lte": ObjectId.from_datetime(MINUTE_AGO)}}
    for_ever = {**options, "expireAfterSeconds": (1 << 31) - 1}
    assert expired([collection([], for_ever, Kind.TIME_SERIES)], NOW) == []


def test_the_span_of_a_bucket_follows_from_the_granularity() -> None:
    """After a collMod that changes the granularity, the definition of the collection has no `bucketMaxSpanSeconds`."""
    options = {"timeseries": {"granularity": "minutes"}, "expireAfterSeconds": 10}
    newest = NOW - timedelta(days=1, seconds=10)
    assert expired([collection([], options, Kind.TIME_SERIES)], NOW) == [
        {"_id": {"$lte": ObjectId.from_datetime(newest)}}
    ]


def test_an_index_on_measurements_expires_whole_buckets() -> None:
    index = {
        "key": {"control.min.t": 1},
        "expireAfterSeconds": 10,
        "partialFilterExpression": {"meta": 1},
    }
    options = {"timeseries": {"bucketMaxSpanSeconds": 50}}
    assert expired([collection([index], options, Kind.TIME_SERIES)], NOW) == [
        {"$and": [{"control.min.t": {"$lte": MINUTE_AGO}}, {"meta": 1}]}
    ]


def test_whether_anything_expires() -> None:
    assert expires([None, collection([{"key": {"a": 1}}, TTL])])
    assert not expires([None, collection([{"key": {"a": 1}}])])
    assert not expires([collection([{**TTL, "key": {"at": "hashed"}}])])


@pytest.mark.parametrize(
    "ahead, told, effect",
    [
        (6, "ahead of", "may be reported as missing"),
        (-3600, "behind", "does not affect the result"),
    ],
)
def test_clocks_that_differ_are_noted(ahead: int, told: str, effect: str) -> None:
    note = note_on_clocks(NOW, NOW + timedelta(seconds=ahead))
    assert note is not None and f"{told} the clock of the source" in note and effect in note


@pytest.mark.parametrize("ahead", [0, 5, -5])
def test_clocks_that_hardly_differ_are_not_noted(ahead: int) -> None:
    assert note_on_clocks(NOW, NOW + timedelta(seconds=ahead)) is None
