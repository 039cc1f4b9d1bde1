"""Kills the daemon at every point of the copy of users and roles.

Restarts alone must complete a commit. A copy on request must be possible again, and leave no temporary documents. A
reset must also drop the users and roles that a killed copy has created.

`make test` runs only the test of the copy at the commit.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import REPLICA_SETS, TO_SHARDED, Pair, across
from tests.support.principals import cleared, documents, fill, log_in, temporary_left

COPY = {"usersAndRoles": {"copy": True}}
# The points in the order in which a copy passes them.
KILLS = [
    (Point.PRINCIPALS_SAVED, "", 1),
    (Point.PRINCIPALS_STAGED, "", 1),
    (Point.PRINCIPALS_ADDED, "", 1),
]
# The points of a later attempt, which drops a changed role, and the users and roles that have this role: seven in all.
LATER_KILLS = [
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


@pytest.mark.in_turns
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
    pair.source.client.app.command("updateRole", "reader", privileges=[])
    for kill in LATER_KILLS:
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


def killed_copy(daemon: Daemon, point: Point, number: int = 1) -> None:
    """Request a copy, let the daemon kill itself at this point, and start it again."""
    daemon.kill_at(point, "", number)
    daemon.post_unanswered("users", {})
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_for_state("RUNNING")


@pytest.mark.full
@across(REPLICA_SETS, TO_SHARDED)
def test_a_copy_on_request_is_repeated_after_a_kill_at_every_point(
    pair: Pair, daemon: Daemon
) -> None:
    daemon.start(**COPY)
    daemon.wait_until_committable()
    for point, _, _ in KILLS:
        killed_copy(daemon, point)
        assert temporary_left(pair.destination) == set()
    daemon.copy_users()
    assert documents(pair.destination) == documents(pair.source)
    pair.source.client.app.command("updateRole", "reader", privileges=[])
    killed_copy(daemon, Point.PRINCIPAL_DROPPED, 4)
    assert len(documents(pair.destination)) == 4
    killed_copy(daemon, Point.PRINCIPALS_SAVED)
    pair.source.client.app.command("updateUser", "alice", pwd="new secret")
    killed_copy(daemon, Point.PRINCIPALS_ADDED)
    # The users were created, but the answer to the request was lost.
    assert log_in(pair.destination, "alice", "new secret")
    pair.source.client.app.command("dropUser", "bob")
    daemon.commit()
    assert documents(pair.destination) == documents(pair.source)
    assert temporary_left(pair.destination) == set()
    pair.assert_equal()


@pytest.mark.full
def test_a_reset_drops_what_a_killed_copy_on_request_has_created(
    pair: Pair, daemon: Daemon
) -> None:
    daemon.start(**COPY)
    daemon.wait_until_committable()
    killed_copy(daemon, Point.PRINCIPALS_ADDED)
    assert documents(pair.destination) == documents(pair.source)
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    assert documents(pair.destination) == {}


@pytest.mark.full
def test_a_reset_after_kills_leaves_no_users_and_no_credentials(pair: Pair, daemon: Daemon) -> None:
    daemon.start(**COPY)
    daemon.wait_until_committable()
    daemon.kill_at(Point.PRINCIPALS_ADDED)
    daemon.commit_until_killed()
    assert temporary_left(pair.destination) != set()
    # Change a user: otherwise, the next attempt would have nothing to copy.
    pair.source.client.app.command("updateUser", "alice", pwd="new secret")
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
