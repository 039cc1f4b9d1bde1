"""The verifier on sharded clusters: what is equal passes, and what is not is named exactly."""

from __future__ import annotations

import re
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson import MinKey

from syncsvc.sandbox.replica_set import Client
from tests.conftest import Pair
from tests.support.sharded import ShardedCluster
from tests.support.verifier import Verifier
from verifier.compare.observe import Point

NUMBERS = [{"_id": number, "k": number, "text": "x" * 1000} for number in range(3000)]
TEXTS = [f"{letter}{number}" for letter in "aBcD" for number in range(30)]
OPTIONS = ("--verifyAll", "--graceSeconds", "1", "--partitionSizeMB", "1")


@pytest.fixture(scope="module")
def sharded() -> Iterator[tuple[ShardedCluster, ShardedCluster]]:
    clusters = ShardedCluster(name="one"), ShardedCluster(name="other")
    with ExitStack() as stopping, ThreadPoolExecutor() as pool:
        for each in clusters:
            stopping.callback(each.stop)
        list(pool.map(ShardedCluster.start, clusters))
        yield clusters


class Sides:
    """Source and destination of a test, empty."""

    def __init__(self, uris: tuple[str, str], clients: tuple[Client, Client], folder: Path) -> None:
        self.uris = uris
        self.clients = clients
        self.folder = folder
        self.documents: list[dict[str, Any]] = []
        self.definitions: list[dict[str, Any]] = []

    def shard(self, name: str, **key: Any) -> None:
        """Shard a collection, where there are shards."""
        for client in self.clients:
            if client.is_mongos:
                simple = {"locale": "simple"}
                client.admin.command("shardCollection", name, key=key, collation=simple)

    def leave_orphans(self, name: str, low: dict[str, Any]) -> None:
        """Move what is not below a shard key to the other shard, and change it there."""
        for client in self.clients:
            if client.is_mongos:
                (metadata,) = client.config.collections.find({"_id": name})
                (chunk,) = client.config.chunks.find({"uuid": metadata["uuid"]})
                (other,) = client.config.shards.find({"_id": {"$ne": chunk["shard"]}})
                client.admin.command("moveRange", name, toShard=other["_id"], min=low)
            database, _, collection = name.partition(".")
            client[database][collection].update_many({}, {"$set": {"moved": 1}})

    @property
    def source(self) -> Client:
        return self.clients[0]

    @property
    def destination(self) -> Client:
        return self.clients[1]

    @contextmanager
    def verifier(self) -> Iterator[Verifier]:
        process = Verifier(*self.uris, self.folder, *OPTIONS)
        try:
            process.run()
            yield process
        finally:
            process.close()

    def verdict(self) -> str:
        with self.verifier() as process:
            verdict: str = process.verify()["verdict"]
            self.documents = process.lines("docMismatches")
            self.definitions = process.lines("nsMismatches")
            return verdict


@pytest.fixture(params=["replica set to sharded", "sharded to sharded", "sharded to replica set"])
def sides(
    request: pytest.FixtureRequest,
    pair: Pair,
    sharded: tuple[ShardedCluster, ShardedCluster],
    tmp_path: Path,
) -> Iterator[Sides]:
    chosen: dict[str, tuple[str, str]] = {
        "replica set to sharded": (pair.source.uri, sharded[1].uri),
        "sharded to sharded": (sharded[0].uri, sharded[1].uri),
        "sharded to replica set": (sharded[0].uri, pair.destination.uri),
    }
    uris = chosen[request.param]
    with Client(uris[0]) as source, Client(uris[1]) as destination:
        for client in (source, destination):
            for name in client.list_database_names():
                if name not in ("admin", "config", "local"):
                    client.drop_database(name)
        yield Sides(uris, (source, destination), tmp_path)


