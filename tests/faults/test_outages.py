"""Outages of the destination: nothing is silent, nothing hangs, and nothing that can be mended ends a sync."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient

from syncsvc import __version__
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for

OURS = f"syncsvc {__version__}"


@pytest.fixture(scope="module")
def three() -> Iterator[ReplicaSet]:
    with ReplicaSet(name="three", members=3) as destination:
        yield destination


@pytest.fixture
def pair(three: ReplicaSet, replica_sets: Pair) -> Iterator[Pair]:
    with three.client() as client:
        pair = Pair(replica_sets.source, Side(three.uri, client))
        pair.empty()
        yield pair


def direct(member: Mongod) -> MongoClient[dict[str, Any]]:
    return MongoClient(f"mongodb://{member.address}/?directConnection=true")


def secondaries(three: ReplicaSet) -> list[Mongod]:
    primary = three.primary()
    return [each for each in three.members if each is not primary]


@contextmanager
def no_majority(three: ReplicaSet) -> Iterator[None]:
    """Within the block, no secondary replicates: the primary answers, and acknowledges nothing by the majority."""
    stopped = secondaries(three)
    _switch(stopped, "alwaysOn")
    try:
        yield
    finally:
        _switch(stopped, "off")


def _switch(members: list[Mongod], mode: str) -> None:
    for member in members:
        with direct(member) as client:
            client.admin.command({"configureFailPoint": "stopReplProducer", "mode": mode})


@contextmanager
def failing(three: ReplicaSet, commands: list[str], code: int) -> Iterator[None]:
    """Within the block, those commands of the daemon fail with that code on every member."""
    data = {"failCommands": commands, "errorCode": code, "appName": OURS}
    _fail(three, {"mode": "alwaysOn", "data": data})
    try:
        yield
    finally:
        _fail(three, {"mode": "off"})


def _fail(three: ReplicaSet, how: dict[str, Any]) -> None:
    for member in three.members:
        with direct(member) as client:
            client.admin.command({"configureFailPoint": "failCommand", **how})


def warning(daemon: Daemon, *texts: str) -> str | None:
    """Return the first warning that has all these texts; fail if the sync has failed."""
    progress = daemon.progress()
    assert progress["state"] != "FAILED", progress
    found = (each for each in progress.get("warnings", ()) if all(text in each for text in texts))
    return next(found, None)


def test_an_index_is_built_while_a_member_is_down(
    three: ReplicaSet, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    down = three.members.index(secondaries(three)[0])
    three.kill_member(down)
    try:
        pair.source.client.d.c.create_index("built while one is down")
        daemon.commit()
    finally:
        three.restart_member(down)
    pair.assert_equal()


def test_a_missing_majority_is_shown_and_holds_up_no_command(
    three: ReplicaSet, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with no_majority(three):
        writes.single_document_writes(pair.source.client)
        shown = wait_for(lambda: warning(daemon, "cluster1"), "a warning")
        assert "since" in shown and "majority" in shown
        answer = daemon.post("pause")
        assert answer.json()["error"] == "ClusterUnreachable", answer.text
        assert daemon.terminate() == 0
    daemon.run()
    daemon.commit()
    wait_for(lambda: "warnings" not in daemon.progress(), "the warnings have ended")
    pair.assert_equal()


@pytest.mark.full
def test_an_unknown_error_of_a_server_can_be_resumed(
    three: ReplicaSet, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with failing(three, ["insert", "update", "delete", "commitTransaction"], code=8):
        writes.single_document_writes(pair.source.client)
        failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "UnexpectedServerError"
    assert "POST /api/v1/resume" in failed["errorDescription"]
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


def test_a_refused_user_is_waited_for(three: ReplicaSet, pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with failing(three, ["insert", "update", "delete", "commitTransaction"], code=13):
        writes.single_document_writes(pair.source.client)
        shown = wait_for(lambda: warning(daemon, "cluster1", "(code 13)"), "a warning")
        assert "password" in shown
    daemon.commit()
    pair.assert_equal()
