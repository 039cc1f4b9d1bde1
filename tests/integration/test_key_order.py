"""Tests that the product sorts `_id`s of all types in the same order as the server's index on `_id`."""

from __future__ import annotations

from itertools import product
from typing import Any

import bson
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.documents import IDS
from tests.support.keys import in_order_of_index, insert, keys
from tests.support.pair import Pair
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.namespace import Namespace
from verifier.compare.order import CollatedOrder, any_order

NAME = Namespace("d", "c")


def test_keys_sort_like_the_id_index(pair: Pair) -> None:
    client = pair.source.client
    client[NAME.database][NAME.collection].insert_many({"_id": each} for each in IDS)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(keys, min_size=1, max_size=60))
    def look(inserted: list[bytes]) -> None:
        insert(client, NAME, inserted)
        forms = [canonical(each, id_element(each)) for each in in_order_of_index(client, NAME)]
        assert forms == sorted(forms)

    look()


@pytest.mark.parametrize("collation", [{"locale": "en", "strength": 2}, {"locale": "de"}])
def test_the_server_decides_the_order_of_collated_keys(
    pair: Pair, collation: dict[str, Any]
) -> None:
    client = pair.source.client
    collection = client[NAME.database].create_collection(NAME.collection, collation=collation)
    texts = ["a", "B", "c", "C", "$a", "ä", "z", "Z1", ""]
    collection.insert_many({"_id": each} for each in [1, *texts[:3], {"x": "b"}, {"x": "A"}, None])
    insert(client, NAME, [bson.encode({"_id": each}) for each in texts])
    stored = in_order_of_index(client, NAME)
    full = client[NAME.database].get_collection(NAME.collection).options()["collation"]
    order = CollatedOrder(client, full)
    positions = range(len(stored))
    for first, second in product(positions, positions):
        assert order(stored[first], stored[second]) is (first < second)
        assert not any_order(stored[first], stored[second]) or first < second
