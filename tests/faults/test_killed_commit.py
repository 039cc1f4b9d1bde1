"""Kills and restarts the daemon in each step of a commit; the commit must complete.

The optional steps are left out: users and roles, the way back, and balancers. If users write to the source after a
kill, the commit must be withdrawn and repeated, but only while the destination is still blocked.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from pymongo.errors import OperationFailure

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.blocks import USER_WRITES_BLOCKED, blocked
from tests.support.daemon import Daemon
from tests.support.pair import SHARDED, Pair, across
from tests.support.waiting import wait_for

BEGUN = (Point.BLOCK_SAVED, "cluster1")
BLOCKING = ((Point.BLOCK_SAVED, "cluster0"), (Point.STEP_DONE, "source blocked"))
REST = tuple(
    (Point.STEP_DONE, step)
    for step in (
        "commit time saved",
        "drained",
        "verified",
        "definitions prepared",
        "indexes of earlier versions built",
        "source checked",
        "destination unblocked",
        "destination writable",
        "indexes unique",
        "expiration restored",
    )
)
# For each mode: the kills before the commit and while blocking, and whether source and destination are blocked at the
# end.
MODES = {
    "sourceAndDestination": ((BEGUN,), BLOCKING, (True, False)),
    "destinationOnly": ((BEGUN,), (), (False, False)),
    "none": ((), (), (False, False)),
}


@pytest.mark.in_turns
@pytest.mark.parametrize("mode", MODES)
def test_a_commit_continues_after_a_kill_at_every_step(
    pair: Pair, daemon: Daemon, mode: str
) -> None:
    before, blocking, at_the_end = MODES[mode]
    pair.shard("d.c")
    pair.shard("d.written")
    writes.indexes(pair.source.client, unique=not pair.is_sharded)
    writes.fill(pair.source.client)
    with writing(pair, until_blocked=bool(blocking)) as acknowledged:
        body = daemon.start_body(enableUserWriteBlocking=mode)
        for step in before:
            daemon.kill_at(*step)
        daemon.post_unanswered("start", body)
        for _ in before:
            daemon.wait_until_killed()
            daemon.run()
        daemon.wait_until_committable()
        if not blocking:
            # Without blocking, users must stop writing before the commit.
            acknowledged.stop()
        daemon.kill_at(Point.STEP_DONE, "commit saved")
        daemon.commit_until_killed()
        for step in (*blocking, *REST):
            daemon.kill_at(*step)
            daemon.run()
            daemon.wait_until_killed()
        daemon.run()
        daemon.wait_for_state("COMMITTED")
        assert blocked(pair) == at_the_end
        acknowledged.wait_for_end()
    pair.assert_equal()
    found = {each["_id"] for each in pair.destination.client.d.written.find()}
    assert found == set(acknowledged.ids)


@pytest.mark.full
@across(SHARDED)
def test_a_commit_to_shards_continues_after_a_kill_at_every_step(
    pair: Pair, daemon: Daemon
) -> None:
    test_a_commit_continues_after_a_kill_at_every_step(pair, daemon, "sourceAndDestination")


def test_a_killed_commit_is_withdrawn_only_while_the_destination_is_blocked(
    pair: Pair, daemon: Daemon
) -> None:
    """Kill a commit before and after it unblocks the destination, and write to the source after each kill.

    The first write must be synced by a repeated commit. The second write comes too late: it must not be synced, and the
    commit must not be withdrawn.
    """
    source, destination = pair.source.client.d, pair.destination.client.d
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking="destinationOnly")
    daemon.wait_until_committable()
    daemon.kill_at(Point.STEP_DONE, "source checked")
    daemon.commit_until_killed()
    source.c.insert_one({"_id": "in time"})
    daemon.kill_at(Point.BLOCK_ENDED, "cluster1")
    daemon.launch()
    daemon.wait_until_killed()
    destination.c.insert_one({"_id": "on the destination"})
    source.c.insert_one({"_id": "too late"})
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    assert daemon.log.count("repeats the commit") == 1
    destination.c.delete_one({"_id": "on the destination"})
    source.c.delete_one({"_id": "too late"})
    pair.assert_equal()


class Writer:
    """A user of the source who inserts documents in a thread, until the user is stopped or an insert is refused.

    `ids` contains the `_id` of every acknowledged insert. `refused` is the error code of the refused insert, if any.
    """

    def __init__(self, pair: Pair) -> None:
        self.ids: list[int] = []
        self.refused: int | None = None
        self._collection = pair.source.client.d.written
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()

    def wait_for_end(self) -> None:
        wait_for(lambda: not self._thread.is_alive(), "the writer is refused or stopped")

    def _run(self) -> None:
        while not self._stop.wait(0.002):
            number = len(self.ids)
            try:
                self._collection.insert_one({"_id": number})
            except OperationFailure as error:
                self.refused = error.code
                return
            self.ids.append(number)


@contextmanager
def writing(pair: Pair, until_blocked: bool) -> Iterator[Writer]:
    """Insert documents into the source during the block; then check whether the source has refused an insert.

    If `until_blocked` is true, the source must have refused one. Otherwise, it must have accepted all inserts.
    """
    writer = Writer(pair)
    try:
        yield writer
    finally:
        writer.stop()
    assert writer.ids and writer.refused == (USER_WRITES_BLOCKED if until_blocked else None)
