"""Tests the queries that find documents by the exact bytes of their `_id`."""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Binary, Int64, ObjectId, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import documents
from verifier.cluster.lookup import LONGEST_BOUND, _command, among, bounds
from verifier.cluster.namespace import Namespace

NAMESPACE = Namespace("shop", "orders")


def key(value: Any) -> bytes:
    return bson.encode({"_id": value})


@pytest.mark.parametrize("count", [0, 1, 11, 1000])
def test_keys_are_queried_with_one_in_list(count: int) -> None:
    query = bson.decode(among([key(number) for number in range(count)]).raw)
    assert query == {"_id": {"$in": list(range(count))}}


@given(st.lists(documents.values, max_size=12))
def test_values_are_queried_by_their_exact_bytes(values: list[tuple[int, bytes]]) -> None:
    query = among([documents.key(*value) for value in values])
    listed = documents.document(documents.Field(0x04, b"$in", documents.array(*values)))
    assert bytes(query.raw) == documents.key(0x03, listed)


def test_only_the_id_of_a_key_is_queried() -> None:
    query = among([bson.encode({"shard": 1, "_id": 7})])
    assert bson.decode(query.raw) == {"_id": {"$in": [7]}}


def test_a_lookup_reads_with_majority() -> None:
    command = _command(NAMESPACE, [key(1)], None, None)
    assert command["find"] == "orders" and next(iter(command)) == "find"
    assert command["readConcern"] == {"level": "majority"}
    assert "collectionUUID" not in command


def test_a_lookup_can_name_a_uuid_and_a_cluster_time() -> None:
    command = _command(NAMESPACE, [key(1)], bytes(16), Timestamp(9, 1))
    assert command["collectionUUID"] == Binary(bytes(16), 4)
    assert command["readConcern"] == {"level": "majority", "afterClusterTime": Timestamp(9, 1)}


@pytest.mark.parametrize(
    "values, bounded",
    [
        ([3, 1, 2.5], (1, 3)),
        ([Int64(7)], (7, 7)),
        ([ObjectId(b"b" * 12), ObjectId(b"a" * 12)], (ObjectId(b"a" * 12), ObjectId(b"b" * 12))),
        ([1, "a"], None),
        ([float("nan"), 1], None),
        ([], None),
        ([Binary(bytes(LONGEST_BOUND))], None),
    ],
)
def test_keys_lie_between_the_least_and_the_greatest(
    values: list[Any], bounded: tuple[Any, Any] | None
) -> None:
    found = [bson.decode(each.raw) for each in bounds([key(value) for value in values])]
    expected = (
        [] if bounded is None else [{"_id": {"$gte": bounded[0]}}, {"_id": {"$lte": bounded[1]}}]
    )
    assert found == expected


def test_a_lookup_has_no_bounds_if_a_collation_may_differ() -> None:
    for value, conditions in ((5, 3), ("a", 1), ({"a": 1}, 1)):
        command = _command(NAMESPACE, [key(value)], None, None)
        assert len(command["filter"]["$and"]) == conditions
