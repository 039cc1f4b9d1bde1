"""The daemon is killed at every point of the copy of users and roles; restarts alone must complete the commit."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import REPLICA_SETS, TO_SHARDED, Pair, across
from tests.support.principals import cleared, documents, fill, log_in, temporary_left

COPY = {"usersAndRoles": {"copy": True}}
# In the order in which a copy passes them; each attempt drops what an earlier one has created: eight users and roles.
KILLS = [
    (Point.PRINCIPALS_SAVED, "", 1),
    (Point.PRINCIPALS_STAGED, "", 1),
    (Point.PRINCIPALS_ADDED, "", 1),
    (Point.PRINCIPAL_DROPPED, "", 1),
    (Point.PRINCIPAL_DROPPED, "", 4),
    (Point.PRINCIPAL_DROPPED, "", 2),
    (Point.STEP_DONE, "users and roles copied", 1),
]


@pytest.fixture(autouse=True)
def principals(pair: Pair) -> Iterator[None]:
    with cleared(pair):
        writes.fill(pair.source.client)
        fill(pair.source.client)
        yield


@across(REPLICA_SETS, TO_SHARDED)
def test_users_and_roles_are_copied_despite_a_kill_at_every_point(
    pair: Pair, daemon: Daemon
) -> None:
    daemon.start(**COPY)
    daemon.wait_until_committable()
    daemon.kill_at(*KILLS[0])
    daemon.commit_until_killed()
    for kill in KILLS[1:]:
        daemon.kill_at(*kill)
        daemon.run()
        daemon.wait_until_killed()
    # The copy was complete, but users cannot write to the destination yet.
    pair.source.client.app.command("updateUser", "alice", pwd="new secret")
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    assert documents(pair.destination) == documents(pair.source)
    assert temporary_left(pair.destination) == set()
    assert log_in(pair.destination, "alice", "new secret")
    pair.assert_equal()


def test_a_reset_after_kills_leaves_no_users_and_no_credentials(pair: Pair, daemon: Daemon) -> None:
    daemon.start(**COPY)
    daemon.wait_until_committable()
    daemon.kill_at(Point.PRINCIPALS_ADDED)
    daemon.commit_until_killed()
    assert temporary_left(pair.destination) != set()
    with daemon.held_at(Point.PRINCIPALS_STAGED):
        daemon.run()
        daemon.wait_until_reached(Point.PRINCIPALS_STAGED)
        daemon.kill_at(Point.RESET_SAVED)
        daemon.post_unanswered("reset", {"confirm": "cluster1"})
        daemon.wait_until_killed()
    daemon.kill_at(Point.METADATA_DROPPED)
    daemon.run()
    daemon.wait_until_killed()
    assert documents(pair.destination) == {}
    daemon.run()
    daemon.wait_for_state("IDLE")
    assert temporary_left(pair.destination) == set()
