"""Tests the event spool: a sync must continue after the source's oplog has dropped the spooled change events.

`make test` leaves out kills at every step, losses during a commit, reversed syncs, sharded sources, and rare states.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import ExitStack, nullcontext
from pathlib import Path
from typing import Any

import pytest
from bson.binary import Binary
from bson.timestamp import Timestamp

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from tests.support import spools, writes
from tests.support.daemon import Daemon
from tests.support.failpoints import failing
from tests.support.metrics import scrape
from tests.support.oplogs import emptied, note, roll_over, small_oplog
from tests.support.pair import SHARDED, Clusters, Pair, Side
from tests.support.resuming import assert_final
from tests.support.sharded.cluster import ShardedCluster
from tests.support.spools import SPOOL, roll_over_spooled, wait_until_spooled
from tests.support.waiting import wait_for

REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}
# The number of times that the oplog drops its entries in each phase.
TIMES = 5


@pytest.fixture(scope="module")
def small() -> Iterator[ReplicaSet]:
    with small_oplog() as source:
        yield source


@pytest.fixture
def pair(small: ReplicaSet, replica_sets: Pair) -> Iterator[Pair]:
    with emptied(small, replica_sets.destination) as pair:
        yield pair


def prepared(pair: Pair, folder: Path, *options: str) -> Daemon:
    """Return a daemon, not started, that checks the oplog often and saves many small rows in the event spool."""
    daemon = pair.daemon(folder, *options)
    daemon.watch_closely()
    daemon.spool_often()
    return daemon


@pytest.fixture
def daemon(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    with prepared(pair, tmp_path).running() as process:
        yield process


def write_meanwhile(client: writes.AnyClient, number: int) -> None:
    """Update, delete and insert documents, also in a transaction, and create and drop collections.

    Calls with different values of `number` make different changes.
    """
    client.d.c.update_many({}, {"$inc": {"round": 1}, "$set": {f"at{number}": number}})
    client.d.c.delete_many({"_id": {"$mod": [50, number]}})
    with client.start_session() as session, session.start_transaction():
        for each in range(20):
            client.d.c.insert_one({"_id": f"inserted in round {number}, {each}"}, session=session)
            client.d.c.update_one({"_id": each}, {"$inc": {"committed": 1}}, session=session)
    client.d[f"new{number}"].insert_many({"_id": n, "n": number} for n in range(20))
    client.d[f"new{number}"].create_index("n")
    client.d[f"new{number - 1}"].drop()
    writes.drop_and_create_again(client)


def oldest(client: writes.AnyClient) -> Any:
    first = client.local["oplog.rs"].find_one({}, {"ts": 1})
    assert first is not None
    return first["ts"]


def test_a_sync_outlives_the_oplog(pair: Pair, daemon: Daemon) -> None:
    """Make the source's oplog drop its entries several times during the copy and a pause: the sync must be exact."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        began = spools.now(source)
        assert "eventSpool" not in daemon.progress()
        spools.provoke(pair, daemon)
        for number in range(TIMES):
            write_meanwhile(source, number)
            roll_over_spooled(source, destination)
        assert oldest(source) > began
        shown = daemon.progress()
        assert shown["eventSpool"]["active"] and shown["eventSpool"]["bytes"] > 0
        assert shown["eventSpool"]["limitBytes"] == 20_000_000_000
        assert "warnings" not in shown
        figures = scrape(daemon)
        assert figures["mongosync_event_spool_bytes"][()] > 0
        assert figures["mongosync_events_spooled_total"][()] > 300
    daemon.wait_until_committable()
    wait_for(lambda: "eventSpool" not in daemon.progress(), "all spooled events are applied")
    assert not spools.headers(destination)
    daemon.pause()
    paused = destination[METADATA_DATABASE].runs.find_one()
    spools.provoke(pair, daemon)
    assert daemon.progress()["state"] == "PAUSED"
    for number in range(TIMES, 2 * TIMES):
        write_meanwhile(source, number)
        roll_over_spooled(source, destination)
    assert paused is not None and oldest(source) > paused["position"]["time"]
    daemon.resume()
    daemon.commit()
    pair.assert_equal()
    assert not spools.rows(destination)


def roll_over_while_read(source: writes.AnyClient, destination: writes.AnyClient) -> None:
    """Make the source's oplog drop all of its current entries, after the daemon has applied their events."""
    began = spools.now(source)
    while oldest(source) <= began:
        note(source)
        time = spools.now(source)

        def is_applied(time: Timestamp = time) -> bool:
            # Write a no-op, because the position of an idle change stream does not move by itself.
            source.admin.command({"appendOplogNote": 1, "data": {}})
            run = destination[METADATA_DATABASE].runs.find_one()
            return run is not None and run["position"]["time"] > time

        wait_for(is_applied, "all events are applied")


