"""Syncs a sharded source through its router: definitions, balancers, chunk migrations, and the merged change stream.

`make test` leaves out special cases of balancers and of the number of shards, and cases that the model test covers.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from bson import MaxKey
from pymongo import MongoClient, monitoring

from syncsvc.engine.run.points import Point
from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon, prepared
from tests.support.pair import FROM_SHARDED, SHARDED, Pair, Side, across
from tests.support.phases import When, writes_in
from tests.support.sharded.cluster import ShardedCluster
from tests.support.waiting import wait_for
from verifier.cluster.inventory import find_collection, list_collections

from_shards, between_sharded_clusters = across(SHARDED, FROM_SHARDED), across(SHARDED)

PHASES = (When.BEFORE, When.REPLAY, When.LISTED, When.COPY, When.APPLY)


def shard(client: Client, name: str, **options: Any) -> None:
    client.admin.command("shardCollection", name, **options)


def others(client: Client, database: str) -> list[str]:
    """Return the names of all shards except the primary shard of the database."""
    primary = client.config.databases.find_one({"_id": database})
    assert primary is not None
    return [
        each["_id"] for each in client.config.shards.find() if each["_id"] != primary["primary"]
    ]


def move(client: Client, name: str, low: Any, high: Any) -> None:
    """Move a range of shard keys, from `low` up to but excluding `high`, to another shard.

    `name` is the namespace; the new shard is not the primary shard of its database.
    """
    bounds = {"min": low, "max": high}
    client.admin.command("moveRange", name, toShard=others(client, name.split(".")[0])[0], **bounds)


def shard_keys(client: Client) -> dict[str, tuple[list[Any], bool]]:
    """Return the shard key of each user collection, and whether the key is unique, by namespace."""
    rows = client.config.collections.find(
        {"_id": {"$not": {"$regex": "^(config|mongosync_reserved)"}}}
    )
    return {row["_id"]: (list(row["key"].items()), row["unique"]) for row in rows}


def assert_equal(pair: Pair) -> None:
    pair.assert_equal()
    if pair.destination.shards:
        assert shard_keys(pair.source.client) == shard_keys(pair.destination.client)


def fill(client: Client) -> None:
    """Create sharded collections on both shards, and unsharded collections in two databases."""
    shard(client, "d.hashed", key={"k": "hashed"})
    shard(client, "d.ranged", key={"k": 1})
    client.d.hashed.insert_many({"_id": n, "k": n, "m": n % 7} for n in range(200))
    client.d.ranged.insert_many({"_id": n, "k": n, "m": n % 7} for n in range(200))
    move(client, "d.ranged", {"k": 100}, {"k": MaxKey()})
    client.d.plain.insert_many({"_id": n, "k": n} for n in range(100))
    client.e.other.insert_many({"_id": n} for n in range(50))


def define(client: Client) -> None:
    """Run many kinds of DDL operations on the source, but none that changes a shard key."""
    d = client.d
    d.hashed.create_index("m")
    d.hashed.create_index([("k", 1), ("m", 1)], name="both")
    d.command({"collMod": "hashed", "index": {"name": "m_1", "hidden": True}})
    d.hashed.create_index("gone")
    d.hashed.drop_index("gone_1")
    d.hashed.rename("renamed")
    d.ranged.rename("hashed")
    d.renamed.rename("ranged")
    shard(client, "d.dropped", key={"k": "hashed"})
    d.dropped.create_index("x", unique=False)
    d.dropped.drop()
    d.dropped.create_index("y")
    d.create_collection("collated", collation={"locale": "de"})
    shard(client, "d.collated", key={"k": 1}, collation={"locale": "simple"})
    shard(client, "d.first", key={"k": "hashed"})
    shard(client, "d.second", key={"k": "hashed"})
    d.first.rename("second", dropTarget=True)
    d.plain.rename("collated.plain")
    d.command({"create": "view", "viewOn": "hashed", "pipeline": [{"$match": {"k": 1}}]})
    d.create_collection("series", timeseries={"timeField": "at"})
    shard(client, "f.away", key={"k": "hashed"})
    client.drop_database("f")
    client.f.again.create_index("z")
    client.drop_database("e")


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
@from_shards
def test_ddl_events_are_applied(pair: Pair, daemon: Daemon, when: When) -> None:
    """Run many kinds of DDL operations: each must be applied once, although each shard sends an event for it.

    The shards report different UUIDs if a collection was dropped and created again.
    """
    client = pair.source.client
    fill(client)
    with writes_in(when, daemon):
        define(client)
    daemon.commit()
    assert_equal(pair)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
@from_shards
def test_collections_are_sharded_and_keys_refined(pair: Pair, daemon: Daemon, when: When) -> None:
    client = pair.source.client
    fill(client)
    client.d.plain.create_index([("k", 1), ("m", 1)])
    client.d.ranged.create_index([("k", 1), ("m", 1)])
    with writes_in(when, daemon):
        shard(client, "d.plain", key={"k": 1})
        shard(client, "d.new", key={"_id": "hashed"})
        client.admin.command("refineCollectionShardKey", "d.ranged", key={"k": 1, "m": 1})
        client.admin.command("refineCollectionShardKey", "d.plain", key={"k": 1, "m": 1})
    daemon.commit()
    assert_equal(pair)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
@from_shards
def test_a_database_moves_to_another_shard(pair: Pair, daemon: Daemon, when: When) -> None:
    """Move a database to another primary shard, which moves documents without change events: none may be lost.

    One of the moved collections is sharded right afterwards.
    """
    client = pair.source.client
    fill(client)
    client.d.plain.create_index("k", unique=True)
    client.d.growing.insert_many({"_id": n, "k": n} for n in range(100))
    client.d.growing.create_index("k")
    client.d.command({"create": "view", "viewOn": "plain", "pipeline": [{"$match": {"k": 1}}]})
    client.d.create_collection("series", timeseries={"timeField": "at"})
    client.d.series.insert_many({"at": datetime(2030, 1, n, tzinfo=UTC)} for n in range(1, 9))
    with writes_in(when, daemon):
        client.admin.command("movePrimary", "d", to=others(client, "d")[0])
        shard(client, "d.growing", key={"k": 1})
        client.d.growing.update_many({}, {"$inc": {"m": 1}})
        client.d.plain.update_many({}, {"$inc": {"m": 1}})
        client.d.plain.delete_many({"_id": {"$lt": 9}})
        client.d.series.insert_one({"at": datetime(2031, 1, 1, tzinfo=UTC)})
    daemon.commit()
    assert_equal(pair)
    assert client.d.plain.count_documents({}) == 91


@pytest.mark.full
@across(SHARDED)
@prepared(Daemon.small_partitions, Daemon.save_every_page)
def test_a_unique_shard_key_fits_documents_of_different_moments(pair: Pair, daemon: Daemon) -> None:
    """Shard a collection during its copy, and move a unique value from a copied document to one that is not copied."""
    client = pair.source.client
    client.d.c.insert_many({"_id": n, "k": n} for n in range(5_000))
    client.d.c.create_index("k", unique=True)
    with writes_in(When.COPY, daemon):
        shard(client, "d.c", key={"k": 1}, unique=True)
        for key in range(0, 5_000, 25):
            client.d.c.delete_one({"_id": key, "k": key})
            client.d.c.insert_one({"_id": 5_000 + key, "k": key})
    daemon.commit()
    assert_equal(pair)
    assert shard_keys(pair.destination.client)["d.c"] == ([("k", 1)], True)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
@from_shards
@prepared(Daemon.watch_closely, Daemon.hide_drops)
def test_a_database_moves_without_drop_events(pair: Pair, daemon: Daemon, when: When) -> None:
    """Run movePrimary on a source that, like MongoDB 8.0, sends no drop events for it: the clusters must be equal."""
    client = pair.source.client
    fill(client)
    client.d.create_collection("series", timeseries={"timeField": "at"})
    client.d.series.insert_many({"at": datetime(2030, 1, n, tzinfo=UTC)} for n in range(1, 9))
    client.d.growing.insert_many({"_id": n, "k": n} for n in range(100))
    client.d.growing.create_index("k")
    with writes_in(when, daemon, verification={"enabled": False}):
        client.admin.command("movePrimary", "d", to=others(client, "d")[0])
        shard(client, "d.growing", key={"k": 1})
        client.d.growing.update_many({}, {"$inc": {"m": 1}})
        client.d.plain.update_many({}, {"$inc": {"m": 1}})
        client.d.plain.delete_many({"_id": {"$lt": 9}})
        client.d.plain.insert_one({"_id": "new"})
        client.d.series.insert_one({"at": datetime(2031, 1, 1, tzinfo=UTC)})
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@pytest.mark.parametrize("point", [Point.BATCH_WRITTEN, Point.COPY_SAVED])
@from_shards
def test_a_moved_collection_is_renamed_during_its_copy(
    pair: Pair, daemon: Daemon, point: Point
) -> None:
    """Kill the daemon while it copies a moved collection again, and rename the collection meanwhile.

    The copy must then begin at the beginning. No verification may repair the missing documents.
    """
    client = pair.source.client
    client.d.c.insert_many({"_id": n, "pad": "p" * 100} for n in range(100))
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    daemon.kill()
    daemon.copy_in_small_steps(2000)
    daemon.kill_at(point)
    daemon.run()
    daemon.wait_until_committable()
    client.admin.command("movePrimary", "d", to=others(client, "d")[0])
    daemon.wait_until_killed()
    client.d.c.rename("renamed")
    client.d.renamed.insert_one({"_id": "late"})
    daemon.run()
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@pytest.mark.parametrize("point", [Point.BATCH_WRITTEN, Point.COLLECTION_REPLACED])
@from_shards
@prepared(Daemon.watch_closely, Daemon.hide_drops)
def test_a_daemon_killed_after_a_move_continues(pair: Pair, daemon: Daemon, point: Point) -> None:
    """Kill the daemon while it copies a time-series collection again, which has no temporary name meanwhile."""
    client = pair.source.client
    client.d.create_collection("series", timeseries={"timeField": "at"})
    client.d.series.insert_many({"at": datetime(2030, 1, n, tzinfo=UTC)} for n in range(1, 9))
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    daemon.kill_at(point)
    daemon.run()
    daemon.wait_until_committable()
    client.admin.command("movePrimary", "d", to=others(client, "d")[0])
    daemon.wait_until_killed()
    client.d.series.insert_one({"at": datetime(2031, 1, 1, tzinfo=UTC)})
    daemon.run()
    daemon.commit()
    assert_equal(pair)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
@from_shards
def test_a_collection_becomes_capped(pair: Pair, daemon: Daemon, when: When) -> None:
    """Run convertToCapped, which rewrites the documents without change events: the clusters must be equal."""
    client = pair.source.client
    fill(client)
    with writes_in(when, daemon):
        client.d.command({"convertToCapped": "plain", "size": 1 << 20})
        client.d.plain.insert_one({"_id": "last"})
    daemon.commit()
    assert_equal(pair)
    assert pair.destination.client.d.plain.options()["capped"]


@pytest.mark.full
@from_shards
def test_a_sharded_time_series_is_refused(pair: Pair, daemon: Daemon) -> None:
    """Shard a time-series collection: a start must be refused, and a sync that has begun must fail."""
    client = pair.source.client
    fill(client)
    series = {"key": {"at": 1}, "timeseries": {"timeField": "at"}}
    shard(client, "s.series", **series)
    answer = daemon.post("start", {"source": "cluster0", "destination": "cluster1"})
    assert answer.json()["error"] == "CollectionNotShardable"
    assert "s.series" in answer.json()["errorDescription"]
    client.drop_database("s")
    daemon.start()
    daemon.wait_until_committable()
    shard(client, "s.series", **series)
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "CollectionNotShardable"
    assert "s.series" in failed["errorDescription"]
    client.drop_database("s")
    daemon.resume()
    daemon.commit()
    assert_equal(pair)


class _AtListIndexes(monitoring.CommandListener):
    """Calls a function once, as soon as a client lists the indexes of a collection named `c`."""

    def __init__(self, act: Any) -> None:
        self._act = act

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name == "listIndexes" and event.command["listIndexes"] == "c":
            act, self._act = self._act, lambda: None
            act()

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


@between_sharded_clusters
def test_a_listing_never_mixes_up_renamed_collections(pair: Pair) -> None:
    client = pair.source.client

    def exchange() -> None:
        client.d.c.rename("away")
        client.d.c.create_index("of another")

    def listening() -> Any:
        return MongoClient(pair.source.uri, event_listeners=[_AtListIndexes(exchange)])

    client.d.c.create_index("of this")
    uuid = next(iter(client.d.list_collections(filter={"name": "c"})))["info"]["uuid"]
    with listening() as asked:
        (found,) = list_collections(asked)
    assert (str(found.namespace), list(found.indexes)) == ("d.c", ["of another_1"])
    assert found.uuid != bytes(uuid)
    client.d.c.drop()
    client.d.away.rename("c")
    with listening() as asked:
        same = find_collection(asked, "d", bytes(uuid))
    assert same is not None
    assert (str(same.namespace), list(same.indexes)) == ("d.away", ["of this_1"])


@from_shards
@pytest.mark.in_turns
def test_a_copy_from_secondaries_is_refused(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    answer = daemon.post("start", daemon.start_body(copyReadPreference="secondary"))
    assert (answer.status_code, answer.json()["error"]) == (409, "ReadPreferenceNotApplicable")
    assert "copyReadPreference is secondary" in answer.json()["errorDescription"]


def modes(pair: Pair) -> tuple[str, str]:
    """Return the balancer mode of the source, then that of the destination."""
    first, second = (
        side.client.admin.command("balancerStatus")["mode"]
        for side in (pair.source, pair.destination)
    )
    return first, second


@pytest.mark.in_turns
@between_sharded_clusters
@pytest.mark.parametrize("by_hand", [False, True], ids=["", "stopped by hand"])
def test_balancers_are_stopped_until_the_commit(pair: Pair, daemon: Daemon, by_hand: bool) -> None:
    client = pair.source.client
    fill(client)
    if by_hand:
        client.admin.command("balancerStop")
    before = modes(pair)
    with daemon.held_at(Point.STARTED):
        daemon.start()
        daemon.wait_until_reached(Point.STARTED)
        assert modes(pair) == ("off", "off")
    daemon.wait_until_committable()
    assert modes(pair) == ("off", "off")
    daemon.commit()
    assert modes(pair) == before == ("off" if by_hand else "full", "full")
    assert_equal(pair)


@pytest.mark.full
@between_sharded_clusters
def test_balancers_are_restored_after_a_failure(pair: Pair, daemon: Daemon) -> None:
    """Kill the daemon after it has saved the balancer modes, and after it has saved its failure.

    After the first restart, the sync must stop the balancers; after the second one, they must run as before the sync.
    """
    client = pair.source.client
    fill(client)
    daemon.kill_at(Point.BALANCER_SAVED, "cluster0")
    daemon.start()
    daemon.wait_until_killed()
    assert modes(pair) == ("full", "full")
    daemon.run()
    daemon.wait_until_committable()
    assert modes(pair) == ("off", "off")
    daemon.kill_at(Point.FAILURE_SAVED)
    shard(client, "s.series", key={"at": 1}, timeseries={"timeField": "at"})
    daemon.wait_until_killed()
    assert modes(pair) == ("off", "off")
    daemon.run()
    daemon.wait_for_state("FAILED")
    wait_for(lambda: modes(pair) == ("full", "full"), "both are put back")


@pytest.mark.full
@between_sharded_clusters
def test_a_balancer_started_by_a_user_causes_a_warning(pair: Pair, tmp_path: Path) -> None:
    daemon = pair.daemon(tmp_path)
    daemon.watch_closely()
    fill(pair.source.client)
    with daemon.running():
        daemon.start()
        daemon.wait_until_committable()
        pair.source.client.admin.command("balancerStart")
        daemon.wait_for_warning("balancer of cluster0")
        pair.source.client.admin.command("balancerStop")
        daemon.wait_without_warning()
        pair.destination.client.admin.command("balancerStart")
        daemon.wait_for_warning("balancer of cluster1")
        daemon.commit()
        assert not daemon.warnings()
    assert modes(pair) == ("full", "full")


@pytest.mark.in_turns
@from_shards
def test_chunks_move_while_documents_are_copied_and_changes_applied(
    pair: Pair, daemon: Daemon
) -> None:
    """Move chunks during a sync: the orphaned documents that stay on the old shard must not be copied.

    An orphaned document may be an outdated copy, or a copy of a document that is deleted on the new shard.
    """
    client = pair.source.client
    fill(client)
    # The first shard keeps the old versions of these documents as orphans.
    client.d.ranged.update_many({"k": {"$gte": 150}}, {"$set": {"moved": 1}})
    client.d.ranged.delete_many({"k": {"$gte": 190}})
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        move(client, "d.ranged", {"k": 50}, {"k": 100})
        client.d.ranged.update_many({"k": {"$gte": 40, "$lt": 90}}, {"$set": {"moved": 2}})
        client.d.ranged.delete_many({"k": {"$gte": 90, "$lt": 95}})
    daemon.wait_until_committable()
    move(client, "d.ranged", {"k": 20}, {"k": 50})
    client.d.ranged.update_many({"k": {"$gte": 30, "$lt": 60}}, {"$set": {"moved": 3}})
    client.d.ranged.delete_many({"k": {"$gte": 45, "$lt": 50}})
    daemon.commit()
    assert_equal(pair)
    assert pair.destination.client.d.ranged.count_documents({"moved": {"$exists": True}}) == 95


def change(client: Client, mark: int) -> None:
    """Write to both shards of a sharded cluster; calls with different values of `mark` insert different documents."""
    for name in ("hashed", "ranged", "plain"):
        each = client.d[name]
        each.insert_many({"_id": f"{mark}.{n}", "k": 1000 * mark + n} for n in range(100))
        each.update_many({"k": {"$lt": 60}}, {"$set": {f"mark{mark}": 1}})
        each.delete_many({"k": {"$mod": [17, mark]}})


@pytest.mark.full
@from_shards
def test_the_change_stream_resumes_after_a_kill_and_a_pause(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(client)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        change(client, 1)
    daemon.wait_until_committable()
    daemon.pause()
    change(client, 2)
    daemon.resume()
    daemon.wait_until_committable()
    change(client, 3)
    daemon.kill()
    change(client, 4)
    daemon.run()
    daemon.commit()
    assert_equal(pair)


@between_sharded_clusters
@pytest.mark.full
def test_a_sync_between_sharded_clusters_is_reversed(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(client)
    shard(client, "d.unique", key={"k": 1}, unique=True)
    client.d.unique.insert_many({"_id": n, "k": n} for n in range(50))
    client.d.hashed.create_index("when", expireAfterSeconds=10**8)
    daemon.start(reversible=True, enableUserWriteBlocking="sourceAndDestination")
    daemon.commit()
    assert_equal(pair)
    assert modes(pair) == ("full", "full")
    # The balancer of the old source runs again, and may move documents.
    move(client, "d.hashed", *(_bounds(client, "d.hashed")))
    change(pair.destination.client, 1)
    pair.destination.client.d.unique.insert_many({"_id": f"n{n}", "k": 100 + n} for n in range(50))
    pair.destination.client.d.hashed.create_index("m")
    shard(pair.destination.client, "d.new", key={"_id": "hashed"})
    daemon.reverse()
    assert modes(pair) == ("off", "off")
    change(pair.destination.client, 2)
    daemon.commit()
    assert_equal(pair)
    assert modes(pair) == ("full", "full")
    client.d.hashed.insert_one({"_id": "written", "k": 1})


def _bounds(client: Client, name: str) -> tuple[Any, Any]:
    """Return the lower and the upper bound of a chunk of the namespace `name` on its database's primary shard."""
    collection = client.config.collections.find_one({"_id": name})
    away = others(client, name.split(".")[0])
    assert collection is not None
    query = {"uuid": collection["uuid"], "shard": {"$nin": away}}
    chunk = client.config.chunks.find_one(query)
    assert chunk is not None
    return chunk["min"], chunk["max"]


