"""Tests the basic sync through the API on real clusters: copy, change events, commit."""

from __future__ import annotations

import itertools
import threading

import pytest

from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair, across_topologies
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members


@pytest.mark.in_turns
@across_topologies
def test_an_empty_source_is_committed(pair: Pair, daemon: Daemon) -> None:
    daemon.start()
    daemon.commit()
    names = {*pair.destination.client.list_database_names()} - {"local"}
    assert names == {"admin", "config", "mongosync_reserved_for_internal_use"}
    phases = daemon.overview()["phases"]
    assert [each["phase"] for each in phases] == [
        *("initializing collections and indexes", "collection copy", "building indexes"),
        *("change event application", "waiting for commit to complete", "commit completed"),
    ]
    daemon.kill()
    daemon.run()
    assert daemon.overview()["phases"] == phases


@across_topologies
def test_writes_until_the_commit_are_synced(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client, 2000)
    with Workload([pair.source.client.d.c, pair.source.client.d.other], seed=1) as workload:
        daemon.start()
        daemon.wait_until_committable()
        wait_for(lambda: _has_done_everything(workload), "writes of every kind")
        workload.stop()
    daemon.commit()
    pair.assert_equal()


def _has_done_everything(workload: Workload) -> bool:
    workload.check()
    written = workload.written
    return min(written.inserted, written.updated, written.deleted) > 0


@pytest.mark.in_turns
@across_topologies
def test_writes_before_the_commit_request_are_synced(pair: Pair, daemon: Daemon) -> None:
    """Write to the source while the commit is requested: all writes acknowledged before the request must be synced.

    Later writes may be missing, but only those after some moment: there must be no gaps.
    """
    pair.shard("d.c")
    c = pair.source.client.d.c
    acknowledged: list[int] = []
    stop = threading.Event()

    def write() -> None:
        for number in itertools.count():
            if stop.is_set():
                return
            c.insert_one({"_id": number})
            acknowledged.append(number)

    with writes.started(write) as writer:
        try:
            daemon.start()
            daemon.wait_until_committable()
            before = len(acknowledged)
            daemon.ask_for_commit()
        finally:
            stop.set()
    writer.result()
    daemon.wait_for_state("COMMITTED")
    arrived = [each["_id"] for each in pair.destination.client.d.c.find().sort("_id")]
    assert before <= len(arrived) <= len(acknowledged)
    assert arrived == list(range(len(arrived)))
