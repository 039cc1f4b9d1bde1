"""Kills the real daemon in each step that prepares or runs a reverse; the clusters must be equal at the end.

The daemon is also killed while it applies changes in the other direction, and during the commit there. All kills happen
in one sync: each restarted process is killed at the next point.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.blocks import blocked
from tests.support.daemon import Daemon
from tests.support.pair import Pair

REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}
Kill = tuple[Point, str]

PREPARING: list[Kill] = [
    (Point.STEP_DONE, "definitions prepared"),
    (Point.REVERSAL_SAVED, ""),
    (Point.STEP_DONE, "way back prepared"),
    (Point.STEP_DONE, "destination unblocked"),
    (Point.STEP_DONE, "indexes unique"),
]
REVERSING: list[Kill] = [
    (Point.REVERSING, ""),
    (Point.COLLECTION_WEAKENED, "d.c"),
    (Point.REVERSED, ""),
]
APPLYING: list[Kill] = [
    (Point.EVENTS_APPLIED, ""),
    (Point.DEFINITION_APPLIED, ""),
    (Point.POSITION_SAVED, ""),
]
COMMITTING: list[Kill] = [
    (Point.STEP_DONE, "commit saved"),
    (Point.STEP_DONE, "source blocked"),
    (Point.STEP_DONE, "commit time saved"),
    (Point.STEP_DONE, "drained"),
    (Point.STEP_DONE, "verified"),
    (Point.STEP_DONE, "definitions prepared"),
    (Point.REVERSAL_SAVED, ""),
    (Point.STEP_DONE, "destination unblocked"),
    (Point.STEP_DONE, "destination writable"),
    (Point.STEP_DONE, "indexes unique"),
]


class _Writes:
    """Makes writes and DDL operations on a cluster, different ones with each call of `make`."""

    def __init__(self) -> None:
        self._number = 0

    def make(self, client: writes.AnyClient) -> None:
        self._number += 1
        mark = f"mark {self._number}"
        d = client.d
        d.c.insert_many({"_id": f"{mark} {n}", "n": n} for n in range(10))
        d.c.update_many({"_id": {"$gte": 0}}, {"$set": {mark: mark}, "$inc": {"n": 1}})
        d.kept.update_one({"_id": 1}, {"$set": {"u": mark}})
        d[mark].insert_one({"_id": 1})
        d[mark].rename(f"{mark} renamed")
        d.kept.create_index(mark, unique=True, sparse=True)


def _kill_by_turns(daemon: Daemon, kills: Iterable[Kill], then: Callable[[], None]) -> None:
    """Run the daemon until it is killed, once for each of the `kills`; finally, run it without a kill.

    Call `then` before the first run, and after each kill.
    """
    then()
    for kill in kills:
        daemon.kill_at(*kill)
        daemon.launch()
        daemon.wait_until_killed()
        then()
    daemon.run()


def _fill(client: writes.AnyClient) -> None:
    writes.indexes(client)
    writes.fill(client)
    writes.new_collections(client)
    writes.views(client)
    client.d.kept.create_index("u", unique=True)
    client.d.kept.insert_many({"_id": n, "u": n} for n in range(20))


@pytest.mark.full
def test_a_killed_reversal_continues(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    changes = _Writes()
    _fill(source)
    daemon.start(**REVERSIBLE)
    daemon.wait_until_committable()
    daemon.kill_at(*PREPARING[0])
    daemon.commit_until_killed()

    def write_where_it_is_open() -> None:
        if blocked(pair) == (True, False):
            changes.make(destination)

    _kill_by_turns(daemon, PREPARING[1:], write_where_it_is_open)
    daemon.wait_for_state("COMMITTED")
    assert blocked(pair) == (True, False)
    # A restarted process answers the start of its sync with success, until it runs in the other direction.
    daemon.start(**REVERSIBLE)

    daemon.kill_at(*REVERSING[0])
    daemon.post_unanswered("reverse", {})
    daemon.wait_until_killed()
    _kill_by_turns(daemon, REVERSING[1:], lambda: changes.make(destination))
    daemon.wait_for_state("RUNNING")
    assert blocked(pair) == (True, False)
    names = {"source": "cluster0", "destination": "cluster1"}
    assert daemon.post("start", {**names, **REVERSIBLE}).json()["error"] == "InvalidState"

    daemon.kill()
    _kill_by_turns(daemon, APPLYING, lambda: changes.make(destination))

    daemon.wait_until_committable()
    daemon.kill_at(*COMMITTING[0])
    daemon.commit_until_killed()
    _kill_by_turns(daemon, COMMITTING[1:], lambda: None)
    daemon.wait_for_state("COMMITTED")
    assert blocked(pair) == (False, True)
    pair.assert_equal()

    changes.make(source)
    daemon.reverse()
    daemon.commit()
    assert blocked(pair) == (True, False)
    pair.assert_equal()
    assert daemon.log.count("Starting collection copy phase") == 1
