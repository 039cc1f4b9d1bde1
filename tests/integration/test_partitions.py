"""Copies large collections in ranges: each document must be copied once, with any `_id`, even while chunks move."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import pytest
from bson import MaxKey, Regex

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon
from tests.support.documents import IDS
from tests.support.leaks import assert_no_cursors_since, idle_cursors
from tests.support.metrics import scrape
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.selection import full

sharded = across(SHARDED)
# On replica sets and on sharded clusters.
everywhere = across(REPLICA_SETS, SHARDED)

TEXTS = [f"{letter}{number}" for letter in "aBcD" for number in range(30)]
MIXED = [*IDS, *TEXTS, *range(100, 200), {"a": Regex("^x")}, {"x": [1, {"y": MaxKey()}]}]
FOLDING = {"locale": "en", "strength": 2}
CLUSTERED = {"key": {"_id": 1}, "unique": True}


@pytest.fixture
def finely(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon that copies collections in small partitions and saves a resume point after every page."""
    process = pair.daemon(tmp_path)
    process.small_partitions()
    process.save_every_page()
    with process.running():
        yield process


def halve(client: Client, name: str) -> None:
    """Move the documents of the sharded collection `name` whose shard key `k` is 0 or more to another shard."""
    (metadata,) = client.config.collections.find({"_id": name})
    *_, chunk = client.config.chunks.find({"uuid": metadata["uuid"]}).sort("min")
    (other,) = client.config.shards.find({"_id": {"$ne": chunk["shard"]}})
    client.admin.command("moveRange", name, toShard=other["_id"], min={"k": 0})


def shard(client: Client, name: str) -> None:
    client.admin.command("shardCollection", name, key={"k": 1}, collation={"locale": "simple"})


def mixed(ids: list[Any]) -> list[dict[str, Any]]:
    """Return documents with these `_id`s in random order. Their shard keys `k` are 1 and -1, half each."""
    shuffled = Random(1).sample(ids, len(ids))
    return [{"_id": each, "k": (-1) ** n, "t": "x" * 100} for n, each in enumerate(shuffled)]


def fill(pair: Pair) -> None:
    client, d = pair.source.client, pair.source.client.d
    d.create_collection("collated", collation=FOLDING)
    if pair.source.shards:
        shard(client, "d.mixed")
        shard(client, "d.collated")
    d.mixed.insert_many(mixed(MIXED))
    if pair.source.shards:
        # The orphaned documents on the first shard are older than the documents on the second one.
        halve(client, "d.mixed")
        d.mixed.update_many({}, {"$set": {"moved": True}})
        halve(client, "d.collated")
    d.collated.insert_many(mixed(MIXED), ordered=False)
    d.create_collection("capped", capped=True, size=1 << 20)
    d.capped.insert_many({"_id": n, "t": "x" * 100} for n in Random(2).sample(range(100), 100))
    d.create_collection("clustered", clusteredIndex=CLUSTERED)
    d.clustered.insert_many({"_id": n, "t": "x" * 100} for n in range(100))
    d.create_collection("empty")
    d.plain.insert_many({"_id": n, "t": "x" * 100} for n in range(1500))
    d.named.insert_many({"_id": n, "t": "x" * 100} for n in range(100))
    d.large.insert_many({"_id": n, "t": "x" * (7 << 20)} for n in range(3))
    d.create_collection("series", timeseries={"timeField": "t", "metaField": "m"})
    moment = IDS[8]
    d.series.insert_many({"t": moment, "m": n} for n in range(100))


def copied(pair: Pair) -> dict[str, int]:
    """Return the number of copied documents in the saved registry, by collection name."""
    metadata = pair.destination.client[METADATA_DATABASE]
    return {each["collection"]: each["documents"] for each in metadata.collections.find()}


def stored(pair: Pair) -> dict[str, int]:
    d = pair.source.client.d
    names = ("mixed", "collated", "capped", "clustered", "empty", "plain", "large", "named")
    return {name: d[name].count_documents({}) for name in names}


