"""What a user relies on: blocked writes, a verdict that means something, uniqueness, failures by name."""

from __future__ import annotations

from typing import Any

import pytest
import requests
from pymongo.errors import DuplicateKeyError, OperationFailure

from syncsvc.engine.observe import Point
from tests.conftest import Pair
from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.waiting import wait_for

USER_WRITES_BLOCKED = 371


def _user_write(client: writes.AnyClient) -> int | None:
    try:
        client.d.of_users.insert_one({"by": "user"})
    except OperationFailure as error:
        return error.code
    return None


def test_users_are_kept_out_of_the_destination_until_commit(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start()
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        assert _user_write(pair.destination.client) == USER_WRITES_BLOCKED
    daemon.wait_until_committable()
    assert daemon.progress()["canWrite"] is False
    assert _user_write(pair.destination.client) == USER_WRITES_BLOCKED
    daemon.commit()
    pair.assert_equal()
    assert daemon.progress()["canWrite"] is True
    assert _user_write(pair.destination.client) is None


def test_the_destination_is_unblocked_before_it_may_be_written(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    step = (Point.STEP_DONE, "destination unblocked")
    with daemon.held_at(*step):
        daemon.start()
        daemon.wait_until_committable()
        daemon.ask_for_commit()
        daemon.wait_until_reached(*step)
        progress = daemon.progress()
        assert (progress["state"], progress["canWrite"]) == ("COMMITTING", False)
        assert _user_write(pair.destination.client) is None
    daemon.wait_for_state("COMMITTED")


@pytest.mark.parametrize("mode", ["none", False])
def test_without_write_blocking_nothing_is_blocked(pair: Pair, daemon: Daemon, mode: Any) -> None:
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking=mode)
    daemon.wait_until_committable()
    pair.destination.client.elsewhere.c.insert_one({"_id": 1})
    pair.destination.client.drop_database("elsewhere")
    daemon.commit()
    pair.assert_equal()


def _change_behind_the_back(pair: Pair, command: dict[str, Any]) -> None:
    """A write on the destination that passes the block, as ours do."""
    reply = pair.destination.client.d.command({**command, "mayBypassWriteBlocking": True})
    assert reply["ok"] == 1 and not reply.get("writeErrors")


SUB_FIRST = {"$replaceWith": {"$mergeObjects": [{"_id": 9, "sub": 1}, "$$ROOT"]}}
TO_LONG = {"$set": {"n": {"$toLong": "$n"}}}
CORRUPTIONS: list[tuple[str, dict[str, Any], str]] = [
    ("missing", {"delete": "c", "deletes": [{"q": {"_id": 5}, "limit": 1}]}, "missing on the destination"),
    ("extra", {"insert": "c", "documents": [{"_id": "extra"}]}, "extra on the destination"),
    ("changed", {"update": "c", "updates": [{"q": {"_id": 9}, "u": {"$set": {"sub.a": 1000}}}]}, "(sub.a: "),
    ("type", {"update": "c", "updates": [{"q": {"_id": 9}, "u": [TO_LONG]}]}, "(n: int 9 on the source, long 9 on"),
    ("order", {"update": "c", "updates": [{"q": {"_id": 9}, "u": [SUB_FIRST]}]}, "(the order of the fields differs)"),
    ("index", {"dropIndexes": "c", "index": "n_1"}, "index n_1 is missing"),
    ("other index", {"createIndexes": "c", "indexes": [{"name": "mine", "key": {"q": 1}}]}, "index mine is extra"),
    ("collection", {"drop": "other"}, "missing on the destination"),
    ("other collection", {"create": "mine"}, "d.mine: it is extra"),
    ("validator", {"collMod": "c", "validator": {"n": 1}}, "option validator"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("command", "said"), [row[1:] for row in CORRUPTIONS], ids=[row[0] for row in CORRUPTIONS]
)
def test_a_destination_that_differs_is_not_committed(
    pair: Pair, daemon: Daemon, command: dict[str, Any], said: str
) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n")
    daemon.start()
    daemon.wait_until_committable()
    _change_behind_the_back(pair, command)
    daemon.ask_for_commit()
    progress = daemon.wait_for_state("FAILED")
    assert (progress["error"], progress["canWrite"]) == ("VerificationFailed", False)
    assert said in progress["errorDescription"]
    assert _user_write(pair.destination.client) == USER_WRITES_BLOCKED
    daemon.kill()
    daemon.run()
    assert daemon.progress()["error"] == "VerificationFailed"
    assert_refused(daemon.post("commit"), 409, "InvalidState")


def test_without_verification_nothing_is_compared(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    _change_behind_the_back(pair, {"insert": "c", "documents": [{"_id": "extra"}]})
    daemon.commit()
    assert pair.destination.client.d.c.find_one({"_id": "extra"})


def test_uniqueness_holds_when_writes_are_allowed(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", unique=True)
    step = (Point.STEP_DONE, "destination writable")
    with daemon.held_at(*step):
        daemon.start()
        daemon.wait_until_committable()
        # A state that the source never had: two documents swap a unique value, in two batches.
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


def test_progress_while_it_runs(pair: Pair, daemon: Daemon) -> None:
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


def test_one_command_at_a_time(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    # Long enough for another request, however busy the machine is.
    slow = {"failCommands": ["listDatabases"], "blockConnection": True, "blockTimeMS": 5000}
    with writes.started(lambda: _start_slowly(pair, daemon, slow)) as first:
        wait_for(lambda: daemon.post("commit").json()["error"] == "CommandInProgress", "a clash")
        assert daemon.progress()["state"] == "IDLE"
        assert first.result().json() == {"success": True}
    daemon.commit()
    pair.assert_equal()


def _start_slowly(pair: Pair, daemon: Daemon, slow: dict[str, Any]) -> requests.Response:
    fail_point = {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": slow}
    pair.source.client.admin.command(fail_point)
    return daemon.post("start", GOOD)
