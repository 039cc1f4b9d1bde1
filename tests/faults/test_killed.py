"""Kills the real daemon, or ends it with SIGTERM, at named points of its code, and restarts it.

In one test, a second process takes over instead. A collection whose copy was complete must not be copied again.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, Pair, across
from tests.support.selection import full
from tests.support.waiting import wait_for

AMONG_EVENTS = [
    (Point.EVENTS_APPLIED, 1),
    (Point.DEFINITION_APPLIED, 1),
    (Point.POSITION_SAVED, 2),
]
# The points in the order in which a sync passes them, each with the number of the pass at which the daemon is killed.
KILLS = [
    (Point.STARTED, 1),
    (Point.COLLECTION_CREATED, 1),
    (Point.LISTED, 1),
    (Point.BATCH_WRITTEN, 1),
    (Point.BATCH_WRITTEN, 3),
    (Point.COPY_SAVED, 1),
    (Point.COLLECTION_COPIED, 1),
    *AMONG_EVENTS,
]


def _name(kill: tuple[Point, int]) -> str:
    point, number = kill
    return f"{point.value} {number}"


def _fill(pair: Pair) -> None:
    """Fill the source with collections of many kinds, one of them so large that a kill can interrupt its copy."""
    client = pair.source.client
    pair.shard("d.c")
    pair.shard("d.big")
    # Create the indexes before the documents: an index build on an empty collection takes no time.
    writes.indexes(client, unique=not pair.is_sharded)
    writes.fill(client)
    pad = "p" * 5000
    client.d.big.insert_many({"_id": n, "pad": pad} for n in range(3000))
    writes.new_collections(client)


def _meanwhile(client: writes.AnyClient) -> None:
    writes.single_document_writes(client)
    writes.drop_and_create_again(client)
    writes.views(client)


@across(REPLICA_SETS, full(SHARDED), full(FROM_SHARDED))
def test_a_sync_continues_after_a_kill_at_every_point(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    _fill(pair)
    body = daemon.start_body()
    copied: dict[Any, int] = {}
    daemon.kill()
    for number, kill in enumerate(KILLS):
        if kill == (Point.COPY_SAVED, 1):
            daemon.save_every_page()
        if kill == (Point.DEFINITION_APPLIED, 1):
            _meanwhile(client)
        _run_until_killed(daemon, kill, body)
        _assert_not_copied_again(pair.destination.client, copied)
        copied |= _copied_collections(pair.destination.client)
        _write_between(client, number)
    writes.hot_document(client)
    writes.many_collections(client)
    daemon.run()
    assert daemon.post("start", body).json() == {"success": True}
    daemon.commit()
    pair.assert_equal()
    _assert_not_copied_again(pair.destination.client, copied)


def _run_until_killed(daemon: Daemon, kill: tuple[Point, int], body: dict[str, Any]) -> None:
    """Run the daemon, start a sync, and wait until the daemon is killed; fail if it is not.

    `kill` is a point and a number n: the daemon dies when it passes the point for the nth time.
    """
    point, number = kill
    daemon.kill_at(point, number=number)
    daemon.run()
    daemon.post_unanswered("start", body)
    daemon.wait_until_killed()


def _write_between(client: writes.AnyClient, number: int) -> None:
    """Write to two collections that the sync knows, and create one that the sync may not know yet."""
    client.d.c.insert_one({"_id": f"between {number}"})
    client.d.big.update_many({"_id": {"$lt": 20}}, {"$set": {"between": number}})
    client.d[f"between {number}"].insert_one({"_id": number})


@pytest.mark.full
@pytest.mark.parametrize("kill", KILLS, ids=_name)
def test_a_killed_daemon_continues(pair: Pair, daemon: Daemon, kill: tuple[Point, int]) -> None:
    point, number = kill
    _fill(pair)
    daemon.kill_at(point, number=number)
    if point is Point.COPY_SAVED:
        daemon.kill()
        daemon.save_every_page()
        daemon.run()
    body = daemon.start_body()
    with daemon.held_at(Point.POSITION_SAVED) if point is Point.POSITION_SAVED else nullcontext():
        daemon.post_unanswered("start", body)
        if kill in AMONG_EVENTS:
            # These kills need events. At the end of the block, a held daemon continues, and is killed.
            daemon.wait_until_applying()
            _meanwhile(pair.source.client)
    daemon.wait_until_killed()
    copied = _copied_collections(pair.destination.client)
    writes.hot_document(pair.source.client)
    writes.many_collections(pair.source.client)
    daemon.run()
    assert daemon.post("start", body).json() == {"success": True}
    daemon.commit()
    pair.assert_equal()
    _assert_not_copied_again(pair.destination.client, copied)


# One kill in each phase until the end of the copy, and two during change event application.
KILLS_ON_SHARDS = [
    (Point.COLLECTION_CREATED, 1),
    (Point.BATCH_WRITTEN, 3),
    (Point.EVENTS_APPLIED, 1),
    (Point.DEFINITION_APPLIED, 1),
]


@pytest.mark.full
@across(SHARDED)
@pytest.mark.parametrize("kill", KILLS_ON_SHARDS, ids=_name)
def test_a_killed_daemon_continues_to_shards(
    pair: Pair, daemon: Daemon, kill: tuple[Point, int]
) -> None:
    test_a_killed_daemon_continues(pair, daemon, kill)


def _copied_collections(client: writes.AnyClient) -> dict[Any, int]:
    found = client[METADATA_DATABASE].collections.find({"status": "done"})
    return {each["_id"]: each["documents"] for each in found}


def _assert_not_copied_again(client: writes.AnyClient, before: dict[Any, int]) -> None:
    """Fail if the count of copied documents of a collection in `before` has changed since the kill.

    `before` contains the counts of the collections whose copy was complete. A second copy would have increased them.
    """
    after = _copied_collections(client)
    assert {key: after[key] for key in before if key in after} == {
        key: count for key, count in before.items() if key in after
    }


@pytest.mark.full
def test_a_copy_continues_at_its_resume_point(pair: Pair, orderly: Daemon) -> None:
    documents = 6000
    pad = "p" * 5000
    pair.source.client.d.big.insert_many({"_id": n, "pad": pad} for n in range(documents))
    orderly.kill_at(Point.COPY_SAVED, number=5)
    orderly.post_unanswered("start", {"source": "cluster0", "destination": "cluster1"})
    orderly.wait_until_killed()
    saved = pair.destination.client[METADATA_DATABASE].partitions.find_one({})
    assert saved is not None and saved["place"] is not None
    before = _inserts(pair.destination.client)
    orderly.run()
    orderly.commit()
    pair.assert_equal()
    # Documents before the resume point are not written again. Apart from them, only metadata is inserted.
    metadata = 100
    assert saved["documents"] > 10 * metadata
    assert _inserts(pair.destination.client) - before <= documents - saved["documents"] + metadata


def _inserts(client: writes.AnyClient) -> int:
    return int(client.admin.command("serverStatus")["opcounters"]["insert"])


@pytest.mark.full
def test_documents_whose_repeated_insert_fails_with_unusual_errors(
    pair: Pair, daemon: Daemon
) -> None:
    """Kill the copy after it has inserted some documents, so that the next process inserts them again.

    In clustered collections, duplicates of some `_id`s cause other errors than DuplicateKey. The copy must ignore these
    errors, and must keep the order of the documents in the capped collection.
    """
    d = pair.source.client.d
    clustered = {"key": {"_id": 1}, "unique": True}
    d.create_collection("clustered", clusteredIndex=clustered)
    d.clustered.insert_many({"_id": key} for key in (1.5, float("nan"), {"a": 1.5}, 2))
    d.create_collection("collated", clusteredIndex=clustered, collation={"locale": "en"})
    d.collated.insert_many({"_id": key} for key in (1.5, "abc", "B"))
    d.create_collection("capped", capped=True, size=100_000)
    d.capped.insert_many({"_id": n} for n in range(10))
    d.capped.update_one({"_id": 3}, [{"$set": {"t": Timestamp(0, 0)}}])
    daemon.kill_at(Point.BATCH_WRITTEN, number=3)
    daemon.post_unanswered("start", {"source": "cluster0", "destination": "cluster1"})
    daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_repeated_kills_under_load(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client, 3000)
    with Workload([pair.source.client.d.c, pair.source.client.d.other], seed=2) as workload:
        daemon.kill_at(Point.EVENTS_APPLIED)
        daemon.start()
        for number in (4, 9):
            daemon.wait_until_killed()
            # Request the kill before the process runs: otherwise, the process could pass the point before the request.
            daemon.kill_at(Point.EVENTS_APPLIED, number=number)
            daemon.run()
        daemon.wait_until_killed()
        daemon.run()
        workload.stop()
    daemon.commit()
    pair.assert_equal()


def mark(pair: Pair, daemon: Daemon, name: str) -> Timestamp:
    """Insert a document whose `_id` is `name`, wait until the insert is applied, and return its cluster time."""
    before = daemon.progress()["totalEventsApplied"]
    reply = pair.source.client.d.command({"insert": "c", "documents": [{"_id": name}]})
    wait_for(lambda: daemon.progress()["totalEventsApplied"] > before, f"{name} is applied")
    time: Timestamp = reply["operationTime"]
    return time


@pytest.mark.full
def test_sigterm_saves_the_position(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    runs = pair.destination.client[METADATA_DATABASE].runs
    marked = mark(pair, daemon, "first")
    # An event counts as applied before the position passes it. A second event is only read after that.
    mark(pair, daemon, "second")
    assert daemon.terminate() == 0
    saved = runs.find_one({})
    assert saved is not None and saved["position"]["time"] >= marked
    daemon.run()
    assert daemon.progress()["info"] == "change event application"
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("point", "subject"),
    [
        (Point.COLLECTION_CREATED, ""),
        (Point.BATCH_WRITTEN, ""),
        (Point.EVENTS_APPLIED, ""),
        (Point.STEP_DONE, "destination unblocked"),
    ],
)
def test_sigterm_ends_within_seconds(
    pair: Pair, daemon: Daemon, point: Point, subject: str
) -> None:
    _fill(pair)
    with daemon.held_at(point, subject):
        daemon.start()
        if point in (Point.EVENTS_APPLIED, Point.STEP_DONE):
            daemon.wait_until_committable()
            writes.single_document_writes(pair.source.client)
        if point is Point.STEP_DONE:
            daemon.ask_for_commit()
        daemon.wait_until_reached(point, subject)
        daemon.ask_to_end()
    assert daemon.wait_until_ended(60) == 0
    daemon.run()
    if point is Point.STEP_DONE:
        daemon.wait_for_state("COMMITTED")
    else:
        daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_second_process_takes_over(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with pair.successor(daemon) as successor:
        successor.run()
        writes.single_document_writes(pair.source.client)
        failed = daemon.wait_for_state("FAILED")
        assert failed["error"] == "Superseded"
        successor.commit()
        pair.assert_equal()