@pytest.mark.full
@pytest.mark.parametrize("blocking", ["destinationOnly", "sourceAndDestination"])
def test_a_commit_outlives_the_oplog(pair: Pair, daemon: Daemon, blocking: str) -> None:
    """During a commit, drop the oplog entries in which the sync searches for later writes.

    The sync must postpone the commit. If the source is blocked, only the cut-over searches, and the sync must repeat
    the commit.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    daemon.start(enableUserWriteBlocking=blocking)
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "drained"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "drained")
        roll_over_while_read(source, destination)
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert ("repeats the commit" in daemon.log) == (blocking == "sourceAndDestination")


# No test changes this collection during a sync. While its copy is held, the copy phase does not end.
KEPT = "d.kept"
# The points in an order in which a sync passes them, each with the number of the pass at which the daemon is killed.
IN_THE_COPY = [(Point.BATCH_WRITTEN, 1), (Point.SPOOLING_BEGAN, 1), (Point.EVENTS_SPOOLED, 1)]
KILLS = [
    *IN_THE_COPY,
    (Point.SPOOL_READ, 1),
    (Point.EVENTS_APPLIED, 1),
    (Point.DEFINITION_APPLIED, 1),
    (Point.POSITION_SAVED, 1),
    (Point.SPOOL_FORGOTTEN, 1),
    (Point.EVENTS_SPOOLED, 1),
    (Point.SPOOL_READ, 2),
    (Point.SPOOLING_ENDED, 1),
]


@pytest.mark.full
def test_a_sync_killed_at_every_step_of_the_spool_loses_nothing(pair: Pair, daemon: Daemon) -> None:
    """Kill the daemon at each step of the event spool in turn, and make the oplog drop its entries after each kill.

    While the oplog drops them, the restarted daemon is paused, or its copy is held. Then it is killed once more. The
    clusters must be equal at the end.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.kept.insert_one({"_id": 1})
    body = daemon.start_body(eventSpool="always")
    daemon.kill()
    for number, (point, times) in enumerate(KILLS):
        source.d.c.insert_one({"_id": f"before {number}"})
        held = number < len(IN_THE_COPY)
        with daemon.held_at(Point.BATCH_WRITTEN, KEPT) if held else nullcontext():
            daemon.kill_at(point, KEPT if point is Point.BATCH_WRITTEN else "", times)
            daemon.run()
            if number:
                daemon.post_unanswered("resume", {})
            else:
                daemon.post_unanswered("start", body)
            daemon.wait_until_killed()
            write_meanwhile(source, number)
            daemon.run()
            # A copy that is held cannot stop for a pause.
            if not held and daemon.progress()["state"] == "RUNNING":
                daemon.pause()
            roll_over_spooled(source, destination)
            daemon.kill()
    daemon.run()
    daemon.resume()
    daemon.commit()
    pair.assert_equal()
    assert not spools.rows(destination)


