"""Tests syncs from a source whose oplog is so small that it drops change events before they are read.

A warning must precede the loss; after the loss, the sync must fail with a named error.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson.timestamp import Timestamp

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.failpoints import failing
from tests.support.oplogs import emptied, note, roll_over, small_oplog
from tests.support.pair import Pair
from tests.support.resuming import assert_final
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def small() -> Iterator[ReplicaSet]:
    with small_oplog() as source:
        yield source


@pytest.fixture
def pair(small: ReplicaSet, replica_sets: Pair) -> Iterator[Pair]:
    with emptied(small, replica_sets.destination) as pair:
        yield pair


@pytest.fixture
def daemon(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon that has one writer and one lane, and checks the oplog ten times a second.

    A lane is a thread that applies change events.
    """
    process = pair.daemon(tmp_path, "--loadLevel", "1")
    process.watch_closely()
    with process.running():
        yield process


def events_read(client: writes.AnyClient) -> int:
    """Return the number of events that the daemon's open change streams have returned."""
    stream = "cursor.originatingCommand.pipeline.$changeStream"
    cursors = client.admin.aggregate(
        [
            {"$currentOp": {"idleCursors": True, "allUsers": True}},
            {"$match": {f"{stream}.showRawUpdateDescription": True}},
        ]
    )
    return sum(each["cursor"]["nDocsReturned"] for each in cursors)


@contextmanager
def slow(pair: Pair, command: str, milliseconds: int) -> Iterator[None]:
    """Delay each command with this name on the destination during the block."""
    data = {"failCommands": [command], "blockConnection": True, "blockTimeMS": milliseconds}
    with failing(pair.destination.client, data):
        yield


def is_lost(source: writes.AnyClient, daemon: Daemon) -> bool:
    """Write to the source's oplog, and return whether the daemon warns that the sync will fail.

    Call this repeatedly: the blocked reader has read up to two pages ahead, so the necessary number of writes is
    unknown.
    """
    note(source)
    return bool(daemon.warnings("so the sync fails"))


def wait_until_checked(daemon: Daemon) -> None:
    """Wait until the daemon knows how fast the oplog grows, so that it notices the next write."""

    def is_checked() -> bool:
        return bool(daemon.progress()["estimatedOplogTimeRemaining"] != "not checked yet")

    wait_for(is_checked, "the oplog is checked")


def assert_lost(progress: dict[str, Any]) -> None:
    assert progress["error"] == "OplogWindowExceeded"
    assert "the oldest entry of the source's oplog is from" in progress["errorDescription"]
    assert "replSetResizeOplog" in progress["errorDescription"]
    assert "estimatedOplogTimeRemaining" not in progress


def saved_time(pair: Pair) -> Timestamp:
    run = pair.destination.client[METADATA_DATABASE].runs.find_one()
    assert run is not None
    time: Timestamp = run["position"]["time"]
    return time


@pytest.mark.full
def test_entries_lost_during_the_copy_fail_the_sync(pair: Pair, daemon: Daemon) -> None:
    # Enough documents for a copy of about a minute.
    for number in range(40):
        pair.source.client.d[f"c{number}"].insert_one({"_id": 1})
    with slow(pair, "insert", 1500):
        daemon.start(eventSpool="never")
        wait_for(lambda: daemon.progress()["info"] == "collection copy", "the copy")

        def warned() -> dict[str, Any] | None:
            note(pair.source.client)
            progress = daemon.progress()
            return progress if "warnings" in progress else None

        progress = wait_for(warned, "a warning")
        assert progress["state"] == "RUNNING"
        assert progress["estimatedOplogTimeRemaining"] == "less than 15 minutes"
        assert "less than 15 minutes" in progress["warnings"][0]
        roll_over(pair.source.client)
        progress = daemon.wait_for_state("FAILED")
    assert_lost(progress)
    assert progress["info"] == "collection copy"
    copied = progress["collectionCopy"]
    assert copied["estimatedCopiedBytes"] < copied["estimatedTotalBytes"]


def test_entries_lost_while_the_copy_hangs_fail_the_sync(pair: Pair, daemon: Daemon) -> None:
    """Let the oplog drop needed entries while the copy hangs: a warning must appear, and the sync must fail.

    The hanging thread delays the failure, but not the warning.
    """
    for number in range(3):
        pair.source.client.d[f"c{number}"].insert_one({"_id": 1})
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(eventSpool="never")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        roll_over(pair.source.client)
        daemon.wait_for_warning("so the sync fails")
    assert_lost(daemon.wait_for_state("FAILED"))


