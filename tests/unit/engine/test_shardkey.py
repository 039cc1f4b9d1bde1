"""A shard key builds filters for documents, and recognizes updates that change it.

A document that may have been moved to another shard, because its shard key changed, is read again from the source.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import bson
import pytest
from bson import Int64, Regex

from syncsvc.engine.documents.sharded import Work, without_moved
from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.translate import Outcome, diff_stage, field_sets, fold
from verifier.cluster import rawbson
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.keys import canonical_id

Document = dict[str, Any]


def key(*names: str) -> ShardKey:
    return ShardKey.of({"key": dict.fromkeys(names, 1), "unique": False})


@pytest.mark.parametrize(
    ("names", "document", "query"),
    [
        (["k"], {"_id": 1, "k": Int64(2), "x": 3}, {"k": {"$eq": Int64(2)}, "_id": 1}),
        (["k"], {"k": None, "_id": 1}, {"k": {"$eq": None}, "_id": 1}),
        (["k"], {"_id": 1}, {"k": {"$eq": None}, "_id": 1}),
        (["k"], {"_id": 1, "k": {"$x": 1}}, {"k": {"$eq": {"$x": 1}}, "_id": 1}),
        (["k"], {"_id": 1, "k": Regex("x")}, {"k": {"$eq": Regex("x")}, "_id": 1}),
        (["a.b"], {"_id": 1, "a": {"b": 2}}, {"a.b": {"$eq": 2}, "_id": 1}),
        (["a.b"], {"_id": 1, "a": 2}, {"a.b": {"$eq": None}, "_id": 1}),
        (["a.b"], {"_id": 1, "a.b": 2}, {"a.b": {"$eq": None}, "_id": 1}),
        (
            ["a", "b.c"],
            {"_id": 1, "b": {"c": 3}},
            {"a": {"$eq": None}, "b.c": {"$eq": 3}, "_id": 1},
        ),
        (["_id"], {"k": 1, "_id": {"a": 1}}, {"_id": {"a": 1}}),
        (["_id", "k"], {"_id": 1, "k": 2}, {"k": {"$eq": 2}, "_id": 1}),
        (["_id.a"], {"_id": {"a": 1}}, {"_id": {"a": 1}}),
    ],
)
def test_a_document_is_found_by_its_shard_key(
    names: list[str], document: Document, query: Document
) -> None:
    found = bson.decode(key(*names).query_of(bson.encode(document)))
    assert list(found.items()) == list(query.items())


@pytest.mark.parametrize(
    ("names", "document_key", "query"),
    [
        (["k"], {"k": 2, "_id": 1}, {"k": {"$eq": 2}, "_id": 1}),
        (
            ["a.b", "k"],
            {"a.b": 2, "k": None, "_id": 1},
            {"a.b": {"$eq": 2}, "k": {"$eq": None}, "_id": 1},
        ),
        (["_id"], {"_id": 1}, {"_id": 1}),
        (["k"], {"_id": 1}, None),
        (["a", "b"], {"a": 1, "_id": 1}, None),
    ],
)
def test_a_document_key_finds_its_document_and_no_other(
    names: list[str], document_key: Document, query: Document | None
) -> None:
    found = key(*names).query_of_key(bson.encode(document_key))
    assert (None if found is None else bson.decode(found)) == query


def test_undefined_values_are_left_out_of_queries() -> None:
    undefined = rawbson.document(b"\x06k\0", b"\x10_id\0\x01\0\0\0")
    assert bson.decode(key("k").query_of(undefined)) == {"_id": 1}
    assert key("k").query_of_key(undefined) is None


def updated(diff: Document) -> Outcome:
    entry = bson.encode({"$v": 2, "diff": diff})
    return Outcome(bson.encode({"_id": 1}), stages=[diff_stage(entry)], sets=field_sets(entry))


@pytest.mark.parametrize(
    ("diff", "touched"),
    [
        ({"u": {"k": 1}}, ["k", "k.x"]),
        ({"i": {"k": 1}}, ["k", "k.x"]),
        ({"d": {"k": False}}, ["k", "k.x"]),
        ({"u": {"x": 1}, "sa": {"u": {"b": 1}}}, ["a", "a.b", "a.b.c", "x"]),
        ({"sa": {"i": {"b": 1}}}, ["a", "a.b", "a.b.c"]),
        ({"sa": {"sb": {"d": {"c": False}}}}, ["a", "a.b", "a.b.c"]),
        ({"sx": {"a": True, "l": 1, "u0": 5, "s1": {"u": {"k": 1}}}}, ["x"]),
        ({"sa": {"sb": {"a": True, "u0": 5}}}, ["a", "a.b", "a.b.c"]),
        ({"u": {"kk": 1, "K": 1}}, []),
        ({"u": {"a.b": 1}}, ["a", "a.b", "a.b.c"]),
    ],
)
def test_updates_of_a_shard_key_are_known(diff: Document, touched: list[str]) -> None:
    outcome = updated(diff)
    names = ["k", "k.x", "a", "a.b", "a.b.c", "a.d", "x"]
    assert [name for name in names if key(name).is_touched_by(outcome)] == touched
    assert key("other", *touched).is_touched_by(outcome) is bool(touched)


def event(kind: DataKind, shard_key: Any, body: Document | None = None) -> DataEvent:
    named = {} if shard_key is None else {"k": shard_key}
    document = bson.encode(body if body is not None else {"_id": 1, **named})
    told = b"" if kind is DataKind.DELETE else document
    return DataEvent(kind, b"u" * 16, bson.encode({**named, "_id": 1}), told, raw_diff=True)


def insert(shard_key: Any) -> DataEvent:
    return event(DataKind.INSERT, shard_key)


def delete(shard_key: Any) -> DataEvent:
    return event(DataKind.DELETE, shard_key)


def replace(shard_key: Any) -> DataEvent:
    return event(DataKind.REPLACE, shard_key)


def update(shard_key: Any) -> DataEvent:
    return event(DataKind.UPDATE, shard_key, {"$v": 2, "diff": {"u": {"n": 1}}})


@pytest.mark.parametrize(
    ("events", "outcome"),
    [
        ([delete(1)], "deleted"),
        ([insert(1), delete(1)], "deleted"),
        ([insert(1), update(1), delete(1)], "deleted"),
        # The insert may have been applied before the delete of the same transaction.
        ([insert(2), delete(1)], "read again"),
        ([insert(2), delete(None)], "read again"),
        ([delete(1), insert(2)], "read again"),
        ([delete(1), insert(2), delete(2)], "read again"),
        ([delete(1), insert(2), replace(2)], "document 2"),
        ([delete(1), delete(2)], "read again"),
        ([insert(1), insert(2), delete(1)], "read again"),
        # The document may have had another shard key before.
        ([update(1), delete(1)], "read again"),
        ([replace(1), delete(1)], "read again"),
        ([delete(1), delete(1)], "read again"),
        ([update(1), replace(1)], "document 1"),
        ([delete(1), insert(1)], "document 1"),
        # The document keys in events of a replica set contain no shard key.
        ([update(None), delete(None)], "deleted"),
        ([replace(None), delete(None)], "deleted"),
    ],
)
def test_a_document_that_may_have_moved_is_read_again(
    events: list[DataEvent], outcome: str
) -> None:
    folded: Outcome | None = None
    for each in events:
        folded = fold(folded, each)
    assert folded is not None
    if folded.refetch or folded.deleted:
        assert outcome == ("read again" if folded.refetch else "deleted")
    else:
        assert outcome == f"document {bson.decode(folded.document or b'')['k']}"


def test_a_document_that_the_destination_has_with_another_shard_key_is_read_again() -> None:
    """One transaction inserted document 1 with the shard key 1, and then moved it to another shard, with the key 2.

    mongos orders the events of a transaction by their position among those of their own shard, so the insert with the
    key 2 may come first, and be applied first. The insert with the key 1 must then not be applied, because only the
    source knows which one is newer.
    """
    moved, same, absent = (
        Outcome(bson.encode({"k": 1, "_id": n}), document=bson.encode({"_id": n, "k": 1}), new=True)
        for n in (1, 2, 3)
    )
    there: dict[Hashable, bytes] = {
        canonical_id(each): each
        for each in (bson.encode({"_id": 1, "k": 2}), bson.encode({"_id": 2, "k": 1}))
    }
    work = Work(documents=[moved, same, absent])
    assert without_moved(work, key("k"), there) == Work(again=[moved], documents=[same, absent])
