"""Tests promises to users: write blocking, unique indexes, the progress, and named errors of refused commands."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from pymongo.errors import DuplicateKeyError

from syncsvc.engine.run.points import Point
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.blocks import USER_WRITES_BLOCKED, code_of_write
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import wait_for


def test_users_are_kept_out_of_the_destination_until_commit(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        assert code_of_write(pair.destination) == USER_WRITES_BLOCKED
    daemon.wait_until_committable()
    assert daemon.progress()["canWrite"] is False
    assert code_of_write(pair.destination) == USER_WRITES_BLOCKED
    daemon.commit()
    pair.assert_equal()
    assert daemon.progress()["canWrite"] is True
    assert code_of_write(pair.destination) is None


def test_uniqueness_holds_when_writes_are_allowed(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", unique=True)
    step = (Point.STEP_DONE, "destination writable")
    with daemon.held_at(*step):
        daemon.start()
        daemon.wait_until_committable()
        # Move unique values between documents: the destination may pass through a state that the source never had.
        pair.source.client.d.c.delete_one({"n": 3})
        pair.source.client.d.c.update_one({"n": 4}, {"$set": {"n": 3}})
        pair.source.client.d.c.insert_one({"_id": "swapped", "n": 4})
        daemon.ask_for_commit()
        daemon.wait_until_reached(*step)
        assert daemon.progress()["canWrite"] is True
        with pytest.raises(DuplicateKeyError):
            pair.destination.client.d.c.insert_one({"_id": "duplicate", "n": 4})
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


def test_progress_of_a_running_sync(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        copying = daemon.progress()
    applying = daemon.wait_until_committable()
    daemon.commit()
    committed = daemon.progress()
    assert (copying["state"], copying["info"], copying["canCommit"]) == (
        "RUNNING",
        "collection copy",
        False,
    )
    assert (
        copying["collectionCopy"]["estimatedTotalBytes"]
        > copying["collectionCopy"]["estimatedCopiedBytes"]
    )
    assert copying["lagTimeSeconds"] is None
    assert (applying["state"], applying["info"]) == ("RUNNING", "change event application")
    assert isinstance(applying["lagTimeSeconds"], int)
    copied = applying["collectionCopy"]
    assert copied["estimatedTotalBytes"] == copied["estimatedCopiedBytes"] > 300 * 2000
    assert (committed["info"], committed["lagTimeSeconds"], committed["canWrite"]) == (
        "commit completed",
        0,
        True,
    )
    address = pair.source.uri.split("/")[2]
    assert committed["directionMapping"]["Source"] == f"cluster0: {address}"


def test_a_commit_during_the_copy_is_refused(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        assert_refused(daemon.post("commit"), 409, "CannotCommit", ("canCommit",))
        assert daemon.progress()["state"] == "RUNNING"
    daemon.commit()
    pair.assert_equal()


def test_a_second_concurrent_command_is_refused(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    # Long enough for another request, even on a busy machine.
    slow = {"failCommands": ["listDatabases"], "blockConnection": True, "blockTimeMS": 5000}
    with writes.started(lambda: _start_slowly(pair, daemon, slow)) as first:
        wait_for(
            lambda: daemon.post("commit").json().get("error") == "CommandInProgress", "a clash"
        )
        assert daemon.progress()["state"] == "IDLE"
        assert first.result().json() == {"success": True}
    daemon.commit()
    pair.assert_equal()


def _start_slowly(pair: Pair, daemon: Daemon, slow: dict[str, Any]) -> requests.Response:
    fail_point = {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": slow}
    pair.source.client.admin.command(fail_point)
    return daemon.post("start", GOOD)
