"""Pauses and resumes a sync in each phase, also when the daemon is killed meanwhile.

No change may be lost, and a paused sync must not write.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import SHARDED, Pair, across, across_topologies
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members

PHASES = {
    Point.COLLECTION_CREATED: "initializing collections and indexes",
    Point.BATCH_WRITTEN: "collection copy",
    Point.INDEXES_BUILT: "building indexes",
    Point.EVENTS_APPLIED: "change event application",
}
in_each_phase = pytest.mark.parametrize("point", PHASES, ids=lambda point: PHASES[point])


def fill(pair: Pair) -> None:
    pair.shard("d.c")
    writes.indexes(pair.source.client, unique=not pair.is_sharded)
    writes.fill(pair.source.client)


def start_until(pair: Pair, daemon: Daemon, point: Point) -> None:
    """Fill the source, start a sync, and wait until the daemon reaches `point`.

    The caller must have told the daemon to wait there (`Daemon.held_at`).
    """
    fill(pair)
    daemon.start(buildIndexes="afterDataCopy")
    if point is Point.EVENTS_APPLIED:
        daemon.wait_until_applying()
        writes.single_document_writes(pair.source.client)
    daemon.wait_until_reached(point)


def write_meanwhile(client: writes.AnyClient) -> None:
    writes.hot_document(client)
    writes.many_collections(client)
    writes.drop_and_create_again(client)
    writes.views(client)


def saved(pair: Pair) -> dict[str, Any] | None:
    """Return the saved run record; None if there is none.

    The journal and the heartbeat are left out, because they change even during a pause.
    """
    kept = {"journal": False, "beat": False}
    return pair.destination.client[METADATA_DATABASE].runs.find_one(projection=kept)


def assert_paused(daemon: Daemon, point: Point) -> None:
    shown = daemon.progress()
    assert (shown["state"], shown["info"]) == ("PAUSED", PHASES[point])
    assert (shown["canCommit"], shown["canWrite"]) == (False, False)
    assert (shown["lagTimeSeconds"], shown["error"]) == (None, None)
    assert "estimatedOplogTimeRemaining" in shown


def assert_refused(daemon: Daemon, command: str, body: Any = None) -> None:
    before = daemon.progress()
    answer = daemon.post(command, body)
    assert (answer.status_code, answer.json()["error"]) == (409, "InvalidState")
    assert f"the state is {before['state']}." in answer.json()["errorDescription"]
    assert daemon.progress()["state"] == before["state"]


def dropped(point: Point) -> str:
    """Return the name of the collection that `write_once` drops and creates again during the pause at `point`."""
    return f"dropped in {point.value}"


def write_once(client: writes.AnyClient, point: Point) -> None:
    """Update documents, and create and drop collections, indexes and views, during the pause at `point`.

    Most names contain the point, so a test can call this function once in each pause of a sync.
    """
    writes.hot_document(client)
    client[f"db{[*PHASES].index(point)}"].new.insert_many({"_id": n} for n in range(5))
    client.d.drop_collection(dropped(point))
    client.d[dropped(point)].insert_many({"_id": n, "second": True} for n in range(25))
    client.d[dropped(point)].create_index("second")
    client.d.command({"create": f"view in {point.value}", "viewOn": "c", "pipeline": []})


def assert_stays_paused(
    pair: Pair, daemon: Daemon, point: Point, write: Callable[[writes.AnyClient], None]
) -> None:
    before, databases = saved(pair), pair.destination.client.list_database_names()
    write(pair.source.client)
    assert_refused(daemon, "pause")
    assert_refused(daemon, "commit")
    assert_refused(daemon, "repair")
    assert_refused(daemon, "repair", {"dryRun": True})
    assert_refused(daemon, "start", daemon.start_body())
    assert_paused(daemon, point)
    assert saved(pair) == before
    assert pair.destination.client.list_database_names() == databases


def assert_stays_paused_when_killed(daemon: Daemon, point: Point) -> None:
    for _ in range(2):
        daemon.run()
        assert_paused(daemon, point)
        assert_refused(daemon, "start", daemon.start_body(buildIndexes="afterDataCopy"))
        daemon.kill()
    daemon.run()


def wait_until_stopped(daemon: Daemon, times: int = 1) -> None:
    """Wait until the log has at least `times` lines that report the end of the threads of a paused run."""
    wait_for(
        lambda: daemon.log.count("The work on the sync has stopped") >= times,
        "the work has stopped",
    )


@pytest.mark.in_turns
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_sync_paused_in_each_phase_has_lost_nothing(
    pair: Pair, daemon: Daemon, killed: bool
) -> None:
    """Pause and resume one sync at each point in turn, with writes in each pause: nothing may be lost.

    If `killed`, also kill the daemon in each pause: the sync must stay paused.
    """
    for point in PHASES:
        pair.shard(f"d.{dropped(point)}")
        pair.source.client.d[dropped(point)].insert_many({"_id": n, "n": n} for n in range(50))
        pair.source.client.d[dropped(point)].create_index("n")
    fill(pair)
    for times, point in enumerate(PHASES, start=1):
        with daemon.held_at(point):
            if times == 1:
                daemon.start(buildIndexes="afterDataCopy")
            else:
                daemon.resume()
            daemon.wait_until_reached(point)
            assert_refused(daemon, "resume")
            daemon.pause()
            assert_paused(daemon, point)
            if killed:
                daemon.kill()
        if killed:
            write_once(pair.source.client, point)
            assert_stays_paused_when_killed(daemon, point)
        else:
            wait_until_stopped(daemon, times)
            assert_stays_paused(pair, daemon, point, partial(write_once, point=point))
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@across(SHARDED)
def test_a_sync_to_shards_paused_in_each_phase_has_lost_nothing(pair: Pair, daemon: Daemon) -> None:
    test_a_sync_paused_in_each_phase_has_lost_nothing(pair, daemon, killed=False)


@pytest.mark.full
@in_each_phase
def test_a_resumed_sync_has_lost_nothing(pair: Pair, daemon: Daemon, point: Point) -> None:
    with daemon.held_at(point):
        start_until(pair, daemon, point)
        daemon.pause()
        assert_paused(daemon, point)
    wait_until_stopped(daemon)
    assert_stays_paused(pair, daemon, point, write_meanwhile)
    daemon.resume()
    assert_refused(daemon, "resume")
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@across(SHARDED)
@pytest.mark.parametrize("point", [Point.BATCH_WRITTEN, Point.EVENTS_APPLIED])
def test_a_resumed_sync_to_shards_has_lost_nothing(
    pair: Pair, daemon: Daemon, point: Point
) -> None:
    test_a_resumed_sync_has_lost_nothing(pair, daemon, point)


@pytest.mark.full
@in_each_phase
def test_a_sync_killed_in_a_pause_stays_paused(pair: Pair, daemon: Daemon, point: Point) -> None:
    """Kill a paused daemon before the threads of its run have ended, and again later: the sync must stay paused."""
    with daemon.held_at(point):
        start_until(pair, daemon, point)
        daemon.pause()
        daemon.kill()
    write_meanwhile(pair.source.client)
    assert_stays_paused_when_killed(daemon, point)
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_users_stay_blocked_during_a_pause(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.pause()
    status = pair.destination.client.admin.command("serverStatus")["repl"]
    assert status["userWriteBlockMode"] == 2
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_resume_waits_for_calls_in_flight(pair: Pair, daemon: Daemon) -> None:
    with ExitStack() as holding:
        holding.enter_context(daemon.held_at(Point.BATCH_WRITTEN))
        start_until(pair, daemon, Point.BATCH_WRITTEN)
        daemon.pause()
        with writes.started(daemon.resume) as resumed:
            refused = "CommandInProgress"
            wait_for(lambda: daemon.post("pause").json().get("error") == refused, refused)
            assert daemon.progress()["state"] == "PAUSED"
            holding.close()
            resumed.result()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_an_error_in_a_pause_does_not_end_the_sync(pair: Pair, daemon: Daemon) -> None:
    data = {"failCommands": ["update"], "errorCode": 2}
    admin = pair.destination.client.admin
    try:
        with daemon.held_at(Point.BATCH_WRITTEN):
            start_until(pair, daemon, Point.BATCH_WRITTEN)
            daemon.pause()
            admin.command({"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": data})
        wait_for(lambda: "A call failed while the sync was being paused" in daemon.log, "an error")
    finally:
        admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    assert_paused(daemon, Point.BATCH_WRITTEN)
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@across_topologies
def test_pauses_under_load(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client, 3000)
    with Workload([pair.source.client.d.c, pair.source.client.d.other], seed=3) as workload:
        daemon.start()
        daemon.wait_until_applying()
        for _ in range(3):
            applied = daemon.progress()["totalEventsApplied"]
            wait_for(lambda: daemon.progress()["totalEventsApplied"] > applied, "events")
            daemon.pause()
            daemon.resume()
        workload.stop()
    daemon.commit()
    pair.assert_equal()
