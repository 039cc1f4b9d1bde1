"""Tests `POST /api/v1/reset`: it must drop exactly what the sync created on the destination, and allow a new start."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.support import writes
from tests.support.blocks import blocked, is_blocked
from tests.support.daemon import Daemon
from tests.support.fleet import Fleet, running_fleet
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.selection import full
from tests.support.waiting import wait_for

# The command of mongosh that lifts a write block.
UNBLOCK = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"
CONFIRM = {"confirm": "cluster1"}
SYSTEM = {"admin", "config", "local"}
REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}


def contents(client: Client) -> set[str]:
    """Return the namespaces of all collections and views, including metadata; an empty database counts as `name.`.

    `system.views` is left out, because a server keeps it after the last view was dropped.
    """
    names = {*client.list_database_names()} - SYSTEM
    found = {each: client[each].list_collection_names() for each in names}
    return {
        f"{each}.{name}"
        for each, inside in found.items()
        for name in inside or [""]
        if name != "system.views"
    }


def but_metadata(client: Client) -> set[str]:
    """Return the namespaces of all collections and views except those of the system and the metadata.

    Metadata is left out because it changes while a sync runs.
    """
    return {
        each
        for each in contents(client)
        if not each.startswith("mongosync_") and ".system." not in each
    }


def balancers(pair: Pair) -> list[str]:
    return [
        each.client.admin.command("balancerStatus")["mode"]
        for each in (pair.source, pair.destination)
        if each.shards
    ]


def reset(daemon: Daemon) -> None:
    answer = daemon.post("reset", CONFIRM)
    assert (answer.status_code, answer.json()) == (200, {"success": True}), answer.text
    daemon.wait_for_state("IDLE")


def refusal(daemon: Daemon, body: dict[str, Any]) -> tuple[int, str, str]:
    answer = daemon.post("reset", body)
    found = answer.json()
    assert found["success"] is False
    return answer.status_code, found["error"], found["errorDescription"]


def fill(pair: Pair) -> None:
    """Create views and collections of many kinds on the source. If a cluster is sharded, one collection is sharded."""
    pair.shard("d.c")
    client = pair.source.client
    writes.fill(client)
    writes.new_collections(client)
    writes.time_series(client)
    client.d.create_collection("kept view", viewOn="c", pipeline=[{"$match": {"n": 1}}])
    client.d.create_collection("dropped view", viewOn="c", pipeline=[{"$match": {"n": 2}}])
    client.only_views.create_collection("v", viewOn="c", pipeline=[])


def change_as_users(side: Side) -> None:
    """Create collections on the cluster as users, and replace some of those that the sync has created."""
    client = side.client
    client.d.mine.insert_one({"_id": 1})
    client.theirs.c.insert_one({"_id": 1})
    client.d.drop_collection("other")
    client.d.other.insert_one({"_id": "of a user"})
    client.d.drop_collection("kept view")
    client.d.create_collection("kept view", viewOn="mine", pipeline=[])


KEPT = {"d.mine", "theirs.c", "d.other", "d.kept view"}


@across(REPLICA_SETS, full(TO_SHARDED), full(SHARDED), full(FROM_SHARDED))
def test_a_reset_drops_what_the_sync_created_and_nothing_else(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    daemon.start(enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    # Change events create collections and views, too.
    source = pair.source.client
    source.d["late name"].insert_one({"_id": 1})
    writes.modifications(source)
    source.d.c.rename("renamed")
    if not pair.is_sharded:
        source.admin.command({"renameCollection": "d.collated", "to": "d2.moved"})
    source.d.create_collection("late view", viewOn="c", pipeline=[{"$match": {"x": {"$gt": 1}}}])
    wait_for(lambda: "d.late view" in contents(pair.destination.client), "the last change")
    daemon.wait_until_committable()
    change_as_users(pair.destination)
    before = but_metadata(pair.destination.client)

    listed = daemon.post("reset", {**CONFIRM, "dryRun": True}).json()
    assert {*listed["kept"]} == KEPT
    assert {*listed["collections"], *listed["views"]} == before - KEPT
    assert "d.renamed" in listed["collections"] and "d.late view" in listed["views"]
    assert listed["unblocked"] == []
    assert len(listed["balancersStarted"]) == len(balancers(pair))
    assert but_metadata(pair.destination.client) == before
    assert daemon.progress()["state"] == "RUNNING"

    reset(daemon)
    left = {each for each in contents(pair.destination.client) if ".system." not in each}
    assert left == KEPT
    assert pair.destination.client.d.other.find_one() == {"_id": "of a user"}
    assert blocked(pair) == (False, False)
    assert {*balancers(pair)} <= {"full"}
    progress = daemon.progress()
    assert (progress["info"], progress["canWrite"], progress["error"]) == (None, False, None)
    assert daemon.namespaces()["namespaces"] == [] and "warnings" not in progress
    refused = daemon.post("start", daemon.start_body()).json()
    assert refused["error"] == "DestinationNotEmpty"
    for name in ("d", "theirs"):
        pair.destination.client.drop_database(name)
    pair.shard_keys.pop("d.c", None)
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_a_reset_needs_a_confirmation_and_a_sync(pair: Pair, daemon: Daemon) -> None:
    assert refusal(daemon, CONFIRM)[:2] == (409, "InvalidState")
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    for body in ({}, {"confirm": "cluster0"}, {"confirm": "cluster2"}, {"confirm": 1}):
        for extra in ({}, {"dryRun": True}):
            status, error, description = refusal(daemon, {**body, **extra})
            assert (status, error) == (400, "InvalidRequest")
            assert "confirm: " in description
    assert refusal(daemon, {**CONFIRM, "force": True})[:2] == (400, "InvalidRequest")
    assert daemon.progress()["state"] == "RUNNING"
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize("state", ["PAUSED", "FAILED", "copying", "COMMITTING"])
def test_a_sync_is_reset_in_every_state(pair: Pair, daemon: Daemon, state: str) -> None:
    writes.fill(pair.source.client)
    writes.views(pair.source.client)
    if state == "copying":
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start()
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            assert daemon.post("reset", CONFIRM).ok
            assert daemon.progress()["state"] == "RESETTING"
            # Before the copy has stopped, a second reset is accepted, and other commands are refused.
            assert daemon.post("reset", CONFIRM).ok
            for command in ("pause", "resume", "commit", "reverse"):
                assert daemon.post(command).json()["error"] == "InvalidState"
            assert daemon.post("start", daemon.start_body()).json()["error"] == "InvalidState"
    else:
        daemon.start(enableUserWriteBlocking="sourceAndDestination")
        daemon.wait_until_committable()
    if state == "PAUSED":
        daemon.pause()
    if state == "FAILED":
        pair.destination.client.d.command({"drop": "other", "mayBypassWriteBlocking": True})
        assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    if state == "COMMITTING":
        with daemon.held_at(Point.STEP_DONE, "definitions prepared"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "definitions prepared")
            assert blocked(pair) == (True, True)
            listed = daemon.post("reset", {**CONFIRM, "dryRun": True}).json()
            assert listed["unblocked"] == ["cluster1", "cluster0"]
            assert daemon.post("reset", CONFIRM).ok
    if state != "copying":
        daemon.post("reset", CONFIRM)
    daemon.wait_for_state("IDLE")
    assert contents(pair.destination.client) == set()
    assert blocked(pair) == (False, False)
    writes.single_document_writes(pair.source.client)
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_collections_whose_creation_was_not_saved(pair: Pair, daemon: Daemon) -> None:
    """Kill the daemon after it has created collections, and before it has saved their UUIDs; then reset the sync.

    The reset must drop the empty collection. It must keep the collection with a document, which a user has inserted.
    """
    writes.fill(pair.source.client)
    daemon.kill_at(Point.COLLECTION_CREATED, number=2)
    daemon.post_unanswered("start", daemon.start_body(enableUserWriteBlocking="none"))
    daemon.wait_until_killed()
    d = pair.destination.client.d
    assert {*d.list_collection_names()} == {"c", "other"}
    with daemon.held_at(Point.STARTED):
        daemon.run()
        daemon.wait_until_reached(Point.STARTED)
        d.drop_collection("other")
        d.other.insert_one({"_id": "of a user"})
        assert daemon.post("reset", CONFIRM).ok
    daemon.wait_for_state("IDLE")
    assert contents(pair.destination.client) == {"d.other"}
    assert d.other.find_one() == {"_id": "of a user"}


def test_a_collection_of_users_that_the_source_creates_later(pair: Pair, daemon: Daemon) -> None:
    """Create a collection on the destination before the source creates one of the same name.

    A reset must not drop the destination's collection.
    """
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking="none", verification={"enabled": False})
    daemon.wait_until_committable()
    pair.destination.client.d.late.insert_one({"_id": "of a user"})
    pair.source.client.d.create_collection("late")
    pair.source.client.d.create_collection("last")
    wait_for(lambda: "d.last" in contents(pair.destination.client), "the last change")
    reset(daemon)
    assert contents(pair.destination.client) == {"d.late"}
    assert pair.destination.client.d.late.find_one() == {"_id": "of a user"}


def test_production_data_is_never_dropped(pair: Pair, daemon: Daemon) -> None:
    """Request a reset after users may write to the destination, and after a reversal: each request must be refused."""
    writes.fill(pair.source.client)
    daemon.start(**REVERSIBLE)
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "destination writable"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "destination writable")
        assert refusal(daemon, CONFIRM)[:2] == (409, "DestinationInUse")
    daemon.wait_for_state("COMMITTED")
    for body in (CONFIRM, {**CONFIRM, "dryRun": True}):
        assert refusal(daemon, body)[:2] == (409, "DestinationInUse")
    pair.assert_equal()
    daemon.reverse()
    for destination in ("cluster0", "cluster1"):
        for dry in ({}, {"dryRun": True}):
            named = {"confirm": destination, **dry}
            assert refusal(daemon, named)[:2] == (409, "DestinationInUse")
        daemon.pause()
        assert refusal(daemon, CONFIRM)[:2] == (409, "DestinationInUse")
        daemon.resume()
    daemon.commit()
    assert refusal(daemon, CONFIRM)[:2] == (409, "DestinationInUse")
    pair.assert_equal()


def test_a_reset_during_a_commit_stops_the_commit(pair: Pair, daemon: Daemon) -> None:
    """Request a reset during a commit, before canWrite is true: the commit must stop, and the reset must complete."""
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "destination unblocked"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "destination unblocked")
        assert daemon.post("reset", CONFIRM).ok
    daemon.wait_for_state("IDLE")
    assert contents(pair.destination.client) == set()


@pytest.mark.full
def test_a_process_that_was_superseded_drops_nothing(pair: Pair, daemon: Daemon) -> None:
    """Hold a process during a reset, until another process has completed this reset and begun a new sync.

    The first process must then fail, and must not drop anything of the new sync.
    """
    writes.fill(pair.source.client)
    writes.time_series(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with pair.successor(daemon) as successor:
        with daemon.held_at(Point.COLLECTION_DROPPED):
            assert daemon.post("reset", CONFIRM).ok
            daemon.wait_until_reached(Point.COLLECTION_DROPPED)
            successor.run()
            successor.wait_for_state("IDLE")
            successor.start()
            successor.wait_until_committable()
        assert daemon.wait_for_state("FAILED")["error"] == "Superseded"
        assert refusal(daemon, CONFIRM)[:2] == (409, "Superseded")
        successor.commit()
        pair.assert_equal()


@pytest.mark.full
@across(SHARDED)
def test_several_instances_are_reset_together(pair: Pair, tmp_path: Any) -> None:
    fill(pair)
    with running_fleet(pair, tmp_path) as fleet:
        fleet.start()
        fleet.wait_until_committable()
        status, error, description = refusal(fleet.follower, CONFIRM)
        assert (status, error) == (409, "InvalidState")
        assert f"the coordinator {fleet.names[0]} first" in description
        listed = [each.post("reset", {**CONFIRM, "dryRun": True}).json() for each in fleet.daemons]
        assert listed[0] == listed[1] and listed[0]["unblocked"] == ["cluster1"]
        assert fleet.coordinator.post("reset", CONFIRM).ok
        fleet.follower.wait_for_warning(f"{fleet.names[1]} (reset)")
        # The follower still runs, so nothing is dropped.
        assert {"d.c", "d.other"} <= contents(pair.destination.client)
        _reset_through_kills(pair, fleet)
        fleet.wait_for_state("IDLE")
        assert contents(pair.destination.client) == set()
        assert {*balancers(pair)} == {"full"}
        fleet.start()
        fleet.commit()
        pair.assert_equal()


def _reset_through_kills(pair: Pair, fleet: Fleet) -> None:
    """Reset both instances; kill each of them before its reset is complete, and restart it."""
    coordinator, follower = fleet.coordinator, fleet.follower
    coordinator.kill()
    follower.kill_at(Point.SYNC_STOPPED)
    follower.post_unanswered("reset", CONFIRM)
    follower.wait_until_killed()
    coordinator.kill_at(Point.METADATA_DROPPED)
    coordinator.run()
    coordinator.wait_until_killed()
    assert {each.partition(".")[0] for each in contents(pair.destination.client)} == {
        METADATA_DATABASE
    }
    follower.run()
    assert follower.progress()["state"] == "RESETTING"
    coordinator.run()


@across(TO_SHARDED)
def test_zones_of_a_killed_process_are_removed(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.c", {"n": 1})
    writes.fill(pair.source.client)
    with daemon.held_at(Point.ZONES_SET):
        daemon.start()
        daemon.wait_until_reached(Point.ZONES_SET)
        assert daemon.post("reset", CONFIRM).ok
        daemon.kill()
    config = pair.destination.client.config
    assert config.tags.count_documents({}) > 0
    daemon.run()
    daemon.wait_for_state("IDLE")
    assert config.tags.count_documents({}) == 0
    assert contents(pair.destination.client) == set()


@pytest.fixture
def mortal(pair: Pair) -> Iterator[tuple[ReplicaSet, Pair]]:
    """Start a replica set that the test may kill, and return it with a pair in which it is the source."""
    # The client is closed when no member answers any more.
    options = {"serverSelectionTimeoutMS": 5000}
    with ReplicaSet(name="mortal", members=3) as source, source.client(**options) as client:
        yield source, Pair(Side(source.uri, client), pair.destination)


@pytest.mark.in_turns
@pytest.mark.parametrize("commits", [False, True], ids=["unblocked source", "blocked source"])
def test_a_reset_does_not_need_the_source(
    mortal: tuple[ReplicaSet, Pair], tmp_path: Path, commits: bool
) -> None:
    """Kill all members of the source for good, also when a commit has blocked it, and reset the sync."""
    source, pair = mortal
    writes.fill(pair.source.client)
    daemon = pair.daemon(tmp_path)
    daemon.give_up_soon()
    with daemon.running():
        daemon.start(enableUserWriteBlocking="sourceAndDestination")
        daemon.wait_until_committable()
        with daemon.held_at(Point.STEP_DONE, "source blocked"):
            if commits:
                daemon.ask_for_commit()
                daemon.wait_until_reached(Point.STEP_DONE, "source blocked")
            for index in range(3):
                source.kill_member(index)
        reset(daemon)
        assert contents(pair.destination.client) == set()
        assert not is_blocked(pair.destination)
        assert (UNBLOCK in daemon.log) is commits


@pytest.mark.full
def test_a_reset_of_a_failed_sync_does_not_need_the_source(
    mortal: tuple[ReplicaSet, Pair], tmp_path: Path
) -> None:
    """Kill all members of the source before the failure of a commit can unblock the source, and reset the sync."""
    source, pair = mortal
    writes.fill(pair.source.client)
    daemon = pair.daemon(tmp_path)
    daemon.give_up_soon()
    daemon.judge_soon()
    with daemon.running():
        daemon.start(enableUserWriteBlocking="sourceAndDestination")
        daemon.wait_until_committable()
        pair.destination.client.d.command({"drop": "other", "mayBypassWriteBlocking": True})
        with daemon.held_at(Point.FAILURE_SAVED):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.FAILURE_SAVED)
            for index in range(3):
                source.kill_member(index)
        reset(daemon)
        assert contents(pair.destination.client) == set()
        assert not is_blocked(pair.destination)
        assert UNBLOCK in daemon.log
