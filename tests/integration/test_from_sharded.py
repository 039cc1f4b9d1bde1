"""Syncs a sharded cluster, through two routers, to a replica set of three members."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bson import MaxKey

from syncsvc.engine.run.points import Point
from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon
from tests.support.fleet import running_fleet
from tests.support.pair import FROM_SHARDED, Pair, across
from tests.support.phases import When, writes_in

pytestmark = [across(FROM_SHARDED), pytest.mark.three_members]

DOCUMENTS = 400
MIDDLE = DOCUMENTS // 2
# Larger than the updates of `churn`: the server logs an update of a small document as a replacement.
PAD = "p" * 500


def shard(client: Client, name: str, **options: Any) -> None:
    client.admin.command("shardCollection", name, **options)


def move(client: Client, name: str, low: Any, high: Any) -> None:
    """Move the documents with `low` <= `k` < `high` to another shard; `k` is the shard key of the collection.

    The shard with the lowest values of `k` must have these documents.
    """
    metadata = client.config.collections.find_one({"_id": name})
    assert metadata is not None
    lowest = client.config.chunks.find_one({"uuid": metadata["uuid"]}, sort=[("min", 1)])
    assert lowest is not None
    other = client.config.shards.find_one({"_id": {"$ne": lowest["shard"]}})
    assert other is not None
    bounds: dict[str, Any] = {"min": {"k": low}, "max": {"k": high}}
    client.admin.command("moveRange", name, toShard=other["_id"], **bounds)


def fill(client: Client) -> None:
    shard(client, "d.ranged", key={"k": 1})
    shard(client, "d.hashed", key={"k": "hashed"})
    shard(client, "d.unique", key={"k": 1}, unique=True)
    move(client, "d.ranged", MIDDLE, MaxKey())
    documents = [{"_id": n, "k": n, "pad": PAD} for n in range(DOCUMENTS)]
    for name in ("ranged", "hashed", "unique", "plain"):
        client.d[name].insert_many(documents)
    client.d.ranged.create_index([("k", 1), ("m", 1)], unique=True, name="both")
    client.d.plain.create_index([("k", "hashed")])


def churn(client: Client, mark: int) -> None:
    """Update shard keys so that documents move to the other shard and back, and write to them in between.

    Different values of `mark` select different documents.
    """
    ranged = client.d.ranged
    for n in range(mark, 60, 4):
        ranged.update_one({"_id": n, "k": n}, {"$set": {"k": n + MIDDLE + 0.5}})
        ranged.update_one({"_id": n}, {"$set": {f"m{mark}": n}})
    for n in range(mark, 30, 4):
        ranged.update_one({"_id": n, "k": n + MIDDLE + 0.5}, {"$set": {"k": n}})
        ranged.update_one({"_id": n}, {"$inc": {"back": 1}})
    for n in range(mark, 20, 8):
        ranged.delete_one({"_id": n})
        ranged.insert_one({"_id": n, "k": n + MIDDLE + 0.25, "again": mark})
    client.d.hashed.delete_many({"k": {"$mod": [13, mark]}})
    client.d.plain.update_many({}, {"$inc": {"n": 1}})


@pytest.mark.full
def test_a_sync_ends_equal_in_spite_of_kills(pair: Pair, daemon: Daemon) -> None:
    assert len(pair.source.routers) == 2
    client = pair.source.client
    fill(client)
    daemon.kill_at(Point.BATCH_WRITTEN)
    daemon.start(enableUserWriteBlocking="sourceAndDestination", eventSpool="always")
    daemon.wait_until_killed()
    churn(client, 1)
    daemon.kill_at(Point.EVENTS_APPLIED)
    daemon.launch()
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_until_committable()
    move(client, "d.ranged", MIDDLE // 2, MIDDLE)
    churn(client, 2)
    shard(client, "d.plain", key={"k": "hashed"})
    shard(client, "d.made", key={"k": 1})
    client.d.made.insert_many({"_id": n, "k": n} for n in range(50))
    assert client.admin.command("balancerStatus")["mode"] == "off"
    daemon.commit()
    assert client.admin.command("balancerStatus")["mode"] == "full"
    indexes = pair.destination.client.d.unique.index_information()
    assert indexes["k_1"]["unique"]
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize("when", [When.LISTED, When.COPY, When.APPLY], ids=lambda when: when.name)
def test_an_id_that_a_second_shard_gets_fails_the_sync_by_name(
    pair: Pair, daemon: Daemon, when: When
) -> None:
    """Insert a document whose `_id` already exists on another shard: the sync must fail and name the `_id`.

    The destination could keep only one of the two documents.
    """
    client = pair.source.client
    fill(client)
    with writes_in(when, daemon):
        client.d.ranged.insert_one({"_id": 7, "k": MIDDLE + 7.5})
        # Enough new documents for the destination to try an insert.
        client.d.ranged.insert_many({"_id": f"new {n}", "k": n + 0.5} for n in range(20))
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "DuplicateIds"
    assert "d.ranged holds several documents with _id int 7" in failed["errorDescription"]
    client.d.ranged.delete_one({"_id": 7, "k": 7})
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_updates_of_a_repeated_id_leave_the_other_document_alone(
    pair: Pair, daemon: Daemon
) -> None:
    """Replay the events of a deleted document: another document with the same `_id` must stay on the destination.

    The two documents were on different shards of the source. The verification is off, so it cannot repair anything.
    """
    client = pair.source.client
    fill(client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    repeated = {"_id": 7, "k": MIDDLE + 7.5}
    client.d.ranged.insert_one({**repeated, "pad": PAD})
    daemon.wait_for_state("FAILED")
    # Each of these events fills a batch of its own.
    for letter in "abcd":
        client.d.ranged.update_one(repeated, {"$set": {"large": letter * (6 << 20)}})
    client.d.ranged.delete_one(repeated)
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_a_collection_that_is_sharded_before_its_copy_keeps_no_id_twice(
    pair: Pair, daemon: Daemon
) -> None:
    client = pair.source.client
    client.d.plain.insert_many({"_id": n, "k": n, "pad": PAD} for n in range(DOCUMENTS))
    client.d.plain.create_index("k")
    with writes_in(When.LISTED, daemon, verification={"enabled": False}):
        shard(client, "d.plain", key={"k": 1})
        move(client, "d.plain", MIDDLE, MaxKey())
        client.d.plain.insert_one({"_id": 7, "k": MIDDLE + 7.5})
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "DuplicateIds"


def test_instances_share_a_sync(pair: Pair, tmp_path: Path) -> None:
    client = pair.source.client
    fill(client)
    with running_fleet(pair, tmp_path) as fleet:
        fleet.start()
        fleet.wait_until_committable()
        churn(client, 1)
        shard(client, "d.plain", key={"k": "hashed"})
        client.d.plain.delete_many({"k": {"$lt": 10}})
        fleet.commit()
    pair.assert_equal()


def test_a_reversible_sync_is_refused(pair: Pair, daemon: Daemon) -> None:
    body = daemon.start_body(reversible=True, enableUserWriteBlocking="sourceAndDestination")
    answer = daemon.post("start", body)
    assert answer.json()["error"] == "ReversibleNeedsEqualShards"


def test_a_preflight_warns_of_keys_by_which_ids_can_repeat(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    shard(client, "d.by_id", key={"_id": "hashed"})
    shard(client, "d.by_key", key={"k": 1})
    found = daemon.post("preflight", daemon.start_body()).json()
    assert found["violations"] == []
    (warning,) = [each for each in found["warnings"] if "same _id" in each]
    assert "d.by_key" in warning and "d.by_id" not in warning