@pytest.mark.full
def test_a_reader_that_falls_behind_continues_in_the_spool(pair: Pair, daemon: Daemon) -> None:
    """Hold event application until the oplog has dropped events that the daemon has spooled meanwhile.

    Afterwards, the daemon must read these events from the spool.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    daemon.start()
    daemon.wait_until_committable()
    with daemon.held_at(Point.EVENTS_APPLIED):
        source.d.c.update_one({"_id": 1}, {"$set": {"held": True}})
        daemon.wait_until_reached(Point.EVENTS_APPLIED)
        # The event of this command waits until all earlier events are applied, and the reader waits for this event.
        source.d.create_collection("later")
        for _ in range(3):
            note(source)
        wait_for(lambda: daemon.progress().get("eventSpool", {}).get("active"), "it spools")
        for number in range(TIMES):
            write_meanwhile(source, number)
            roll_over_spooled(source, destination)
        assert daemon.progress()["state"] == "RUNNING"
    daemon.commit()
    pair.assert_equal()
    assert not spools.rows(destination)


def test_a_damaged_row_is_not_applied(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(eventSpool="always")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        source.d.c.update_many({}, {"$set": {"changed": 1}})
        wait_until_spooled(source, destination)
        part = destination[METADATA_DATABASE][SPOOL].find_one({"_id.part": 1})
        assert part is not None
        damaged = part["data"][:-1] + bytes([part["data"][-1] ^ 1])
        query = {"_id": part["_id"]}
        spools.change(destination, SPOOL, query, {"$set": {"data": Binary(damaged)}})
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "EventSpoolDamaged"
    assert "the checksum is wrong" in progress["errorDescription"]
    # The oplog still has these events.
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_a_resume_needs_the_oplog_only_after_an_intact_spool(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(eventSpool="always")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        write_meanwhile(source, 1)
        roll_over_spooled(source, destination)
        daemon.kill()
    for error in ("EventSpoolDamaged", "OplogWindowExceeded"):
        failure = {"name": error, "description": "It happened."}
        failed = {"$set": {"state": "FAILED", "failure": failure}}
        spools.change(destination, "runs", {}, failed)
        daemon.run()
        assert daemon.progress()["error"] == error
        if error == "EventSpoolDamaged":
            assert_final(daemon, "no longer returns the changes that the sync needs")
            daemon.kill()
    daemon.resume()
    daemon.commit()
    pair.assert_equal()
    assert not spools.rows(destination)


@pytest.mark.full
def test_a_reset_deletes_the_spool_of_a_paused_sync(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    daemon.start(eventSpool="always")
    daemon.wait_until_committable()
    daemon.pause()
    write_meanwhile(source, 1)
    roll_over_spooled(source, destination)
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    assert not spools.rows(destination)
    daemon.start(eventSpool="always")
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_paused_sync_fails_if_another_process_takes_it_over(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(eventSpool="always")
    daemon.wait_until_committable()
    daemon.pause()
    folder = daemon.folder / "successor"
    folder.mkdir()
    with prepared(pair, folder).running() as successor:
        successor.wait_for_state("PAUSED")
        write_meanwhile(pair.source.client, 1)
        assert daemon.wait_for_state("FAILED")["error"] == "Superseded"
        successor.resume()
        successor.commit()
        pair.assert_equal()


@pytest.mark.full
def test_a_late_row_does_not_disturb_a_commit(pair: Pair, daemon: Daemon) -> None:
    destination = pair.destination.client
    writes.fill(pair.source.client)
    daemon.kill_at(Point.STEP_DONE, "destination unblocked")
    daemon.start(eventSpool="always")
    daemon.commit_until_killed()
    run = destination[METADATA_DATABASE].runs.find_one()
    assert run is not None
    spools.leave_row(destination, run)
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert not spools.rows(destination)


def incompressible(size: int) -> Binary:
    return Binary(random.Random(size).randbytes(size))


def fill_spool(pair: Pair, number: int) -> None:
    pair.source.client.d.pad.insert_one({"_id": number, "pad": incompressible(400_000)})
    wait_until_spooled(pair.source.client, pair.destination.client)


def test_a_full_spool_warns_and_then_fails(pair: Pair, tmp_path: Path) -> None:
    daemon = prepared(pair, tmp_path, "--eventSpoolMB", "1")
    source = pair.source.client
    writes.fill(source)
    with daemon.running():
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start(eventSpool="always")
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            fill_spool(pair, 0)
            assert "warnings" not in daemon.progress()
            fill_spool(pair, 1)
            daemon.wait_for_warning("little room")
            source.d.pad.insert_one({"_id": 2, "pad": incompressible(400_000)})
            daemon.wait_for_warning("is full")
            note(source)
            assert daemon.progress()["state"] == "RUNNING"
            roll_over(source)
        progress = daemon.wait_for_state("FAILED")
        assert progress["error"] == "EventSpoolFull"
        assert "--eventSpoolMB" in progress["errorDescription"]
        assert_final(daemon, "no longer returns the changes that the sync needs")


@pytest.mark.full
def test_a_paused_sync_says_what_prevents_the_spooling(pair: Pair, tmp_path: Path) -> None:
    """Make writes to the event spool fail during a pause: a warning must appear, and disappear afterwards.

    Then let the oplog drop events. The sync must fail with a named error, although it is paused.
    """
    daemon = prepared(pair, tmp_path, "--eventSpoolMB", "1")
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)

    def warned(text: str) -> bool:
        shown = daemon.progress()
        assert shown["state"] == "PAUSED"
        return text in str(shown.get("warnings"))

    with daemon.running():
        daemon.start(eventSpool="always")
        daemon.wait_until_committable()
        refused = {
            "failCommands": ["update"],
            "errorCode": 2,
            "namespace": f"{METADATA_DATABASE}.{SPOOL}",
        }
        with failing(destination, refused):
            daemon.pause()
            wait_for(lambda: warned("cannot be saved in the event spool"), "a warning")
            before = epoch(destination)
            wait_for(lambda: epoch(destination) >= before + 3, "some retries")
            assert warned("cannot be saved in the event spool")
        wait_until_spooled(source, destination)
        wait_for(lambda: not warned("cannot be saved"), "the warning ends")
        # The retries have logged nothing.
        assert daemon.log.count('"message": "During the pause, the oplog of the source cannot') == 1
        assert daemon.log.count('"warning": "pause unspooled"') == 2
        for number in range(3):
            source.d.pad.insert_one({"_id": number, "pad": incompressible(400_000)})
        wait_for(lambda: warned("is full"), "it is full")
        note(source)
        roll_over(source)
        assert daemon.wait_for_state("FAILED")["error"] == "EventSpoolFull"
        assert_final(daemon, "no longer returns the changes that the sync needs")


def epoch(destination: writes.AnyClient) -> int:
    run = destination[METADATA_DATABASE].runs.find_one()
    assert run is not None
    return int(run["epoch"])


def test_spooling_continues_when_a_full_spool_has_room(pair: Pair, tmp_path: Path) -> None:
    daemon = prepared(pair, tmp_path, "--eventSpoolMB", "1")
    source = pair.source.client
    writes.fill(source)
    with daemon.running():
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start(eventSpool="always")
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            for number in range(8):
                source.d.pad.insert_one({"_id": number, "pad": incompressible(400_000)})
            daemon.wait_for_warning("is full")
        daemon.commit()
        pair.assert_equal()
        assert "warnings" not in daemon.progress()


@pytest.mark.full
def test_a_reversed_sync_outlives_the_oplog(pair: Pair, daemon: Daemon) -> None:
    """Reverse a sync whose destination has a small oplog, and make this oplog drop events of the reversed sync.

    The reversed sync must apply these events from its event spool.
    """
    new, old = pair.source.client, pair.destination.client
    writes.fill(old)
    daemon.start(source="cluster1", destination="cluster0", **REVERSIBLE)
    daemon.commit()
    new.d.c.update_one({"_id": 1}, {"$set": {"after": "the commit"}})
    daemon.reverse()
    daemon.wait_until_committable()
    daemon.pause()
    spools.provoke(pair, daemon)
    for number in range(TIMES):
        write_meanwhile(new, number)
        roll_over_spooled(new, old)
    assert not spools.rows(new)
    daemon.kill()
    daemon.run()
    roll_over_spooled(new, old)
    daemon.resume()
    daemon.commit()
    pair.assert_equal()
    assert not spools.rows(old)


@pytest.mark.full
def test_events_of_any_size_are_spooled(pair: Pair, daemon: Daemon) -> None:
    """Spool an event that is saved in several documents, an event that the server splits, and resume tokens of 6 MB.

    The sync must continue from the spool after the oplog has dropped these events.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    large, key = incompressible(16_000_000), "k" * (3 << 20)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(eventSpool="always")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        source.d.large.insert_one({"_id": 1, "pad": large})
        wait_until_spooled(source, destination)
        source.d.large.insert_one({"_id": key, "pad": large[: 5 << 20]})
        source.d.large.update_one({"_id": key}, {"$set": {"pad": large[: 8 << 20]}})
        wait_until_spooled(source, destination)
        roll_over_spooled(source, destination)
        daemon.kill()
        daemon.run()
        roll_over_spooled(source, destination)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_sync_outlives_the_oplogs_of_shards(clusters: Clusters, tmp_path: Path) -> None:
    """Make the oplogs of all shards drop their entries during the copy and a pause: the sync must be exact."""
    with ExitStack() as stack:
        source = stack.enter_context(ShardedCluster(name="small", oplog_size_mb=16))
        client = stack.enter_context(source.client())
        shards = [stack.enter_context(each.client()) for each in source.shards]
        side = Side(source.uri, client, source.shards, source.routers)
        pair = Pair(side, clusters.pair(SHARDED).destination)
        pair.empty()
        daemon = prepared(pair, tmp_path)
        stack.callback(daemon.close)
        daemon.run()
        _outlive(pair, daemon, shards)


