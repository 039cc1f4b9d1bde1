"""Finds documents with the same `_id`: a sharded collection can hold several of them, each on a different shard.

A scan in `_id` order returns such documents next to each other. But it can also return the same document twice, if the
document moves to another shard during the scan. A snapshot read distinguishes the two cases.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Any

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument

from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.keys import canonical_id, depends_on_collation, id_element
from verifier.cluster.lookup import among
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import Document
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

# If two `_id` values have the same type, and it is one of these, they are equal exactly if their bytes are equal.
_EXACT = frozenset(
    {
        rawbson.OBJECT_ID,
        rawbson.BINARY,
        rawbson.INT32,
        rawbson.INT64,
        rawbson.DATE,
        rawbson.TIMESTAMP,
        rawbson.BOOLEAN,
    }
)
# The most pairs that the server compares in one call, and their maximum total size in bytes.
_MOST_PAIRS = 10_000
_MOST_BYTES = 4 << 20

Pair = tuple[bytes, bytes]


class EqualIds(Exception):
    """Raised if several documents of a collection have the same `_id`. `key` is a document with only this `_id`."""

    def __init__(self, key: bytes) -> None:
        super().__init__(key)
        self.key = key


def refuse_equal(
    client: Client,
    namespace: Namespace,
    uuid: bytes | None,
    collation: Document | None,
    keys: Sequence[bytes],
    stop: StopToken,
) -> None:
    """Raise EqualIds if one of `keys` occurs twice, and several documents of the collection really have this `_id`.

    Each of `keys` is a document with only an `_id`. The keys must be in `_id` order: only keys that equal the next key
    are looked up in the collection. `uuid` is None for a server that accepts no UUID. `collation` is the collation of
    the collection; None is the simple collation. Also raises the driver's errors, and `Cancelled`.
    """
    neighbours = _equal_neighbours(client, keys, collation, stop)
    refuse_repeated(client, namespace, uuid, neighbours, stop)


def refuse_repeated(
    client: Client,
    namespace: Namespace,
    uuid: bytes | None,
    keys: Iterable[bytes],
    stop: StopToken,
) -> None:
    """Look up each key in the collection, and raise EqualIds if several documents have this key.

    A key is a document with only an `_id`. `uuid` is None for a server that accepts no UUID. Also raises the
    driver's errors, and `Cancelled`.
    """
    for key in keys:
        if _count(client, namespace, uuid, key, stop) > 1:
            raise EqualIds(key)


def _equal_neighbours(
    client: Client, keys: Sequence[bytes], collation: Document | None, stop: StopToken
) -> Iterator[bytes]:
    collated: list[Pair] = []
    for first, second in pairwise(keys):
        if first == second:
            yield first
        elif first[4] == second[4] and first[4] in _EXACT:
            continue
        elif collation is not None and _may_be_one(first, second):
            collated.append((first, second))
        elif canonical_id(first) == canonical_id(second):
            yield first
    if collation is not None:
        for asked in _at_once(collated):
            yield from _equal_by_collation(client, asked, collation, stop)


def _may_be_one(first: bytes, second: bytes) -> bool:
    """Return whether some collation might treat two keys as equal. Each is a BSON document with only an `_id`."""
    return all(depends_on_collation(id_element(each)) for each in (first, second))


def _at_once(pairs: Iterable[Pair]) -> Iterator[list[Pair]]:
    chosen: list[Pair] = []
    size = 0
    for first, second in pairs:
        length = len(first) + len(second)
        if chosen and (len(chosen) == _MOST_PAIRS or size + length > _MOST_BYTES):
            yield chosen
            chosen, size = [], 0
        chosen.append((first, second))
        size += length
    if chosen:
        yield chosen


def _equal_by_collation(
    client: Client, pairs: Sequence[Pair], collation: Document, stop: StopToken
) -> Iterator[bytes]:
    """Return the first key of each pair whose two keys are equal under the collation, as the server compares them.

    Raises the driver's errors.
    """
    documents = [
        {"number": number, "first": RawBSONDocument(first), "second": RawBSONDocument(second)}
        for number, (first, second) in enumerate(pairs)
    ]
    command: dict[str, Any] = {
        "aggregate": 1,
        "pipeline": [
            {"$documents": {"$literal": documents}},
            {"$match": {"$expr": {"$eq": ["$first._id", "$second._id"]}}},
            {"$project": {"number": 1}},
        ],
        "collation": collation,
        "cursor": {"batchSize": _MOST_PAIRS},
    }
    reply = read(lambda: client.admin.command(command), stop)
    return (pairs[each["number"]][0] for each in reply["cursor"]["firstBatch"])


def _count(
    client: Client, namespace: Namespace, uuid: bytes | None, key: bytes, stop: StopToken
) -> int:
    """Return the number of documents of the collection with this `_id` in one snapshot, but at most 2."""
    command: dict[str, Any] = {
        "find": namespace.collection,
        "filter": among([key]),
        "projection": {"_id": 1},
        "limit": 2,
        "readConcern": {"level": "snapshot"},
    }
    if uuid is not None:
        command["collectionUUID"] = Binary(uuid, 4)
    database = client[namespace.database]
    options = rawbson.RAW_LENIENT
    reply = retry(
        lambda: database.command(command, codec_options=options), failures.temporary, stop
    )
    return len(reply["cursor"]["firstBatch"])