def test_entries_lost_while_the_daemon_is_stopped_fail_the_sync(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(eventSpool="never")
    daemon.wait_until_committable()
    daemon.kill()
    roll_over(pair.source.client)
    daemon.run()
    assert_lost(daemon.wait_for_state("FAILED"))


def test_entries_lost_during_a_pause_fail_the_sync(pair: Pair, daemon: Daemon) -> None:
    """Pause a sync that may not spool events: a warning must precede the loss, and the paused sync must fail."""
    writes.fill(pair.source.client)
    daemon.start(eventSpool="never")
    daemon.wait_until_committable()
    daemon.pause()
    wait_until_checked(daemon)
    note(pair.source.client)
    daemon.wait_for_warning("in less than 15 minutes the oplog begins to drop", "resume the sync")
    progress = daemon.progress()
    assert progress["state"] == "PAUSED"
    assert progress["estimatedOplogTimeRemaining"] == "less than 15 minutes"
    roll_over(pair.source.client)
    assert_lost(daemon.wait_for_state("FAILED"))
    assert_final(daemon, "no longer returns the changes that the sync needs")


def test_a_resume_ends_the_oplog_watch_of_a_pause(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(eventSpool="never")
    daemon.wait_until_committable()
    daemon.pause()
    wait_until_checked(daemon)
    pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"paused": True}})
    note(pair.source.client)
    daemon.wait_for_warning("resume the sync")
    daemon.resume()
    daemon.wait_without_warning("resume the sync")
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_entries_lost_while_events_wait_fail_the_sync(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(eventSpool="never")
    daemon.wait_until_committable()
    with daemon.held_at(Point.EVENTS_APPLIED):
        pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"held": True}})
        daemon.wait_until_reached(Point.EVENTS_APPLIED)
        before = wait_for(lambda: events_read(pair.source.client), "the cursor is idle")
        # The event of this command waits until all earlier events are applied, and blocks the reader meanwhile.
        pair.source.client.d.create_collection("later")
        wait_for(lambda: events_read(pair.source.client) > before, "the reader has the event")
        wait_for(lambda: is_lost(pair.source.client, daemon), "a warning")
    progress = daemon.wait_for_state("FAILED")
    assert_lost(progress)
    assert progress["info"] == "change event application"
    assert_final(
        daemon,
        "no longer returns the changes that the sync needs",
        "nor does the oplog of any other member",
    )


def test_a_limit_of_events_does_not_endanger_the_oplog(pair: Pair, daemon: Daemon) -> None:
    """Limit change events to one per second while the oplog is about to drop some: the limit must be suspended."""
    source = pair.source.client
    source.d.c.insert_one({"_id": "first"})
    daemon.limits(eventsPerSecond=1)
    daemon.start(eventSpool="never")
    daemon.wait_until_applying()
    # The source seems to write so fast that its oplog lasts for seconds.
    note(source)
    text = "The limit of change events per second is suspended: in less than 15 minutes the oplog"
    daemon.wait_for_warning(text)
    source.d.c.insert_many({"_id": n} for n in range(1000))
    wait_for(lambda: daemon.progress()["totalEventsApplied"] >= 1000, "all events", seconds=200)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_entries_that_are_already_read_are_not_lost(pair: Pair, daemon: Daemon) -> None:
    """Let the oplog drop the entry of the saved position after the daemon has read all events.

    The sync must continue, and warn that a restart would fail until a later position is saved.
    """
    writes.fill(pair.source.client)
    daemon.start(eventSpool="never")
    daemon.wait_until_committable()
    with daemon.held_at(Point.EVENTS_APPLIED):
        pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"held": True}})
        daemon.wait_until_reached(Point.EVENTS_APPLIED)
        roll_over(pair.source.client)
        daemon.wait_for_warning("a restarted or paused sync would need")
        note(pair.source.client)
        assert daemon.progress()["state"] == "RUNNING"
    daemon.wait_without_warning("a restarted or paused sync would need")
    daemon.commit()
    pair.assert_equal()
    assert "warnings" not in daemon.progress()
    found = daemon.report()["warnings"]
    assert any("oplog of the source" in each["text"] and each["ended"] for each in found), found


def test_the_resume_point_of_an_idle_source_stays_in_the_oplog(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(eventSpool="never")
    daemon.wait_until_committable()
    before = saved_time(pair)
    wait_for(lambda: saved_time(pair).time >= before.time + 5, "the saved position moves on")
    # Wait, because a page may be older than the cluster time in its reply, so there can be a lag at some moments.
    wait_for(lambda: daemon.progress()["lagTimeSeconds"] in (0, 1), "there is no lag")
    daemon.commit()
    pair.assert_equal()


def commit_from_destination(pair: Pair, daemon: Daemon, **options: Any) -> None:
    """Commit a reversible sync from the destination of the pair to its source, whose oplog a test can roll over."""
    writes.fill(pair.destination.client, 20)
    daemon.start(
        source="cluster1",
        destination="cluster0",
        reversible=True,
        enableUserWriteBlocking="sourceAndDestination",
        **options,
    )
    daemon.commit()


def test_a_reversal_is_refused_once_the_oplog_is_too_short(pair: Pair, daemon: Daemon) -> None:
    """After a commit, make the destination's oplog drop the entries that a reverse needs: /reverse must be refused."""
    commit_from_destination(pair, daemon)
    roll_over(pair.source.client)
    answer = daemon.post("reverse")
    assert (answer.status_code, answer.json()["error"]) == (409, "OplogWindowExceeded")
    assert "no longer reaches back to" in answer.json()["errorDescription"]
    progress = daemon.progress()
    assert (progress["state"], progress["canWrite"]) == ("COMMITTED", True)


@pytest.mark.full
def test_a_lost_reversed_sync_names_the_cluster_to_stay_on(pair: Pair, daemon: Daemon) -> None:
    """Make a reversed sync lose changes of its new source: errors must name it as the cluster with the newest data.

    A refused reset must not send the operator to the other cluster.
    """
    commit_from_destination(pair, daemon, eventSpool="never")
    daemon.reverse()
    daemon.wait_until_committable()
    daemon.kill()
    roll_over(pair.source.client)
    daemon.run()
    assert_lost(daemon.wait_for_state("FAILED"))
    assert_final(daemon, "it cannot be reset", "cluster0 has the newest data", "docs/howto/reverse")
    for confirm in ("cluster0", "cluster1"):
        answer = daemon.post("reset", {"confirm": confirm})
        assert (answer.status_code, answer.json()["error"]) == (409, "DestinationInUse")
        assert "docs/howto/reverse" in answer.json()["errorDescription"]
