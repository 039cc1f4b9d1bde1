"""Parses change events from their raw bytes. The functions here have no side effects.

A data event is parsed by offset: the needed parts are copied as bytes. No value of a document is decoded, so none can
be altered. DDL events are rare and are decoded, except for the expressions in them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from enum import Enum
from functools import lru_cache, partial
from typing import Any, NamedTuple

from verifier.cluster import rawbson
from verifier.cluster.keys import id_element
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import Buffer, int32, int32_at, value_size


class DataKind(Enum):
    """The kind of a change of a document.

    UNTOLD: a change whose contents are not used: the event was too large to read whole, or only the source can decide
    whether the document is selected. The document is read again from the source.
    REREAD: not an event of a cluster, but a request by this program to read the document again.
    """

    INSERT = "insert"
    UPDATE = "update"
    REPLACE = "replace"
    DELETE = "delete"
    UNTOLD = "untold"
    REREAD = "reread"


class DataEvent(NamedTuple):
    """A change of one document."""

    kind: DataKind
    # The UUID of the collection; empty on servers before 6.0, which send none.
    collection: bytes
    # The document key as a BSON document.
    key: bytes
    # The full document of an insert or replace, or the description of an update; otherwise empty.
    body: bytes
    # Whether the description of an update is the oplog's own diff, not the documented `updateDescription`.
    raw_diff: bool = False
    # The name of the collection if `collection` is empty; otherwise None.
    namespace: Namespace | None = None


class Fragment(NamedTuple):
    """A fragment of a change event that is larger than 16 MB. `last` is True for the last fragment of the event."""

    raw: bytes
    last: bool


class DefinitionEvent(NamedTuple):
    """A DDL event, or any other event that is not about one document."""

    operation: str
    namespace: Namespace
    # The UUID of the collection; None for views and databases, and on servers before 6.0.
    collection: bytes | None
    # The event's `operationDescription`; empty if it has none.
    description: dict[str, Any]
    # The new name after a rename; None for other operations.
    renamed: Namespace | None
    # The resume token of this event.
    token: dict[str, Any]

    @property
    def owners(self) -> frozenset[Namespace]:
        """Return the namespaces that the event concerns: for a rename, the old and the new name.

        For an event about a whole database, the name of the collection is empty. The name of the buckets of a
        time-series collection is replaced by the name of that collection.
        """
        names = (self.namespace, *([] if self.renamed is None else [self.renamed]))
        return frozenset(each.owner for each in names)

    @property
    def replaced(self) -> bytes | None:
        """Return the UUID of the collection that a rename has dropped, because it had the new name; otherwise None."""
        dropped = None if self.renamed is None else self.description.get("dropTarget")
        return None if dropped is None else bytes(dropped)


class KeyEvent(NamedTuple):
    """A change of one document without its contents. `key` is the document key as a BSON document."""

    operation: str
    namespace: Namespace
    key: bytes


# The fields from which a KeyEvent or a DefinitionEvent is parsed, besides `_id`, which a projection keeps anyway.
KEY_EVENT_FIELDS = (
    "operationType",
    "ns",
    "documentKey",
    "to",
    "operationDescription",
    "collectionUUID",
)

# The maximum number of cached namespaces: consecutive events usually belong to a few namespaces.
_MOST_NAMES = 1_000

# The operations on one document, as change streams name them.
DATA_OPERATIONS = ("insert", "update", "replace", "delete")
_DATA_KINDS = {name.encode(): DataKind(name) for name in DATA_OPERATIONS}
_BODY_FIELDS = {
    DataKind.INSERT: b"fullDocument",
    DataKind.REPLACE: b"fullDocument",
    DataKind.UPDATE: b"rawUpdateDescription",
}


# Local names: looking up a member of an Enum class takes ten times as long.
_INSERT, _UPDATE, _REPLACE = DataKind.INSERT, DataKind.UPDATE, DataKind.REPLACE

# The first fields of a data event, in the order in which servers send them. The patterns accept any encoded length,
# because the values imply the lengths.
_KEY_FOLLOWS = rb"\x03ns\0.{4}\x02db\0.{4}[^\0]*\0\x02coll\0.{4}[^\0]*\0\0\x03documentKey\0"
_BEGINNING = re.compile(
    rb"\x03_id\0.{4}\x02_data\0.{4}[0-9A-F]*\0\0"
    rb"\x02operationType\0.{4}(insert|update|replace|delete)\0"
    rb"\x11clusterTime\0.{8}"
    rb"\x05collectionUUID\0\x10\0\0\0\x04(.{16})"
    rb"\x09wallTime\0.{8}"
    rb"(?:\x03fullDocument\0|" + _KEY_FOLLOWS + rb")",
    re.DOTALL,
).match
_AFTER_DOCUMENT = re.compile(_KEY_FOLLOWS, re.DOTALL).match
_RAW_UPDATE = b"\x03rawUpdateDescription\0"
# Creates a DataEvent in a third of the time that its constructor takes.
_data_event = partial(tuple.__new__, DataEvent)


def parse_event(raw: bytes) -> DataEvent | DefinitionEvent | Fragment:
    """Parse the event in one change stream document. Raise MalformedBson, or KeyError for a missing field."""
    return _usual_event(raw) or _any_event(raw)


def _usual_event(raw: bytes) -> DataEvent | None:
    """Parse a data event that has exactly the usual fields in the usual order; return None for any other event.

    This is the fast path: it handles nearly all events.
    """
    found = _BEGINNING(raw, 4)
    if found is None:
        return None
    operation, collection = found.groups()
    kind = _DATA_KINDS[operation]
    at = found.end()
    body = b""
    if kind is _INSERT or kind is _REPLACE:
        body = raw[at : at + int32_at(raw, at)[0]]
        found = _AFTER_DOCUMENT(raw, at + len(body))
        if found is None:
            return None
        at = found.end()
    key = raw[at : at + int32_at(raw, at)[0]]
    at += len(key)
    if kind is _UPDATE:
        if not raw.startswith(_RAW_UPDATE, at):
            return None
        at += len(_RAW_UPDATE)
        body = raw[at : at + int32_at(raw, at)[0]]
        at += len(body)
    if at != len(raw) - 1:
        return None
    return _data_event((kind, collection, key, body, kind is _UPDATE, None))


def _any_event(raw: bytes) -> DataEvent | DefinitionEvent | Fragment:
    fields = _field_offsets(raw)
    if b"splitEvent" in fields:
        split = _document_at(raw, fields[b"splitEvent"])
        return Fragment(raw, last=split["fragment"] == split["of"])
    at = fields[b"operationType"]
    kind = _DATA_KINDS.get(raw[at + 4 : at + 3 + int32_at(raw, at)[0]])
    if kind is None:
        return _definition_event(rawbson.decode_definition(raw))
    at = fields.get(b"collectionUUID", 0)
    collection = raw[at + 5 : at + 21] if at else b""
    namespace = None if at else _namespace_at(raw, fields[b"ns"])
    at = fields[b"documentKey"]
    key = raw[at : at + int32_at(raw, at)[0]]
    if kind is DataKind.DELETE:
        return DataEvent(kind, collection, key, b"", namespace=namespace)
    raw_diff = kind is DataKind.UPDATE and b"rawUpdateDescription" in fields
    name = _BODY_FIELDS[kind] if raw_diff or kind is not DataKind.UPDATE else b"updateDescription"
    at = fields.get(name, 0)
    if not at:
        return DataEvent(DataKind.UNTOLD, collection, key, b"", namespace=namespace)
    body = raw[at : at + int32_at(raw, at)[0]]
    return DataEvent(kind, collection, key, body, raw_diff, namespace)


def parse_key_event(raw: bytes) -> KeyEvent | DefinitionEvent:
    """Parse the event in a change stream document, which may be projected to KEY_EVENT_FIELDS.

    Raise MalformedBson, or KeyError for a missing field.
    """
    fields = _field_offsets(raw)
    at = fields[b"operationType"]
    operation = raw[at + 4 : at + 3 + int32_at(raw, at)[0]]
    if operation not in _DATA_KINDS:
        return _definition_event(rawbson.decode_definition(raw))
    at = fields[b"documentKey"]
    key = raw[at : at + int32_at(raw, at)[0]]
    return KeyEvent(operation.decode(), _namespace_at(raw, fields[b"ns"]), key)


def join_fragments(fragments: Iterable[Fragment]) -> bytes:
    """Join all fragments of an event, given in order, and return the event as BSON, without the field `splitEvent`.

    The event has the resume token of the last fragment.

    Each fragment is a document with some of the event's top-level fields (`$changeStreamSplitLargeEvent`).
    """
    fields: dict[bytes, bytes] = {}
    for fragment in fragments:
        for each in rawbson.elements(fragment.raw):
            value = fragment.raw[each.start : each.end]
            fields[each.name] = b"%c%b\0%b" % (each.kind, each.name, value)
    del fields[b"splitEvent"]
    joined = b"".join(fields.values())
    return b"%b%b\0" % (int32(len(joined) + 5), joined)


def token_of(raw: Buffer) -> dict[str, Any]:
    """Return the resume token of a raw event."""
    event = bytes(raw)
    return _document_at(event, id_element(event).start)


def _document_at(raw: bytes, at: int) -> dict[str, Any]:
    return rawbson.decode(raw[at : at + int32_at(raw, at)[0]])


def _namespace_at(raw: bytes, at: int) -> Namespace:
    return _namespace_in(raw[at : at + int32_at(raw, at)[0]])


@lru_cache(_MOST_NAMES)
def _namespace_in(raw: bytes) -> Namespace:
    return _namespace(rawbson.decode(raw))


def _namespace(names: dict[str, Any]) -> Namespace:
    return Namespace(names.get("db", ""), names.get("coll", ""))


def _field_offsets(raw: bytes) -> dict[bytes, int]:
    """Return the offset of the value of each top-level field, by name. Faster than `rawbson.elements`."""
    fields: dict[bytes, int] = {}
    at, end = 4, len(raw) - 1
    while at < end:
        name_end = raw.index(0, at + 1)
        start = name_end + 1
        fields[raw[at + 1 : name_end]] = start
        at = start + value_size(raw, raw[at], start)
    return fields


def _definition_event(event: dict[str, Any]) -> DefinitionEvent:
    uuid, renamed = event.get("collectionUUID"), event.get("to")
    return DefinitionEvent(
        operation=event["operationType"],
        namespace=_namespace(event.get("ns", {})),
        collection=None if uuid is None else bytes(uuid),
        description=event.get("operationDescription", {}),
        renamed=None if renamed is None else _namespace(renamed),
        token=event["_id"],
    )
