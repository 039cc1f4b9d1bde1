"""Tests that servers accept the commands that convert definitions to stand-ins and back.

Only deferred indexes (see `deferral.deferred_names`) are built again. A snapshot of all definitions must equal the
definitions that are read one by one.
"""

from __future__ import annotations

from syncsvc.engine.definitions import standin
from tests.support import writes
from tests.support.failpoints import ALWAYS, failing
from tests.support.pair import Pair
from verifier.cluster.failures import UNAUTHORIZED, UNKNOWN_STAGE
from verifier.cluster.inventory import Snapshot, find_named, list_collections, list_names
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec
from verifier.compare.definitions import compare_definitions


def _fill(client: writes.AnyClient) -> None:
    writes.fill(client, 20)
    writes.indexes(client)
    writes.new_collections(client)
    writes.time_series(client)
    d = client.d
    d.c.create_index("all", unique=True, sparse=True, hidden=True, expireAfterSeconds=10**8)
    d.c.create_index("prepared", name="prepared")
    d.command({"collMod": "c", "index": {"name": "prepared", "prepareUnique": True}})
    old = {"v": 1, "key": {"o": 1}, "name": "o", "unique": True, "sparse": True}
    d.command({"createIndexes": "c", "indexes": [old]})
    d.series.create_index("at", name="hidden", hidden=True)
    d.create_collection("plain capped", capped=True, size=8192)


COLLECTIONS = [
    "c",
    "other",
    "capped",
    "plain capped",
    "collated",
    "clustered",
    "validated",
    "series",
]


def _defined(client: writes.AnyClient, collection: str) -> CollectionSpec:
    found = find_named(client, Namespace("d", collection))
    assert found is not None
    return found


def test_a_definition_is_weakened_and_restored(pair: Pair) -> None:
    client = pair.source.client
    _fill(client)
    for name in COLLECTIONS:
        real = _defined(client, name)
        for command in standin.weakenings(real):
            client.d.command(command)
        weak = _defined(client, name)
        assert compare_definitions([standin.stand_in(real)], [weak]) == [], name
        for command in standin.preparations(real):
            client.d.command(command)
        assert compare_definitions([standin.prepared(real)], [_defined(client, name)]) == [], name
        for command in standin.expirations(real, _defined(client, name)):
            client.d.command(command)
        for command in standin.conversions(real):
            client.d.command(command)
        if deferred := standin.deferred_indexes(real):
            client.d.command({"createIndexes": name, "indexes": deferred})
        assert compare_definitions([real], [_defined(client, name)]) == [], name


def test_a_weakened_collection_refuses_nothing(pair: Pair) -> None:
    d = pair.source.client.d
    d.create_collection("capped", capped=True, size=4096, max=3)
    d.capped.create_index("u", unique=True)
    for command in standin.weakenings(_defined(pair.source.client, "capped")):
        d.command(command)
    d.capped.insert_many({"u": 1, "pad": "p" * 1000} for _ in range(50))
    assert d.capped.count_documents({}) == 50


def test_a_snapshot_has_the_definitions_that_are_found_one_by_one(pair: Pair) -> None:
    client = pair.source.client
    _fill(client)
    client.d.command({"create": "view", "viewOn": "c", "pipeline": [{"$match": {"a": 1}}]})
    client.d.collated.create_index("simple", collation={"locale": "simple"})
    snapshot = Snapshot(client)
    found = {name: find_named(client, name) for name in list_names(client)}
    assert {Namespace("d", each) for each in (*COLLECTIONS, "view")} <= found.keys()
    assert {name: snapshot.find(name) for name in found} == found
    assert {each.namespace: each for each in list_collections(client)} == found
    assert snapshot.find(Namespace("d", "missing")) is None
    # Servers before 6.0 have no $listCatalog, and the user may lack the privilege for it.
    for code in (UNKNOWN_STAGE, UNAUTHORIZED):
        refusal = {"failCommands": ["aggregate"], "errorCode": code}
        with failing(client, refusal, ALWAYS):
            assert {each.namespace: each for each in list_collections(client)} == found
            assert Snapshot(client).find(Namespace("d", "c")) is None
