"""Which documents count as expired: those that a server's TTL deletion would take."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.expiry import expires, is_expired

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD, YOUNG = NOW - timedelta(seconds=100), NOW - timedelta(seconds=10)


def collection(
    indexes: list[dict[str, Any]], options: dict[str, Any] | None = None
) -> CollectionSpec:
    named = {str(number): each for number, each in enumerate(indexes)}
    return CollectionSpec(Namespace("d", "c"), Kind.COLLECTION, b"", options or {}, named)


TTL: dict[str, Any] = {"key": {"at": 1}, "expireAfterSeconds": 60}


@pytest.mark.parametrize(
    "document, indexes, expired",
    [
        ({"at": OLD}, [TTL], True),
        ({"at": YOUNG}, [TTL], False),
        ({"at": [YOUNG, OLD]}, [TTL], True),
        ({"at": [YOUNG, "x"]}, [TTL], False),
        ({"at": "long ago"}, [TTL], False),
        ({}, [TTL], False),
        ({"at": OLD}, [], False),
        ({"at": OLD}, [{"key": {"at": 1}}], False),
        ({"a": {"b": OLD}}, [{**TTL, "key": {"a.b": 1}}], True),
        ({"a": [{"b": YOUNG}, {"b": OLD}]}, [{**TTL, "key": {"a.b": 1}}], True),
        ({"at": OLD}, [{**TTL, "expireAfterSeconds": 60.0}], True),
        ({"at": OLD}, [{**TTL, "expireAfterSeconds": float("nan")}], False),
        ({"at": OLD}, [{**TTL, "partialFilterExpression": {"x": 1}}], False),
        ({"at": YOUNG, "b": OLD}, [TTL, {**TTL, "key": {"b": 1}}], True),
    ],
)
def test_a_document_expires_by_its_dates(
    document: dict[str, Any], indexes: list[dict[str, Any]], expired: bool
) -> None:
    raw = bson.encode({"_id": 1, **document})
    assert is_expired(raw, [collection(indexes), None], NOW) is expired
    assert is_expired(raw, [None, collection(indexes)], NOW) is expired


def test_a_clustered_collection_expires_by_id() -> None:
    clustered = collection([], {"clusteredIndex": {"key": {"_id": 1}}, "expireAfterSeconds": 60})
    assert is_expired(bson.encode({"_id": OLD}), [clustered], NOW)
    assert not is_expired(bson.encode({"_id": YOUNG}), [clustered], NOW)
    assert expires([clustered, None])


def test_whether_anything_expires() -> None:
    assert expires([None, collection([{"key": {"a": 1}}, TTL])])
    assert not expires([None, collection([{"key": {"a": 1}}])])