def assert_copied_once(pair: Pair) -> None:
    pair.assert_equal()
    counts = stored(pair)
    assert {name: count for name, count in copied(pair).items() if name in counts} == counts
    orders = [[each["_id"] for each in side.client.d.capped.find()] for side in sides(pair)]
    assert orders[0] == orders[1]


def sides(pair: Pair) -> tuple[Any, Any]:
    return pair.source, pair.destination


@across(full(REPLICA_SETS), full(TO_SHARDED), SHARDED)
def test_every_document_is_copied_once(pair: Pair, finely: Daemon) -> None:
    fill(pair)
    finely.start(copyInNaturalOrder=[{"database": "d", "collections": ["named", "other"]}])
    finely.wait_until_applying()
    metadata = pair.destination.client[METADATA_DATABASE]
    numbers = {
        each["collection"]: metadata.partitions.count_documents({"_id.collection": each["_id"]})
        for each in metadata.collections.find()
    }
    cut = {name for name, number in numbers.items() if number > 3}
    # `copyInNaturalOrder` has no effect on a sharded source.
    named = {"named"} if pair.source.shards else set()
    assert cut == {"mixed", "collated", "clustered", "plain", "series", *named}
    assert (numbers["capped"], numbers["empty"], numbers["large"]) == (1, 1, 3)
    finely.commit()
    assert_copied_once(pair)


# Each kill is a point, its subject, and the number of the pass at which the daemon is killed. The first kills leave
# most partitions to the next process. The last kill is at the empty collection, whose partition is claimed last.
KILLS_IN_TURN = [
    (Point.LISTED, "", 1),
    (Point.BATCH_WRITTEN, "", 1),
    (Point.COPY_SAVED, "", 5),
    (Point.BATCH_WRITTEN, "", 20),
    (Point.PARTITION_COPIED, "", 1),
    (Point.PARTITION_COPIED, "", 30),
    (Point.COLLECTION_COPIED, "", 1),
    (Point.COLLECTION_COPIED, "d.empty", 1),
]


@pytest.mark.full
@across(REPLICA_SETS, full(SHARDED))
def test_a_copy_continues_after_a_kill_at_every_point(pair: Pair, finely: Daemon) -> None:
    fill(pair)
    finely.kill()
    for kill in KILLS_IN_TURN:
        finely.kill_at(*kill)
        finely.run()
        finely.post_unanswered("start", finely.start_body())
        finely.wait_until_killed()
    assert_continues(pair, finely)


KILLS = [
    (Point.LISTED, 1),
    (Point.BATCH_WRITTEN, 1),
    (Point.BATCH_WRITTEN, 20),
    (Point.COPY_SAVED, 5),
    (Point.PARTITION_COPIED, 1),
    (Point.PARTITION_COPIED, 30),
    (Point.COLLECTION_COPIED, 1),
    (Point.COLLECTION_COPIED, 8),
]


@pytest.mark.full
@everywhere
@pytest.mark.parametrize("point, number", KILLS, ids=lambda each: getattr(each, "value", each))
def test_a_killed_copy_continues(pair: Pair, finely: Daemon, point: Point, number: int) -> None:
    fill(pair)
    finely.kill_at(point, number=number)
    finely.post_unanswered("start", finely.start_body())
    finely.wait_until_killed()
    assert_continues(pair, finely)


def assert_continues(pair: Pair, finely: Daemon) -> None:
    """Restart the killed daemon and commit. Fail unless every document was copied, and counted exactly once."""
    finely.run()
    finely.start()
    finely.wait_until_applying()
    found = {each["namespace"]: each for each in finely.namespaces()["namespaces"]}
    assert found["d.plain"]["copiedDocuments"] == 1500
    finely.commit()
    assert_copied_once(pair)


