"""Tests how two daemons with `--standby` answer requests, and how they change roles."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.duo import Duo, role_of, running_duo
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, Pair, across
from tests.support.selection import full
from tests.support.waiting import wait_for

COMMANDS: dict[str, dict[str, Any]] = {
    "start": {"source": "cluster0", "destination": "cluster1"},
    "preflight": {"source": "cluster0", "destination": "cluster1"},
    **dict.fromkeys(("pause", "resume", "users", "commit", "reverse"), {}),
    "repair": {"dryRun": True},
    "reset": {"confirm": "cluster1"},
}


@pytest.fixture
def duo(pair: Pair, tmp_path: Path) -> Iterator[Duo]:
    with running_duo(pair, tmp_path) as running:
        yield running


def _health(daemon: Daemon) -> tuple[int, int]:
    return daemon.get("/livez").status_code, daemon.get("/readyz").status_code


def _assert_refused(standby: Daemon, port: int) -> None:
    answers = [standby.post(name, body) for name, body in COMMANDS.items()]
    answers += [standby.get(each) for each in ("namespaces", "mismatches", "report")]
    for each in answers:
        assert (each.status_code, each.json()["error"]) == (409, "NotActive"), each.text
        assert f"127.0.0.1:{port}" in each.json()["errorDescription"]


@across(REPLICA_SETS, full(SHARDED), full(FROM_SHARDED))
def test_a_standby_shows_the_sync_and_takes_over(pair: Pair, tmp_path: Path) -> None:
    # The leases are so long that none expires, even on a busy machine: the daemons release the leases.
    with running_duo(pair, tmp_path, leases=(600, 600)) as duo:
        _show_and_take_over(pair, duo)


def _show_and_take_over(pair: Pair, duo: Duo) -> None:
    pair.source.client.d.c.insert_many({"_id": n} for n in range(500))
    first, second = duo.active, duo.standby
    for each in (first, second):
        wait_for(lambda each=each: _health(each) == (200, 200), "both are ready")
    _assert_refused(second, first.port)
    body = first.start_body()
    swapped = {**body, "source": body["destination"], "destination": body["source"]}
    for command in ("start", "preflight"):
        assert first.post(command, swapped).json()["error"] == "InvalidRequest"
    # A lease already exists in the metadata, and must not prevent a start.
    first.start()
    first.wait_until_committable()
    _assert_refused(second, first.port)
    shown = second.wait_until_committable()
    assert shown["info"] == "change event application"
    assert shown["lease"] == {**first.progress()["lease"], "expires": shown["lease"]["expires"]}
    assert shown["lease"]["address"] == f"127.0.0.1:{first.port}"
    metrics = second.get("/metrics").text
    assert (
        'mongosync_active{id="coordinator"} 0.0' in metrics
        and 'state{state="RUNNING"} 1.0' in metrics
    )
    assert 'mongosync_active{id="coordinator"} 1.0' in first.get("/metrics").text
    first.pause()
    assert first.terminate() == 0
    duo.await_takeover("SIGTERM")
    assert second.progress()["state"] == "PAUSED"
    first.run()
    _assert_refused(first, second.port)
    second.resume()
    pair.source.client.d.c.insert_one({"_id": "later"})
    second.commit()
    pair.assert_equal()
    assert second.terminate() == 0
    duo.await_takeover("SIGTERM when committed")
    assert first.progress()["state"] == "COMMITTED"
    report = first.report()
    assert report["headline"]["level"] == "good" and len(report["commits"]) == 1
    assert len(report["instances"][0]["processes"]) == 3


@pytest.mark.full
def test_a_reset_is_completed_by_the_standby(pair: Pair, duo: Duo) -> None:
    pair.source.client.d.c.insert_many({"_id": n} for n in range(100))
    pair.source.client.e.c.insert_one({"_id": 1})
    first, second = duo.active, duo.standby
    first.start()
    first.wait_until_committable()
    first.kill_at(Point.COLLECTION_DROPPED)
    second.kill_at(Point.METADATA_DROPPED)
    first.post_unanswered("reset", {"confirm": "cluster1"})
    first.wait_until_killed()
    duo.await_takeover("SIGKILL during the reset")
    first.run(ready=False)
    second.wait_until_killed()
    duo.await_takeover("SIGKILL at the end of the reset")
    first.wait_for_state("IDLE")
    assert pair.destination.client[METADATA_DATABASE].list_collection_names() == ["leases"]
    assert not {"d", "e"} & {*pair.destination.client.list_database_names()}
    second.run()
    # The leases must not prevent the next sync.
    first.start()
    first.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_process_without_the_lease_does_not_keep_the_sync(
    pair: Pair, duo: Duo, tmp_path: Path
) -> None:
    """Let a process without `--standby` start a sync beside two daemons with `--standby`, and restart this process.

    Each time, the daemon that holds the lease must take the sync over. A suspended former active daemon that wakes up
    can interfere in the same way.
    """
    pair.source.client.d.c.insert_one({"_id": 1})
    (tmp_path / "other").mkdir()
    with pair.daemon(tmp_path / "other").running() as other:
        other.start()
        assert other.wait_for_state("FAILED")["error"] == "Superseded"
        _one_active(duo).wait_until_committable()
        other.kill()
        other.run()
        assert other.wait_for_state("FAILED")["error"] == "Superseded"
    _one_active(duo).commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_daemon_that_is_suspended_after_it_took_the_lease(pair: Pair, duo: Duo) -> None:
    """Hold a daemon that has just taken the lease, until another daemon has taken the expired lease.

    When the first daemon continues, it must become a standby and leave the sync alone.
    """
    pair.source.client.d.c.insert_one({"_id": 1})
    first, second = duo.active, duo.standby
    first.start()
    first.wait_until_committable()
    with second.held_at(Point.LEASE_TAKEN):
        first.kill()
        second.wait_until_reached(Point.LEASE_TAKEN)
        first.launch()
        wait_for(lambda: role_of(first) == "active", "the lease has expired and is taken again")
    wait_for(lambda: role_of(second) == "standby", "the late one is a standby")
    assert "Another process has taken over" not in first.log
    first.commit()
    pair.assert_equal()


def _one_active(duo: Duo) -> Daemon:
    """Wait until one of the two daemons is active, and return it."""
    both = (duo.active, duo.standby)
    return wait_for(
        lambda: next((each for each in both if role_of(each) == "active"), None), "one is active"
    )


def test_a_sync_to_cluster0_cannot_have_a_standby(pair: Pair, tmp_path: Path) -> None:
    pair.destination.client.d.c.insert_one({"_id": 1})
    with pair.daemon(tmp_path).running() as plain:
        plain.start(source="cluster1", destination="cluster0")
        plain.wait_until_committable()
        plain.kill()
    (tmp_path / "standby").mkdir()
    refused = pair.daemon(tmp_path / "standby", "--standby")
    try:
        refused.launch()
        assert refused.wait_until_ended() == 1
        assert "WrongClusters" in refused.output and "without --standby" in refused.output
    finally:
        refused.close()


def test_readiness_names_what_is_missing(tmp_path: Path) -> None:
    nobody = "mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=600000"
    daemon = Daemon(nobody, nobody, tmp_path, "--standby")
    try:
        daemon.run(ready=False)
        assert _health(daemon) == (200, 503)
        assert "connecting to cluster0" in daemon.get("/readyz").json()["errorDescription"]
    finally:
        daemon.close()


@pytest.mark.full
def test_a_repair_is_completed_by_the_standby(pair: Pair, duo: Duo) -> None:
    """Kill the active daemon during a repair: the standby must repeat the repair.

    The standby must also repair documents that have changed on the source since the repair began.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.c.create_index("n")
    first, second = duo.active, duo.standby
    first.start(verification={"enabled": True, "repair": "never"})
    first.wait_until_committable()
    writes.spoil(destination)
    assert first.commit_or_fail()["error"] == "VerificationFailed"
    with first.held_at(Point.REPAIR_APPLIED, "1"):
        assert first.post("repair").json() == {"success": True}
        first.wait_until_reached(Point.REPAIR_APPLIED, "1")
        source.d.c.update_many({"_id": {"$lt": 45}}, {"$inc": {"n": 1000}})
        source.d.c.delete_many({"_id": {"$gte": 50, "$lt": 70}})
        first.kill()
    duo.await_takeover("SIGKILL during a repair")
    second.wait_for_state("RUNNING")
    wait_for(lambda: not second.progress()["repairs"]["inProgress"], "the repair is complete")
    second.commit()
    pair.assert_equal()
    assert second.progress()["repairs"]["documents"] == 90
