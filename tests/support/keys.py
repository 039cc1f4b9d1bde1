"""Generates random `_id`s of all types that servers allow; inserts and reads documents with such `_id`s."""

from __future__ import annotations

from typing import Any

from bson.raw_bson import RawBSONDocument
from hypothesis import strategies as st

from syncsvc.sandbox.replica_set import Client
from tests.unit import documents
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import RAW_LENIENT
from verifier.cluster.rawcursor import RawCursor

# Numbers close to each other, and close to the limits of their types.
_numbers = st.one_of(
    st.integers(-3, 3).map(lambda number: (0x10, documents.int32(number))),
    st.sampled_from([2**53, -(2**53), 2**62, 2**63 - 2, -(2**63) + 1])
    .flatmap(lambda number: st.integers(number - 1, number + 1))
    .map(lambda number: (0x12, documents.int64(number))),
    (st.floats(-3, 3) | st.floats()).map(lambda number: (0x01, documents.double(number))),
)
_letters = st.text("aAbBcCäÄ\0", max_size=3).map(
    lambda text: (0x02, documents.string(text.encode()))
)
# Exclude arrays, undefined and regular expressions, which are not allowed as `_id`.
keys = (
    st.one_of(_numbers, _letters, documents.values)
    .filter(lambda value: value[0] not in (0x04, 0x06, 0x0B))
    .map(lambda value: documents.key(*value))
)


def insert(client: Client, name: Namespace, inserted: list[bytes]) -> None:
    """Insert documents with only an `_id`, given as BSON. Ignore the documents that the server refuses."""
    raws = [RawBSONDocument(each) for each in inserted]
    command = {"insert": name.collection, "ordered": False, "documents": raws}
    # The server refuses duplicate keys, and names with an embedded dollar. The errors quote the key. The driver cannot
    # always decode this key, and for a clustered collection, the server cannot either.
    client[name.database].command(command, codec_options=RAW_LENIENT)


def in_order_of_index(client: Client, name: Namespace) -> list[bytes]:
    """Return all documents of the collection, as BSON, in the order of the index on `_id`."""
    command: dict[str, Any] = {"find": name.collection, "sort": {"_id": 1}, "hint": {"_id": 1}}
    with RawCursor(client, name.database, command) as cursor:
        return [bytes(each) for page in cursor.pages() for each in page.documents()]
