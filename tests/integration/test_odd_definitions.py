"""Syncs definitions with values that a driver cannot decode, or would change: they must be equal byte for byte.

Names that are not valid UTF-8 must be refused.
"""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from syncsvc.sandbox.replica_set import Client
from tests.support.checks import Checker
from tests.support.daemon import Daemon
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, Pair, across
from tests.support.phases import When, writes_in
from tests.support.selection import full
from verifier.cluster import rawbson
from verifier.compare.check_progress import Outcome


def _text(value: bytes) -> bytes:
    return rawbson.int32(len(value) + 1) + value + b"\0"


# Type and bytes of values that decoding and encoding would change, or that the driver's decoder refuses.
ODD = {
    "symbol": (rawbson.SYMBOL, _text(b"s")),
    "dbpointer": (rawbson.DB_POINTER, _text(b"d.c") + bytes(12)),
    "undefined": (rawbson.UNDEFINED, b""),
    "not utf-8": (rawbson.STRING, _text(b"\xff")),
    "twice": (rawbson.DOCUMENT, rawbson.document(*(b"\x10a\0" + rawbson.int32(n) for n in (1, 2)))),
    "array": (rawbson.ARRAY, rawbson.document(*(b"\x105\0" + rawbson.int32(n) for n in (1, 2)))),
    "date": (rawbson.DATE, b"\xff" * 7 + b"\x6f"),
    "reference": (rawbson.DOCUMENT, bson.encode({"$ref": "c", "$id": 1, "more": 1})),
    "nan": (rawbson.DOUBLE, b"\1" + bytes(5) + b"\xf8\x7f"),
    "regex": (rawbson.REGEX, b"a\0imsx\0"),
    "decimal": (rawbson.DECIMAL128, bytes(15) + b"\x7e"),
    "scope": (rawbson.CODE_WITH_SCOPE, rawbson.int32(4 + 6 + 12) + _text(b"f") + bson.encode({"a": 1})),
}  # fmt: skip
# Values that servers accept only in aggregation expressions.
_LITERAL_ONLY = {"undefined"}
# A fail point that lets a server accept unknown options of indexes.
UNCHECKED = "skipIndexCreateFieldNameValidation"


def expression(name: str) -> RawBSONDocument:
    """Return a query expression that contains an unusual BSON value: the entry `name` of ODD."""
    kind, value = ODD[name]
    if name in _LITERAL_ONLY:
        literal = rawbson.single(kind, b"$literal", value)
        compared = rawbson.document(b"\x02\x30\0" + _text(b"$_id"), b"\x03\x31\0" + literal)
        equal = rawbson.single(rawbson.ARRAY, b"$ne", compared)
        return RawBSONDocument(rawbson.single(rawbson.DOCUMENT, b"$expr", equal))
    different = rawbson.single(kind, b"$ne" if kind != rawbson.REGEX else b"$not", value)
    return RawBSONDocument(rawbson.single(rawbson.DOCUMENT, b"f", different))


def partial(name: str) -> RawBSONDocument:
    kind, value = ODD[name]
    equal = rawbson.single(kind, b"$eq", value)
    return RawBSONDocument(rawbson.single(rawbson.DOCUMENT, b"f", equal))


def define(client: Client, mark: str) -> None:
    """For each unusual BSON value, create a collection, a view and a partial index with the value in their definitions.

    `mark` is the name of the database. The values are the entries of ODD. If servers refuse a value in a partial index,
    there is no such index.
    """
    d = client[mark]
    for name in ODD:
        d.create_collection(name, validator=expression(name))
        d[name].insert_one({"_id": 1})
        pipeline = [{"$match": expression(name)}]
        d.create_collection(f"view {name}", viewOn=name, pipeline=pipeline)
        if name not in _LITERAL_ONLY:
            index = {"key": {"a": 1}, "name": "a", "partialFilterExpression": partial(name)}
            d.command({"createIndexes": name, "indexes": [index]})


