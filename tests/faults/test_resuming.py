"""Makes a sync fail in every phase, and resumes it after each failure, until it can be committed.

A resume must be refused if it would overwrite writes of users. With several instances, all of them must be resumed.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.replica_set import Client
from tests.integration.test_reset import balancers
from tests.support import writes
from tests.support.blocks import block, blocked, is_blocked
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import ALWAYS, APPLICATION, failing
from tests.support.fleet import running_fleet
from tests.support.pair import SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.resuming import fails_again, refused
from tests.support.waiting import wait_for

REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}
NOBODY, DESTINATION = (False, False), (False, True)
# An index that a user creates on the destination. It refuses documents that the source accepts.
INDEX = {"name": "mine", "key": {"u": 1}, "unique": True, "sparse": True}
UNIQUE = {"createIndexes": "plain", "indexes": [INDEX]}
DROP = {"dropIndexes": "plain", "index": "mine"}


def by_hand(side: Side, command: dict[str, Any]) -> None:
    """Run a write command in the database d of a cluster, bypassing the block of user writes."""
    reply = side.client.d.command({**command, "mayBypassWriteBlocking": True})
    assert reply["ok"] == 1 and not reply.get("writeErrors"), reply


def failures_saved(pair: Pair) -> int:
    """Return how many instances have saved a failure. An instance reports its failure before it saves it."""
    runs = pair.destination.client[METADATA_DATABASE].runs
    return runs.count_documents({"failure": {"$ne": None}})


def replace_prepared(side: Side) -> None:
    """Give the index `prepared` of d.other another name, under which the cut-over neither finds nor creates it."""
    by_hand(side, {"dropIndexes": "other", "index": "prepared"})
    index = {"name": "theirs", "key": {"more": 1}, "sparse": True}
    by_hand(side, {"createIndexes": "other", "indexes": [index]})


def kill_while_resumed(pair: Pair, daemon: Daemon, point: Point) -> None:
    """Restart the process of a failed sync, then resume the sync. Kill and restart the process three times meanwhile.

    The kills happen before the resume is saved, after it is saved, and when the resumed sync passes `point`.
    """
    wait_for(lambda: failures_saved(pair), "the failure is saved")
    daemon.kill()
    daemon.run()
    # A process that finds a saved failure passes FAILURE_SAVED once at its start, hence the 2.
    for kill in ((Point.FAILURE_SAVED, "", 2), (Point.RESUME_SAVED, "", 1)):
        assert daemon.progress()["state"] == "FAILED"
        daemon.kill_at(*kill)
        daemon.post_unanswered("resume", {})
        daemon.wait_until_killed()
        daemon.kill_at(point)
        daemon.run()
    daemon.wait_until_killed()
    daemon.run()


def collmod_refused(client: Client, mode: Any = ALWAYS) -> AbstractContextManager[None]:
    """Make the primary refuse the daemon's collMod commands within the block.

    `mode` is a mode of configureFailPoint; it can limit the number of refusals.
    """
    data = {"failCommands": ["collMod"], "errorCode": 2, "appName": APPLICATION}
    return failing(client, data, mode)


def assert_fails(daemon: Daemon, error: str, phase: str) -> dict[str, Any]:
    """Wait until the sync has failed, and return the progress; fail if the error or the phase is another one."""
    failed = daemon.wait_for_state("FAILED")
    assert (failed["error"], failed["info"]) == (error, phase), failed
    return failed


def define(client: Client) -> None:
    """Create collections whose indexes or options are weaker on the destination until the commit.

    Also create a collection without indexes.
    """
    writes.fill(client)
    writes.indexes(client)
    client.d.create_collection("capped", capped=True, size=1 << 16, max=100)
    client.d.capped.insert_many({"_id": n} for n in range(50))
    client.d.plain.insert_many({"_id": n, "u": 7} for n in range(2))


@prepared(Daemon.judge_soon)
def test_a_sync_is_resumed_in_every_phase(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    define(source)
    # Make the listing fail. Until the resume, the destination is unblocked.
    data = {"failCommands": ["create"], "errorCode": 2, "appName": APPLICATION}
    with failing(destination, data):
        daemon.start(**REVERSIBLE)
        assert_fails(daemon, "DefinitionNotApplicable", "initializing collections and indexes")
    wait_for(lambda: blocked(pair) == NOBODY, "nobody is blocked")
    destination.mine.c.insert_one({"_id": "of a user"})
    failed = fails_again(daemon, "DestinationNotEmpty")
    assert "mine.c" in failed["errorDescription"]
    wait_for(lambda: blocked(pair) == NOBODY, "nobody is blocked")
    destination.drop_database("mine")
    # Make the listing fail after it has created some collections. A user writes to one of them.
    data = {"failCommands": ["create"], "errorCode": 2, "appName": APPLICATION}
    with failing(destination, data, {"skip": 2}):
        daemon.resume()
        assert_fails(daemon, "DefinitionNotApplicable", "initializing collections and indexes")
    wait_for(lambda: blocked(pair) == NOBODY, "nobody is blocked")
    created = destination.d[destination.d.list_collection_names()[0]]
    created.insert_one({"_id": "of a user"})
    failed = fails_again(daemon, "DestinationNotEmpty")
    assert f"d.{created.name}" in failed["errorDescription"]
    wait_for(lambda: blocked(pair) == NOBODY, "nobody is blocked")
    created.delete_one({"_id": "of a user"})
    # Make the copy fail because of a unique index of a user.
    with daemon.held_at(Point.LISTED):
        daemon.resume()
        daemon.wait_until_reached(Point.LISTED)
        assert blocked(pair) == DESTINATION
        by_hand(pair.destination, UNIQUE)
    assert_fails(daemon, "DocumentNotCopied", "collection copy")
    fails_again(daemon, "DocumentNotCopied")
    daemon.kill()
    daemon.run()
    assert_fails(daemon, "DocumentNotCopied", "collection copy")
    by_hand(pair.destination, DROP)
    kill_while_resumed(pair, daemon, Point.PARTITION_COPIED)
    daemon.wait_until_committable()
    # Make change event application fail.
    source.d.plain.delete_one({"_id": 1})
    wait_for(lambda: destination.d.plain.count_documents({}) == 1, "it is deleted")
    by_hand(pair.destination, UNIQUE)
    source.d.plain.insert_one({"_id": "again", "u": 7})
    assert_fails(daemon, "EventNotApplicable", "change event application")
    source.d.c.insert_many([{"_id": f"meanwhile {n}", "u": -1 - n} for n in range(50)])
    fails_again(daemon, "EventNotApplicable")
    by_hand(pair.destination, DROP)
    kill_while_resumed(pair, daemon, Point.POSITION_SAVED)
    daemon.wait_until_committable()
    commit_until_it_succeeds(pair, daemon)
    reverse_and_return(pair, daemon)


@pytest.mark.full
def test_a_definition_that_the_listing_cannot_create_is_changed_on_the_source(
    pair: Pair, daemon: Daemon
) -> None:
    """Make the destination refuse an index, drop the index on the source, and resume: the sync must continue.

    Collections that did not change meanwhile must not be created again.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    writes.indexes(source)
    writes.new_collections(source)
    writes.time_series(source)
    source.d.refused.create_index("n")
    source.d.refused.insert_many({"_id": n} for n in range(10))
    for name in ("renamed", "freed", "validated again", "refused, too"):
        source.d[name].insert_one({"_id": name})
    data = {"failCommands": ["createIndexes"], "errorCode": 67, "appName": APPLICATION}
    with failing(destination, {**data, "namespace": "d.refused"}):
        daemon.start()
        failed = assert_fails(
            daemon, "DefinitionNotApplicable", "initializing collections and indexes"
        )
        assert "Index n_1" in failed["errorDescription"], failed
        fails_again(daemon, "DefinitionNotApplicable")
        created = uuids(destination)
        source.d.refused.drop_index("n_1")
        source.d.renamed.rename("renamed away")
        source.d.freed.rename("renamed")
        source.d.command({"collMod": "validated again", "validator": {"n": {"$gte": 1}}})
        source.d.drop_collection("capped")
        source.d.create_collection("capped", capped=True, size=1 << 17)
        kill_while_resumed(pair, daemon, Point.COLLECTION_CREATED)
        daemon.wait_until_committable()
    changed = {"refused", "renamed", "freed", "validated again", "capped"}
    kept = {name: uuid for name, uuid in created.items() if name not in changed}
    assert len(kept) > 5 and kept.items() <= uuids(destination).items()
    daemon.commit()
    pair.assert_equal()