def _outlive(pair: Pair, daemon: Daemon, shards: list[writes.AnyClient]) -> None:
    source, destination = pair.source.client, pair.destination.client
    key: dict[str, Any] = {"key": {"_id": "hashed"}, "collation": {"locale": "simple"}}
    source.admin.command("shardCollection", "d.c", **key)
    writes.fill(source)

    def change_and_roll_over(number: int) -> None:
        source.d.c.update_many({}, {"$inc": {"round": 1}})
        source.d.c.delete_many({"_id": {"$mod": [50, number]}})
        source.d.c.insert_many({"_id": f"{number} {n}"} for n in range(50))
        source.d[f"new{number}"].insert_many({"_id": n, "n": number} for n in range(20))
        source.d[f"new{number}"].create_index("n")
        wait_until_spooled(source, destination)
        for each in shards:
            roll_over(each)
        wait_until_spooled(source, destination)

    with daemon.held_at(Point.BATCH_WRITTEN):
        # The oplogs of shards cannot be read, so `auto` would begin after 90 minutes only.
        daemon.start(eventSpool="always")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        began = spools.now(source)
        for number in range(2):
            change_and_roll_over(number)
        assert all(oldest(each) > began for each in shards)
    daemon.wait_until_committable()
    daemon.pause()
    began = spools.now(source)
    for number in range(2, 4):
        change_and_roll_over(number)
    assert all(oldest(each) > began for each in shards)
    daemon.resume()
    daemon.commit()
    pair.assert_equal()
    assert not spools.rows(destination)