def modify(client: Client, mark: str) -> None:
    """For each unusual BSON value, create a collection and a view, and add the value to their definitions by collMod.

    `mark` is the name of the database. The values are the entries of ODD.
    """
    d = client[mark]
    for name in ODD:
        # Specify the options that a collMod of the validator would add.
        options: dict[str, Any] = {"validationLevel": "strict", "validationAction": "error"}
        d.create_collection(f"modified {name}", validator={"a": 1}, **options)
        d.create_collection(f"modified view {name}", viewOn=name)
    for name in ODD:
        d.command({"collMod": f"modified {name}", "validator": expression(name)})
        pipeline = [{"$match": expression(name)}]
        d.command({"collMod": f"modified view {name}", "viewOn": name, "pipeline": pipeline})


@across(REPLICA_SETS, full(SHARDED), full(FROM_SHARDED))
def test_definitions_with_values_of_every_type_are_synced(pair: Pair, daemon: Daemon) -> None:
    define(pair.source.client, "before")
    with writes_in(When.APPLY, daemon):
        define(pair.source.client, "after")
        modify(pair.source.client, "after")
        modify(pair.source.client, "before")
    # After the restart, the daemon reads the saved definitions.
    daemon.kill()
    daemon.run()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("name", ["symbol", "dbpointer", "undefined", "not utf-8", "twice"])
def test_definitions_that_only_decode_alike_are_different(
    pair: Pair, checker: Checker, name: str
) -> None:
    odd = expression(name)
    usual = rawbson.decode(odd.raw)
    for side, value in ((pair.source, odd), (pair.destination, usual)):
        d = side.client.d
        d.create_collection("validated", validator=value)
        d.create_collection("view", viewOn="validated", pipeline=[{"$match": value}])
        d.create_collection("indexed")
        if name not in _LITERAL_ONLY:
            different = partial(name) if side is pair.source else rawbson.decode(partial(name).raw)
            index = {"key": {"a": 1}, "name": "a", "partialFilterExpression": different}
            d.command({"createIndexes": "indexed", "indexes": [index]})
    check = checker.verdict()
    assert check.verdict is not None and check.verdict.outcome is Outcome.FAILED
    found = {("d.validated", "content", "spec", "validator"), ("d.view", "content", "spec", "pipeline")}  # fmt: skip
    if name not in _LITERAL_ONLY:
        found.add(("d.indexed", "content", "index", "a"))
    assert check.definitions() == found


def _create_misnamed(client: Client) -> None:
    key = b"\x03key\0" + bson.encode({"a": 1})
    index = RawBSONDocument(rawbson.document(key, b"\x02name\0" + _text(b"a\xff")))
    client.d.command({"createIndexes": "c", "indexes": [index]})


@pytest.mark.parametrize("when", [When.BEFORE, When.APPLY], ids=lambda when: when.name)
def test_a_name_that_is_not_utf_8_is_refused(pair: Pair, daemon: Daemon, when: When) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    if when is When.BEFORE:
        _create_misnamed(pair.source.client)
        answer = daemon.post("start", daemon.start_body()).json()
    else:
        daemon.start()
        daemon.wait_until_committable()
        _create_misnamed(pair.source.client)
        answer = daemon.wait_for_state("FAILED")
    assert answer["error"] == "UnsupportedCollection"
    assert "d.c: a name or text in its definition is not valid UTF-8" in answer["errorDescription"]


def _create_collection_with_bad_name(client: Client) -> None:
    """Create a collection whose name is not valid UTF-8, as drivers of other languages can."""
    command = RawBSONDocument(
        rawbson.document(b"\x02create\0" + _text(b"a\xff")), rawbson.RAW_LENIENT
    )
    client.admin.command({"applyOps": [{"op": "c", "ns": "d.$cmd", "o": command}]})


@pytest.mark.parametrize("excluded", [True, False])
def test_a_collection_whose_name_is_not_utf_8_can_only_be_excluded(
    pair: Pair, daemon: Daemon, excluded: bool
) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    _create_collection_with_bad_name(pair.source.client)
    if excluded:
        daemon.start(includeNamespaces=[{"database": "d", "collections": ["c"]}])
        daemon.commit()
        assert pair.destination.client.d.list_collection_names() == ["c"]
    else:
        answer = daemon.post("start", daemon.start_body()).json()
        assert answer["error"] == "UnsupportedCollection"
        assert "d.a\N{REPLACEMENT CHARACTER}: a name or text" in answer["errorDescription"]