def uuids(client: Client) -> dict[str, Any]:
    """Return the UUIDs of the collections in the database d, by name."""
    listed = client.d.list_collections()
    return {each["name"]: each["info"]["uuid"] for each in listed if "uuid" in each["info"]}


def commit_until_it_succeeds(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    by_hand(pair.destination, {"insert": "c", "documents": [{"_id": "extra"}]})
    for _ in range(2):
        daemon.ask_for_commit()
        assert_fails(daemon, "VerificationFailed", "change event application")
        wait_for(lambda: blocked(pair) == DESTINATION, "the source is released")
        # Users can write to the source again, so the resumed sync must not commit by itself.
        source.d.c.insert_one({})
        daemon.resume()
        resumed = daemon.wait_until_committable()
        assert (resumed["state"], blocked(pair)) == ("RUNNING", DESTINATION)
    by_hand(pair.destination, {"delete": "c", "deletes": [{"q": {"_id": "extra"}, "limit": 1}]})
    # Make the cut-over fail before users may write to the destination.
    with collmod_refused(destination, {"skip": 4}):
        daemon.ask_for_commit()
        failed = assert_fails(daemon, "DefinitionNotApplicable", "waiting for commit to complete")
        assert failed["canWrite"] is False
    wait_for(lambda: blocked(pair) == DESTINATION, "the source is released")
    # Insert more documents than the capped collection keeps, and values that a unique index could refuse.
    source.d.capped.insert_many({"_id": f"new {number}"} for number in range(200))
    for number in range(50):
        source.d.c.insert_one({"_id": f"unique {number}", "u": -1000})
        source.d.c.update_one({"_id": f"unique {number}"}, {"$set": {"u": -1001 - number}})
    kill_while_resumed(pair, daemon, Point.COLLECTION_WEAKENED)
    assert daemon.wait_until_committable()["state"] == "RUNNING"
    # Make the cut-over fail after users may write to the destination.
    with ExitStack() as refusing:
        with daemon.held_at(Point.STEP_DONE, "destination writable"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "destination writable")
            refusing.enter_context(collmod_refused(destination))
        failed = assert_fails(daemon, "DefinitionNotApplicable", "waiting for commit to complete")
        assert failed["canWrite"] is True
        fails_again(daemon, "DefinitionNotApplicable")
    destination.d.c.insert_one({"_id": "of a user of the destination"})
    daemon.resume()
    # The resumed sync completes the commit without another request.
    daemon.wait_for_state("COMMITTED")
    assert blocked(pair) == (True, False)
    destination.d.c.delete_one({"_id": "of a user of the destination"})
    pair.assert_equal()


def reverse_and_return(pair: Pair, daemon: Daemon) -> None:
    old_source, new_source = pair.source, pair.destination
    with collmod_refused(old_source.client):
        daemon.post("reverse")
        assert_fails(daemon, "DefinitionNotApplicable", "reversing")
        block(old_source, refuse=False)
        fails_again(daemon, "DefinitionNotApplicable")
    assert is_blocked(old_source)
    block(old_source, refuse=False)
    new_source.client.d.c.insert_many([{"_id": f"reversed {n}", "u": -5000 - n} for n in range(50)])
    kill_while_resumed(pair, daemon, Point.REVERSED)
    daemon.wait_until_committable()
    assert is_blocked(old_source)
    new_source.client.d.plain.update_one({"_id": "again"}, {"$unset": {"u": 1}})
    wait_for(lambda: old_source.client.d.plain.find_one({"_id": "again", "u": None}), "updated")
    by_hand(old_source, UNIQUE)
    new_source.client.d.plain.insert_one({"_id": "reversed", "u": 7})
    assert_fails(daemon, "EventNotApplicable", "change event application")
    by_hand(old_source, DROP)
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_a_resumed_reversal_overwrites_no_writes_of_users(pair: Pair, daemon: Daemon) -> None:
    old_source = pair.source
    define(old_source.client)
    daemon.start(**REVERSIBLE)
    daemon.commit()
    with collmod_refused(old_source.client, {"skip": 1}):
        daemon.post("reverse")
        assert_fails(daemon, "DefinitionNotApplicable", "reversing")
        # The first collMod has weakened a definition. The sync must not mistake this change for a user write.
        fails_again(daemon, "DefinitionNotApplicable")
    block(old_source, refuse=False)
    old_source.client.d.c.insert_one({"_id": "on the old source"})
    status, name, description = refused(daemon)
    assert (status, name) == (409, "OldSourceWritten") and "d.c" in description
    assert daemon.progress()["state"] == "FAILED"
    assert not is_blocked(old_source)
    assert old_source.client.d.c.find_one({"_id": "on the old source"})


@pytest.mark.full
@across(TO_SHARDED, SHARDED)
def test_a_sync_between_shards_is_resumed(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    pair.shard("d.c")
    writes.fill(source)
    source.d.plain.insert_one({"_id": 0, "u": 7})
    source.d.other.create_index("more", name="prepared", unique=True, sparse=True)
    daemon.start()
    daemon.wait_until_committable()
    stopped = balancers(pair)
    assert "full" not in stopped
    by_hand(pair.destination, UNIQUE)
    source.d.plain.insert_one({"_id": "again", "u": 7})
    assert_fails(daemon, "EventNotApplicable", "change event application")
    wait_for(lambda: {*balancers(pair)} == {"full"}, "the balancers are restored")
    by_hand(pair.destination, DROP)
    kill_while_resumed(pair, daemon, Point.BALANCER_SAVED)
    daemon.wait_until_committable()
    assert (balancers(pair), blocked(pair)) == (stopped, DESTINATION)
    # Replace an index that the cut-over needs. After the resume, the index must be built again.
    with daemon.held_at(Point.STEP_DONE, "verified"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "verified")
        replace_prepared(pair.destination)
    assert_fails(daemon, "DefinitionNotApplicable", "waiting for commit to complete")
    wait_for(lambda: {*balancers(pair)} == {"full"}, "the balancers are restored")
    source.d.c.update_many({}, {"$set": {"failed": True}})
    kill_while_resumed(pair, daemon, Point.COLLECTION_WEAKENED)
    daemon.commit()
    assert {*balancers(pair)} == {"full"}
    assert "prepared" in destination.d.other.index_information()
    pair.assert_equal()


@pytest.mark.full
def test_a_stopped_instance_learns_that_users_may_write(pair: Pair, tmp_path: Path) -> None:
    """Make the coordinator fail after users may write to the destination, while the follower is stopped.

    The follower must then show canWrite, too: otherwise, its users would return to the source.
    """
    define(pair.source.client)
    steps = ("definitions prepared", "destination writable")
    prepared, writable = ((Point.STEP_DONE, step) for step in steps)
    with running_fleet(pair, tmp_path) as fleet, ExitStack() as refusing:
        coordinator, follower = fleet.daemons
        fleet.start()
        fleet.wait_until_committable()
        with coordinator.held_at(*writable):
            with coordinator.held_at(*prepared):
                fleet.ask_for_commit()
                coordinator.wait_until_reached(*prepared)
                follower.kill()
            coordinator.wait_until_reached(*writable)
            refusing.enter_context(collmod_refused(pair.destination.client))
        wait_for(lambda: failures_saved(pair), "the failure is saved")
        follower.run()
        failed = follower.wait_for_state("FAILED")
        assert (failed["error"], failed["canWrite"]) == ("DefinitionNotApplicable", True)
        refusing.close()
        for each in fleet.daemons:
            each.resume()
        fleet.wait_for_state("COMMITTED")
        pair.assert_equal()


@pytest.mark.full
@across(SHARDED)
def test_all_instances_are_resumed(pair: Pair, tmp_path: Path) -> None:
    source = pair.source.client
    writes.fill(source)
    source.d.plain.insert_one({"_id": 0, "u": 7})
    source.d.other.create_index("more", name="prepared", unique=True, sparse=True)
    with running_fleet(pair, tmp_path) as fleet:
        coordinator, follower = fleet.daemons
        fleet.start()
        fleet.wait_until_committable()
        follower.kill()
        by_hand(pair.destination, UNIQUE)
        # Insert so many documents that each instance applies some of them.
        source.d.plain.insert_many({"_id": f"again {n}", "u": 7} for n in range(40))
        coordinator.wait_for_state("FAILED")
        status, name, description = refused(coordinator)
        assert (status, name) == (409, "InvalidState") and fleet.names[1] in description
        follower.run()
        fleet.wait_for_state("FAILED")
        by_hand(pair.destination, DROP)
        follower.resume()
        follower.kill()
        follower.run()
        follower.wait_for_warning(f"{fleet.names[0]} (resume)")
        coordinator.resume()
        fleet.wait_until_committable()
        fleet.wait_without_warnings()
        # Make the verification of a commit fail, and then a cut-over.
        by_hand(pair.destination, {"insert": "c", "documents": [{"_id": "extra"}]})
        fleet.ask_for_commit()
        fleet.wait_for_state("FAILED")
        source.d.c.insert_one({"_id": "while failed"})
        extra = {"delete": "c", "deletes": [{"q": {"_id": "extra"}, "limit": 1}]}
        by_hand(pair.destination, extra)
        for each in fleet.daemons:
            each.resume()
        fleet.wait_until_committable()
        with coordinator.held_at(Point.STEP_DONE, "verified"):
            fleet.ask_for_commit()
            coordinator.wait_until_reached(Point.STEP_DONE, "verified")
            replace_prepared(pair.destination)
        fleet.wait_for_state("FAILED")
        source.d.c.update_many({}, {"$set": {"failed": True}})
        for each in reversed(fleet.daemons):
            each.resume()
        fleet.wait_until_committable()
        fleet.commit()
        pair.assert_equal()
