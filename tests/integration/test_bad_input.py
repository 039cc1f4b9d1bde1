"""Sends bad requests: each must fail with a named error and change nothing.

Also tests the progress before the first start, and that the content type of a request does not matter.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import requests

from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import PATIENCE

GOOD = {"source": "cluster0", "destination": "cluster1"}
SHARD_KEY = {"shardCollection": {"key": [{"a": 2}]}}

BAD_STARTS: list[tuple[str, Any, str, tuple[str, ...]]] = [
    ("malformed JSON", b'{"source": ', "MalformedBody", ("JSON",)),
    ("not UTF-8", b"\xff\xfe{}", "MalformedBody", ("JSON",)),
    ("UTF-16", json.dumps(GOOD).encode("utf-16"), "MalformedBody", ("UTF-8",)),
    ("UTF-32 without a mark", json.dumps(GOOD).encode("utf-32-le"), "MalformedBody", ("UTF-8",)),
    ("nested without end", b"[" * 100_000, "MalformedBody", ()),
    ("an array", b"[]", "MalformedBody", ("not an object",)),
    ("nothing", b"", "InvalidRequest", ("source", "destination")),
    ("missing fields", {"source": "cluster0"}, "InvalidRequest", ("destination",)),
    ("wrong types", {"source": 1, "destination": []}, "InvalidRequest", ("source", "destination")),
    ("unknown field", {**GOOD, "Reversible": True}, "InvalidRequest", ("Reversible",)),
    ("a number for a boolean", {**GOOD, "reversible": 1}, "InvalidRequest", ("reversible",)),
    (
        "several at once",
        {"destination": "cluster1", "buildIndexes": "soon", "verification": {"enabled": "yes"}, "x": 1},
        "InvalidRequest",
        ("source", "buildIndexes", "verification.enabled", "x"),
    ),
    ("write blocking", {**GOOD, "enableUserWriteBlocking": "all"}, "InvalidRequest", ("enableUserWriteBlocking",)),
    (
        "a filter without database",
        {**GOOD, "includeNamespaces": [{"database": "a"}, {"collections": ["c"]}]},
        "InvalidRequest",
        ("includeNamespaces[1].database",),
    ),
    (
        "a shard key",
        {**GOOD, "sharding": {"shardingEntries": [{"database": "d", "collection": "c", **SHARD_KEY}]}},
        "InvalidRequest",
        ("sharding.shardingEntries[0].shardCollection.key[0]",),
    ),
    ("same cluster twice", {"source": "cluster1", "destination": "cluster1"}, "SameCluster", ("cluster1",)),
    ("unknown cluster", {"source": "cluster0", "destination": "cluster2"}, "UnknownCluster", ("cluster2",)),
    ("reversible", {**GOOD, "reversible": True}, "ReversibleNeedsWriteBlocking", ("destinationOnly",)),
    ("data", {**GOOD, "preExistingDestinationData": True}, "WriteBlockingWithExistingData", ("destinationOnly",)),
]  # fmt: skip


def assert_refused(
    answer: requests.Response, status: int, name: str, named: tuple[str, ...] = ()
) -> None:
    body = answer.json()
    assert answer.status_code == status, body
    assert set(body) == {"success", "error", "errorDescription"}
    assert body["success"] is False
    assert body["error"] == name
    for each in named:
        assert each in body["errorDescription"], body


@pytest.fixture(scope="module")
def idle(replica_sets: Pair, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Run a daemon that stays IDLE: no test of this module starts a sync with this daemon."""
    replica_sets.empty()
    daemon = Daemon(
        replica_sets.source.uri, replica_sets.destination.uri, tmp_path_factory.mktemp("idle")
    )
    with daemon.running():
        yield daemon


@pytest.mark.parametrize(
    ("body", "error", "named"), [row[1:] for row in BAD_STARTS], ids=[row[0] for row in BAD_STARTS]
)
def test_a_bad_start_is_refused(
    idle: Daemon, replica_sets: Pair, body: Any, error: str, named: tuple[str, ...]
) -> None:
    before = replica_sets.destination.client.list_database_names()
    assert_refused(idle.post("start", body), 400, error, named)
    assert idle.progress()["state"] == "IDLE"
    assert replica_sets.destination.client.list_database_names() == before


def test_commit_in_idle_is_refused(idle: Daemon) -> None:
    assert_refused(idle.post("commit"), 409, "InvalidState", ("RUNNING", "IDLE"))
    assert idle.progress()["state"] == "IDLE"


def test_a_commit_with_options_is_refused(idle: Daemon) -> None:
    assert_refused(idle.post("commit", {"now": True}), 400, "InvalidRequest", ("now",))


@pytest.mark.parametrize(
    ("method", "path", "status", "error"),
    [
        ("GET", "start", 405, "MethodNotAllowed"),
        ("POST", "progress", 405, "MethodNotAllowed"),
        ("GET", "nothing", 404, "NotFound"),
    ],
)
def test_unknown_paths_and_methods_answer_with_the_error_body(
    idle: Daemon, method: str, path: str, status: int, error: str
) -> None:
    answer = requests.request(method, idle.url(path), timeout=PATIENCE)
    assert_refused(answer, status, error)


def test_a_body_that_is_too_large_is_refused(idle: Daemon) -> None:
    assert_refused(idle.post("start", b" " * (2 << 20)), 413, "RequestEntityTooLarge")


def test_progress_before_the_first_start(idle: Daemon) -> None:
    progress = idle.progress()
    known = {name: value for name, value in progress.items() if value is not None}
    assert known == {
        "state": "IDLE",
        "canCommit": False,
        "canWrite": False,
        "mongosyncID": "coordinator",
        "coordinatorID": "coordinator",
        "collectionCopy": {"estimatedTotalBytes": 0, "estimatedCopiedBytes": 0},
    }


def test_a_destination_that_holds_data_is_refused(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    pair.destination.client.mine.c.insert_one({"_id": 2})
    assert_refused(daemon.post("start", GOOD), 409, "DestinationNotEmpty", ("mine",))
    assert daemon.progress()["state"] == "IDLE"
    assert pair.destination.client.mine.c.find_one() == {"_id": 2}
    pair.destination.client.mine.c.insert_one({"_id": 3})
    pair.destination.client.drop_database("mine")
    daemon.start()
    daemon.commit()
    pair.assert_equal()


def test_a_second_start_and_an_early_commit_are_refused(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    daemon.start()
    named = ("IDLE", "RUNNING", "A sync was already started at 20")
    differs = (*named, "another value of the start option verification.repair than this request.")
    assert_refused(daemon.post("start", GOOD), 409, "InvalidState", differs)
    same = (*named, "the options of this request, and continues: do not start it again.")
    assert_refused(daemon.post("start", daemon.start_body()), 409, "InvalidState", same)
    daemon.kill()
    daemon.run()
    assert_refused(daemon.post("start", GOOD), 409, "InvalidState", differs)
    # A script may repeat the start after a restart.
    daemon.start()
    daemon.commit()
    for command, body in (("start", GOOD), ("commit", {})):
        assert_refused(daemon.post(command, body), 409, "InvalidState", ("COMMITTED",))
    pair.assert_equal()


def test_content_type_does_not_matter(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    answer = daemon.post(
        "start", GOOD, headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    assert answer.json() == {"success": True}
    daemon.commit()