@pytest.mark.full
@between_sharded_clusters
@pytest.mark.parametrize("more_on_source", [True, False], ids=["3 to 2", "2 to 3"])
def test_clusters_may_have_different_numbers_of_shards(
    pair: Pair, tmp_path: Path, more_on_source: bool
) -> None:
    with ShardedCluster(name="three", shards=3) as cluster, cluster.client() as client:
        three = Side(cluster.uri, client, cluster.shards)
        sides = (three, pair.destination) if more_on_source else (pair.source, three)
        unequal = Pair(*sides)
        _fill_kinds_of_keys(unequal.source.client)
        with unequal.daemon(tmp_path).running() as daemon:
            answer = daemon.post("start", _REVERSIBLE)
            assert answer.json()["error"] == "ReversibleNeedsEqualShards"
            daemon.start()
            daemon.wait_until_committable()
            change(unequal.source.client, 1)
            daemon.commit()
        assert_equal(unequal)
        _assert_kinds_of_keys(unequal.destination)


_REVERSIBLE = {
    "source": "cluster0",
    "destination": "cluster1",
    "reversible": True,
    "enableUserWriteBlocking": "sourceAndDestination",
}


def _fill_kinds_of_keys(client: Client) -> None:
    """Create unsharded collections, and sharded ones with a hashed, ranged or unique shard key, or with a collation."""
    fill(client)
    shard(client, "d.unique", key={"k": 1}, unique=True)
    client.d.unique.insert_many({"_id": n, "k": n} for n in range(50))
    client.d.create_collection("collated", collation={"locale": "de", "strength": 2})
    shard(client, "d.collated", key={"k": 1}, collation={"locale": "simple"})
    client.d.collated.insert_many({"_id": name, "k": name} for name in ("a", "b", "C"))


def _assert_kinds_of_keys(side: Side) -> None:
    keys = shard_keys(side.client)
    assert (keys["d.unique"], keys["d.collated"]) == (([("k", 1)], True), ([("k", 1)], False))
    assert side.client.d.collated.options()["collation"]["locale"] == "de"
    assert all(shard.client().d.hashed.find_one() for shard in side.shards)
