"""Syncs clusters with access control, with a primary that steps down, and with cluster1 as the source.

Other tests continue a killed copy whose resume point is not valid any more. `make test` leaves out these tests, and the
tests whose cases `test_access_control` and `tests/faults/test_elections.py` cover, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.workload import Workload
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.phases import PHASES, When, writes_in

SOURCE_ROLES = ["readAnyDatabase", "clusterMonitor", "backup"]


@pytest.fixture(scope="module")
def guarded() -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    """Start a source and a destination with access control."""
    with ReplicaSet(name="s", access_control=True) as source:
        with ReplicaSet(name="d", access_control=True) as destination:
            yield source, destination


@pytest.fixture
def guarded_pair(guarded: tuple[ReplicaSet, ReplicaSet]) -> Iterator[Pair]:
    source, destination = guarded
    with source.client() as first, destination.client() as second:
        pair = Pair(Side(source.uri, first), Side(destination.uri, second))
        pair.empty()
        yield pair


@pytest.mark.full
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_access_control(
    guarded: tuple[ReplicaSet, ReplicaSet], guarded_pair: Pair, tmp_path: Path, when: When
) -> None:
    # The user in the destination's connection string is `sync`: it has the documented roles, and the role `backup`.
    reader = guarded[0].create_user(f"reader{when.name}", SOURCE_ROLES)
    with Daemon(reader, guarded_pair.destination.uri, tmp_path).running() as daemon:
        writes.fill(guarded_pair.source.client)
        with writes_in(when, daemon, includeNamespaces=[{"databaseRegex": {"pattern": "."}}]):
            writes.single_document_writes(guarded_pair.source.client)
            writes.new_collections(guarded_pair.source.client)
            writes.time_series(guarded_pair.source.client)
            writes.renames(guarded_pair.source.client)
            writes.modifications(guarded_pair.source.client)
        daemon.commit()
        guarded_pair.assert_equal()
        for uri in (reader, guarded_pair.destination.uri):
            password = uri.partition("@")[0].rpartition(":")[2]
            assert password not in daemon.log


def test_a_missing_privilege_is_refused_by_name(
    guarded: tuple[ReplicaSet, ReplicaSet], guarded_pair: Pair, tmp_path: Path
) -> None:
    roles = ["readWriteAnyDatabase", "dbAdminAnyDatabase", "clusterMonitor"]
    poor = guarded[1].create_user("poor", roles)
    with Daemon(guarded_pair.source.uri, poor, tmp_path).running() as daemon:
        answer = daemon.post("start", GOOD)
        assert_refused(answer, 409, "NotAuthorized", ("bypassWriteBlockingMode", "restore"))
        assert daemon.progress()["state"] == "IDLE"


def test_an_unreadable_oplog_does_not_fail_the_sync(
    guarded: tuple[ReplicaSet, ReplicaSet], guarded_pair: Pair, tmp_path: Path
) -> None:
    admin = guarded_pair.source.client.admin
    privilege = {"resource": {"cluster": True}, "actions": ["replSetGetConfig", "useUUID"]}
    admin.command("createRole", "poor", privileges=[privilege], roles=["readAnyDatabase"])
    daemon = Daemon(
        guarded[0].create_user("poor", ["poor"]), guarded_pair.destination.uri, tmp_path
    )
    daemon.watch_closely()
    with daemon.running():
        writes.fill(guarded_pair.source.client)
        daemon.start()
        daemon.wait_for_warning()
        progress = daemon.wait_until_committable()
        assert progress["estimatedOplogTimeRemaining"] == "not checked yet"
        (warning,) = progress["warnings"]
        assert "clusterMonitor" in warning
        admin.command("grantRolesToRole", "poor", roles=["clusterMonitor"])
        daemon.wait_without_warning()
        daemon.commit()
        guarded_pair.assert_equal()


def test_cluster1_may_be_the_source(pair: Pair, tmp_path: Path) -> None:
    with Daemon(pair.destination.uri, pair.source.uri, tmp_path).running() as daemon:
        writes.fill(pair.source.client)
        daemon.start(source="cluster1", destination="cluster0")
        daemon.wait_until_committable()
        daemon.kill()
        daemon.run()
        daemon.commit()
        pair.assert_equal()
        assert daemon.progress()["directionMapping"]["Source"].startswith("cluster1: ")


@pytest.fixture(scope="module")
def three_members() -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    with ReplicaSet(name="s3", members=3) as source, ReplicaSet(
        name="d3", members=3
    ) as destination:
        yield source, destination


@pytest.mark.full
@pytest.mark.parametrize("side", [0, 1], ids=["source", "destination"])
@pytest.mark.parametrize("when", [When.COPY, When.APPLY], ids=lambda when: when.name)
def test_a_primary_steps_down(
    three_members: tuple[ReplicaSet, ReplicaSet], tmp_path: Path, side: int, when: When
) -> None:
    source, destination = three_members
    with source.client() as first, destination.client() as second:
        pair = Pair(Side(source.uri, first), Side(destination.uri, second))
        pair.empty()
        with Daemon(source.uri, destination.uri, tmp_path).running() as daemon:
            writes.fill(first, 2000)
            with Workload([first.d.other], seed=3) as workload:
                with writes_in(when, daemon):
                    if side == 1:
                        three_members[side].step_down()
                if side == 0:
                    workload.stop()
                    three_members[side].step_down()
            writes.single_document_writes(first)
            daemon.commit()
            pair.assert_equal()


def _cut_a_copy(pair: Pair, orderly: Daemon) -> None:
    """Kill the daemon in the middle of the copy of one collection, after it has saved a resume point."""
    pad = "p" * 5000
    pair.source.client.d.big.insert_many({"_id": n, "pad": pad} for n in range(6000))
    orderly.kill_at(Point.COPY_SAVED, number=4)
    orderly.post_unanswered("start", GOOD)
    orderly.wait_until_killed()
    saved = pair.destination.client[METADATA_DATABASE].partitions.find_one({})
    assert saved is not None and saved["place"]["token"]["$recordId"] > 0


@pytest.mark.full
def test_record_ids_of_another_member_are_not_trusted(pair: Pair, orderly: Daemon) -> None:
    """Change the saved resume point as if it came from another member; the copy must begin again.

    A resume point that is a record ID is valid only on the member on which it was read.
    """
    _cut_a_copy(pair, orderly)
    # Simulate another member, on which these documents have different, larger record IDs.
    elsewhere = {"$set": {"place.origin": "other", "place.token.$recordId": 5999}}
    command = {"update": "partitions", "updates": [{"q": {}, "u": elsewhere}]}
    pair.destination.client[METADATA_DATABASE].command({**command, "mayBypassWriteBlocking": True})
    orderly.run()
    orderly.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_deleted_resume_record_starts_the_collection_again(pair: Pair, orderly: Daemon) -> None:
    _cut_a_copy(pair, orderly)
    pair.source.client.d.big.delete_many({"_id": {"$lt": 3900}})
    orderly.run()
    orderly.commit()
    pair.assert_equal()
