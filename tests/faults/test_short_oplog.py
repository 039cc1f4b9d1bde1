"""Makes an oplog too short while a sync is paused: the resumed sync must continue.

If another member of the source has a longer oplog, the sync waits until this member is the primary. If the oplog of the
destination is too short, the verification starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from tests.faults.test_outages import warning
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.oplogs import roll_over
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for

# A member with a minimum retention in hours lets its oplog grow beyond its size.
KEEP = {"replSetResizeOplog": 1, "minRetentionHours": 2.0}


@pytest.fixture
def source() -> Iterator[ReplicaSet]:
    with ReplicaSet(name="uneven", members=3, oplog_size_mb=16) as source:
        yield source


@pytest.fixture
def destination() -> Iterator[ReplicaSet]:
    with ReplicaSet(name="short", members=3, oplog_size_mb=16) as destination:
        yield destination


@pytest.fixture
def pair(source: ReplicaSet, replica_sets: Pair) -> Iterator[Pair]:
    with source.client() as client:
        pair = Pair(Side(source.uri, client), replica_sets.destination)
        pair.empty()
        yield pair


def direct(member: Mongod) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://{member.address}/?directConnection=true")


def make_primary(source: ReplicaSet, chosen: Mongod) -> None:
    with source.client() as client:
        config = client.admin.command("replSetGetConfig")["config"]
        for each in config["members"]:
            each["priority"] = 10 if each["host"] == chosen.address else 1
        config["version"] += 1
        client.admin.command("replSetReconfig", config)
    wait_for(lambda: source.primary() is chosen, "the member with the long oplog is primary")


@pytest.mark.full
def test_a_sync_waits_for_the_member_with_the_longer_oplog(
    source: ReplicaSet, pair: Pair, tmp_path: Path
) -> None:
    client = pair.source.client
    keeper = next(each for each in source.members if each is not source.primary())
    with direct(keeper) as member:
        member.admin.command(KEEP)
    writes.fill(client)
    daemon: Daemon = pair.daemon(tmp_path)
    with daemon.running():
        daemon.start()
        daemon.wait_until_committable()
        daemon.pause()
        client.d.c.insert_one({"_id": "written in the pause"})
        roll_over(client)
        daemon.resume()
        warned = wait_for(
            lambda: warning(daemon, "does not reach back"), "a warning names the member"
        )
        assert (
            keeper.address in warned
            and "make a member with a long enough oplog the primary" in warned
        )
        assert daemon.progress()["state"] == "RUNNING"
        make_primary(source, keeper)
        daemon.commit()
        pair.assert_equal()


@pytest.mark.full
def test_the_verification_does_not_wait_for_a_member_that_is_down(
    destination: ReplicaSet, replica_sets: Pair, tmp_path: Path
) -> None:
    with destination.client() as client:
        pair = Pair(replica_sets.source, Side(destination.uri, client))
        pair.empty()
        pair.source.client.d.c.insert_many({"_id": number} for number in range(100))
        daemon: Daemon = pair.daemon(tmp_path)
        with daemon.running():
            daemon.start()
            daemon.wait_until_committable()
            daemon.pause()
            primary = destination.primary()
            destination.kill_member(0 if destination.members[0] is not primary else 1)
            roll_over(client)
            daemon.resume()
            wait_for(lambda: warning(daemon, "The verification started again"), "a new check")
            daemon.commit()
            pair.assert_equal()
