"""Tests the properties of a CollectionSpec, and the comparison of definitions by order, types and values of fields."""

from __future__ import annotations

from typing import Any

import pytest
from bson import SON, Decimal128, Int64
from hypothesis import given
from hypothesis import strategies as st

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind, same_document

NAMESPACE = Namespace("d", "c")

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=2), inner, max_size=3),
    max_leaves=6,
)


@pytest.mark.parametrize(
    "left, right, same",
    [
        ({}, {}, True),
        ({"a": 1, "b": 2}, {"a": 1, "b": 2}, True),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, False),
        ({"a": {"x": 1, "y": 2}}, {"a": {"y": 2, "x": 1}}, False),
        ({"a": 1}, {"a": 1.0}, False),
        ({"a": 1}, {"a": Int64(1)}, False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 0}, {"a": None}, False),
        ({"a": 1}, {"a": 1, "b": None}, False),
        ({"a": [1, 2]}, {"a": [2, 1]}, False),
        ({"a": [1]}, {"a": [1, 1]}, False),
        ({"a": [{"b": 1}]}, {"a": [{"b": 1.0}]}, False),
        ({"a": Decimal128("1")}, {"a": Decimal128("1.0")}, False),
        ({"a": {}}, {"a": []}, False),
        (SON([("a", 1), ("b", SON(c=1))]), {"a": 1, "b": {"c": 1}}, True),
        (SON([("a", 1), ("b", 2)]), {"b": 2, "a": 1}, False),
    ],
)
def test_order_and_types_count(left: Any, right: Any, same: bool) -> None:
    assert same_document(left, right) is same
    assert same_document(right, left) is same


@given(json_values)
def test_every_document_is_the_same_as_itself(value: Any) -> None:
    assert same_document(value, value)


@given(json_values, json_values)
def test_same_documents_have_the_same_representation(left: Any, right: Any) -> None:
    assert same_document(left, right) is (repr(left) == repr(right))


def test_nan_is_the_same_as_nan() -> None:
    assert same_document({"a": float("nan")}, {"a": float("nan")})


@pytest.mark.parametrize(
    "options, collated",
    [
        ({}, False),
        ({"collation": {"locale": "simple"}}, False),
        ({"collation": {}}, False),
        ({"collation": {"locale": "de", "strength": 2}}, True),
    ],
)
def test_a_collection_is_collated_if_it_has_a_locale_that_is_not_simple(
    options: Any, collated: bool
) -> None:
    assert CollectionSpec(NAMESPACE, Kind.COLLECTION, None, options).collated is collated


@pytest.mark.parametrize(
    "options, capped", [({}, False), ({"capped": False}, False), ({"capped": True}, True)]
)
def test_a_collection_is_capped_by_its_options(options: Any, capped: bool) -> None:
    assert CollectionSpec(NAMESPACE, Kind.COLLECTION, None, options).capped is capped


@pytest.mark.parametrize(
    "options, indexes, expires",
    [
        ({}, {}, False),
        ({}, {"plain": {"name": "plain", "key": {"a": 1}}}, False),
        ({"expireAfterSeconds": 0}, {}, True),
        ({}, {"ttl": {"name": "ttl", "key": {"a": 1}, "expireAfterSeconds": 0}}, True),
    ],
)
def test_documents_expire_by_the_options_or_by_an_index(
    options: dict[str, Any], indexes: dict[str, Any], expires: bool
) -> None:
    assert CollectionSpec(NAMESPACE, Kind.COLLECTION, None, options, indexes).expires is expires
