"""Tests that user writes are blocked as the start option `enableUserWriteBlocking` requires.

Blocks that were set before the sync must be restored, with exceptions: a commit unblocks a destination that the sync
has blocked, a failed commit leaves it blocked, and with `sourceAndDestination`, a commit leaves the source blocked.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.blocks import (
    USER_WRITES_BLOCKED,
    block,
    blocked,
    code_of_write,
    is_blocked,
)
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import ALWAYS, APPLICATION, failing
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.selection import full
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members

NOBODY, DESTINATION, BOTH = (False, False), (False, True), (True, True)
SOURCE = (True, False)

COPYING = (Point.BATCH_WRITTEN, "")
ASKED = (Point.STEP_DONE, "commit saved")
DRAINED = (Point.STEP_DONE, "drained")
PREPARED = (Point.STEP_DONE, "definitions prepared")
UNBLOCKED = (Point.STEP_DONE, "destination unblocked")
# The points at which the tests check the blocks. The next constants list which clusters are blocked at each of these
# points, and at the end.
STEPS = (COPYING, ASKED, DRAINED, PREPARED, UNBLOCKED)
BLOCKED_AT_BOTH = (DESTINATION, DESTINATION, BOTH, BOTH, SOURCE, SOURCE)
BLOCKED_AT_DESTINATION = (DESTINATION, DESTINATION, DESTINATION, DESTINATION, NOBODY, NOBODY)
MODES: list[tuple[Any, tuple[tuple[bool, bool], ...]]] = [
    ("sourceAndDestination", BLOCKED_AT_BOTH),
    (True, BLOCKED_AT_BOTH),
    ("destinationOnly", BLOCKED_AT_DESTINATION),
    ("none", (NOBODY,) * 6),
    (False, (NOBODY,) * 6),
]
# `make test` leaves out the booleans, which are other names of modes.
CHOSEN_MODES = [full(*each) if isinstance(each[0], bool) else each for each in MODES]


@pytest.mark.in_turns
@pytest.mark.parametrize(("mode", "expected"), CHOSEN_MODES, ids=[repr(mode) for mode, _ in MODES])
def test_users_are_blocked_at_the_documented_steps(
    pair: Pair, daemon: Daemon, mode: Any, expected: tuple[tuple[bool, bool], ...]
) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    holds = {step: ExitStack() for step in STEPS}
    for step, hold in holds.items():
        hold.enter_context(daemon.held_at(*step))
    daemon.start(enableUserWriteBlocking=mode)
    for step, who in zip(STEPS, expected, strict=False):
        if step is ASKED:
            daemon.wait_until_committable()
            assert blocked(pair) == expected[0]
            daemon.ask_for_commit()
        daemon.wait_until_reached(*step)
        assert blocked(pair) == who, step
        assert daemon.progress()["canWrite"] is False
        holds[step].close()
    assert daemon.wait_for_state("COMMITTED")["canWrite"] is True
    assert blocked(pair) == expected[-1]
    pair.assert_equal()
    refused = [USER_WRITES_BLOCKED if each else None for each in expected[-1]]
    assert [code_of_write(pair.source), code_of_write(pair.destination)] == refused


@pytest.mark.in_turns
@across(TO_SHARDED, SHARDED, FROM_SHARDED)
def test_users_are_blocked_at_the_documented_steps_on_shards(pair: Pair, daemon: Daemon) -> None:
    test_users_are_blocked_at_the_documented_steps(pair, daemon, *MODES[0])


@pytest.mark.in_turns
@pytest.mark.parametrize(
    ("mode", "by_hand"),
    [("sourceAndDestination", BOTH), ("destinationOnly", SOURCE), ("none", BOTH)],
)
def test_a_block_set_before_the_sync_is_restored(
    pair: Pair, daemon: Daemon, mode: str, by_hand: tuple[bool, bool]
) -> None:
    """Block user writes by hand before the sync: the block must be restored after the commit.

    `by_hand` has two flags: whether the source is blocked by hand, and whether the destination is. Exception: if the
    sync itself blocks the destination, the commit must unblock it, because canWrite is true.
    """
    writes.fill(pair.source.client)
    for side, refuse in zip((pair.source, pair.destination), by_hand, strict=True):
        block(side, refuse)
    daemon.start(enableUserWriteBlocking=mode)
    daemon.commit()
    assert blocked(pair) == (by_hand if mode == "none" else SOURCE)
    pair.assert_equal()


def test_a_failed_start_restores_the_write_blocks(pair: Pair, daemon: Daemon) -> None:
    """Kill the daemon after it has saved a failure: the next process must lift the write block of the sync."""
    writes.fill(pair.source.client)
    daemon.kill_at(Point.FAILURE_SAVED)
    _fail(pair, "create", 2, {"times": 1})
    daemon.start(enableUserWriteBlocking=True)
    daemon.wait_until_killed()
    assert blocked(pair) == DESTINATION
    daemon.run()
    assert daemon.wait_for_state("FAILED")["info"] == "initializing collections and indexes"
    wait_for(lambda: blocked(pair) == NOBODY, "nobody is blocked")
    wait_for(lambda: "on neither cluster" in daemon.progress()["errorDescription"], "the hint")


def _refusing_changes(side: Side) -> AbstractContextManager[None]:
    """Make the server refuse each change of the write block until the end of the `with` block.

    A replica set of 8.0.13 or newer does so while writes are blocked with a `reason` (SERVER-102961).
    """
    refused = {"failCommands": ["setUserWriteBlockMode"], "errorCode": 20, "appName": APPLICATION}
    return failing(side.client, refused, ALWAYS)


def test_a_destination_blocked_for_another_reason_is_refused(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    block(pair.destination)
    with _refusing_changes(pair.destination):
        daemon.start(enableUserWriteBlocking=True)
        assert daemon.wait_for_state("FAILED")["error"] == "ForeignWriteBlock"
        assert blocked(pair) == DESTINATION
        assert daemon.post("reset", {"confirm": "cluster1"}).ok
        daemon.wait_for_state("IDLE")
        assert blocked(pair) == DESTINATION
        daemon.start(enableUserWriteBlocking=True)
        daemon.wait_for_state("FAILED")
    block(pair.destination, False)
    daemon.resume()
    daemon.commit()
    assert blocked(pair) == SOURCE
    pair.assert_equal()


def test_a_source_blocked_for_another_reason_stays_blocked(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking=True)
    daemon.wait_until_committable()
    block(pair.source)
    with _refusing_changes(pair.source):
        daemon.commit()
    (warning,) = daemon.progress()["warnings"]
    assert "Stop all applications that write to cluster0" in warning
    assert blocked(pair) == SOURCE
    pair.assert_equal()
    block(pair.source, False)
    pair.source.client.d.c.insert_one({"_id": "after the commit"})
    daemon.wait_for_warning("After the commit, cluster0 (the old source) accepted", "in d.c;")


@prepared(Daemon.judge_soon)
def test_the_warning_of_such_a_block_ends_with_the_commit(pair: Pair, daemon: Daemon) -> None:
    """The applications belong to the blocked cluster again after a failed commit, and after a reversal."""
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking=True, reversible=True)
    daemon.wait_until_committable()
    extra = {"insert": "c", "documents": [{"_id": "extra"}], "mayBypassWriteBlocking": True}
    pair.destination.client.d.command(extra)
    block(pair.source)
    with _refusing_changes(pair.source):
        with daemon.held_at(Point.FAILURE_SAVED):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.FAILURE_SAVED)
            assert daemon.warnings("Stop all applications that write to cluster0")
        daemon.wait_without_warning()
        daemon.resume()
        delete = {"delete": "c", "deletes": [{"q": {"_id": "extra"}, "limit": 1}]}
        pair.destination.client.d.command({**delete, "mayBypassWriteBlocking": True})
        daemon.commit()
        assert daemon.warnings("Stop all applications that write to cluster0")
    daemon.reverse()
    daemon.wait_without_warning()


def test_a_block_that_cannot_be_lifted_fails_the_commit_by_name(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with _refusing_changes(pair.destination):
        daemon.ask_for_commit()
        assert daemon.wait_for_state("FAILED")["error"] == "ForeignWriteBlock"
    daemon.resume()
    daemon.wait_for_state("COMMITTED")
    assert blocked(pair) == NOBODY
    pair.assert_equal()


def test_a_failed_start_keeps_blocks_set_before_the_sync(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    block(pair.source)
    block(pair.destination)
    _fail(pair, "create", 2, {"times": 1})
    daemon.start(enableUserWriteBlocking=True)
    daemon.wait_for_state("FAILED")
    wait_for(lambda: "on neither cluster" in daemon.progress()["errorDescription"], "the hint")
    assert blocked(pair) == BOTH


@prepared(Daemon.judge_soon)
@pytest.mark.in_turns
@pytest.mark.parametrize("killed", [False, True], ids=["", "killed"])
def test_a_failed_verification_restores_the_block_of_the_source(
    pair: Pair, daemon: Daemon, killed: bool
) -> None:
    """Let the verification fail: the source must be blocked or unblocked as before the start.

    If `killed`, the daemon is also killed as soon as the failure is saved.
    """
    by_hand = not killed
    writes.fill(pair.source.client)
    block(pair.source, by_hand)
    daemon.start(enableUserWriteBlocking=True)
    daemon.wait_until_committable()
    extra = {"insert": "c", "documents": [{"_id": "extra"}], "mayBypassWriteBlocking": True}
    pair.destination.client.d.command(extra)
    if killed:
        daemon.kill_at(Point.FAILURE_SAVED)
        daemon.ask_for_commit()
        daemon.wait_until_killed()
        assert blocked(pair) == BOTH
        daemon.run()
    else:
        daemon.ask_for_commit()
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "VerificationFailed"
    wait_for(
        lambda: "blocked on cluster1 (the" in daemon.progress()["errorDescription"], "the hint"
    )
    assert blocked(pair) == (by_hand, True)
    assert "setUserWriteBlockMode: 1, global: false" in daemon.progress()["errorDescription"]
    step = daemon.overview()["next"]
    assert step["text"].startswith("The applications can stay on the source (cluster0), or return")
    assert step["command"] == "repair"


@pytest.mark.full
@prepared(Daemon.give_up_soon)
@pytest.mark.parametrize("restarted", [False, True], ids=["resumed", "restarted"])
def test_a_temporary_failure_keeps_the_write_blocks(
    pair: Pair, daemon: Daemon, restarted: bool
) -> None:
    writes.fill(pair.source.client)
    with ExitStack() as failing:
        with daemon.held_at(Point.STEP_DONE, "source blocked"):
            daemon.start(enableUserWriteBlocking=True)
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "source blocked")
            failing.callback(_fail, pair, "update", 8, "off")
            _fail(pair, "update", 8, "alwaysOn")
        failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "UnexpectedServerError"
    assert blocked(pair) == BOTH
    assert "cluster0 (the source) and cluster1" in daemon.progress()["errorDescription"]
    step = daemon.overview()["next"]
    assert step["text"].startswith("Keep the applications stopped: the commit stays requested")
    assert step["command"] == "resume"
    if restarted:
        assert daemon.terminate() == 0
        daemon.run()
    else:
        daemon.resume()
    daemon.wait_for_state("COMMITTED")
    assert blocked(pair) == SOURCE
    pair.assert_equal()


@contextmanager
def _one_shard_refuses(side: Side) -> Iterator[None]:
    """Make the second shard refuse to change its write block until the end of the `with` block.

    Until then, a change of the cluster's write block stays incomplete.
    """
    refused = {"failCommands": ["_shardsvrSetUserWriteBlockMode"], "errorCode": 6}
    with side.shards[1].client() as client:
        with failing(client, {**refused, "failInternalCommands": True}):
            yield


def _wait_for_change(side: Side, refuse: bool) -> None:
    """Wait until the config server has begun to block user writes if `refuse`, or else to unblock them."""
    changes = side.client.config.sharding_configsvr_coordinators
    wait_for(lambda: changes.find_one({"block": refuse}), "the change of the block has begun")


@pytest.mark.full
@across(SHARDED)
def test_a_block_that_only_one_shard_has_is_completed(pair: Pair, daemon: Daemon) -> None:
    """Kill the daemon and the routers after one of two shards has changed its write block.

    The restarted daemon must change the write block of the other shard, too.
    """
    writes.fill(pair.source.client)
    with _one_shard_refuses(pair.destination):
        daemon.start()
        _wait_for_change(pair.destination, True)
        daemon.kill()
        daemon.run()
        assert daemon.progress()["info"] == "initializing collections and indexes"
    daemon.wait_until_committable()
    assert blocked(pair) == DESTINATION
    with ExitStack() as refusing:
        with daemon.held_at(Point.STEP_DONE, "source checked"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "source checked")
            refusing.enter_context(_one_shard_refuses(pair.destination))
        _wait_for_change(pair.destination, False)
        daemon.kill()
        for router in pair.destination.routers:
            router.kill()
            router.start()
        daemon.run()
        assert daemon.progress()["canWrite"] is False
    daemon.wait_for_state("COMMITTED")
    assert blocked(pair) == NOBODY
    pair.assert_equal()


@across(SHARDED)
def test_an_unblocking_that_is_not_complete_is_not_undone(pair: Pair, daemon: Daemon) -> None:
    """Start a sync while an administrator's removal of a write block is half done, and let the sync fail.

    The failed sync must not block user writes again.
    """
    block(pair.destination)
    writes.fill(pair.source.client)
    with ExitStack() as refusing:
        refusing.enter_context(_one_shard_refuses(pair.destination))
        with writes.started(lambda: block(pair.destination, False)):
            _wait_for_change(pair.destination, False)
            with daemon.held_at(Point.BLOCK_SAVED, "cluster1"):
                daemon.start()
                daemon.wait_until_reached(Point.BLOCK_SAVED, "cluster1")
                foreign = {"insert": "c", "documents": [{}], "mayBypassWriteBlocking": True}
                pair.destination.client.foreign.command(foreign)
            refusing.close()
    assert daemon.wait_for_state("FAILED")["error"] == "DestinationNotEmpty"
    wait_for(lambda: "on neither cluster" in daemon.progress()["errorDescription"], "the hint")
    assert blocked(pair) == NOBODY


def test_a_transaction_that_is_open_at_the_commit_is_not_lost(pair: Pair, daemon: Daemon) -> None:
    """Commit while a transaction is open on the source: its writes must be synced.

    The command that blocks user writes waits for the end of the transaction.
    """
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking=True)
    daemon.wait_until_committable()
    with pair.source.client.start_session() as session:
        with session.start_transaction():
            pair.source.client.d.c.insert_one({"_id": "open"}, session=session)
            daemon.ask_for_commit()
            _wait_until_a_block_waits(pair)
            pair.source.client.d.c.insert_one({"_id": "before its end"}, session=session)
    daemon.wait_for_state("COMMITTED")
    assert is_blocked(pair.source)
    assert pair.destination.client.d.c.find_one({"_id": "before its end"})
    pair.assert_equal()


def _wait_until_a_block_waits(pair: Pair) -> None:
    asked = {"command.setUserWriteBlockMode": 1, "waitingForLock": True}
    pipeline: list[dict[str, Any]] = [{"$currentOp": {}}, {"$match": asked}]
    wait_for(lambda: list(pair.source.client.admin.aggregate(pipeline)), "a block that waits")


def _fail(pair: Pair, command: str, code: int, mode: Any) -> None:
    data = {"failCommands": [command], "errorCode": code, "appName": APPLICATION}
    pair.destination.client.admin.command(
        {"configureFailPoint": "failCommand", "mode": mode, "data": data}
    )


@pytest.mark.full
def test_a_failed_cut_over_without_blocks_is_resumed(pair: Pair, daemon: Daemon) -> None:
    """Without write blocking, let a cut-over fail before canWrite is true: a resume must withdraw the commit.

    Users do not write to the destination before canWrite is true, so no write is lost.
    """
    writes.indexes(pair.source.client)
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    refused = {"failCommands": ["collMod"], "errorCode": 2, "appName": APPLICATION}
    with failing(pair.destination.client, refused):
        daemon.ask_for_commit()
        failed = daemon.wait_for_state("FAILED")
    assert (failed["info"], failed["canWrite"]) == ("waiting for commit to complete", False)
    pair.source.client.d.c.insert_one({"_id": "after the failure"})
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@prepared(Daemon.warn_soon)
@across(SHARDED)
def test_a_restarted_daemon_waits_for_a_block_that_only_one_shard_has(
    pair: Pair, daemon: Daemon
) -> None:
    """Kill the daemon while it sets a block again that an administrator has lifted; only one of two shards has it.

    The restarted daemon must not continue while users can write to the other shard.
    """
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_applying()
    daemon.kill()
    block(pair.destination, False)
    with _one_shard_refuses(pair.destination):
        daemon.run()
        _wait_for_change(pair.destination, True)
        daemon.kill()
        daemon.run()
        pair.source.client.d.c.insert_one({"_id": "late"})
        unanswered = "No answer yet to setUserWriteBlockMode"
        wait_for(lambda: unanswered in str(daemon.progress().get("warnings")), "it waits")
        assert pair.destination.client.d.c.find_one({"_id": "late"}) is None
    daemon.commit()
    pair.assert_equal()
