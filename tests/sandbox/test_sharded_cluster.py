"""Tests that the tests' own sharded clusters behave like those behind a real `mongos`, as far as the product needs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import MaxKey, MinKey
from bson.raw_bson import RawBSONDocument
from pymongo import MongoClient
from pymongo.change_stream import ChangeStream
from pymongo.errors import OperationFailure, PyMongoError

from syncsvc.sandbox.replica_set import Client
from tests.support.sharded.call import Call
from tests.support.sharded.cluster import ShardedCluster, find_mongos
from tests.support.sharded.servers import Servers, Shared
from tests.support.sharded.wire import refusal
from tests.support.waiting import wait_for

NUMBERS = [{"_id": number, "k": number} for number in range(100)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    with ShardedCluster() as cluster:
        yield cluster


@pytest.fixture
def client(cluster: ShardedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        client.drop_database("d")
        yield client


def shard(client: Client, collection: str, **key: Any) -> None:
    client.admin.command("shardCollection", f"d.{collection}", key=key)


def on_shards(cluster: ShardedCluster, ask: Callable[[Client], Any]) -> list[Any]:
    answers = []
    for each in cluster.shards:
        with each.client() as client:
            answers.append(ask(client))
    return answers


def read(stream: ChangeStream[dict[str, Any]], number: int) -> list[dict[str, Any]]:
    return [next(stream) for _ in range(number)]


def test_a_driver_recognises_a_sharded_cluster(client: Client) -> None:
    assert client.is_mongos
    assert client.server_info()["version"].startswith("6.0")
    assert "setName" not in client.admin.command("hello")


def test_documents_are_spread_and_read_as_one_collection(
    cluster: ShardedCluster, client: Client
) -> None:
    shard(client, "c", k="hashed")
    client.d.c.insert_many(NUMBERS)
    parts = on_shards(cluster, lambda each: each.d.c.count_documents({}))
    assert all(parts) and sum(parts) == 100
    assert list(client.d.c.find(batch_size=7).sort("_id", 1)) == NUMBERS
    part = client.d.c.find(hint="_id_").sort("_id", 1).min([("_id", 20)]).max([("_id", 80)])
    assert list(part) == NUMBERS[20:80]
    client.d.c.update_many({"k": {"$lt": 50}}, {"$set": {"x": 1}})
    client.d.c.delete_many({"k": {"$gte": 50}})
    assert client.d.c.count_documents({"x": 1}) == client.d.c.estimated_document_count() == 50
    sample = [{"$sample": {"size": 10}}, {"$project": {"_id": 1}}, {"$sort": {"_id": 1}}]
    assert len(list(client.d.c.aggregate(sample))) == 10


def test_documents_are_the_bytes_that_were_written(client: Client) -> None:
    shard(client, "c", _id="hashed")
    # A duplicate field name, a negative zero, a NaN with a payload, a symbol.
    raw = b"\x10_id\0\x01\0\0\0\x08a\0\x01\x08a\0\0\x01z\0" + bytes(7) + b"\x80"
    raw += b"\x01n\0\x01\0\0\0\0\0\xf8\x7f\x0es\0\x02\0\0\0s\0"
    document = RawBSONDocument((len(raw) + 5).to_bytes(4, "little") + raw + b"\0")
    options: Any = bson.CodecOptions(document_class=RawBSONDocument)
    collection = client.d.get_collection("c", codec_options=options)
    collection.insert_one(document)
    found = collection.find_one({"_id": 1})
    assert isinstance(found, RawBSONDocument) and bytes(found.raw) == bytes(document.raw)


def test_definitions_are_those_of_all_shards(cluster: ShardedCluster, client: Client) -> None:
    shard(client, "c", k="hashed")
    client.d.c.create_index("a")
    client.d.create_collection("plain", validator={"a": 1})
    client.d.plain.create_index("b")
    client.d.create_collection("view", viewOn="c", pipeline=[])
    assert {"c", "plain", "view"} <= {*client.d.list_collection_names()}
    assert {*client.d.c.index_information()} == {"_id_", "k_hashed", "a_1"}
    assert {*client.d.plain.index_information()} == {"_id_", "b_1"}
    on_each = on_shards(cluster, lambda each: {*each.d.c.index_information()})
    assert on_each == [{"_id_", "k_hashed", "a_1"}] * 2
    client.d.c.drop_index("a_1")
    client.d.command({"collMod": "c", "validationLevel": "moderate"})
    client.d.plain.rename("other")
    client.d.view.drop()
    assert {*client.d.c.index_information()} == {"_id_", "k_hashed"}
    assert {*client.d.list_collection_names()} >= {"c", "other"}
    client.drop_database("d")
    assert client.list_database_names() == ["admin", "config"]
    assert client.d.list_collection_names() == []


def test_orphaned_documents_are_not_read(cluster: ShardedCluster, client: Client) -> None:
    shard(client, "c", k=1)
    client.d.c.insert_many(NUMBERS)
    (metadata,) = client.config.collections.find({"_id": "d.c"})
    (chunk,) = client.config.chunks.find({"uuid": metadata["uuid"]})
    other = next(each.name for each in cluster.shards if each.name != chunk["shard"])
    client.admin.command({"moveRange": "d.c", "toShard": other, "min": {"k": 60}})
    assert sorted(on_shards(cluster, lambda each: each.d.c.count_documents({}))) == [40, 100]
    assert client.d.c.count_documents({}) == len(list(client.d.c.find())) == 100
    counted = client.d.command("count", "c", query={"k": {"$gte": 0}}, hint={"$natural": 1})
    assert counted["n"] == 100
    # Like mongos, this includes orphaned documents; only count_documents is exact.
    assert client.d.c.estimated_document_count() == 140
    assert client.d.c.create_index("a") == "a_1"


@pytest.mark.skipif(find_mongos() is not None, reason="tests the stand-in for mongos")
def test_shards_refresh_metadata_that_stays_stale(
    cluster: ShardedCluster, client: Client, tmp_path: Path
) -> None:
    """Answer that a version is stale, longer than the stand-in waits before it refreshes the metadata of all shards.

    The stand-in must then try again, and return the answer of the first call that succeeds.
    """
    shard(client, "c", k=1)
    shared = Shared((cluster.config.members[0].address,), tmp_path)
    with closing(Servers(shared)) as servers:
        call = Call({"count": "c", "$db": "d"})
        answers = iter([13388] * 30)

        def run() -> dict[str, Any]:
            if (code := next(answers, None)) is not None:
                raise refusal(code, "stale")
            return {"ok": 1.0}

        assert servers.until_fresh(call, run) == {"ok": 1.0}


def chunks(client: Client, name: str) -> list[tuple[Any, Any, str]]:
    """Return the chunks of the namespace `name` in order, each as its lower bound, its upper bound and its shard."""
    (metadata,) = client.config.collections.find({"_id": name})
    rows = client.config.chunks.find({"uuid": metadata["uuid"]}).sort("min", 1)
    return [(*row["min"].values(), *row["max"].values(), row["shard"]) for row in rows]


def test_chunks_are_split_and_moved(cluster: ShardedCluster, client: Client) -> None:
    one, other = (each.name for each in cluster.shards)
    admin = client.admin.command
    admin("enableSharding", "d", primaryShard=one)
    admin("enableSharding", "d")
    with pytest.raises(OperationFailure) as caught:
        admin("enableSharding", "d", primaryShard=other)
    assert caught.value.code == 48
    shard(client, "c", k=1)
    client.d.c.insert_many(NUMBERS)
    low, high = MinKey(), MaxKey()
    admin("split", "d.c", middle={"k": 50})
    admin("split", "d.c", find={"k": 10})
    admin("split", "d.c", bounds=[{"k": 50}, {"k": high}])
    admin("moveChunk", "d.c", find={"k": 60}, to=other)
    admin("moveRange", "d.c", min={"k": 30}, max={"k": 50}, toShard=other)
    assert chunks(client, "d.c") == [
        (low, 25, one),
        (25, 30, one),
        (30, 50, other),
        (50, 75, other),
        (75, high, one),
    ]
    assert sorted(client.d.c.distinct("k")) == [*range(100)]
    admin("reshardCollection", "d.c", key={"_id": "hashed"})
    assert {owner for _, _, owner in chunks(client, "d.c")} == {one, other}
    assert client.d.c.count_documents({}) == 100
    client.d.plain.insert_one({"_id": 1})
    admin("movePrimary", "d", to=other)
    assert client.d.plain.count_documents({}) == 1
    assert [row["_id"] for row in admin("listShards")["shards"]] == [one, other]


def test_zones_and_the_balancer_are_those_of_the_config_server(
    cluster: ShardedCluster, client: Client
) -> None:
    admin, name = client.admin.command, cluster.shards[1].name
    zone: dict[str, Any] = {"min": {"k": 0}, "max": {"k": 5}}
    shard(client, "c", k=1)
    admin("addShardToZone", name, zone="z")
    admin("updateZoneKeyRange", "d.c", **zone, zone="z")
    assert [row["tag"] for row in client.config.tags.find()] == ["z"]
    admin("updateZoneKeyRange", "d.c", **zone, zone=None)
    admin("removeShardFromZone", name, zone="z")
    assert client.config.tags.find_one() is None
    for command, mode in (("balancerStop", "off"), ("balancerStart", "full")):
        admin(command)
        assert admin("balancerStatus")["mode"] == mode


def test_a_document_moves_by_a_retryable_update_of_its_shard_key(client: Client) -> None:
    shard(client, "c", k=1)
    client.d.c.insert_many(NUMBERS)
    client.admin.command("split", "d.c", middle={"k": 50})
    shards = [row["_id"] for row in client.config.shards.find()]
    other = next(each for each in shards if each != chunks(client, "d.c")[1][2])
    client.admin.command("moveChunk", "d.c", find={"k": 50}, to=other)
    client.d.c.update_one({"_id": 1, "k": 1}, {"$set": {"k": 51}})
    client.d.c.replace_one({"_id": 2, "k": 2}, {"k": 52})
    found = client.d.c.find({"_id": {"$lt": 3}}).sort("_id", 1)
    assert list(found) == [{"_id": 0, "k": 0}, {"_id": 1, "k": 51}, {"_id": 2, "k": 52}]
    assert client.d.c.count_documents({}) == 100
    with pytest.raises(OperationFailure) as caught:
        client.d.c.update_one({"_id": 3}, {"$set": {"k": 53}})
    assert caught.value.code == 31025
    changed = client.d.c.find_one_and_update({"k": 60}, {"$set": {"x": 1}})
    assert changed == {"_id": 60, "k": 60}
    with pytest.raises(OperationFailure) as caught:
        client.d.c.find_one_and_update({"_id": 60}, {"$set": {"x": 1}})
    assert caught.value.code == 61


def test_a_wrong_uuid_is_refused(client: Client) -> None:
    shard(client, "c", k="hashed")
    client.d.c.insert_many(NUMBERS)
    client.d.plain.insert_one({"_id": 1})
    rows = client.d.list_collections()
    uuids = {row["name"]: row["info"]["uuid"] for row in rows}
    for command in (
        {"find": "c"},
        {"aggregate": "c", "pipeline": [], "cursor": {}},
        {"update": "c", "updates": [{"q": {"k": 1}, "u": {"$set": {"x": 1}}}]},
        {"createIndexes": "c", "indexes": [{"key": {"a": 1}, "name": "a"}]},
        {"collMod": "c"},
    ):
        assert client.d.command({**command, "collectionUUID": uuids["c"]})["ok"]
        with pytest.raises(OperationFailure) as caught:
            reply = client.d.command({**command, "collectionUUID": uuids["plain"]})
            raise OperationFailure("refused", reply["writeErrors"][0]["code"])
        assert caught.value.code == 361


def test_statistics_are_sums_over_the_shards(client: Client) -> None:
    shard(client, "c", k="hashed")
    client.d.c.insert_many(NUMBERS)
    client.d.plain.insert_one({"_id": 1})
    assert client.d.command("dbStats")["objects"] == 101
    statistics = client.d.command("collStats", "c")
    assert (statistics["count"], statistics["sharded"], len(statistics["shards"])) == (100, True, 2)
    client.d.command("convertToCapped", "plain", size=4096)
    assert client.d.command("collStats", "plain")["capped"]
    assert client.admin.command("serverStatus")["process"] == "mongos"


def test_a_cursor_is_known_to_one_router_until_it_is_killed(
    cluster: ShardedCluster, client: Client
) -> None:
    shard(client, "c", k="hashed")
    client.d.c.insert_many(NUMBERS)
    first, second = (
        MongoClient[dict[str, Any]](f"mongodb://{each.address}/") for each in cluster.routers
    )
    with first, second:
        for command in (
            {"find": "c", "batchSize": 2},
            {"listCollections": 1, "cursor": {"batchSize": 0}},
            {"aggregate": "c", "pipeline": [{"$changeStream": {}}], "cursor": {}},
        ):
            cursor = first.d.command(command)["cursor"]
            name = cursor["ns"].partition(".")[2]
            assert _is_unknown(second, cursor["id"], name)
            killed = second.d.command("killCursors", name, cursors=[cursor["id"]])
            assert killed["cursorsKilled"] == []
            killed = first.d.command("killCursors", name, cursors=[cursor["id"]])
            assert killed["cursorsKilled"] == [cursor["id"]]
            assert _is_unknown(first, cursor["id"], name)


def _is_unknown(client: Client, cursor_id: int, name: str) -> bool:
    with pytest.raises(OperationFailure) as caught:
        client.d.command("getMore", cursor_id, collection=name)
    return caught.value.code == 43


def test_a_change_stream_merges_the_events_of_all_shards_in_order(client: Client) -> None:
    shard(client, "c", k="hashed")
    with client.watch(show_expanded_events=True) as stream:
        start = stream.resume_token
        for document in NUMBERS:
            client.d.c.insert_one(document)
        client.d.c.drop()
        events = read(stream, 102)
    assert [event["fullDocument"] for event in events[:100]] == NUMBERS
    assert [event["operationType"] for event in events[100:]] == ["drop"] * 2
    times = [event["clusterTime"] for event in events]
    assert times == sorted(times)
    with client.watch(show_expanded_events=True, resume_after=events[30]["_id"]) as stream:
        assert read(stream, 71) == events[31:]
    with client.watch(show_expanded_events=True, resume_after=start) as stream:
        assert read(stream, 102) == events


def test_an_idle_change_stream_passes_a_noop(client: Client) -> None:
    with client.watch(max_await_time_ms=10) as stream:
        noted = client.admin.command({"appendOplogNote": 1, "data": {}})["operationTime"]
        client.admin.command({"appendOplogNote": 1, "data": {}})

        def has_passed() -> bool:
            assert stream.try_next() is None
            assert stream.resume_token is not None
            return str(stream.resume_token["_data"]) > f"82{noted.time:08X}{noted.inc:08X}FF"

        wait_for(has_passed, f"the resume token passes {noted}")


def test_a_read_at_the_returned_time_sees_all_writes(client: Client) -> None:
    shard(client, "c", k="hashed")
    for document in NUMBERS[:20]:
        client.d.c.insert_one(document)
        time = client.admin.command("ping")["operationTime"]
        concern = {"level": "majority", "afterClusterTime": time}
        found = client.d.command("find", "c", filter=document, readConcern=concern)
        assert found["cursor"]["firstBatch"] == [document]


def test_user_writes_can_be_blocked(client: Client) -> None:
    client.d.c.insert_one({"_id": 1})
    client.admin.command({"setUserWriteBlockMode": 1, "global": True})
    try:
        with pytest.raises(OperationFailure, match="blocked"):
            client.d.c.insert_one({"_id": 2})
        for command in (
            {"insert": "c", "documents": [{"_id": 3}]},
            {"create": "other"},
            {"createIndexes": "other", "indexes": [{"key": {"a": 1}, "name": "a"}]},
            {"drop": "other"},
        ):
            assert client.d.command({**command, "mayBypassWriteBlocking": True})["ok"]
    finally:
        client.admin.command({"setUserWriteBlockMode": 1, "global": False})
    assert client.d.c.count_documents({}) == 2


@pytest.mark.parametrize(
    ("database", "command", "code"),
    [
        ("d", {"listIndexes": bson.Binary(bytes(16), 4)}, 73),
        ("d", {"drop": "missing"}, 26),
        ("d", {"explain": {"find": "missing"}}, 26),
        (
            "admin",
            {
                "aggregate": 1,
                "pipeline": [
                    {"$changeStream": {"allChangesForCluster": True, "showMigrationEvents": True}}
                ],
                "cursor": {},
            },
            31123,
        ),
    ],
)
def test_commands_that_mongos_refuses_are_refused(
    client: Client, database: str, command: dict[str, Any], code: int
) -> None:
    with pytest.raises(OperationFailure) as caught:
        client[database].command(command)
    assert caught.value.code == code


@pytest.mark.full
def test_a_cluster_works_again_after_a_shard_was_down(
    cluster: ShardedCluster, client: Client
) -> None:
    shard(client, "c", k="hashed")
    client.d.c.insert_many(NUMBERS)
    with client.watch() as stream:
        cluster.shards[0].kill_member(0)
        with pytest.raises(PyMongoError):
            client.d.c.aggregate([{"$count": "n"}], maxTimeMS=500)
        cluster.shards[0].restart_member(0)
        wait_for(lambda: _count(client) == 100, "all documents can be read again")
        client.d.c.insert_one({"_id": 1000})
        assert next(stream)["fullDocument"] == {"_id": 1000}


def _count(client: Client) -> int | None:
    with suppress(PyMongoError):
        return client.d.c.count_documents({})
    return None


@pytest.mark.skipif(find_mongos() is not None, reason="the real mongos knows more")
def test_unknown_commands_are_refused_by_name(client: Client) -> None:
    with pytest.raises(OperationFailure, match="stand-in: 'validate'"):
        client.d.command("validate", "c")