def test_a_check_does_not_pass_over_a_collection_whose_name_is_not_utf_8(
    pair: Pair, checker: Checker
) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.c.insert_one({"_id": 1})
    _create_collection_with_bad_name(pair.source.client)
    with checker.running() as check:
        verdict = check.wait_for_verdict()
    assert (verdict.outcome, verdict.error) == (Outcome.INCOMPLETE, "TextNotComparable")
    assert "d.a\N{REPLACEMENT CHARACTER}" in verdict.reasons[0]


@pytest.mark.parametrize("excluded", [True, False])
def test_a_collection_created_later_whose_name_is_not_utf_8_prevents_the_commit(
    pair: Pair, daemon: Daemon, excluded: bool
) -> None:
    """The change stream does not report the collection: only the commit can find it."""
    client = pair.source.client
    client.d.c.insert_one({"_id": 1})
    client.e.c.insert_one({"_id": 1})
    daemon.start(excludeNamespaces=[{"database": "d"}] if excluded else [])
    daemon.wait_until_committable()
    _create_collection_with_bad_name(client)
    if not excluded:
        daemon.ask_for_commit()
        failed = daemon.wait_for_failure("UnsupportedCollection", "d.a\N{REPLACEMENT CHARACTER}")
        assert not failed["canWrite"]
        client.drop_database("d")
        daemon.resume()
    daemon.commit()
    assert pair.destination.client.list_database_names().count("d") == 0
    assert [*pair.destination.client.e.c.find()] == [{"_id": 1}]


def _rename_to_bad_name(client: Client) -> None:
    target = b"\x02renameCollection\0" + _text(b"d.c") + b"\x02to\0" + _text(b"d.a\xff")
    command = RawBSONDocument(rawbson.document(target), rawbson.RAW_LENIENT)
    client.admin.command({"applyOps": [{"op": "c", "ns": "d.$cmd", "o": command}]})


def test_a_collection_that_gets_a_name_that_is_not_utf_8_fails_the_sync(
    pair: Pair, daemon: Daemon
) -> None:
    client = pair.source.client
    client.d.c.insert_many({"_id": n} for n in range(10))
    client.e.c.insert_one({"_id": 1})
    daemon.start()
    daemon.wait_until_committable()
    _rename_to_bad_name(client)
    daemon.wait_for_failure("UnsupportedCollection", "d.a\N{REPLACEMENT CHARACTER}")
    client.drop_database("d")
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_a_synced_collection_may_get_a_name_with_the_replacement_character(
    pair: Pair, daemon: Daemon
) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start()
    daemon.wait_until_committable()
    pair.source.client.d.c.rename("a\N{REPLACEMENT CHARACTER}")
    daemon.commit()
    pair.assert_equal()


def test_an_index_with_an_option_of_old_servers_is_synced(pair: Pair, daemon: Daemon) -> None:
    """Create an index as servers before 3.4 have accepted it: listings leave out its unknown option."""
    client = pair.source.client
    client.d.c.insert_one({"_id": 1})
    client.admin.command("configureFailPoint", UNCHECKED, mode="alwaysOn")
    try:
        index = {"key": {"a": 1}, "name": "a", "unique": True, "safe": None}
        client.d.command({"createIndexes": "c", "indexes": [index]})
    finally:
        client.admin.command("configureFailPoint", UNCHECKED, mode="off")
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_numbers_that_a_server_converts_in_listings_are_no_difference(
    pair: Pair, daemon: Daemon, checker: Checker
) -> None:
    """Create an index whose options the catalog and `listIndexes` represent by different values."""
    client = pair.source.client
    client.d.c.insert_one({"_id": 1})
    options = {"sparse": 1, "background": 1.5, "expireAfterSeconds": 1000.5}
    client.d.command({"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a", **options}]})
    daemon.start()
    daemon.commit()
    pair.assert_equal()
    checker.verdict().assert_passed()
