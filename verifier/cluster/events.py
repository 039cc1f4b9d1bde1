"""Change events, parsed from their raw bytes. Pure.

A data event is taken apart by offset: what is needed of it is copied as bytes, and no value is ever decoded, hence
never altered. Definition events (DDL) are rare, and decoded.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

from verifier.cluster import rawbson
from verifier.cluster.keys import id_element
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import Buffer, int32_at, value_size


class DataKind(Enum):
    INSERT = "insert"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"


class DataEvent(NamedTuple):
    """A change of one document.

    `collection` is the collection's UUID, `key` the document key as a BSON document. `body` is the full document of an
    insert or replace, the description of an update (see `raw_diff`), empty for a delete. `raw_diff` tells whether the
    description is the oplog's own diff or the `updateDescription` of the public documentation.
    """

    kind: DataKind
    collection: bytes
    key: bytes
    body: bytes
    raw_diff: bool = False


class DefinitionEvent(NamedTuple):
    """A change of a collection, view or index, or anything else that is not of one document.

    `collection` is the UUID, None for views and databases. `token` is the event's own resume token.
    """

    operation: str
    namespace: Namespace
    collection: bytes | None
    description: dict[str, Any]
    token: dict[str, Any]


_DATA_KINDS = {kind.value.encode(): kind for kind in DataKind}
_BODY_FIELDS = {
    DataKind.INSERT: b"fullDocument",
    DataKind.REPLACE: b"fullDocument",
    DataKind.UPDATE: b"rawUpdateDescription",
}


def parse_event(raw: bytes) -> DataEvent | DefinitionEvent:
    """The event in the bytes of one change stream document. Raises MalformedBson, KeyError for a missing field."""
    fields = _field_offsets(raw)
    at = fields[b"operationType"]
    kind = _DATA_KINDS.get(raw[at + 4 : at + 3 + int32_at(raw, at)[0]])
    if kind is None or b"collectionUUID" not in fields:
        return _definition_event(rawbson.decode(raw))
    at = fields[b"collectionUUID"] + 5
    collection = raw[at : at + 16]
    at = fields[b"documentKey"]
    key = raw[at : at + int32_at(raw, at)[0]]
    if kind is DataKind.DELETE:
        return DataEvent(kind, collection, key, b"")
    raw_diff = kind is DataKind.UPDATE and b"rawUpdateDescription" in fields
    name = _BODY_FIELDS[kind] if raw_diff or kind is not DataKind.UPDATE else b"updateDescription"
    at = fields[name]
    return DataEvent(kind, collection, key, raw[at : at + int32_at(raw, at)[0]], raw_diff)


def token_of(raw: Buffer) -> dict[str, Any]:
    """The resume token of the event in these bytes."""
    event = bytes(raw)
    element = id_element(event)
    return rawbson.decode(event[element.start : element.end])


def _field_offsets(raw: bytes) -> dict[bytes, int]:
    """Where the value of each top-level field begins. `rawbson.elements` without its objects: the hot path."""
    fields: dict[bytes, int] = {}
    at, end = 4, len(raw) - 1
    while at < end:
        name_end = raw.index(0, at + 1)
        start = name_end + 1
        fields[raw[at + 1 : name_end]] = start
        at = start + value_size(raw, raw[at], start)
    return fields


def _definition_event(event: dict[str, Any]) -> DefinitionEvent:
    namespace = event.get("ns", {})
    uuid = event.get("collectionUUID")
    return DefinitionEvent(
        operation=event["operationType"],
        namespace=Namespace(namespace.get("db", ""), namespace.get("coll", "")),
        collection=None if uuid is None else bytes(uuid),
        description=event.get("operationDescription", {}),
        token=event["_id"],
    )
