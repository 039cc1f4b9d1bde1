"""Syncs a replica set to a sharded cluster; tests shard keys, distribution, supporting indexes, refused options.

`make test` leaves out tests that repeat a rule with other indexes, errors or numbers of shards.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bson.max_key import MaxKey
from bson.min_key import MinKey
from pymongo.errors import OperationFailure

from syncsvc.engine.run.points import Point
from tests.support.checks import Checker
from tests.support.daemon import Daemon, prepared
from tests.support.pair import TO_SHARDED, Pair, Side, across
from tests.support.phases import When, writes_in
from tests.support.resuming import assert_final, fails_again
from tests.support.sharded.cluster import ShardedCluster

Document = dict[str, Any]

pytestmark = across(TO_SHARDED)

DOCUMENTS = 1200
CASELESS = {"locale": "en", "strength": 2}
# Shard keys by collection.
KEYS: dict[str, Document] = {
    "numbers": {"n": 1},
    "texts": {"text": 1},
    "ids": {"_id": 1},
    "few": {"few": 1, "sub.n": 1},
    "hashed": {"n": "hashed"},
    "hash first": {"n": "hashed", "few": 1},
    "hash last": {"few": 1, "n": "hashed"},
}


def entry(name: str, *key: Document) -> Document:
    database, _, collection = name.partition(".")
    return {"database": database, "collection": collection, "shardCollection": {"key": list(key)}}


def sharding(*entries: Document, supported: bool = True) -> Document:
    return {"createSupportingIndexes": supported, "shardingEntries": list(entries)}


def fill(pair: Pair, name: str = "c", documents: int = DOCUMENTS, **options: Any) -> None:
    collection = pair.source.client.d.create_collection(name, **options)
    numbers = list(range(documents))
    Random(1).shuffle(numbers)
    collection.insert_many(
        {"_id": f"id {n}", "n": n, "text": f"{n:05}", "few": n % 7, "sub": {"n": n}}
        for n in numbers
    )


def shares(side: Side, collection: str) -> list[int]:
    """Return the number of documents of the collection in the database d on each shard."""
    counts = []
    for shard in side.shards:
        with shard.client() as client:
            counts.append(client.d[collection].count_documents({}))
    return counts


def indexes(pair: Pair, collection: str = "c") -> set[str]:
    return set(pair.destination.client.d[collection].index_information())


def shard_key(pair: Pair, name: str = "d.c") -> Document | None:
    row = pair.destination.client.config.collections.find_one({"_id": name})
    return None if row is None else dict(row["key"])


def assert_no_zones(pair: Pair) -> None:
    config = pair.destination.client.config
    assert list(config.tags.find()) == []
    assert [each.get("tags", []) for each in config.shards.find()] == [[]] * len(
        pair.destination.shards
    )


def assert_spread(pair: Pair, daemon: Daemon) -> None:
    """Sync collections with several shard keys; fail unless each shard of the destination gets many of their documents.

    Fail, too, unless each shard is the primary shard of one or two of the databases d, e, f and g.
    """
    for name, key in KEYS.items():
        fill(pair, name)
        pair.shard(f"d.{name}", key)
    fill(pair, "collated", collation=CASELESS)
    pair.shard("d.collated", {"text": 1})
    for name in ("e", "f", "g"):
        pair.source.client[name].c.insert_one({})
    with daemon.held_at(Point.BATCH_WRITTEN, "d.numbers"):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN, "d.numbers")
        # Even the first page is spread over all shards.
        assert all(shares(pair.destination, "numbers"))
    daemon.wait_until_committable()
    fair = DOCUMENTS / len(pair.destination.shards)
    for name in (*KEYS, "collated"):
        found = shares(pair.destination, name)
        assert sum(found) == DOCUMENTS
        # If the hashed field is the last one, ranges can be split only at the few values of the first field.
        least = 0.5 if name == "hash last" else 0.75
        assert min(found) >= least * fair, (name, found)
    assert_no_zones(pair)
    daemon.commit()
    pair.assert_equal()
    config = pair.destination.client.config
    rows = config.databases.find({"_id": {"$in": ["d", "e", "f", "g"]}})
    primaries = [each["primary"] for each in rows]
    assert set(map(primaries.count, primaries)) <= {1, 2}
    assert len(set(primaries)) == len(pair.destination.shards)


@pytest.mark.full
def test_each_of_two_shards_has_a_fair_share(pair: Pair, daemon: Daemon) -> None:
    assert_spread(pair, daemon)


@pytest.mark.full
def test_each_of_three_shards_has_a_fair_share(pair: Pair, tmp_path: Path) -> None:
    with (
        ShardedCluster(name="destination", shards=3) as cluster,
        cluster.client() as client,
    ):
        three = Pair(pair.source, Side(cluster.uri, client, cluster.shards))
        with three.daemon(tmp_path).running() as daemon:
            assert_spread(three, daemon)


def missing_and_null(pair: Pair) -> None:
    pair.source.client.d.c.insert_many(
        [
            *({"_id": f"missing {n}"} for n in range(20)),
            *({"_id": f"null {n}", "n": None} for n in range(20)),
            {"_id": "inside", "n": {"n": 1}},
            *({"_id": f"half {n}", "n": n} for n in range(20)),
        ]
    )


@pytest.mark.full
@pytest.mark.parametrize("key", [{"n": 1}, {"n": "hashed"}, {"n": 1, "few": 1}, {"x.y": 1, "n": 1}])
def test_fields_of_the_key_may_be_missing_or_null(
    pair: Pair, daemon: Daemon, key: Document
) -> None:
    missing_and_null(pair)
    pair.shard("d.c", key)
    daemon.start()
    daemon.commit()
    assert shard_key(pair) == key
    pair.assert_equal()


def test_an_array_in_the_shard_key_fails_the_sync_by_name(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": "the one", "n": [1, 2]})
    pair.shard("d.c", {"n": 1})
    daemon.start()
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "DocumentNotCopied"
    assert "the one" in progress["errorDescription"]
    fails_again(daemon, "DocumentNotCopied")
    pair.source.client.d.c.update_one({"_id": "the one"}, {"$set": {"n": 1}})
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


class TestIndexes:
    @pytest.mark.in_turns
    @pytest.mark.parametrize(
        "build, own, expected",
        [
            ("beforeDataCopy", False, {"few_1", "n_1"}),
            ("beforeDataCopy", True, {"few_1", "own"}),
            ("afterDataCopy", False, {"few_1", "n_1"}),
            ("afterDataCopy", True, {"few_1", "own"}),
            ("excludeHashedAfterCopy", True, {"few_1", "own"}),
            ("never", False, {"n_1"}),
            ("never", True, {"n_1"}),
        ],
    )
    def test_the_requested_indexes_and_one_for_the_shard_key_exist(
        self, pair: Pair, daemon: Daemon, build: str, own: bool, expected: set[str]
    ) -> None:
        fill(pair)
        pair.source.client.d.c.create_index("few")
        if own:
            pair.source.client.d.c.create_index([("n", 1), ("few", -1)], name="own", unique=True)
        pair.shard("d.c", {"n": 1})
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start(buildIndexes=build)
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            early = expected - {"few_1"} if "fter" in build else expected
            assert indexes(pair) == {"_id_", *early}
        daemon.commit()
        assert indexes(pair) == {"_id_", *expected}
        if build != "never":
            pair.assert_equal()

    @pytest.mark.full
    def test_a_hashed_shard_key_keeps_its_index_with_exclude_hashed(
        self, pair: Pair, daemon: Daemon
    ) -> None:
        fill(pair)
        pair.source.client.d.c.create_index([("n", "hashed")], name="own")
        pair.source.client.d.c.create_index([("few", "hashed")])
        pair.shard("d.c", {"n": "hashed"})
        daemon.start(buildIndexes="excludeHashed")
        daemon.commit()
        assert indexes(pair) == {"_id_", "n_hashed"}

    @pytest.mark.full
    def test_the_id_index_supports_a_shard_key(self, pair: Pair, daemon: Daemon) -> None:
        fill(pair)
        pair.shard("d.c", {"_id": 1})
        daemon.start(sharding=sharding(entry("d.c", {"_id": 1}), supported=False))
        daemon.commit()
        assert indexes(pair) == {"_id_"}
        pair.assert_equal()

    @pytest.mark.full
    @pytest.mark.parametrize("collation", [None, CASELESS])
    @pytest.mark.parametrize(
        "unfit",
        [
            {"sparse": True},
            {"partialFilterExpression": {"n": {"$gt": 1}}},
            {"hidden": True},
            {"collation": {"locale": "de"}},
        ],
        ids=lambda each: next(iter(each)),
    )
    def test_an_unsuitable_index_gets_a_supporting_index_beside_it(
        self, pair: Pair, daemon: Daemon, unfit: Document, collation: Document | None
    ) -> None:
        fill(pair, collation=collation)
        simple = {} if collation is None else {"collation": {"locale": "simple"}}
        pair.source.client.d.c.create_index("n", name="unfit", **{**simple, **unfit})
        pair.shard("d.c", {"n": 1})
        refused = daemon.post(
            "start",
            daemon.start_body(sharding=sharding(entry("d.c", {"n": 1}), supported=False)),
        ).json()
        assert refused["error"] == "ShardKeyIndexMissing"
        assert (
            "d.c has no index that supports the requested shard key" in refused["errorDescription"]
        )
        daemon.start()
        daemon.commit()
        names = indexes(pair)
        assert len(names) == 3 and {"_id_", "unfit"} < names
        if "hidden" not in unfit:
            pair.assert_equal()


def drop_it(collection: Any) -> None:
    collection.drop_index("own")


def create_it_again(collection: Any) -> None:
    collection.drop_index("own")
    collection.create_index([("n", 1), ("few", 1)], name="own")


def create_another_of_its_name(collection: Any) -> None:
    collection.drop_index("own")
    collection.create_index("few", name="own")


def create_it_with_another_name(collection: Any) -> None:
    collection.drop_index("own")
    collection.create_index("n", name="other")


def create_one_of_its_key(collection: Any) -> None:
    collection.create_index("n", name="sparse", sparse=True)
    collection.drop_index("own")


def create_a_wider_one(collection: Any) -> None:
    collection.create_index([("n", 1), ("few", 1)], name="wider")
    collection.drop_index("own")


def make_it_expire(collection: Any) -> None:
    collection.drop_index("own")
    collection.create_index("n", name="own", expireAfterSeconds=10**8)
    collection.database.command(
        {"collMod": collection.name, "index": {"name": "own", "expireAfterSeconds": 10**7}}
    )


def make_it_unique(collection: Any) -> None:
    for change in ({"prepareUnique": True}, {"unique": True}):
        collection.database.command(
            {"collMod": collection.name, "index": {"name": "own", **change}}
        )


def create_one_with_the_name_of_ours(collection: Any) -> None:
    collection.drop_index("own")
    collection.create_index("few", name="n_1")


def drop_all(collection: Any) -> None:
    collection.drop_indexes()


CHANGES: tuple[Callable[[Any], None], ...] = (
    *(drop_it, create_it_again, create_another_of_its_name, create_it_with_another_name),
    *(create_one_of_its_key, create_a_wider_one, make_it_expire, make_it_unique),
    *(create_one_with_the_name_of_ours, drop_all),
)


class TestChangesOfIndexes:
    @pytest.mark.full
    @pytest.mark.parametrize("when", [When.COPY, When.APPLY], ids=lambda when: when.name)
    def test_the_shard_key_always_has_a_supporting_index(
        self, pair: Pair, daemon: Daemon, when: When
    ) -> None:
        changes = {change.__name__: change for change in CHANGES}
        for name in changes:
            fill(pair, name, documents=100)
            pair.source.client.d[name].create_index("n", name="own")
            pair.shard(f"d.{name}", {"n": 1})
        with writes_in(when, daemon):
            for name, change in changes.items():
                change(pair.source.client.d[name])
        daemon.commit()
        pair.assert_equal()
        for name in changes:
            assert "syncsvc.spare" not in indexes(pair, name)

    @pytest.mark.full
    def test_a_hidden_index_no_longer_supports_the_shard_key(
        self, pair: Pair, daemon: Daemon
    ) -> None:
        fill(pair)
        pair.source.client.d.c.create_index("n", name="own")
        pair.shard("d.c", {"n": 1})
        with writes_in(When.APPLY, daemon):
            hide = {"collMod": "c", "index": {"name": "own", "hidden": True}}
            pair.source.client.d.command(hide)
        daemon.commit()
        found = pair.destination.client.d.c.index_information()
        assert found["own"]["hidden"]
        assert found["n_1_syncsvc_1"]["key"] == [("n", 1), ("syncsvc", 1)]

    @pytest.mark.full
    def test_a_unique_index_that_conflicts_with_the_shard_key_is_named(
        self, pair: Pair, daemon: Daemon
    ) -> None:
        d = pair.source.client.d
        fill(pair)
        d.c.create_index("text", name="becomes unique")
        pair.shard("d.c", {"n": 1})
        daemon.start()
        daemon.wait_until_committable()
        d.c.create_index("text", name="against", unique=True, sparse=True)
        progress = daemon.wait_for_state("FAILED")
        assert progress["error"] == "UniqueIndexIncompatible"
        assert "The unique index against of d.c" in progress["errorDescription"]
        d.c.drop_index("against")
        daemon.resume()
        daemon.wait_until_committable()
        index = {"name": "becomes unique", "prepareUnique": True}
        d.command({"collMod": "c", "index": index})
        assert daemon.wait_for_state("FAILED")["error"] == "UniqueIndexIncompatible"
        d.command({"collMod": "c", "index": {**index, "prepareUnique": False}})
        daemon.resume()
        daemon.commit()
        pair.assert_equal()

    @pytest.mark.full
    def test_without_index_builds_no_index_conflicts_with_the_shard_key(
        self, pair: Pair, daemon: Daemon
    ) -> None:
        fill(pair)
        pair.source.client.d.c.create_index("text", unique=True)
        pair.shard("d.c", {"n": 1})
        daemon.start(buildIndexes="never")
        daemon.wait_until_committable()
        pair.source.client.d.c.create_index([("text", 1), ("n", 1)], unique=True)
        daemon.commit()
        assert indexes(pair) == {"_id_", "n_1"}


class TestLater:
    def test_collections_created_later_are_sharded(self, pair: Pair, daemon: Daemon) -> None:
        """Create collections that `sharding` entries name, during the sync or again after a drop: they must be sharded.

        Convert another collection with an entry to a capped one: it must not be sharded, because servers do not allow
        that.
        """
        source, sharded = pair.source.client, pair.destination.client.config.collections
        fill(pair, "again")
        fill(pair, "capped")
        keys: dict[str, Document] = {"d.c": {"n": 1}, "d.again": {"n": 1}, "e.c": {"n": "hashed"}}
        for name, key in keys.items():
            pair.shard(name, key)
        entries = [entry(*each) for each in {**keys, "d.capped": {"n": 1}}.items()]
        daemon.start(sharding=sharding(*entries))
        daemon.wait_until_committable()
        before = sharded.find_one({"_id": "d.again"})
        source.d.create_collection("c", collation=CASELESS)
        source.d.c.create_index("n", unique=True, collation={"locale": "simple"})
        source.e.create_collection("c")
        source.d.again.drop()
        source.d.create_collection("again")
        source.d.command({"convertToCapped": "capped", "size": 1 << 20})
        daemon.commit()
        assert (shard_key(pair), shard_key(pair, "e.c")) == ({"n": 1}, {"n": "hashed"})
        assert shard_key(pair, "d.capped") is None
        after = sharded.find_one({"_id": "d.again"})
        assert before is not None and after is not None and before["uuid"] != after["uuid"]
        pair.assert_equal()
        assert_no_zones(pair)

    @pytest.mark.in_turns
    @pytest.mark.parametrize("when", [When.LISTED, When.COPY, When.APPLY], ids=lambda w: w.name)
    def test_a_renamed_collection_keeps_its_sharding(
        self, pair: Pair, daemon: Daemon, when: When
    ) -> None:
        fill(pair)
        fill(pair, "plain")
        with writes_in(when, daemon, sharding=sharding(entry("d.c", {"n": 1}))):
            pair.source.client.d.c.rename("renamed")
            pair.source.client.d.plain.rename("c")
        daemon.commit()
        assert (shard_key(pair, "d.renamed"), shard_key(pair)) == ({"n": 1}, None)
        pair.shard("d.renamed", {"n": 1})
        pair.assert_equal()

    @pytest.mark.full
    def test_a_collection_listed_under_a_sharded_name_is_sharded(
        self, pair: Pair, daemon: Daemon
    ) -> None:
        fill(pair, "early")
        pair.shard("d.c", {"n": 1})
        with writes_in(When.REPLAY, daemon):
            pair.source.client.d.early.rename("c")
        daemon.commit()
        assert shard_key(pair) == {"n": 1}
        pair.assert_equal()

    def test_a_rename_across_databases_fails_the_sync(self, pair: Pair, daemon: Daemon) -> None:
        fill(pair)
        pair.shard("d.c", {"n": 1})
        daemon.start()
        daemon.wait_until_committable()
        pair.source.client.admin.command("renameCollection", "d.c", to="e.c")
        progress = daemon.wait_for_state("FAILED")
        assert progress["error"] == "RenamedAcrossDatabases"
        assert "was renamed to e.c." in progress["errorDescription"]
        assert_final(daemon)

    @pytest.mark.full
    def test_a_new_collection_that_cannot_be_sharded_is_named(
        self, pair: Pair, daemon: Daemon
    ) -> None:
        fill(pair, "other")
        pair.shard("d.c", {"n": 1})
        daemon.start()
        options: tuple[Document, ...]
        options = {"capped": True, "size": 4096}, {"timeseries": {"timeField": "t"}}
        for each in options:
            daemon.wait_until_committable()
            pair.source.client.d.create_collection("c", **each)
            assert daemon.wait_for_state("FAILED")["error"] == "CollectionNotShardable"
            pair.source.client.d.c.drop()
            daemon.resume()
        daemon.commit()
        pair.assert_equal()


def define(pair: Pair) -> None:
    """Create collections of several kinds on the source, for start options that must be refused."""
    d = pair.source.client.d
    fill(pair)
    d.unique.create_index("text", unique=True)
    d.create_collection("capped", capped=True, size=4096)
    d.create_collection("series", timeseries={"timeField": "t"})
    d.create_collection("view", viewOn="c", pipeline=[])


REFUSED: dict[str, tuple[Document, str, str]] = {
    "missing index": (
        {"sharding": sharding(entry("d.c", {"few": 1}), supported=False)},
        "ShardKeyIndexMissing",
        "d.c has no index",
    ),
    "unique index": (
        {"sharding": sharding(entry("d.unique", {"n": 1}))},
        "UniqueIndexIncompatible",
        "The unique index text_1 of d.unique",
    ),
    **{
        kind: (
            {"sharding": sharding(entry(f"d.{kind}", {"n": 1}))},
            "CollectionNotShardable",
            f"d.{kind} is",
        )
        for kind in ("capped", "series", "view")
    },
    "descending": (
        {"sharding": sharding(entry("d.c", {"n": -1}))},
        "InvalidShardingEntry",
        "d.c: the direction of the field n is -1",
    ),
    "twice": (
        {"sharding": sharding(entry("d.c", {"n": 1}), entry("d.c", {"few": 1}))},
        "InvalidShardingEntry",
        "shardingEntries[1], d.c",
    ),
    "left out": (
        {
            "sharding": sharding(entry("d.x", {"n": 1})),
            "excludeNamespaces": [{"database": "d", "collections": ["x"]}],
        },
        "InvalidShardingEntry",
        "d.x: the filter excludes it",
    ),
    "reversible": (
        {"reversible": True, "enableUserWriteBlocking": True},
        "ReversibleNeedsEqualShards",
        "the source has no shards, and the destination has 2 shards",
    ),
    "without": (
        {"sharding": None},
        "ShardingRequired",
        "but the start options do not contain sharding.",
    ),
}


def test_a_start_with_unsupported_sharding_is_refused(pair: Pair, daemon: Daemon) -> None:
    define(pair)
    for options, error, text in REFUSED.values():
        asked = daemon.start_body(**options)
        body = {name: value for name, value in asked.items() if value is not None}
        answer = daemon.post("start", body).json()
        assert answer["error"] == error, answer
        assert text in answer["errorDescription"]
    assert daemon.progress()["state"] == "IDLE"
    assert "d" not in pair.destination.client.list_database_names()


def test_the_name_of_a_sharded_collection_may_have_235_bytes(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fits, longer = "n" * 233, "n" * 234
    for name in (fits, longer):
        source.d[name].insert_one({})
    with pytest.raises(OperationFailure, match="235"):
        destination.admin.command("shardCollection", f"other.{'n' * 230}", key={"_id": 1})
    body = daemon.start_body(sharding=sharding(entry(f"d.{longer}", {"_id": 1})))
    answer = daemon.post("start", body).json()
    assert answer["error"] == "CollectionNotShardable", answer
    assert f"d.{longer} cannot be sharded" in answer["errorDescription"]
    pair.shard(f"d.{fits}", {"_id": 1})
    daemon.start()
    daemon.commit()
    assert shard_key(pair, f"d.{fits}") == {"_id": 1}
    pair.assert_equal()


def test_a_rename_to_a_name_too_long_for_a_sharded_collection_is_refused(
    pair: Pair, daemon: Daemon
) -> None:
    source, longer = pair.source.client, "n" * 234
    source.d.c.insert_one({})
    pair.shard("d.c", {"_id": 1})
    daemon.start()
    daemon.wait_until_applying()
    source.d.c.rename(longer)
    daemon.wait_for_failure("CollectionNotShardable", f"d.{longer} cannot be sharded")
    source.d[longer].rename("shorter")
    daemon.resume()
    daemon.commit()
    assert [*pair.destination.client.d.list_collection_names()] == ["shorter"]
    pair.assert_equal()


@pytest.mark.full
@pytest.mark.parametrize("is_view", [False, True], ids=["collection", "view"])
def test_an_empty_database_whose_name_differs_in_case_fails_the_sync(
    pair: Pair, daemon: Daemon, is_view: bool
) -> None:
    """Sync a database to a router that still knows an emptied database whose name differs only in case.

    The emptied database is still in `config.databases`, so the router refuses `enableSharding` of the other name.
    """
    source, destination = pair.source.client, pair.destination.client
    destination.App.c.insert_one({})
    destination.App.c.drop()
    if is_view:
        source.app.create_collection("v", viewOn="c", pipeline=[])
        source.d.c.insert_one({})
    else:
        source.app.c.insert_one({})
    daemon.start(enableUserWriteBlocking="none")
    daemon.wait_for_failure("DefinitionNotApplicable", "enableSharding on app.", "have: App")
    destination.drop_database("App")
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_zones_of_users_are_obeyed_and_kept(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    pair.shard("d.c", {"n": 1})
    admin, config = pair.destination.client.admin, pair.destination.client.config
    shard = max(each["_id"] for each in config.shards.find())
    span: Document = {"min": {"n": MinKey()}, "max": {"n": MaxKey()}}
    admin.command("addShardToZone", shard, zone="own")
    admin.command("updateZoneKeyRange", "d.c", **span, zone="own")
    try:
        daemon.start()
        daemon.commit()
        pair.assert_equal()
        assert [each["tag"] for each in config.tags.find({"ns": "d.c"})] == ["own"]
        assert sorted(shares(pair.destination, "c"))[:-1] == [0] * (
            len(pair.destination.shards) - 1
        )
    finally:
        admin.command("updateZoneKeyRange", "d.c", **span, zone=None)
        admin.command("removeShardFromZone", shard, zone="own")


KILLS = [
    (Point.PRIMARY_ASSIGNED, 1),
    (Point.INDEX_FOR_SHARD_KEY_BUILT, 1),
    (Point.ZONES_SET, 1),
    (Point.COLLECTION_SHARDED, 1),
    (Point.COLLECTION_SHARDED, 2),
    (Point.COLLECTION_CREATED, 2),
]


@pytest.mark.full
def test_sharding_continues_after_a_kill_at_every_point(pair: Pair, daemon: Daemon) -> None:
    fill_and_shard(pair)
    daemon.kill()
    for point, number in KILLS:
        # An earlier process has sharded the first collection, so the restarted process shards the second one first.
        daemon.kill_at(point, number=1 if point is Point.COLLECTION_SHARDED else number)
        daemon.run()
        daemon.post_unanswered("start", daemon.start_body())
        daemon.wait_until_killed()
        if point is Point.ZONES_SET:
            cut_elsewhere(pair)
    assert_sharding_continues(pair, daemon)


@pytest.mark.full
@pytest.mark.parametrize("kill", KILLS, ids=lambda kill: f"{kill[0].value} {kill[1]}")
def test_a_daemon_killed_while_sharding_continues(
    pair: Pair, daemon: Daemon, kill: tuple[Point, int]
) -> None:
    fill_and_shard(pair)
    point, number = kill
    daemon.kill_at(point, number=number)
    daemon.post_unanswered("start", daemon.start_body())
    daemon.wait_until_killed()
    cut_elsewhere(pair)
    assert_sharding_continues(pair, daemon)


def fill_and_shard(pair: Pair) -> None:
    for name in ("c", "few", "plain"):
        fill(pair, name)
    pair.shard("d.c", {"n": 1})
    pair.shard("d.few", {"few": 1, "n": 1})


def cut_elsewhere(pair: Pair) -> None:
    """Delete the documents with the lower half of `n`, so that a restarted daemon divides the data differently."""
    for name in ("c", "few"):
        pair.source.client.d[name].delete_many({"n": {"$lt": DOCUMENTS // 2}})


def assert_sharding_continues(pair: Pair, daemon: Daemon) -> None:
    """Restart the killed daemon and commit.

    Fail unless all documents are synced and spread over the shards, and no zones are left.
    """
    daemon.run()
    assert daemon.post("start", daemon.start_body()).json() == {"success": True}
    daemon.commit()
    pair.assert_equal()
    assert_no_zones(pair)
    for name in ("c", "few"):
        assert min(shares(pair.destination, name)) > 0


# The points and namespaces in the order in which the daemon passes them while it applies the events.
KILLS_IN_EVENTS = [
    (Point.ZONES_SET, "d.late"),
    (Point.COLLECTION_SHARDED, "d.late"),
    (Point.SPARE_INDEX_BUILT, "d.c"),
]


@pytest.mark.full
def test_sharding_events_continue_after_a_kill_at_every_point(pair: Pair, daemon: Daemon) -> None:
    assert_kills_lose_no_event(pair, daemon, *KILLS_IN_EVENTS)


@pytest.mark.full
@pytest.mark.parametrize("kill", KILLS_IN_EVENTS, ids=lambda kill: kill[0].value)
def test_a_daemon_killed_in_a_sharding_event_continues(
    pair: Pair, daemon: Daemon, kill: tuple[Point, str]
) -> None:
    assert_kills_lose_no_event(pair, daemon, kill)


def assert_kills_lose_no_event(pair: Pair, daemon: Daemon, *kills: tuple[Point, str]) -> None:
    """Create a collection that the sync shards, and an index; kill and restart the daemon at each of `kills`.

    Each kill consists of a point and the namespace for which the daemon passes that point. After the last restart, the
    sync must commit. The clusters must be equal, and no temporary zone or index may be left.
    """
    fill(pair)
    pair.source.client.d.c.create_index("n", name="own")
    pair.shard("d.c", {"n": 1})
    pair.shard("d.late", {"n": 1})
    daemon.start()
    daemon.wait_until_committable()
    first, *others = kills
    daemon.kill_at(*first)
    pair.source.client.d.create_collection("late")
    create_another_of_its_name(pair.source.client.d.c)
    daemon.wait_until_killed()
    for kill in others:
        daemon.kill_at(*kill)
        daemon.run()
        daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    pair.assert_equal()
    assert_no_zones(pair)
    assert "syncsvc.spare" not in indexes(pair)


class TestVerification:
    @prepared(Daemon.judge_soon)
    def test_a_different_shard_key_is_a_mismatch(self, pair: Pair, daemon: Daemon) -> None:
        fill(pair)
        pair.source.client.d.c.create_index([("n", 1), ("few", 1)])
        pair.shard("d.c", {"n": 1})
        daemon.start(enableUserWriteBlocking="none")
        daemon.wait_until_committable()
        refine = {"refineCollectionShardKey": "d.c", "key": {"n": 1, "few": 1}}
        pair.destination.client.admin.command(refine)
        progress = daemon.commit_or_fail()
        assert progress["error"] == "VerificationFailed"
        assert "d.c: its shard key is different" in progress["errorDescription"]

    @pytest.mark.full
    @prepared(Daemon.judge_soon)
    def test_an_unsharded_collection_is_a_mismatch(self, pair: Pair, daemon: Daemon) -> None:
        pair.source.client.d.create_collection("c")
        pair.source.client.d.other.insert_one({})
        pair.shard("d.c", {"n": 1})
        daemon.start(enableUserWriteBlocking="none")
        daemon.wait_until_committable()
        pair.destination.client.d.c.drop()
        pair.destination.client.d.create_collection("c").create_index("n")
        progress = daemon.commit_or_fail()
        assert progress["error"] == "VerificationFailed"
        assert "d.c: its shard key is missing" in progress["errorDescription"]

    def test_the_standalone_verifier_accepts_the_supporting_index(
        self, pair: Pair, daemon: Daemon, checker: Checker
    ) -> None:
        fill(pair)
        pair.shard("d.c", {"n": 1})
        daemon.start()
        daemon.commit()
        check = checker.verdict()
        assert check.definitions() == set()
        check.assert_passed()
