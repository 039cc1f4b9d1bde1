"""Kills the daemon at every point of a reset in turn; restarts alone must complete the reset."""

from __future__ import annotations

import pytest

from syncsvc.engine.run.points import Point
from tests.integration.test_reset import CONFIRM, balancers, contents
from tests.support import writes
from tests.support.blocks import blocked
from tests.support.daemon import Daemon
from tests.support.pair import REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.selection import full

# The points in the order in which a reset passes them.
KILLS = [
    (Point.SYNC_STOPPED, "", 1),
    (Point.SOURCE_RELEASED, "", 1),
    (Point.COLLECTION_DROPPED, "", 1),
    (Point.COLLECTION_DROPPED, "", 2),
    (Point.COLLECTION_DROPPED, "d.other", 1),
    (Point.DESTINATION_RELEASED, "", 1),
    (Point.METADATA_DROPPED, "", 1),
    (Point.METADATA_DROPPED, "views", 1),
    (Point.METADATA_DROPPED, "fences", 1),
]


@pytest.mark.full
@across(full(REPLICA_SETS), full(TO_SHARDED), SHARDED)
def test_a_reset_continues_after_a_kill_at_every_point(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    writes.views(pair.source.client)
    writes.time_series(pair.source.client)
    daemon.start(enableUserWriteBlocking="sourceAndDestination")
    daemon.wait_until_committable()
    # Reset in the middle of a commit, when users can write to neither cluster.
    daemon.kill_at(Point.STEP_DONE, "commit time saved")
    daemon.commit_until_killed()
    with daemon.held_at(Point.STEP_DONE, "drained"):
        daemon.run()
        daemon.wait_until_reached(Point.STEP_DONE, "drained")
        assert blocked(pair) == (True, True)
        daemon.kill_at(Point.RESET_SAVED)
        daemon.post_unanswered("reset", CONFIRM)
        daemon.wait_until_killed()
    for kill in KILLS:
        daemon.kill_at(*kill)
        daemon.run()
        daemon.wait_until_killed()
    daemon.run()
    daemon.wait_for_state("IDLE")
    assert contents(pair.destination.client) == set()
    assert blocked(pair) == (False, False)
    assert {*balancers(pair)} <= {"full"}
    daemon.start()
    daemon.commit()
    pair.assert_equal()
