"""Tests that the sandbox's comparison reports differences of definitions exactly, and nothing for equal clusters.

The modules `test_equality_of_documents` and `test_equality_of_shard_keys` test other differences.
"""

from collections.abc import Iterator
from typing import Any

import bson
import pytest
from pymongo import ASCENDING, DESCENDING
from pymongo.database import Database

from syncsvc.sandbox.equality import Equality, compare_clusters, differences_by_database
from tests.sandbox.pair import Pair, started_pair


@pytest.fixture(scope="module")
def clusters() -> Iterator[Pair]:
    with started_pair() as pair:
        yield pair


@pytest.fixture
def pair(clusters: Pair) -> Pair:
    clusters.empty()
    return clusters


def make_everything(db: Database[dict[str, Any]]) -> None:
    db.c.insert_many([{"_id": number, "a": [number, {"b": "x"}]} for number in range(25_000)])
    db.c.create_index([("a", ASCENDING), ("b", DESCENDING)], sparse=True)
    db.c.create_index("t", expireAfterSeconds=3600, hidden=True)
    db.create_collection("view", viewOn="c", pipeline=[{"$match": {"a": 1}}])
    db.create_collection("capped", capped=True, size=4096)
    db.capped.insert_many([{"_id": number} for number in (3, 1, 2)])
    db.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    db.clustered.insert_many([{"_id": number} for number in (3, 1, 2)])
    db.create_collection("empty", collation={"locale": "de", "strength": 2})
    db.create_collection("series", timeseries={"timeField": "t"})
    db.client.other.c.insert_one({"_id": 1})


def test_equal_clusters(pair: Pair) -> None:
    pair.both(make_everything)
    result = pair.compare()
    collections = pair.source.c, pair.source.capped, pair.source.clustered
    documents = [document for collection in collections for document in collection.find()]
    expected = Equality(
        namespaces=7,
        documents=25_007,
        bytes=sum(len(bson.encode(document)) for document in [*documents, {"_id": 1}]),
        indexes=7,
        views=1,
        differences=(),
    )
    assert result == expected
    assert result.equal


def test_empty_clusters_are_equal(pair: Pair) -> None:
    assert pair.compare() == Equality(0, 0, 0, 0, 0, ())


@pytest.mark.parametrize(
    "name", ["admin", "config", "local", "mongosync_reserved_for_internal_use"]
)
def test_internal_databases_are_left_out(pair: Pair, name: str) -> None:
    collection = pair.clients[0][name].create_collection("c")
    assert pair.compare().equal
    collection.drop()


def test_namespaces_that_are_left_out_are_not_counted(pair: Pair) -> None:
    pair.both(make_everything)
    result = compare_clusters(*pair.clients, left_out=["db.c", "db.view"])
    assert (result.namespaces, result.views, result.documents) == (5, 0, 7)


def test_missing_and_extra_namespaces(pair: Pair) -> None:
    pair.source.create_collection("a")
    pair.destination.create_collection("b")
    pair.source.create_collection("v", viewOn="a")
    assert pair.differences() == [
        "db.a: collection missing on destination",
        "db.b: collection extra on destination",
        "db.v: view missing on destination",
    ]


def test_view_instead_of_collection(pair: Pair) -> None:
    pair.source.create_collection("a")
    pair.destination.create_collection("a", viewOn="b")
    assert pair.differences() == ["db.a: collection on source, view on destination"]


def test_options(pair: Pair) -> None:
    pair.source.create_collection("c", capped=True, size=4096, max=5)
    pair.destination.create_collection("c", capped=True, size=8192)
    assert pair.differences() == ["db.c: options differ: size, max"]


def test_order_of_options_is_ignored(pair: Pair) -> None:
    pair.source.command({"create": "c", "validator": {"a": 1}, "validationLevel": "moderate"})
    pair.destination.command({"create": "c", "validationLevel": "moderate", "validator": {"a": 1}})
    assert pair.compare().equal


def test_view_pipeline(pair: Pair) -> None:
    pair.source.create_collection("v", viewOn="c", pipeline=[{"$match": {"a": 1, "b": 2}}])
    pair.destination.create_collection("v", viewOn="c", pipeline=[{"$match": {"b": 2, "a": 1}}])
    assert pair.differences() == ["db.v: options differ: pipeline"]


def test_missing_and_extra_index(pair: Pair) -> None:
    pair.both(lambda db: db.create_collection("c"))
    pair.source.c.create_index("a")
    pair.destination.c.create_index("b")
    assert pair.differences() == [
        "db.c: index a_1 missing on destination",
        "db.c: index b_1 extra on destination",
    ]


@pytest.mark.parametrize(
    "left, right, fields",
    [
        ({"key": {"a": 1}}, {"key": {"a": 1}, "unique": True}, "unique"),
        ({"key": {"a": 1}}, {"key": {"a": 1}, "hidden": True}, "hidden"),
        ({"key": {"a": 1}}, {"key": {"a": 1}, "v": 1}, "v"),
        ({"key": {"a": 1}}, {"key": {"a": 1}, "prepareUnique": True}, "prepareUnique"),
        ({"key": {"a": 1, "b": 1}}, {"key": {"b": 1, "a": 1}}, "key"),
        ({"key": {"a": 1}}, {"key": {"a": -1}, "sparse": True}, "key, sparse"),
        (
            {"key": {"a": 1}, "expireAfterSeconds": 5},
            {"key": {"a": 1}, "expireAfterSeconds": 2147483647},
            "expireAfterSeconds",
        ),
        (
            {"key": {"a": 1}, "partialFilterExpression": {"b": 1}},
            {"key": {"a": 1}, "partialFilterExpression": {"b": 1.0}},
            "partialFilterExpression",
        ),
    ],
)
def test_index_fields(pair: Pair, left: dict[str, Any], right: dict[str, Any], fields: str) -> None:
    pair.source.command({"createIndexes": "c", "indexes": [{**left, "name": "i"}]})
    pair.destination.command({"createIndexes": "c", "indexes": [{**right, "name": "i"}]})
    assert pair.differences() == [f"db.c: index i differs: {fields}"]


def test_order_of_index_fields_is_ignored(pair: Pair) -> None:
    left = {"key": {"a": 1}, "name": "i", "sparse": True, "unique": True}
    pair.source.command({"createIndexes": "c", "indexes": [left]})
    pair.destination.command({"createIndexes": "c", "indexes": [dict(reversed(left.items()))]})
    assert pair.compare().equal


def test_differences_by_database(pair: Pair) -> None:
    source = pair.clients[0]
    for number in range(60):
        source.first[f"c{number:02}"].insert_one({"_id": 1})
    source.second.create_collection("a")
    pair.both(lambda db: db.create_collection("same"))
    found = differences_by_database(*pair.clients)
    assert list(found) == ["first", "second"]
    assert found["first"][0] == "first.c00: collection missing on destination"
    assert found["first"][-1] == "more differences: 10"
    assert found["second"] == ("second.a: collection missing on destination",)


def test_a_clustered_index_of_any_name(pair: Pair) -> None:
    clustered = {"key": {"_id": 1}, "unique": True, "name": "mine"}
    pair.both(lambda db: db.create_collection("c", clusteredIndex=clustered))
    pair.source.c.insert_one({"_id": 1})
    assert pair.differences() == ["db.c: _id 1 missing on destination"]