def fill(sides: Sides) -> None:
    sides.shard("d.hashed", k="hashed")
    sides.shard("d.ranged", k=1, _id=1)
    for client in sides.clients:
        client.d.hashed.insert_many(NUMBERS)
        client.d.hashed.create_index([("k", "hashed")])
        client.d.hashed.create_index("text")
        client.d.ranged.insert_many(NUMBERS[:100])
        client.d.ranged.create_index([("k", 1), ("_id", 1)])
        client.d.plain.insert_many({"_id": each} for each in ("a", 1, 2.5, None, {"a": 1}))
        client.d.create_collection("view", viewOn="hashed", pipeline=[{"$match": {"k": 1}}])
        client.d.create_collection("texts", collation={"locale": "en", "strength": 2})
        client.d.texts.create_index([("k", "hashed")], collation={"locale": "simple"})
        client.e.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    sides.shard("d.texts", k="hashed")
    for client in sides.clients:
        client.d.texts.insert_many({"_id": name, "k": name} for name in TEXTS)


def move(sides: Sides) -> None:
    sides.leave_orphans("d.ranged", {"k": 50, "_id": MinKey()})


def named(documents: list[dict[str, Any]]) -> list[tuple[str, str, Any]]:
    return sorted((each["type"], each["namespace"], each["_id"]) for each in documents)


def test_equal_clusters_pass(sides: Sides) -> None:
    fill(sides)
    with sides.verifier() as process:
        with process.held_at(Point.GENERATION_DONE):
            process.check()
            process.wait_until_reached(Point.GENERATION_DONE)
            move(sides)
        process.writes_off()
        assert process.wait_for_verdict()["verdict"] == "passed"
        assert process.lines("docMismatches") == process.lines("nsMismatches") == []


def test_documents_that_differ_are_named(sides: Sides) -> None:
    fill(sides)
    move(sides)
    _corrupt(sides.destination)
    with sides.verifier() as process:
        with process.held_at(Point.GENERATION_DONE):
            process.check()
            process.wait_until_reached(Point.GENERATION_DONE)
            _change(sides)
        process.writes_off()
        assert process.wait_for_verdict()["verdict"] == "failed"
        assert named(process.lines("docMismatches")) == [
            ("content", "d.hashed", 17),
            ("content", "d.hashed", 200),
            ("content", "d.ranged", 49),
            ("extraOnDst", "d.hashed", 5000),
            ("extraOnDst", "d.ranged", 1000),
            ("missingOnDst", "d.hashed", 300),
            ("missingOnDst", "d.hashed", 1234),
            ("missingOnDst", "d.plain", 2.5),
            ("missingOnDst", "d.ranged", 51),
            ("missingOnDst", "d.texts", "B7"),
        ]
        assert process.lines("nsMismatches") == []


@pytest.mark.parametrize("sides", ["sharded to sharded"], indirect=True)
def test_a_collection_that_is_sharded_on_the_source_ends_the_check(sides: Sides) -> None:
    for client in sides.clients:
        client.d.c.insert_one({"_id": 1})
    with sides.verifier() as process:
        with process.held_at(Point.GENERATION_DONE):
            process.check()
            process.wait_until_reached(Point.GENERATION_DONE)
            sides.source.admin.command("shardCollection", "d.new", key={"_id": "hashed"})
        progress = process.wait_for_verdict()
        assert progress["verdict"] == "incomplete"
        # Of the two events, the first one tells so only when the other has come.
        assert re.search(
            "(create|shardCollection) of d.new came on the source", str(progress["error"])
        )


@pytest.mark.parametrize("sides", ["sharded to sharded"], indirect=True)
def test_a_shard_and_the_process_may_fail_during_a_check(
    sides: Sides, sharded: tuple[ShardedCluster, ShardedCluster]
) -> None:
    fill(sides)
    sides.source.d.hashed.update_one({"_id": 2000}, {"$set": {"text": "y"}})
    with sides.verifier() as process:
        process.kill_at(Point.DEFINITION_COMPARED, "d.texts")
        process.check()
        process.wait_until_killed()
        sides.source.d.hashed.update_one({"_id": 1000}, {"$set": {"text": "y"}})
        with process.held_at(Point.DEFINITION_COMPARED, "d.texts"):
            process.run()
            process.wait_until_reached(Point.DEFINITION_COMPARED, "d.texts")
            for cluster in sharded:
                cluster.shards[0].kill_member(0)
                cluster.shards[0].restart_member(0)
        process.writes_off()
        assert process.wait_for_verdict()["verdict"] == "failed"
        assert named(process.lines("docMismatches")) == [
            ("content", "d.hashed", 1000),
            ("content", "d.hashed", 2000),
        ]
        assert process.lines("nsMismatches") == []


