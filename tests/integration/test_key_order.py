"""Keys sort as the server's own index sorts them, whatever their types."""

from __future__ import annotations

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.conftest import Pair
from tests.support.documents import IDS
from tests.support.keys import in_order_of_index, insert, keys
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.namespace import Namespace

NAME = Namespace("d", "c")


def test_keys_sort_as_in_the_index(pair: Pair) -> None:
    client = pair.source.client
    client[NAME.database][NAME.collection].insert_many({"_id": each} for each in IDS)

    @settings(max_examples=20, deadline=None, suppress_health_check=list(HealthCheck))
    @given(st.lists(keys, min_size=1, max_size=60))
    def look(inserted: list[bytes]) -> None:
        insert(client, NAME, inserted)
        forms = [canonical(each, id_element(each)) for each in in_order_of_index(client, NAME)]
        assert forms == sorted(forms)

    look()
