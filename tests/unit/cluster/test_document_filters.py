"""Document filters keep their queries exactly; operators that depend on more than the document are refused."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, MaxKey, ObjectId, Regex, Timestamp

from verifier.cluster.document_filters import (
    DocumentFilters,
    filters_of,
    query_of,
    refusals,
    rows_of,
    text_of,
)
from verifier.cluster.namespace import Namespace

ORDERS, OTHERS, SAME = (Namespace("d", each) for each in ("orders", "others", "same"))

QUERIES: list[dict[str, Any]] = [
    {"a": 1, "b": Int64(1), "c": 1.0, "d": Decimal128("1.0"), "e": None, "f": MaxKey()},
    {
        "z": {"$gte": datetime(2024, 1, 1)},
        "a": {"$in": [ObjectId("65a0c3f1e4b0a1b2c3d4e5f6"), Timestamp(1, 2)]},
    },
    {"a": {"$regex": "^x", "$options": "i"}, "b": Regex("y", "m")},
    {"$or": [{"a": {"$elemMatch": {"b": {"$gt": Int64(2**40)}}}}, {"$nor": [{"c": 1}]}]},
    {"$expr": {"$eq": ["$$ROOT.a", {"$literal": "$$NOW"}]}},
    {"a": {"$type": ["double", 2]}, "b": {"$bitsAllSet": 5}, "c": {"$size": 2}},
    {"$jsonSchema": {"required": ["a"], "properties": {"a": {"bsonType": "int"}}}},
]

# Each query, and the first word of each sentence that refuses it: an operator or a variable.
REFUSED: list[tuple[dict[str, Any], list[str]]] = [
    ({"$where": "true"}, ["$where"]),
    ({"$or": [{"a": 1}, {"$and": [{"$where": "true"}]}]}, ["$where"]),
    ({"$expr": {"$function": {"body": "", "args": [], "lang": "js"}}}, ["$function"]),
    ({"$text": {"$search": "a"}}, ["$text"]),
    ({"a": {"$near": [1, 1]}, "b": {"$nearSphere": [1, 1]}}, ["$near", "$nearSphere"]),
    ({"a": {"$geoNear": [1, 1]}}, ["$geoNear"]),
    ({"$expr": {"$lt": [{"$rand": {}}, 0.5]}}, ["$rand"]),
    ({"$sampleRate": 0.5}, ["$sampleRate"]),
    ({"$expr": {"$lt": ["$at", "$$NOW"]}}, ["$$NOW"]),
    ({"$expr": {"$lt": ["$at", "$$CLUSTER_TIME"]}}, ["$$CLUSTER_TIME"]),
    ({"a": 1, "$expr": {"$in": ["x", "$$USER_ROLES.role"]}}, ["$$USER_ROLES"]),
    ({"$expr": {"$let": {"vars": {"x": "$$NOW"}, "in": "$$x"}}}, ["$$NOW"]),
    ({"$_internalExprEq": 1}, ["$_internalExprEq"]),
]


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_query_that_only_depends_on_the_document_is_accepted(query: dict[str, Any]) -> None:
    assert [*refusals(query)] == []


@pytest.mark.parametrize("query, names", REFUSED, ids=str)
def test_other_operators_are_refused_by_name(query: dict[str, Any], names: list[str]) -> None:
    assert [each.partition(" ")[0] for each in refusals(query)] == names


def test_variables_are_text_outside_of_expressions() -> None:
    assert [*refusals({"a": "$$NOW", "b": {"$in": ["$$NOW"]}})] == []


@pytest.mark.parametrize("query", QUERIES, ids=str)
def test_a_saved_query_is_the_same(query: dict[str, Any]) -> None:
    raw = bson.encode(query)
    assert query_of(text_of(raw)) == raw
    filters = DocumentFilters({ORDERS: raw, OTHERS: bson.encode({})})
    assert filters_of(rows_of(filters)) == filters


def test_a_collection_without_a_query_is_complete() -> None:
    queries = {ORDERS: bson.encode({"a": 1}), SAME: bson.encode({"a": 1})}
    filters = DocumentFilters(queries)
    assert filters and not DocumentFilters()
    assert ORDERS in filters and OTHERS not in filters
    found = filters.of(ORDERS)
    assert found is not None and found.raw == queries[ORDERS]
    assert filters.of(OTHERS) is None
    assert filters.selects_alike(ORDERS, SAME)
    assert not filters.selects_alike(ORDERS, OTHERS)
    assert filters.selects_alike(OTHERS, Namespace("d", "another"))