def _corrupt(client: Client) -> None:
    client.d.hashed.delete_one({"_id": 1234})
    client.d.hashed.insert_one({"_id": 5000, "k": 1})
    client.d.hashed.update_one({"_id": 17}, {"$set": {"text": "y"}})
    client.d.ranged.delete_one({"_id": 51})
    client.d.ranged.update_one({"_id": 49}, {"$set": {"x": 1}})
    client.d.plain.delete_one({"_id": 2.5})
    client.d.texts.delete_one({"_id": "B7"})


def _change(sides: Sides) -> None:
    """Write to both clusters when all was compared once; much alike, and something only to one of them."""
    for client in sides.clients:
        client.d.hashed.update_many({"_id": {"$gt": 20, "$lt": 50}}, {"$set": {"text": "z"}})
        client.d.ranged.delete_many({"_id": {"$in": [10, 60]}})
    sides.source.d.hashed.update_one({"_id": 200}, {"$set": {"text": "z"}})
    sides.destination.d.hashed.delete_one({"_id": 300})
    sides.destination.d.ranged.insert_one({"_id": 1000, "k": 1000})


BY_A, BY_B = {"key": {"a": 1}}, {"key": {"b": 1}}
SHARD_KEYS: dict[str, tuple[dict[str, Any] | None, dict[str, Any] | None]] = {
    "same": (BY_A, BY_A),
    "typed": (BY_A, {"key": {"a": 1.0}}),
    "other": (BY_A, BY_B),
    "hashed": (BY_A, {"key": {"a": "hashed"}}),
    "order": ({"key": {"a": 1, "b": 1}}, {"key": {"b": 1, "a": 1}}),
    "unique": ({**BY_A, "unique": True}, BY_A),
    "missing": (BY_A, None),
    "extra": (None, BY_A),
}


@pytest.mark.parametrize("sides", ["sharded to sharded"], indirect=True)
def test_shard_keys_that_differ_are_named(sides: Sides) -> None:
    for name, keys in SHARD_KEYS.items():
        for client, options in zip(sides.clients, keys):
            # The same on both sides, whatever the shard key.
            client.d[name].create_index("a", unique=name == "unique")
            for index in ([("a", "hashed")], [("a", 1), ("b", 1)], [("b", 1), ("a", 1)]):
                client.d[name].create_index(index)
            if options is not None:
                client.admin.command("shardCollection", f"d.{name}", **options)
    assert sides.verdict() == "failed"
    found = [(each["type"], each["namespace"], each["aspect"]) for each in sides.definitions]
    assert sorted(found) == [
        ("content", "d.hashed", "shard key"),
        ("content", "d.order", "shard key"),
        ("content", "d.other", "shard key"),
        ("content", "d.unique", "shard key"),
        ("extraOnDst", "d.extra", "shard key"),
        ("missingOnDst", "d.missing", "shard key"),
    ]
    assert sides.documents == []


@pytest.mark.parametrize("sides", ["sharded to sharded", "sharded to replica set"], indirect=True)
def test_documents_on_two_shards_may_share_an_id(sides: Sides) -> None:
    sides.shard("d.c", k="hashed")
    for client in sides.clients:
        client.d.c.insert_many({"_id": number, "k": number} for number in range(100))
        client.d.c.create_index([("k", "hashed")])
    # By the hashes of these, they are on different shards.
    shared = [{"_id": number, "k": _elsewhere(sides.source, number)} for number in (5, 50)]
    sides.source.d.c.insert_many(shared)
    if sides.destination.is_mongos:
        sides.destination.d.c.insert_one(shared[0])
        expected = [("missingOnDst", "d.c", 50)]
    else:
        expected = [("missingOnDst", "d.c", 5), ("missingOnDst", "d.c", 50)]
    assert sides.verdict() == "failed"
    assert named(sides.documents) == expected
    assert sides.definitions == []


def _elsewhere(client: Client, number: int) -> int:
    """A number that is on another shard than this one."""

    def shard(k: int) -> str:
        plan = client.d.command("explain", {"find": "c", "filter": {"k": k}})["queryPlanner"]
        name: str = plan["winningPlan"]["shards"][0]["shardName"]
        return name

    return next(k for k in range(1000, 2000) if shard(k) != shard(number))
