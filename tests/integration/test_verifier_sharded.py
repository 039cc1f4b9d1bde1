"""Runs the verifier on sharded clusters: equal data must pass, and every difference must be reported exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import bson
import pytest
from bson import MinKey

from syncsvc.sandbox.replica_set import Client
from tests.integration import test_verifier_generations as generations
from tests.support.checks import Checker, RunningCheck
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Pair, across
from tests.support.verifier import Verifier
from verifier.compare.check_progress import Outcome
from verifier.compare.mismatch import DocumentMismatch
from verifier.compare.points import Point

NUMBERS = [{"_id": number, "k": number, "text": "x" * 1000} for number in range(2000)]
HALF = {"k": 50, "_id": MinKey()}
TEXTS = [f"{letter}{number}" for letter in "aBcD" for number in range(30)]

Found = list[tuple[str, str, Any]]


across_all = across(TO_SHARDED, SHARDED, FROM_SHARDED)
between_sharded_clusters = across(SHARDED)


def clients(pair: Pair) -> tuple[Client, Client]:
    return pair.source.client, pair.destination.client


def shard(pair: Pair, name: str, **key: Any) -> None:
    """Shard the collection with the full name `name` by the fields in `key`, on both clusters.

    On a replica set, create an index on these fields instead.
    """
    for client in clients(pair):
        if client.is_mongos:
            simple = {"locale": "simple"}
            client.admin.command("shardCollection", name, key=key, collation=simple)
        else:
            database, _, collection = name.partition(".")
            client[database][collection].create_index(
                [*key.items()], collation={"locale": "simple"}
            )


def fill(pair: Pair) -> None:
    for client in clients(pair):
        client.d.create_collection("texts", collation={"locale": "en", "strength": 2})
    shard(pair, "d.hashed", k="hashed")
    shard(pair, "d.ranged", k=1, _id=1)
    shard(pair, "d.texts", k="hashed")
    for client in clients(pair):
        client.d.hashed.insert_many(NUMBERS)
        client.d.hashed.create_index("text")
        client.d.ranged.insert_many(NUMBERS[:100])
        client.d.texts.insert_many({"_id": name, "k": name} for name in TEXTS)
        client.d.plain.insert_many({"_id": each} for each in ("a", 1, 2.5, None, {"a": 1}))
        client.d.create_collection("view", viewOn="hashed", pipeline=[{"$match": {"k": 1}}])
        client.e.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})


def move(pair: Pair) -> None:
    """On sharded clusters, move half of d.ranged to the other shard. On both clusters, update all its documents.

    The orphaned documents on the old shard are therefore outdated.
    """
    for client in clients(pair):
        if client.is_mongos:
            (metadata,) = client.config.collections.find({"_id": "d.ranged"})
            (chunk,) = client.config.chunks.find({"uuid": metadata["uuid"]})
            (other,) = client.config.shards.find({"_id": {"$ne": chunk["shard"]}})
            client.admin.command("moveRange", "d.ranged", toShard=other["_id"], min=HALF)
        client.d.ranged.update_many({}, {"$set": {"moved": 1}})


def move_rest(pair: Pair) -> None:
    """Move the rest of d.ranged to the shard to which `move` has moved a half, and update all its documents.

    On a replica set, only update the documents.
    """
    for client in clients(pair):
        if client.is_mongos:
            (metadata,) = client.config.collections.find({"_id": "d.ranged"})
            (chunk,) = client.config.chunks.find({"uuid": metadata["uuid"], "min": HALF})
            low = {"k": MinKey(), "_id": MinKey()}
            client.admin.command("moveRange", "d.ranged", toShard=chunk["shard"], min=low, max=HALF)
        client.d.ranged.update_many({}, {"$set": {"moved": 2}})


def named(check: RunningCheck) -> Found:
    """Return the kind of difference, the namespace and the `_id` of each document mismatch, sorted."""
    return sorted(
        (found.difference.value, str(found.namespace), bson.decode(found.key)["_id"])
        for found in (each.mismatch for each in check.store.document_mismatches(None, None, 0))
        if isinstance(found, DocumentMismatch)
    )


@pytest.mark.in_turns
@across_all
def test_equal_clusters_pass_while_chunks_move(pair: Pair, checker: Checker) -> None:
    fill(pair)
    with checker.running() as check:
        with check.held_at(Point.GENERATION_DONE, 0):
            check.wait_until(Point.GENERATION_DONE, 0)
            move(pair)
            move_rest(pair)
        assert check.end().outcome is Outcome.PASSED
        assert named(check) == []
        assert check.definitions() == set()


@pytest.mark.in_turns
@across(TO_SHARDED, SHARDED)
def test_documents_that_differ_are_named(pair: Pair, checker: Checker) -> None:
    fill(pair)
    move(pair)
    corrupt(pair.destination.client)
    with checker.running() as check:
        with check.held_at(Point.GENERATION_DONE, 0):
            check.wait_until(Point.GENERATION_DONE, 0)
            change(pair)
        assert check.end().outcome is Outcome.FAILED
        assert named(check) == [
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
        assert check.definitions() == set()


def corrupt(client: Client) -> None:
    client.d.hashed.delete_one({"_id": 1234})
    client.d.hashed.insert_one({"_id": 5000, "k": 1})
    client.d.hashed.update_one({"_id": 17}, {"$set": {"text": "y"}})
    client.d.ranged.delete_one({"_id": 51})
    client.d.ranged.update_one({"_id": 49}, {"$set": {"x": 1}})
    client.d.plain.delete_one({"_id": 2.5})
    client.d.texts.delete_one({"_id": "B7"})


def change(pair: Pair) -> None:
    """Change documents after they were compared: some in the same way on both clusters, some only on one cluster."""
    for client in clients(pair):
        client.d.hashed.update_many({"_id": {"$gt": 20, "$lt": 50}}, {"$set": {"text": "z"}})
        client.d.ranged.delete_many({"_id": {"$in": [10, 60]}})
    pair.source.client.d.hashed.update_one({"_id": 200}, {"$set": {"text": "z"}})
    pair.destination.client.d.hashed.delete_one({"_id": 300})
    pair.destination.client.d.ranged.insert_one({"_id": 1000, "k": 1000})


@between_sharded_clusters
@pytest.mark.full
@pytest.mark.parametrize("seed", [0, 1])
def test_differences_after_random_writes_are_reported(
    pair: Pair, checker: Checker, seed: int
) -> None:
    shard(pair, "d.a", _id="hashed")
    shard(pair, "d.b", _id="hashed")
    generations.test_remaining_differences_are_reported(pair, checker, seed)


@between_sharded_clusters
def test_a_collection_that_is_sharded_on_the_source_ends_the_check(
    pair: Pair, checker: Checker
) -> None:
    for client in clients(pair):
        client.d.c.insert_one({"_id": 1})
    with checker.running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        pair.source.client.admin.command("shardCollection", "d.new", key={"_id": "hashed"})
        verdict = check.wait_for_verdict()
        assert verdict.outcome is Outcome.INCOMPLETE
        assert ": d.new." in str(verdict)


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


@between_sharded_clusters
def test_shard_keys_that_differ_are_named(pair: Pair, checker: Checker) -> None:
    for name, keys in SHARD_KEYS.items():
        for client, options in zip(clients(pair), keys):
            # Create the same indexes on both sides, regardless of the shard key.
            client.d[name].create_index("a", unique=name == "unique")
            for index in ([("a", "hashed")], [("a", 1), ("b", 1)], [("b", 1), ("a", 1)]):
                client.d[name].create_index(index)
            if options is not None:
                client.admin.command("shardCollection", f"d.{name}", **options)
    check = checker.verdict()
    assert check.definitions() == {
        ("d.hashed", "content", "shard key", ""),
        ("d.order", "content", "shard key", ""),
        ("d.other", "content", "shard key", ""),
        ("d.unique", "content", "shard key", ""),
        ("d.extra", "extraOnDst", "shard key", ""),
        ("d.missing", "missingOnDst", "shard key", ""),
    }
    assert named(check) == []


@pytest.mark.in_turns
@across(SHARDED, FROM_SHARDED)
def test_documents_on_two_shards_may_share_an_id(pair: Pair, checker: Checker) -> None:
    shard(pair, "d.c", k="hashed")
    source, destination = clients(pair)
    for client in (source, destination):
        client.d.c.insert_many({"_id": number, "k": number} for number in range(100))
    shared = [{"_id": number, "k": elsewhere(source, number)} for number in (5, 50)]
    source.d.c.insert_many(shared)
    if destination.is_mongos:
        destination.d.c.insert_one(shared[0])
    check = checker.verdict()
    missing = (50,) if destination.is_mongos else (5, 50)
    assert named(check) == [("missingOnDst", "d.c", number) for number in missing]
    assert check.definitions() == set()


def elsewhere(client: Client, number: int) -> int:
    """Return a value of the shard key `k` of d.c that belongs to another shard than the value `number`."""

    def shard_of(k: int) -> str:
        plan = client.d.command("explain", {"find": "c", "filter": {"k": k}})["queryPlanner"]
        name: str = plan["winningPlan"]["shards"][0]["shardName"]
        return name

    return next(k for k in range(1000, 2000) if shard_of(k) != shard_of(number))


@pytest.mark.full
@between_sharded_clusters
def test_the_process_and_shards_may_fail_during_a_check(pair: Pair, tmp_path: Path) -> None:
    fill(pair)
    source = pair.source.client.d.hashed
    source.update_one({"_id": 1500}, {"$set": {"text": "y"}})
    options = "--verifyAll", "--graceSeconds", "0", "--partitionSizeMB", "1"
    process = Verifier(pair.source.uri, pair.destination.uri, tmp_path, *options)
    try:
        process.kill_at(Point.DEFINITION_COMPARED, "d.texts")
        process.run()
        process.check()
        process.wait_until_killed()
        source.update_one({"_id": 1000}, {"$set": {"text": "y"}})
        with process.held_at(Point.DEFINITION_COMPARED, "d.texts"):
            process.run()
            process.wait_until_reached(Point.DEFINITION_COMPARED, "d.texts")
            for cluster in (pair.source, pair.destination):
                cluster.shards[0].kill_member(0)
                cluster.shards[0].restart_member(0)
        process.writes_off()
        assert process.wait_for_verdict()["verdict"] == "failed"
        found = [(line["namespace"], line["_id"]) for line in process.lines("docMismatches")]
        assert sorted(found) == [("d.hashed", 1000), ("d.hashed", 1500)]
        assert process.lines("nsMismatches") == []
    finally:
        process.close()
