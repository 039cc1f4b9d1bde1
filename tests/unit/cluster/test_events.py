"""Change events and fragments of them are parsed; the keys and contents of documents stay the same bytes."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Binary, Int64, Timestamp
from bson.raw_bson import RawBSONDocument
from hypothesis import given
from hypothesis import strategies as st

from tests.unit import documents
from tests.unit.documents import Field, document
from verifier.cluster.events import (
    DATA_OPERATIONS,
    DataEvent,
    DataKind,
    DefinitionEvent,
    Fragment,
    _any_event,
    _usual_event,
    join_fragments,
    parse_event,
    token_of,
)
from verifier.cluster.namespace import Namespace

COLLECTION = UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
TOKEN = {"_data": "826555F2C1000000022B022C0100296E5A1004"}
HEAD: dict[str, Any] = {
    "_id": TOKEN,
    "clusterTime": Timestamp(1700000000, 2),
    "wallTime": bson.DatetimeMS(1700000000000),
    "ns": {"db": "shop", "coll": "orders"},
}
TAIL: dict[str, Any] = {"txnNumber": Int64(3), "lsid": {"id": Binary(bytes(16), 4)}}


def raw_event(operation: str, **fields: Any) -> bytes:
    """Return an encoded event with a collection's UUID, these fields, and the fields of an event in a transaction.

    The order of its fields is not that of the server, so `_usual_event` does not parse it.
    """
    uuid = {"collectionUUID": Binary.from_uuid(COLLECTION)}
    return bson.encode({"_id": TOKEN, "operationType": operation, **HEAD, **uuid, **fields, **TAIL})


def raw(**fields: Any) -> bytes:
    return bson.encode(fields)


def usual_event(
    operation: str, key: bytes, body: bytes, namespace: dict[str, str] | None = None
) -> bytes:
    """Return an encoded event with only the usual fields, in the order of a server that sends collection UUIDs.

    `body` is the document of an insert or replace, or the diff of an update.
    """
    about = {
        "clusterTime": Timestamp(1700000000, 2),
        "collectionUUID": Binary.from_uuid(COLLECTION),
    }
    head = {"_id": TOKEN, "operationType": operation, **about, "wallTime": HEAD["wallTime"]}
    before = {"fullDocument": RawBSONDocument(body)} if operation in ("insert", "replace") else {}
    behind = {"rawUpdateDescription": RawBSONDocument(body)} if operation == "update" else {}
    key_field = {"documentKey": RawBSONDocument(key)}
    return bson.encode({**head, **before, "ns": namespace or HEAD["ns"], **key_field, **behind})


@given(st.sampled_from([*map(DataKind, DATA_OPERATIONS)]), documents.stored_field_lists)
def test_events_with_and_without_another_field_are_parsed_equally(
    kind: DataKind, fields: list[Field]
) -> None:
    key, body = document(fields[0]), document(*fields)
    expected = b"" if kind is DataKind.DELETE else body
    event = DataEvent(kind, COLLECTION.bytes, key, expected, kind is DataKind.UPDATE)
    usual = usual_event(kind.value, key, body)
    assert parse_event(usual) == _usual_event(usual) == event
    in_transaction = document(Field(0x12, b"txnNumber", bytes(8))).removesuffix(b"\0") + usual[4:]
    longer = documents.int32(len(in_transaction)) + in_transaction[4:]
    assert _usual_event(longer) is None and parse_event(longer) == event


@given(
    st.sampled_from(DATA_OPERATIONS),
    st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name),
    st.text(min_size=1, max_size=20).filter(lambda name: "\0" not in name),
    documents.stored_field_lists,
)
def test_usual_events_of_any_collection_are_parsed_like_other_events(
    operation: str, database: str, collection: str, fields: list[Field]
) -> None:
    key, body = document(fields[0]), document(*fields)
    usual = usual_event(operation, key, body, {"db": database, "coll": collection})
    assert _usual_event(usual) == _any_event(usual)


@pytest.mark.parametrize(
    "collection", ["\x03documentKey", "\x03ns", "\x03fullDocument", "\x11clusterTime", "a.b"]
)
@pytest.mark.parametrize("operation", DATA_OPERATIONS)
def test_names_that_look_like_fields_are_parsed_as_names(operation: str, collection: str) -> None:
    key, body = raw(_id=1), raw(_id=1, a=2)
    usual = usual_event(operation, key, body, {"db": "shop", "coll": collection})
    assert _usual_event(usual) == _any_event(usual)


@pytest.mark.parametrize("operation", ["insert", "replace"])
def test_an_insert_or_replace_carries_its_document(operation: str) -> None:
    body = {"_id": 7, "t": Timestamp(0, 0)}
    event = parse_event(raw_event(operation, documentKey={"_id": 7}, fullDocument=body))
    kind = DataKind(operation)
    assert event == DataEvent(kind, COLLECTION.bytes, raw(_id=7), bson.encode(body), False)


def test_a_delete_has_no_body() -> None:
    event = parse_event(raw_event("delete", documentKey={"_id": "x"}))
    assert event == DataEvent(DataKind.DELETE, COLLECTION.bytes, raw(_id="x"), b"")


def test_an_update_carries_its_description() -> None:
    description = {"updatedFields": {"a": 1}, "removedFields": ["b"], "truncatedArrays": []}
    event = parse_event(raw_event("update", documentKey={"_id": 7}, updateDescription=description))
    assert event == DataEvent(
        DataKind.UPDATE, COLLECTION.bytes, raw(_id=7), bson.encode(description), False
    )


def test_the_raw_diff_of_the_oplog_is_preferred() -> None:
    diff = {"$v": 2, "diff": {"u": {"a": 1}}}
    event = parse_event(
        raw_event("update", documentKey={"_id": 7}, updateDescription={}, rawUpdateDescription=diff)
    )
    expected = bson.encode(diff)
    assert event == DataEvent(DataKind.UPDATE, COLLECTION.bytes, raw(_id=7), expected, True)


@given(documents.stored_field_lists)
def test_documents_and_keys_are_copied_to_the_byte(fields: list[Field]) -> None:
    body, key = document(*fields), document(fields[0])
    event = parse_event(
        raw_event("insert", fullDocument=RawBSONDocument(body), documentKey=RawBSONDocument(key))
    )
    assert isinstance(event, DataEvent)
    assert (event.key, event.body) == (key, body)


DEFINITIONS: dict[str, dict[str, Any]] = {
    "create": {"operationDescription": {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}},
    "createIndexes": {"operationDescription": {"indexes": [{"key": {"a": 1}, "name": "a_1"}]}},
    "dropIndexes": {"operationDescription": {"indexes": [{"key": {"a": 1}, "name": "a_1"}]}},
    "modify": {"operationDescription": {"index": {"name": "a_1"}}, "stateBeforeChange": {}},
    "rename": {
        "operationDescription": {"to": {"db": "d", "coll": "c"}},
        "to": {"db": "d", "coll": "c"},
    },
    "drop": {},
    "shardCollection": {"operationDescription": {"shardKey": {"a": "hashed"}, "unique": False}},
    "refineCollectionShardKey": {},
}


@pytest.mark.parametrize("operation", DEFINITIONS)
def test_a_definition_event_is_decoded(operation: str) -> None:
    fields = DEFINITIONS[operation]
    assert parse_event(raw_event(operation, **fields)) == DefinitionEvent(
        operation,
        Namespace("shop", "orders"),
        COLLECTION.bytes,
        fields.get("operationDescription", {}),
        Namespace("d", "c") if operation == "rename" else None,
        TOKEN,
    )


@pytest.mark.parametrize(
    "namespace, expected",
    [
        ({"ns": {"db": "shop"}}, Namespace("shop", "")),
        ({"ns": {"db": "shop", "coll": "view"}}, Namespace("shop", "view")),
        ({}, Namespace("", "")),
    ],
)
def test_views_and_databases_have_no_uuid(namespace: dict[str, Any], expected: Namespace) -> None:
    event = parse_event(raw(_id=TOKEN, operationType="dropDatabase", **namespace))
    assert event == DefinitionEvent("dropDatabase", expected, None, {}, None, TOKEN)


@pytest.mark.parametrize("kind", [DataKind.INSERT, DataKind.UPDATE, DataKind.DELETE])
def test_a_data_event_without_uuid_has_a_name(kind: DataKind) -> None:
    fields = {"ns": {"db": "shop", "coll": "orders"}, "documentKey": {"_id": 1}}
    bodies = {"fullDocument": {"a": 1}, "updateDescription": {"a": 1}}
    event = parse_event(raw(_id=TOKEN, operationType=kind.value, **fields, **bodies))
    body = b"" if kind is DataKind.DELETE else raw(a=1)
    orders = Namespace("shop", "orders")
    assert event == DataEvent(kind, b"", raw(_id=1), body, namespace=orders)


@pytest.mark.parametrize(
    "operation, missing",
    [("insert", "fullDocument"), ("replace", "fullDocument"), ("update", "updateDescription")],
)
def test_an_event_without_contents_has_the_kind_untold(operation: str, missing: str) -> None:
    fields = {"documentKey": {"_id": 1}, "fullDocument": {}, "updateDescription": {}}
    del fields[missing]
    event = parse_event(raw_event(operation, **fields))
    assert event == DataEvent(DataKind.UNTOLD, COLLECTION.bytes, raw(_id=1), b"")


@pytest.mark.parametrize("operation", ["insert", "delete"])
def test_a_missing_key_is_a_key_error(operation: str) -> None:
    with pytest.raises(KeyError, match="documentKey"):
        parse_event(raw_event(operation, fullDocument={}))


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=5))
def test_fragments_of_an_event_are_joined(values: list[bytes]) -> None:
    """The event that is joined from fragments must have all their fields, and the resume token of the last fragment."""
    fields = {"operationType": "insert", "ns": {"db": "d", "coll": "c"}, "documentKey": {"_id": 1}}
    uuid = Binary.from_uuid(COLLECTION)
    rest = {"collectionUUID": uuid, "fullDocument": {"values": values}}
    pieces = [{name: value} for name, value in {**fields, **rest}.items()]
    fragments = []
    for number, piece in enumerate(pieces, 1):
        split = {"fragment": number, "of": len(pieces)}
        fragment = parse_event(raw(_id={"_data": str(number)}, **piece, splitEvent=split))
        assert isinstance(fragment, Fragment)
        assert fragment.last is (number == len(pieces))
        fragments.append(fragment)
    whole = join_fragments(fragments)
    assert parse_event(whole) == parse_event(raw(_id={"_data": "5"}, **fields, **rest))
    assert token_of(whole) == {"_data": "5"}


def test_a_missing_operation_is_a_key_error() -> None:
    with pytest.raises(KeyError, match="operationType"):
        parse_event(raw(_id=TOKEN))
