"""Keys sort as the server's own index sorts them, whatever their types."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from syncsvc.sandbox.replica_set import Client
from tests.conftest import Pair
from tests.support.documents import IDS
from tests.unit import documents
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import RAW_OPTIONS
from verifier.cluster.rawcursor import RawCursor

KEYS = Namespace("d", "keys")

# Numbers around each other and around the borders of their types.
_numbers = st.one_of(
    st.integers(-3, 3).map(lambda number: (0x10, documents.int32(number))),
    st.sampled_from([2**53, -(2**53), 2**62, 2**63 - 2, -(2**63) + 1])
    .flatmap(lambda number: st.integers(number - 1, number + 1))
    .map(lambda number: (0x12, documents.int64(number))),
    (st.floats(-3, 3) | st.floats()).map(lambda number: (0x01, documents.double(number))),
)
_keys = st.one_of(_numbers, documents.values).filter(
    lambda value: value[0] not in (0x04, 0x06, 0x0B)
)


def insert(client: Client, keys: list[bytes]) -> None:
    """Insert what the server takes of these keys."""
    command = {
        "insert": KEYS.collection,
        "ordered": False,
        "documents": [*map(RawBSONDocument, keys)],
    }
    # An error quotes its key, which may be what the driver's default cannot decode.
    found = client[KEYS.database].command(command, codec_options=RAW_OPTIONS)
    # 11000: a key that is there; 52: a name with a dollar inside of it.
    assert {error["code"] for error in found.get("writeErrors", [])} <= {11000, 52}


def in_the_order_of_the_index(client: Client) -> list[bytes]:
    command: dict[str, Any] = {"find": KEYS.collection, "sort": {"_id": 1}, "hint": {"_id": 1}}
    with RawCursor(client, KEYS.database, command) as cursor:
        return [bytes(each) for page in cursor.pages() for each in page.documents()]


def test_keys_sort_as_in_the_index(pair: Pair) -> None:
    client = pair.source.client
    client[KEYS.database][KEYS.collection].insert_many({"_id": each} for each in IDS)

    @settings(max_examples=15, suppress_health_check=list(HealthCheck))
    @given(st.lists(_keys, min_size=1, max_size=60))
    def look(values: list[documents.Value]) -> None:
        insert(client, [documents.key(*value) for value in values])
        found = in_the_order_of_the_index(client)
        forms = [canonical(each, id_element(each)) for each in found]
        assert forms == sorted(forms)

    look()
