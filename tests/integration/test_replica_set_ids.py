"""Syncs and compares replica sets without an ID, as MongoDB before 3.2 initiated them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.sandbox import ReplicaSet
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.integration.test_verifier_process import run
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.members import ThreeMembers, standalone
from tests.support.pair import Pair, Side
from verifier.cluster.connect import connect
from verifier.cluster.facts import gather

READER = ("readAnyDatabase", "clusterMonitor")


@pytest.fixture(scope="module")
def old_sets() -> Iterator[tuple[ReplicaSet, ReplicaSet]]:
    """Start a source with access control and a destination, and remove the IDs from their configurations."""
    with (
        ThreeMembers("old", access_control=True) as source,
        ReplicaSet(name="old") as destination,
    ):
        for each in (source, destination):
            _forget_id(each)
        yield source, destination


def _forget_id(replica_set: ReplicaSet) -> None:
    for member in replica_set.members:
        member.kill()
        with standalone(member) as client:
            configs = client.local["system.replset"]
            assert configs.update_one({}, {"$unset": {"settings.replicaSetId": 1}}).modified_count
    for member in replica_set.members:
        member.restart()
    replica_set.primary()


def _identity(uri: str) -> str | None:
    with connect(uri, "test", "cluster") as client:
        return gather(client).identity


@pytest.mark.full
def test_all_members_give_their_replica_set_the_same_identity(
    old_sets: tuple[ReplicaSet, ReplicaSet],
) -> None:
    source, destination = old_sets
    reader = source.create_user("member", READER)
    found = _identity(reader)
    assert found is not None and found.startswith("old ")
    source.step_down()
    assert _identity(reader) == found
    assert _identity(destination.uri) not in (None, found)


def test_a_sync_continues_after_a_kill(
    old_sets: tuple[ReplicaSet, ReplicaSet], tmp_path: Path
) -> None:
    source, destination = old_sets
    reader = source.create_user("reader", READER)
    with source.client() as first, destination.client() as second:
        pair = Pair(Side(source.uri, first), Side(destination.uri, second))
        writes.fill(first)
        with Daemon(reader, destination.uri, tmp_path).running() as daemon:
            daemon.kill_at(Point.BATCH_WRITTEN)
            daemon.post_unanswered("start", GOOD)
            daemon.wait_until_killed()
            source.step_down()
            daemon.run()
            daemon.commit()
        pair.assert_equal()


def test_the_same_replica_set_twice_is_refused(
    old_sets: tuple[ReplicaSet, ReplicaSet], tmp_path: Path
) -> None:
    uri = old_sets[0].uri
    with Daemon(uri, uri, tmp_path).running() as daemon:
        assert_refused(daemon.post("start", GOOD), 400, "SameCluster", ())
    done = run("--srcURI", uri, "--destURI", uri, "--verifyAll", "--checkOnce")
    assert done.returncode == 2
    assert "SameCluster" in done.stderr
