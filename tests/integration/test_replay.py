"""Syncs in rare situations, such as an index build in progress, a server crash, or a second process."""

from __future__ import annotations

from pathlib import Path

import bson
import pytest
from bson.raw_bson import RawBSONDocument

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.equality import compare_clusters
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair, assert_none
from tests.support.phases import When, writes_in
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members


def test_changes_of_unsynced_namespaces_are_ignored(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    other = pair.source.client["mongosync_reserved_for_verification"]
    with writes_in(When.REPLAY, daemon):
        other.c.insert_one({"_id": 1})
        other.command({"collMod": "c", "validator": {"n": 1}})
        other.client.drop_database(other.name)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_capped_collection_overwrites_documents_during_the_copy(
    pair: Pair, daemon: Daemon
) -> None:
    capped = pair.source.client.d.create_collection("c", capped=True, size=3_000_000)
    capped.insert_many({"_id": n, "pad": "p" * 500} for n in range(5000))
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        capped.insert_many({"_id": n, "pad": "p" * 500} for n in range(5000, 17_000))
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_an_update_that_crashes_the_server_of_the_destination(pair: Pair, tmp_path: Path) -> None:
    """Crash the destination's server by a synced update, and restart it: the sync must continue.

    WARNING: MongoDB 6.0 crashes if a pipeline changes a field whose name occurs twice in the document.
    """
    twice = bson.encode({"_id": 1, "a": 1})[4:-1] + bson.encode({"a": 2, "pad": "p" * 3000})[4:-1]
    document = RawBSONDocument((len(twice) + 5).to_bytes(4, "little") + twice + b"\0")
    pair.source.client.d.c.insert_one(document)
    with ReplicaSet(name="fragile") as fragile:
        with Daemon(pair.source.uri, fragile.uri, tmp_path).running() as daemon:
            daemon.start()
            daemon.wait_until_committable()
            pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"a": 5, "new": 1}})
            wait_for(lambda: fragile.members[0].pid is None, "the server ends")
            fragile.restart_member(0)
            daemon.commit()
            with fragile.client() as client:
                assert_none(compare_clusters(pair.source.client, client).differences)


def test_an_index_build_in_progress_is_not_listed(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    client.d.c.insert_many([{"_id": 1, "n": 1}, {"_id": 2, "n": 1}])
    hang = {"configureFailPoint": "hangAfterSettingUpIndexBuild"}
    client.admin.command({**hang, "mode": "alwaysOn"})
    with writes.started(lambda: client.d.c.create_index("n", unique=True)) as build:
        try:
            writes.wait_for_index_build(client)
            daemon.start()
            daemon.wait_until_committable()
        finally:
            client.admin.command({**hang, "mode": "off"})
        assert build.exception() is not None
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_metadata_of_another_instance_is_refused(
    pair: Pair, daemon: Daemon, tmp_path: Path
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.commit()
    pair.destination.client.drop_database("d")
    second = pair.daemon(tmp_path / "second", "--id", "second")
    second.folder.mkdir()
    with second.running():
        assert_refused(second.post("start", GOOD), 409, "MetadataLeftOver", ("coordinator",))
        pair.destination.client.drop_database(METADATA_DATABASE)
        second.start()
        second.commit()
        pair.assert_equal()


def test_drops_by_users_during_the_cut_over_do_not_fail_it(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", unique=True)
    pair.source.client.d.other.create_index("m", unique=True, sparse=True)
    step = (Point.STEP_DONE, "destination writable")
    with daemon.held_at(*step):
        daemon.start()
        daemon.wait_until_committable()
        daemon.ask_for_commit()
        daemon.wait_until_reached(*step)
        pair.destination.client.d.drop_collection("other")
        pair.destination.client.d.c.drop_index("n_1")
    daemon.wait_for_state("COMMITTED")


@pytest.mark.full
def test_a_suspended_process_does_not_overwrite_its_successors_writes(
    pair: Pair, daemon: Daemon
) -> None:
    pair.source.client.d.c.insert_many({"_id": n, "pad": "p" * 5000} for n in range(4000))
    with pair.successor(daemon) as successor:
        with daemon.held_at(Point.BATCH_WRITTEN):
            daemon.start()
            daemon.wait_until_reached(Point.BATCH_WRITTEN)
            successor.run()
            pair.source.client.d.c.delete_many({"_id": {"$gte": 10}})
            successor.commit()
        assert daemon.wait_for_state("FAILED")["error"] == "Superseded"
        pair.assert_equal()
