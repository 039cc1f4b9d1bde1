"""Tests that every document of a collection is in exactly one of its ranges, with any type of `_id`."""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

import bson
import pytest
from bson import MaxKey, MinKey, ObjectId
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.documents import IDS
from tests.support.keys import in_order_of_index, insert, keys
from tests.support.pair import Pair
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Portion, Range, split
from verifier.compare.comparison import Comparison
from verifier.compare.documents import Mode
from verifier.compare.scope import NamespacePair
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")
FOLDING = {"collation": {"locale": "en", "strength": 2}}
CLUSTERED = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "collated": FOLDING,
    "capped": {"capped": True, "size": 1 << 24},
    "clustered": CLUSTERED,
    "clustered and collated": {**CLUSTERED, **FOLDING},
}


def found_in(pair: Pair, portion: Portion, name: Namespace = NAME) -> list[bytes]:
    """Return the keys of the source's documents in the range `portion` of a collection.

    The destination is empty, so a comparison of the range reports each of these documents as a mismatch.
    """
    comparison = Comparison(
        pair.source.client, pair.destination.client, Mode.BINARY, None, StopToken()
    )
    names = NamespacePair(name, name)
    found = comparison.documents(names, portion, (None, None), lambda *_: None)
    return [each.key for each in found]


def assert_covered(pair: Pair, ranges: list[Range], expected: list[bytes]) -> None:
    found = Counter(key for each in ranges for key in found_in(pair, each))
    assert found == Counter(expected)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_every_document_is_in_one_range(pair: Pair, kind: str) -> None:
    client = pair.source.client
    client[NAME.database].create_collection(NAME.collection, **KINDS[kind])
    insert(client, NAME, [bson.encode({"_id": each}) for each in IDS])

    @settings(max_examples=10, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(keys, min_size=10, max_size=60), st.integers())
    def look(inserted: list[bytes], seed: int) -> None:
        insert(client, NAME, inserted)
        stored = in_order_of_index(client, NAME)
        # The first and the last key are MinKey and MaxKey, which are never bounds.
        picked = sorted(Random(seed).sample(range(1, len(stored) - 1), 5))
        bounds = [None, *(stored[at] for at in picked), None]
        ranges = [Range(*each) for each in zip(bounds, bounds[1:])]
        assert_covered(pair, ranges, stored)

    look()


@pytest.mark.parametrize("kind", KINDS)
def test_a_collection_is_split(pair: Pair, kind: str) -> None:
    client = pair.source.client
    collection = client[NAME.database].create_collection(NAME.collection, **KINDS[kind])
    texts = [f"{letter}{number}" for number in range(300) for letter in "aB"]
    collection.insert_many({"_id": each} for each in [*range(100, 400), *texts, *IDS])
    collection.insert_many({"_id": ObjectId()} for _ in range(300))
    stored = in_order_of_index(client, NAME)
    ranges = split(client, NAME, len(stored), 1000 * 100, 10_000, StopToken())
    assert 5 <= len(ranges) <= 10
    assert_covered(pair, ranges, stored)
    assert max(len(found_in(pair, each)) for each in ranges) < len(stored) / 2


@pytest.mark.parametrize(
    "count, size, ranges", [(0, 0, 1), (1000, 999, 1), (1000, 2000, 2), (2, 10_000, 2)]
)
def test_a_small_collection_is_one_range(pair: Pair, count: int, size: int, ranges: int) -> None:
    collection = pair.source.client[NAME.database][NAME.collection]
    collection.insert_many({"_id": number} for number in range(1000))
    found = split(pair.source.client, NAME, count, size, 1000, StopToken())
    assert len(found) <= ranges


def test_minkey_and_maxkey_are_no_bounds(pair: Pair) -> None:
    collection = pair.source.client[NAME.database][NAME.collection]
    collection.insert_many([{"_id": MinKey()}, {"_id": MaxKey()}])
    assert split(pair.source.client, NAME, 2, 100, 10, StopToken()) == [Range()]


@pytest.mark.parametrize("name", ["missing", "view"])
def test_a_view_or_missing_collection_is_one_range(pair: Pair, name: str) -> None:
    database = pair.source.client[NAME.database]
    database.create_collection("view", viewOn="missing", pipeline=[])
    there = Namespace(NAME.database, name)
    assert split(pair.source.client, there, 10, 1000, 10, StopToken()) == [Range()]
    assert found_in(pair, Range(), there) == []


def test_buckets_of_time_series_are_split(pair: Pair) -> None:
    database = pair.source.client[NAME.database]
    database.create_collection("t", timeseries={"timeField": "t", "metaField": "m"})
    moment = ObjectId().generation_time
    database["t"].insert_many({"t": moment, "m": number} for number in range(200))
    buckets = Namespace(NAME.database, "t").buckets
    ids = database[buckets.collection].distinct("_id")
    ranges = split(pair.source.client, buckets, 200, 20_000, 5000, StopToken())
    assert len(ranges) == 4
    found = [bson.decode(key)["_id"] for each in ranges for key in found_in(pair, each, buckets)]
    assert sorted(found) == sorted(ids)
