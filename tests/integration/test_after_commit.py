"""Tests that user writes to the source after a commit appear in a lasting warning, and that nothing else does.

If changes of the source cannot be checked, another warning must say so.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.sandbox import ReplicaSet
from tests.support.daemon import Daemon
from tests.support.duo import role_of, running_duo
from tests.support.failpoints import APPLICATION, failing
from tests.support.fleet import Fleet
from tests.support.metrics import scrape
from tests.support.oplogs import emptied, roll_over, small_oplog
from tests.support.pair import SHARDED, Pair, across
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

WARNING = "After the commit, cluster0 (the old source) accepted"
INTERRUPTED = "The watch for user writes to the source after the commit is interrupted"
AGAIN = "The watch for user writes to the source is still interrupted"


def is_watched(client: AnyClient) -> bool:
    """Return whether the daemon reads a change stream of the cluster, or has just read it."""
    found = client.admin.aggregate([{"$currentOp": {"idleCursors": True}}])
    return any(
        each.get("appName") == APPLICATION and "$changeStream" in str(each.get("cursor"))
        for each in found
    )


@pytest.mark.three_members
def test_writes_after_the_commit(pair: Pair, daemon: Daemon) -> None:
    d = pair.source.client.d
    d.c.insert_one({"_id": 0})
    daemon.start()
    daemon.commit()
    d.c.insert_many([{"_id": n} for n in range(1, 6)])
    daemon.wait_for_warning(WARNING, "at least 5, in d.c;")
    # DDL does not count.
    d.c.create_index("a")
    d.e.insert_one({})
    found = daemon.wait_for_warning(WARNING, "at least 6, in d.c, d.e;")
    assert scrape(daemon)["mongosync_warning"]["written after commit",] == 1
    assert daemon.terminate() == 0
    d.e.drop()
    daemon.run()
    daemon.wait_for_warning(found)
    assert daemon.progress()["state"] == "COMMITTED"


def test_expired_and_unselected_documents_do_not_count(pair: Pair, daemon: Daemon) -> None:
    d = pair.source.client.d
    d.old.insert_one({})
    d.ttl.create_index("when", expireAfterSeconds=0)
    d.ttl.insert_one({"when": datetime.now(UTC) + timedelta(seconds=15)})
    d.filtered.insert_many([{"_id": n, "keep": n < 2} for n in range(4)])
    daemon.start(
        documentFilter=[{"database": "d", "collection": "filtered", "filter": {"keep": True}}],
        excludeNamespaces=[{"database": "other"}],
    )
    daemon.commit()
    # An application renews the document on the destination.
    later = datetime.now(UTC) + timedelta(days=1)
    pair.destination.client.d.ttl.update_one({}, {"$set": {"when": later}})
    wait_for(lambda: not d.ttl.find_one(), "the document expires")
    pair.source.client.other.c.insert_one({})
    # Documents may also expire in a collection that was renamed to retire it.
    d.old.rename("retired")
    d.retired.delete_many({})
    d.filtered.insert_one({"keep": False})
    d.filtered.delete_one({"_id": 3})
    d.filtered.update_one({"_id": 0}, {"$set": {"v": 1}})
    d.filtered.insert_one({"keep": True})
    d.c.insert_one({})
    daemon.wait_for_warning(WARNING, "at least 3, in d.c, d.filtered;")


@across(SHARDED)
def test_only_the_coordinator_watches_a_sharded_source(pair: Pair, fleet: Fleet) -> None:
    pair.shard("d.c")
    d = pair.source.client.d
    d.c.insert_many([{"_id": n} for n in range(10)])
    fleet.start()
    fleet.commit()
    d.c.insert_many([{"_id": n} for n in range(10, 20)])
    fleet.coordinator.wait_for_warning(WARNING, "at least 10, in d.c;")
    assert not fleet.follower.warnings(WARNING)


def test_a_blocked_source_is_not_watched(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({})
    daemon.start(enableUserWriteBlocking="sourceAndDestination")
    daemon.wait_until_applying()
    wait_for(lambda: is_watched(pair.source.client), "the sync reads changes")
    daemon.commit()
    wait_for(lambda: not is_watched(pair.source.client), "the sync reads no changes")


def test_the_watch_ends_after_many_writes(pair: Pair, daemon: Daemon) -> None:
    d = pair.source.client.d
    d.c.insert_one({})
    daemon.start()
    daemon.commit()
    wait_for(lambda: is_watched(pair.source.client), "the source is watched")
    d.c.insert_many([{} for _ in range(10_000)])
    daemon.wait_for_warning(WARNING, "at least 10000, in d.c;")
    wait_for(lambda: not is_watched(pair.source.client), "the watch has ended")
    assert daemon.warnings(WARNING)


def test_a_takeover_moves_the_watch(pair: Pair, tmp_path: Path) -> None:
    c = pair.source.client.d.c
    c.insert_one({})
    with running_duo(pair, tmp_path) as duo:
        former = duo.active
        former.start()
        former.commit()
        c.insert_one({})
        former.wait_for_warning(WARNING, "at least 1, in d.c;")
        former.signal(signal.SIGSTOP)
        duo.await_takeover("a suspension")
        duo.active.wait_for_warning(WARNING, "at least 1, in d.c;")
        former.signal(signal.SIGCONT)
        wait_for(lambda: role_of(former) == "standby", "the former active daemon is a standby")
        c.insert_one({})
        duo.active.wait_for_warning(WARNING, "at least 2, in d.c;")


@pytest.fixture
def own_source(pair: Pair, tmp_path: Path) -> Iterator[tuple[ReplicaSet, Daemon]]:
    """Return a source that the test may stop, and a daemon."""
    with ReplicaSet(name="own") as source:
        with Daemon(source.uri, pair.destination.uri, tmp_path).running() as daemon:
            yield source, daemon


def test_a_source_that_is_switched_off(own_source: tuple[ReplicaSet, Daemon]) -> None:
    """Stop the source after the commit, start it again, and stop it for good.

    For each stop, the log must say once that the watch is interrupted. The stopped source must not cause a warning.
    """
    source, daemon = own_source
    with source.client() as client:
        client.d.c.insert_one({})
        daemon.start()
        daemon.commit()
        source.kill_member(0)
        wait_for(lambda: daemon.log.count(AGAIN) >= 2, "the watch tries again")
        assert daemon.progress().get("warnings", []) == []
        source.restart_member(0)
        client.d.c.insert_one({})
        daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
        assert daemon.log.count(INTERRUPTED) == 1
    source.kill_member(0)
    wait_for(lambda: daemon.log.count(INTERRUPTED) == 2, "the watch is interrupted again")
    daemon.wait_for_warning(WARNING)
    assert daemon.progress()["state"] == "COMMITTED"
    daemon.ask_to_end()
    assert daemon.wait_until_ended(30.0) == 0


def test_an_oplog_that_lost_the_changes(pair: Pair, tmp_path: Path) -> None:
    """Stop the daemon until the oplog has lost changes: a restart shows what was found, and what was not checked."""
    with small_oplog() as source, emptied(source, pair.destination) as other:
        with Daemon(source.uri, pair.destination.uri, tmp_path).running() as daemon:
            c = other.source.client.d.c
            c.insert_one({"_id": 0})
            daemon.start()
            daemon.commit()
            c.insert_one({"_id": 1})
            daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
            daemon.terminate()
            roll_over(other.source.client)
            daemon.run()
            daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
            found = daemon.wait_for_warning("User writes to cluster0", "were not checked")
            assert scrape(daemon)["mongosync_warning"]["unchecked after commit",] == 1
            c.insert_one({"_id": 2})
            daemon.wait_for_warning(WARNING, "at least 2, in d.c;")
            daemon.terminate()
            daemon.run()
            daemon.wait_for_warning(found)
            assert daemon.progress()["state"] == "COMMITTED"


def test_changes_that_cannot_be_checked(pair: Pair, daemon: Daemon) -> None:
    c = pair.source.client.d.c
    c.insert_one({"_id": 0})
    daemon.start()
    daemon.commit()
    wait_for(lambda: is_watched(pair.source.client), "the source is watched")
    refused = {"failCommands": ["getMore", "aggregate"], "errorCode": 2, "appName": APPLICATION}
    with failing(pair.source.client, refused):
        c.insert_one({"_id": 1})
        daemon.wait_for_warning("User writes to cluster0", "cannot be checked now")
        assert daemon.progress()["state"] == "COMMITTED"
    daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
    daemon.wait_without_warning("cannot be checked now")


def test_a_document_filter_that_fails(pair: Pair, daemon: Daemon) -> None:
    c = pair.source.client.d.c
    c.insert_one({"_id": 0, "size": "1"})
    positive = {"$expr": {"$gt": [{"$toInt": "$size"}, 0]}}
    daemon.start(documentFilter=[{"database": "d", "collection": "c", "filter": positive}])
    daemon.commit()
    c.insert_one({"_id": 1, "size": "large"})
    daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
    c.insert_one({"_id": 2, "size": "2"})
    daemon.wait_for_warning(WARNING, "at least 2, in d.c;")
    assert not daemon.warnings("cannot be checked now")


def test_writes_while_the_commit_ends(pair: Pair, daemon: Daemon) -> None:
    """Hold the commit after users may write to the destination: writes to the source are found all the same."""
    c = pair.source.client.d.c
    c.create_index("a", unique=True)
    daemon.start()
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "destination writable"):
        daemon.ask_for_commit()
        wait_for(lambda: daemon.progress()["canWrite"], "users may write to the destination")
        c.insert_one({"a": 1})
        daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
        assert daemon.progress()["state"] == "COMMITTING"
    daemon.wait_for_state("COMMITTED")
    daemon.wait_for_warning(WARNING, "at least 1, in d.c;")
