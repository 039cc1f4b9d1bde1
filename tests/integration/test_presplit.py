"""Tests the start option `presplit`, which divides collections among the destination's shards before the copy."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from bson.binary import Binary

from syncsvc.engine.run.points import Point
from syncsvc.sandbox.replica_set import Client
from tests.integration.test_sharded import assert_equal, fill, move, shard
from tests.support.daemon import Daemon
from tests.support.pair import REPLICA_SETS, SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.sharded.cluster import ShardedCluster


def chunks(client: Client, name: str, joined: bool = True) -> list[tuple[Any, Any, str]]:
    """Return the chunks of the namespace `name` as (min, max, shard).

    Adjacent chunks on the same shard are merged if `joined` is true.
    """
    row = client.config.collections.find_one({"_id": name})
    assert row is not None
    found: list[tuple[Any, Any, str]] = []
    for each in client.config.chunks.find({"uuid": Binary(bytes(row["uuid"]), 4)}).sort("min"):
        if joined and found and found[-1][2] == each["shard"]:
            found[-1] = found[-1][0], each["max"], each["shard"]
        else:
            found.append((each["min"], each["max"], each["shard"]))
    return found


def zones(client: Client) -> list[Any]:
    return [*client.config.tags.find()]


def bounds(pair: Pair, name: str) -> list[list[tuple[Any, Any]]]:
    """Return the bounds of the merged chunks of a collection: those on the source, then those on the destination."""
    clients = pair.source.client, pair.destination.client
    return [[each[:2] for each in chunks(client, name)] for client in clients]


@across(SHARDED)
def test_the_chunks_of_the_source_are_carried_over(pair: Pair, daemon: Daemon) -> None:
    """Presplit a collection at the source's chunk bounds, and kill the daemon meanwhile: the bounds must be equal.

    The zones that the daemon uses to place the chunks must be removed.
    """
    client = pair.source.client
    fill(client)
    move(client, "d.ranged", {"k": 20}, {"k": 40})
    daemon.kill_at(Point.ZONES_SET)
    daemon.post_unanswered("start", daemon.start_body(presplit="source"))
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_until_committable()
    source, destination = bounds(pair, "d.ranged")
    assert destination == source
    assert len({shard for *_, shard in chunks(pair.destination.client, "d.ranged")}) == 2
    assert zones(pair.destination.client) == []
    shard(client, "d.later", key={"k": 1})
    client.d.later.insert_many({"_id": n, "k": n} for n in range(50))
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@across(SHARDED)
def test_the_chunks_of_two_shards_are_spread_over_three(pair: Pair, tmp_path: Path) -> None:
    """Sync to a cluster with one shard more: before the copy, each shard must have its share of the source's chunks."""
    client = pair.source.client
    fill(client)
    move(client, "d.ranged", {"k": 20}, {"k": 40})
    wanted = [each[:2] for each in chunks(client, "d.ranged", joined=False)]
    with ShardedCluster(name="destination", shards=3) as cluster, cluster.client() as destination:
        wider = Pair(pair.source, Side(cluster.uri, destination, cluster.shards))
        with wider.daemon(tmp_path).running() as daemon:
            with daemon.held_at(Point.BATCH_WRITTEN):
                daemon.start(presplit="source")
                daemon.wait_until_reached(Point.BATCH_WRITTEN)
                found = chunks(destination, "d.ranged")
            assert [each[:2] for each in found] == wanted
            spread = Counter(shard for *_, shard in found)
            assert sorted(spread.values()) == [1, 1, 2]
            daemon.commit()
            assert_equal(wider)
            assert [each[:2] for each in chunks(destination, "d.ranged")] == wanted


@pytest.mark.full
@across(SHARDED)
def test_a_collection_is_not_split_on_request(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(presplit="none")
    daemon.commit()
    assert len(chunks(pair.destination.client, "d.ranged")) == 1
    assert_equal(pair)


@pytest.mark.in_turns(2)
@across(REPLICA_SETS, TO_SHARDED)
@pytest.mark.parametrize("presplit", ["source", "none"])
def test_presplit_needs_sharded_clusters(pair: Pair, daemon: Daemon, presplit: str) -> None:
    pair.source.client.d.c.insert_one({})
    answer = daemon.post("start", daemon.start_body(presplit=presplit))
    if presplit == "none" and pair.destination.shards:
        assert answer.ok, answer.text
        daemon.commit()
        pair.assert_equal()
        return
    assert (answer.status_code, answer.json()["error"]) == (409, "PresplitNotApplicable")
    assert "is a replica set" in answer.json()["errorDescription"]


@pytest.mark.full
@across(TO_SHARDED)
def test_the_sample_of_few_large_documents_is_small(pair: Pair, daemon: Daemon) -> None:
    """Presplit a collection of few documents: a server reads all of them to draw more than 5 % as a sample."""
    d = pair.source.client.d
    d.large.insert_many({"_id": n, "k": n, "pad": "p" * (1 << 20)} for n in range(75))
    d.small.insert_many({"_id": n, "k": n} for n in range(75))
    for name in ("d.large", "d.small"):
        pair.shard(name, {"k": 1})
    d.command("profile", 2)
    try:
        daemon.start()
        daemon.wait_until_applying()
    finally:
        d.command("profile", 0)
    query = {"command.pipeline.0.$sample": {"$exists": True}}
    sizes = {
        each["command"]["aggregate"]: each["command"]["pipeline"][0]["$sample"]["size"]
        for each in d["system.profile"].find(query)
    }
    assert sizes == {"large": 3, "small": 2000}
