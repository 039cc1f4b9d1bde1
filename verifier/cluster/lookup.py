"""Fetches single documents by `_id`, as raw bytes. An `_id` of any BSON type is sent to the server unchanged."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bson.binary import Binary
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp

from verifier.cluster import failures, rawbson
from verifier.cluster.connect import Client
from verifier.cluster.keys import canonical_id, depends_on_collation, id_element, is_nan
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawcursor import RawCursor, resilient_pages
from verifier.runtime.tasks import StopToken

# The maximum number of keys in one query, and their maximum size in bytes: the query must stay below 16 MB.
_MOST_KEYS = 1_000
_MOST_KEY_BYTES = 8 << 20
# A key with more bytes is not used as a bound: commands and saved tasks, at most 16 MB each, hold several bounds.
LONGEST_BOUND = 64 << 10

# The projection that keeps only the `_id`.
ONLY_IDS: Mapping[str, Any] = MappingProxyType({"_id": 1})


def among(keys: Iterable[bytes]) -> RawBSONDocument:
    """Return the filter for the documents with these keys. The `_id` values in it have the exact bytes of the keys.

    Each key is a document with an `_id`.
    """
    listed = []
    for number, key in enumerate(keys):
        element = id_element(key)
        listed.append(b"%c%d\0%b" % (element.kind, number, key[element.start : element.end]))
    values = b"".join(listed)
    array = b"%b%b\0" % (rawbson.int32(len(values) + 5), values)
    in_list = rawbson.single(rawbson.ARRAY, b"$in", array)
    return RawBSONDocument(rawbson.single(rawbson.DOCUMENT, b"_id", in_list))


def bounds(keys: Sequence[bytes]) -> list[RawBSONDocument]:
    """Return conditions on the lowest and the highest `_id`, to be added to the filter of `among` for the same keys.

    Without these conditions, MongoDB 6.0 scans a clustered collection completely to find a list of keys. The conditions
    are only valid for a collection that compares strings by their bytes. The list is empty if there are no valid
    conditions: if there are no keys, if the types of the lowest and the highest `_id` differ (all numbers count as one
    type, and so do strings and symbols), if the lowest is NaN, or if a key is longer than LONGEST_BOUND bytes.
    """
    if not keys or max(map(len, keys)) > LONGEST_BOUND:
        return []
    forms = {canonical_id(key): key for key in keys}
    lowest, highest = min(forms), max(forms)
    # A comparison matches one type only; a comparison with NaN matches nothing but NaN.
    if lowest[0] != highest[0] or is_nan(lowest):
        return []
    return [_compared(b"$gte", forms[lowest]), _compared(b"$lte", forms[highest])]


def _compared(operator: bytes, key: bytes) -> RawBSONDocument:
    """Return the filter that compares the `_id` of documents with the `_id` of `key`, by an operator such as `$gte`."""
    element = id_element(key)
    comparison = rawbson.single(element.kind, operator, key[element.start : element.end])
    return RawBSONDocument(rawbson.single(rawbson.DOCUMENT, b"_id", comparison))


def _command(
    namespace: Namespace, keys: list[bytes], uuid: bytes | None, not_before: Timestamp | None
) -> dict[str, Any]:
    # The collation of the collection is not known here.
    collated = any(depends_on_collation(id_element(key)) for key in keys)
    filters = [among(keys), *([] if collated else bounds(keys))]
    command: dict[str, Any] = {"find": namespace.collection, "filter": {"$and": filters}}
    concern: dict[str, Any] = {"level": "majority"}
    if not_before is not None:
        concern["afterClusterTime"] = not_before
    if uuid is not None:
        command["collectionUUID"] = Binary(uuid, 4)
    return {**command, "readConcern": concern}


def fetch_pages(
    client: Client,
    namespace: Namespace,
    keys: list[bytes],
    stop: StopToken,
    uuid: bytes | None = None,
    not_before: Timestamp | None = None,
    projection: Mapping[str, Any] = MappingProxyType({}),
    query: Mapping[str, Any] = MappingProxyType({}),
    by_id: bool = False,
) -> Iterator[list[bytes]]:
    """Yield the documents with these keys, in pages of at most 16 MB.

    Each key is a document with an `_id`; the keys must fit into one query (see `portions`). Only documents that match
    `query` are yielded, with only the fields in `projection` (all fields if it is empty). A document may be yielded
    twice if the query is repeated after a failure. The read has read concern majority, at or after the cluster time
    `not_before` if it is given. If `uuid` is given and no collection has this name and UUID, the driver's error for
    CollectionUUIDMismatch is raised. With `by_id`, the server must use the index on `_id`, even if another index would
    support `query`. Temporary errors are retried. Raises the driver's other errors, and `Cancelled`.
    """
    command = _command(namespace, keys, uuid, not_before)
    if query:
        command["filter"]["$and"].append(query)
    if by_id:
        command["hint"] = {"_id": 1}
    if projection:
        command["projection"] = projection

    def open_cursor() -> RawCursor:
        return RawCursor(client, namespace.database, command)

    for page in resilient_pages(open_cursor, failures.lost_cursor, stop):
        yield [bytes(each) for each in page.documents()]


def portions(keys: Sequence[bytes]) -> Iterator[list[bytes]]:
    """Yield the keys in portions that are small enough for one query, in their order."""
    portion: list[bytes] = []
    size = 0
    for key in keys:
        if portion and (len(portion) == _MOST_KEYS or size + len(key) > _MOST_KEY_BYTES):
            yield portion
            portion, size = [], 0
        portion.append(key)
        size += len(key)
    if portion:
        yield portion


def fetch(
    client: Client,
    namespace: Namespace,
    keys: list[bytes],
    stop: StopToken,
    projection: Mapping[str, Any] = MappingProxyType({}),
    query: Mapping[str, Any] = MappingProxyType({}),
    not_before: Timestamp | None = None,
) -> dict[Hashable, bytes]:
    """Return the documents with these keys, by the canonical form of their `_id`. Missing documents are left out.

    This reads as `fetch_pages` does, and raises the same errors, but accepts any number of keys. If shards have several
    documents with the same `_id`, only one of them is returned.
    """
    found: dict[Hashable, bytes] = {}
    for portion in portions(keys):
        pages = fetch_pages(
            client,
            namespace,
            portion,
            stop,
            not_before=not_before,
            projection=projection,
            query=query,
        )
        for page in pages:
            found.update((canonical_id(each), each) for each in page)
    return found