@pytest.mark.full
@sharded
def test_chunk_migrations_and_drops_during_the_copy(pair: Pair, finely: Daemon) -> None:
    client = pair.source.client
    shard(client, "d.c")
    documents = [{"_id": n, "k": (-1) ** n, "t": "x" * 200} for n in range(600)]
    for name in ("c", "dropped", "renamed"):
        client.d[name].insert_many(documents)
    with finely.held_at(Point.BATCH_WRITTEN, number=5):
        finely.start()
        finely.wait_until_reached(Point.BATCH_WRITTEN, number=5)
        halve(client, "d.c")
        client.d.c.update_many({"_id": {"$mod": [3, 0]}}, {"$set": {"moved": True}})
        client.d.c.delete_many({"_id": {"$mod": [7, 0]}})
        client.d.dropped.drop()
        client.d.renamed.rename("other")
        client.d.renamed.insert_one({"_id": 1, "new": True})
    finely.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "first, second, told",
    [(7, 7, "int 7"), (7, 7.0, "7"), ("a", "A", 'string "'), (MaxKey(), MaxKey(), "maxKey")],
    ids=["equal", "numbers", "texts", "ends"],
)
@across(SHARDED, FROM_SHARDED)
def test_duplicate_ids_fail_the_copy_by_name(
    pair: Pair, finely: Daemon, first: Any, second: Any, told: str
) -> None:
    client = pair.source.client
    client.d.create_collection("c", collation=FOLDING)
    shard(client, "d.c")
    halve(client, "d.c")
    client.d.c.insert_many({"_id": n, "k": n - 50, "t": "x" * 100} for n in range(100, 200))
    client.d.c.insert_many([{"_id": first, "k": 1}, {"_id": second, "k": -1}])
    finely.start()
    progress = finely.wait_for_state("FAILED")
    assert progress["error"] == "DuplicateIds"
    assert "d.c holds several documents with _id" in progress["errorDescription"]
    assert told in progress["errorDescription"]
    client.d.c.delete_one({"k": 1})
    finely.resume()
    finely.commit()
    pair.assert_equal()


@pytest.mark.full
@everywhere
@pytest.mark.parametrize("point", [None, Point.BATCH_WRITTEN, Point.PARTITION_COPIED])
def test_a_collection_renamed_into_the_filter_is_copied(
    pair: Pair, finely: Daemon, point: Point | None
) -> None:
    client = pair.source.client
    if pair.source.shards:
        shard(client, "d.outside")
        halve(client, "d.outside")
    client.d.outside.insert_many(mixed(MIXED), ordered=False)
    finely.start(includeNamespaces=[{"database": "d", "collections": ["c"]}])
    finely.wait_until_committable()
    if point is not None:
        finely.kill_at(point)
    client.d.outside.rename("c")
    client.d.c.insert_one({"_id": "later", "k": 5})
    if point is not None:
        finely.wait_until_killed()
        finely.run()
    finely.commit()
    pair.assert_equal()
    assert pair.destination.client[METADATA_DATABASE].partitions.count_documents({}) > 3


@pytest.mark.full
@across(REPLICA_SETS, full(SHARDED))
def test_a_resumed_copy_continues_within_the_partitions(pair: Pair, finely: Daemon) -> None:
    fill(pair)
    with finely.held_at(Point.BATCH_WRITTEN, number=10):
        finely.start()
        finely.wait_until_reached(Point.BATCH_WRITTEN, number=10)
        finely.pause()
    finely.resume()
    finely.commit()
    assert_copied_once(pair)


@pytest.mark.full
@sharded
def test_two_routers_cause_no_retries_and_no_leftover_cursors(pair: Pair, finely: Daemon) -> None:
    with ExitStack() as stack:
        shards = (*pair.source.shards, *pair.destination.shards)
        servers = [stack.enter_context(each.client()) for each in shards]
        # Cursors of daemons that other tests have killed stay open for minutes.
        before = idle_cursors(*servers)
        _sync_a_large_collection(pair, finely)
        assert "A call to a cluster failed and will be retried." not in finely.log
        assert_no_cursors_since(before, *servers)


def _sync_a_large_collection(pair: Pair, finely: Daemon) -> None:
    client = pair.source.client
    shard(client, "d.large")
    client.d.large.insert_many(mixed([*range(-700, 700)]))
    halve(client, "d.large")
    finely.start()
    finely.wait_until_committable()
    assert pair.destination.client[METADATA_DATABASE].partitions.count_documents({}) > 100
    client.d.large.update_many({"_id": {"$lt": 0}}, {"$set": {"changed": True}})
    finely.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_copy_of_an_earlier_version_continues_in_natural_order(
    pair: Pair, orderly: Daemon
) -> None:
    """Continue a copy that an earlier version began: it must continue in natural order from the saved resume point.

    That version copied a replica set without partitions, and saved the resume point in the registry.
    """
    d = pair.source.client.d
    d.c.insert_many({"_id": n, "pad": "p" * 5000} for n in range(4000))
    orderly.kill_at(Point.COPY_SAVED, number=4)
    orderly.post_unanswered("start", orderly.start_body())
    orderly.wait_until_killed()
    before = _as_of_an_earlier_version(pair)
    orderly.small_partitions()
    with orderly.held_at(Point.PARTITION_COPIED):
        orderly.run()
        orderly.wait_until_reached(Point.PARTITION_COPIED)
        (saved,) = pair.destination.client[METADATA_DATABASE].partitions.find()
        assert (saved["lower"], saved["upper"]) == (None, None)
        d.c.update_many({"_id": {"$mod": [3, 0]}}, {"$set": {"changed": True}})
    orderly.commit()
    assert before["documents"] > 1000
    # Only the pages after the resume point were read again.
    assert _copied_again(orderly) <= 4000 - before["documents"]
    assert copied(pair) == {"c": 4000}
    pair.assert_equal()


def test_a_copy_that_begins_again_counts_each_document_once(pair: Pair, orderly: Daemon) -> None:
    """Delete the record at the resume point of a killed copy: the copy must begin again, also with its figures."""
    d = pair.source.client.d
    d.c.insert_many({"_id": n, "pad": "p" * 5000} for n in range(4000))
    orderly.kill_at(Point.COPY_SAVED, number=4)
    orderly.post_unanswered("start", orderly.start_body())
    orderly.wait_until_killed()
    (saved,) = pair.destination.client[METADATA_DATABASE].partitions.find()
    d.c.delete_many({})
    d.c.insert_many({"_id": n, "pad": "p" * 5000} for n in range(2000))
    with orderly.held_at(Point.PARTITION_COPIED):
        orderly.run()
        orderly.wait_until_reached(Point.PARTITION_COPIED)
        assert saved["documents"] > 1000
        # The page that the held thread has just saved is counted, too.
        assert scrape(orderly)["mongosync_copied_documents"][()] == 2000
    orderly.commit()
    assert copied(pair) == {"c": 2000}
    pair.assert_equal()


def _as_of_an_earlier_version(pair: Pair) -> dict[str, Any]:
    """Convert the metadata of a copy to the format of an earlier version; return the only document of the registry."""
    client = pair.destination.client
    (saved,) = client[METADATA_DATABASE].partitions.find()
    copy = {"status": "copying", "resume": saved["place"]}
    copy |= {name: saved[name] for name in ("copied", "documents")}
    update = {"q": {}, "u": {"$set": copy}}
    for command in (
        {"update": "collections", "updates": [update]},
        {"delete": "partitions", "deletes": [{"q": {}, "limit": 0}]},
    ):
        client[METADATA_DATABASE].command({**command, "mayBypassWriteBlocking": True})
    record = client[METADATA_DATABASE].collections.find_one()
    assert record is not None
    return record


def _copied_again(daemon: Daemon) -> float:
    """Return the number of documents that the daemon's process has copied although the destination had them already."""
    return scrape(daemon)["mongosync_documents_copied_again_total"][()]
