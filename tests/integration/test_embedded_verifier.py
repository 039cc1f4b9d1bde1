"""Tests the verification during a sync: it must find differences, ignore expected ones, and survive restarts."""

from __future__ import annotations

import json
from typing import Any

import bson
import pytest

from syncsvc.engine.run.points import Point as EnginePoint
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.workload import Workload
from tests.integration.test_bad_input import assert_refused
from tests.support import writes
from tests.support.blocks import is_blocked
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import APPLICATION, failing
from tests.support.pair import Pair, across_topologies
from tests.support.waiting import wait_for
from verifier.compare.points import Point

SUB_FIRST = {"$replaceWith": {"$mergeObjects": [{"_id": 5, "sub": 1}, "$$ROOT"]}}
# Each command with the mismatch that it causes: type, aspect of a definition, and `_id` or component.
CORRUPTIONS: list[tuple[dict[str, Any], tuple[Any, ...]]] = [
    ({"update": "c", "updates": [{"q": {"_id": 2}, "u": {"$set": {"sub.a": -1}}}]}, ("content", None, 2)),
    ({"delete": "c", "deletes": [{"q": {"_id": 3}, "limit": 1}]}, ("missingOnDst", None, 3)),
    ({"update": "c", "updates": [{"q": {"_id": 4}, "u": [{"$set": {"n": {"$toLong": "$n"}}}]}]}, ("content", None, 4)),
    ({"update": "c", "updates": [{"q": {"_id": 5}, "u": [SUB_FIRST]}]}, ("content", None, 5)),
    ({"insert": "c", "documents": [{"_id": "extra"}]}, ("extraOnDst", None, "extra")),
    ({"dropIndexes": "c", "index": "n_1"}, ("missingOnDst", "index", "n_1")),
    ({"createIndexes": "c", "indexes": [{"name": "mine", "key": {"q": 1}}]}, ("extraOnDst", "index", "mine")),
    ({"collMod": "c", "validator": {"n": 1}}, ("extraOnDst", "spec", "validator")),
    ({"drop": "other"}, ("missingOnDst", "exist", "")),
    ({"create": "mine"}, ("extraOnDst", "exist", "")),
]  # fmt: skip


def behind_our_back(pair: Pair, command: dict[str, Any]) -> None:
    """Run a write command in the database d of the destination, bypassing the block of user writes."""
    reply = pair.destination.client.d.command({**command, "mayBypassWriteBlocking": True})
    assert reply["ok"] == 1 and not reply.get("writeErrors")


def set_number(key: int, number: int) -> dict[str, Any]:
    return {"update": "c", "updates": [{"q": {"_id": key}, "u": {"$set": {"n": number}}}]}


def mismatches(daemon: Daemon, **parameters: Any) -> list[dict[str, Any]]:
    answer = daemon.get("mismatches", **parameters)
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def listed(daemon: Daemon, **parameters: Any) -> set[tuple[Any, ...]]:
    """Return the mismatches that the daemon lists.

    A mismatch of a definition is (type, aspect, component), and one of a document (type, None, `_id`). `parameters` are
    query parameters of the request.
    """
    return {
        (each["type"], each.get("aspect"), each["component"] if "aspect" in each else _key(each))
        for each in mismatches(daemon, **parameters)
    }


def _key(document: dict[str, Any]) -> Any:
    key = document["_id"]
    return str(key) if isinstance(key, dict) else key


@prepared(Daemon.judge_soon)
@pytest.mark.in_turns
@across_topologies
def test_a_difference_is_reported_and_prevents_the_commit(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n")
    first = ("content", None, 1)
    with daemon.held_at(Point.LISTED, "", 2):
        # This write precedes generation 0 (the first comparison of all documents); later writes come during rechecks.
        daemon.start()
        daemon.wait_until_reached(Point.LISTED, "", 2)
        behind_our_back(pair, set_number(1, -1))
    daemon.wait_until_committable()
    wait_for(lambda: first in listed(daemon), "the running check tells what it found")
    for command, _ in CORRUPTIONS:
        behind_our_back(pair, command)
    failed = daemon.commit_or_fail()
    assert (failed["error"], failed["canWrite"]) == ("VerificationFailed", False)
    for said in ("is missing on the dest", "is extra on the dest", "4 documents are different"):
        assert said in failed["errorDescription"]
    assert "/api/v1/mismatches" in failed["errorDescription"]
    expected = {first, *(row for _, row in CORRUPTIONS)}
    assert listed(daemon) == expected
    assert_paged(daemon)
    daemon.kill()
    daemon.run()
    daemon.wait_for_state("FAILED")
    assert listed(daemon) == expected
    assert_refused(daemon.post("commit"), 409, "InvalidState")
    assert is_blocked(pair.destination)


def assert_paged(daemon: Daemon) -> None:
    every, paged = mismatches(daemon), []
    page = mismatches(daemon, limit=2)
    while page:
        paged += page
        page = mismatches(daemon, limit=2, after=page[-1]["place"])
    assert paged == every
    for unknown in ("x", "00", bson.encode({"_id": 1}).hex()):
        answer = daemon.get("mismatches", after=unknown)
        assert_refused(answer, 400, "InvalidRequest", ("after",))


def test_without_verification_nothing_is_compared(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    behind_our_back(pair, {"insert": "c", "documents": [{"_id": "extra"}]})
    daemon.commit()
    assert pair.destination.client.d.c.find_one({"_id": "extra"})
    assert pair.destination.client[METADATA_DATABASE].check.find_one({}) is None
    assert mismatches(daemon) == []


@pytest.mark.full
def test_a_collection_recreated_with_another_collation_fails_the_verification(
    pair: Pair, daemon: Daemon
) -> None:
    # The collection has three ranges, whose bounds are in another order with the new collation.
    documents = [
        {"_id": f"{letter}{number:05}", "pad": "p" * 1400}
        for number in range(10_000)
        for letter in "aB"
    ]
    pair.source.client.d.c.insert_many(documents)
    with daemon.held_at(Point.LISTED, "", 2):
        daemon.start()
        daemon.wait_until_reached(Point.LISTED, "", 2)
        behind_our_back(pair, {"drop": "c"})
        behind_our_back(pair, {"create": "c", "collation": {"locale": "en"}})
        for half in (documents[::2], documents[1::2]):
            behind_our_back(pair, {"insert": "c", "documents": half})
    daemon.wait_until_committable()
    failed = daemon.commit_or_fail()
    assert failed["error"] == "VerificationFailed", failed["errorDescription"]
    assert listed(daemon) == {
        ("extraOnDst", "spec", "collation"),
        ("content", "spec", "idIndex"),
    }


@pytest.mark.full
def test_a_difference_repaired_before_the_commit_is_no_mismatch(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    behind_our_back(pair, set_number(1, -1))
    behind_our_back(pair, {"drop": "other"})
    wait_for(lambda: ("content", None, 1) in listed(daemon), "it is found")
    wait_for(lambda: ("missingOnDst", "exist", "") in listed(daemon), "it is found")
    behind_our_back(pair, set_number(1, 1))
    documents = [{"_id": n} for n in range(10)]
    behind_our_back(pair, {"insert": "other", "documents": documents})
    wait_for(lambda: listed(daemon) == set(), "it is repaired")
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_definitions_may_change_and_writers_may_write(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    writes.fill(client)
    writes.new_collections(client)
    client.d.busy.insert_many({"_id": n} for n in range(500))
    with Workload([client.d.busy], seed=3) as workload:
        with daemon.held_at(Point.GENERATION_DONE, "0"):
            daemon.start()
            daemon.wait_until_reached(Point.GENERATION_DONE, "0")
            writes.single_document_writes(client)
            writes.indexes(client)
            writes.modifications(client)
            writes.renames(client)
        daemon.wait_until_committable()
        writes.many_collections(client)
        writes.time_series(client)
        writes.views(client)
        client.drop_database("d2")
        client.d.busy.rename("busier")
        with Workload([client.d.busier], seed=4) as other:
            writes.drop_and_create_again(client)
            workload.stop()
            daemon.wait_until_committable()
            other.stop()
    daemon.commit()
    pair.assert_equal()


def test_no_commit_is_possible_before_the_documents_that_changed_during_the_first_pass_are_compared(
    pair: Pair, daemon: Daemon
) -> None:
    documents = pair.source.client.d.c
    documents.insert_many({"_id": number} for number in range(1000))
    rechecks = pair.destination.client[METADATA_DATABASE]["rechecks_1"]

    def waits() -> bool:
        overview = daemon.overview()
        progress, reasons = overview["progress"], overview["commit"]["reasons"]
        assert progress["canCommit"] is False
        return all(
            side["lagTimeSeconds"] is not None
            and side["lagTimeSeconds"] <= 30
            and side["recheckLagTimeSeconds"] is None
            and any(f"{name} that changed during its first pass" in each for each in reasons)
            for name, side in progress["verification"].items()
        )

    with daemon.held_at(Point.GENERATION_BEGUN, "1"):
        with daemon.held_at(Point.GENERATION_DONE, "0"):
            daemon.start()
            daemon.wait_until_reached(Point.GENERATION_DONE, "0")
            documents.update_many({}, {"$set": {"n": 1}})
            wait_for(lambda: rechecks.count_documents({}) == 1000, "the changes are saved")
        daemon.wait_until_reached(Point.GENERATION_BEGUN, "1")
        for _ in range(3):
            wait_for(waits, "only changed documents are not compared yet")
    shown = daemon.wait_until_committable()
    assert all(side["recheckLagTimeSeconds"] <= 60 for side in shown["verification"].values())
    daemon.commit()
    pair.assert_equal()


def test_a_commit_stays_possible_under_constant_writes(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    checks = pair.destination.client[METADATA_DATABASE].check
    values: list[bool] = []

    def compared(generation: int) -> bool:
        values.append(daemon.progress()["canCommit"])
        return (checks.find_one() or {})["generation"] >= generation

    with Workload([pair.source.client.d.c], seed=7):
        daemon.start()
        daemon.wait_until_committable()
        last = (checks.find_one() or {})["generation"] + 5
        wait_for(lambda: compared(last), "five generations")
    assert len(values) > 5 and all(values)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_collection_that_is_copied_during_the_sync_is_compared_once(
    pair: Pair, daemon: Daemon
) -> None:
    client, number = pair.source.client, 5000
    writes.fill(client)
    client.d.hidden.insert_many({"_id": each} for each in range(number))
    hidden = {"database": "d", "collections": ["hidden"]}
    checks = pair.destination.client[METADATA_DATABASE].check

    def compared() -> int:
        return int((checks.find_one() or {})["rechecked"])

    daemon.start(excludeNamespaces=[hidden])
    daemon.wait_until_committable()
    before = compared()
    refused = {"failCommands": ["insert"], "namespace": "d.late", "errorCode": 262}
    with failing(pair.destination.client, refused):
        client.admin.command({"renameCollection": "d.hidden", "to": "d.late"})
        wait_for(lambda: (daemon.progress()["lagTimeSeconds"] or 0) > 5, "the copy takes long")
    wait_for(lambda: compared() - before >= number, "the collection is compared")
    daemon.wait_until_committable()
    assert compared() - before < 1.5 * number
    daemon.commit()
    pair.assert_equal()


KILLS = [(Point.TASK_DONE, ""), (Point.GENERATION_BEGUN, "1"), (Point.GENERATION_DONE, "2")]


def test_a_killed_check_continues(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    kill_and_write(pair, daemon, behind=False)
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert listed(daemon) == set()


def test_a_commit_reads_idle_change_streams_with_short_waits(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    held = (EnginePoint.STEP_DONE, "commit saved")
    clients = pair.source.client, pair.destination.client
    with daemon.held_at(*held):
        daemon.start()
        daemon.wait_until_committable()
        for client in clients:
            wait_for(lambda: waits_of_streams(client) == {50}, "the wait of the tests")
        daemon.ask_for_commit()
        daemon.wait_until_reached(*held)
        for client in clients:
            wait_for(lambda: waits_of_streams(client) == {20}, "a short wait")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


def waits_of_streams(client: writes.AnyClient) -> set[int]:
    """Return how long the daemon's running getMores on change streams wait for an event, in milliseconds."""
    running = {
        "appName": APPLICATION,
        "command.getMore": {"$exists": True},
        "cursor.tailable": True,
    }
    found = client.admin.aggregate([{"$currentOp": {}}, {"$match": running}])
    return {each["command"]["maxTimeMS"] for each in found}


@pytest.mark.full
def test_a_killed_check_keeps_its_mismatches(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    kill_and_write(pair, daemon, behind=True)
    assert daemon.wait_for_state("FAILED")["error"] == "VerificationFailed"
    # One write before each kill, and one after it.
    keys = range(100, 100 + 2 * len(KILLS))
    assert listed(daemon) == {("content", None, key) for key in keys}


def kill_and_write(pair: Pair, daemon: Daemon, behind: bool) -> None:
    """Kill the daemon at several points of its check and of its commit.

    Write to the source before and after each kill during the check, but not during the commit. If `behind` is true,
    each write also changes another document on the destination only; the check must find these documents.
    """

    def write(key: int) -> None:
        pair.source.client.d.c.update_one({"_id": key - 50}, {"$set": {"n": -key}})
        if behind:
            behind_our_back(pair, set_number(key, -1))

    with daemon.held_at(Point.LISTED, "", 2):
        # The daemon passes a point of this name twice: in the sync, and then in the check.
        daemon.start()
        daemon.wait_until_reached(Point.LISTED, "", 2)
        daemon.kill_at(*KILLS[0])
        write(100)
    daemon.wait_until_killed()
    write(101)
    for number, kill in enumerate(KILLS[1:], 1):
        daemon.kill_at(*kill)
        daemon.run()
        write(100 + 2 * number)
        daemon.wait_until_killed()
        write(101 + 2 * number)
    daemon.run()
    daemon.wait_until_committable()
    daemon.kill_at(Point.WRITES_OFF)
    daemon.commit_until_killed()
    daemon.kill_at(Point.VERDICT_SAVED)
    daemon.run()
    daemon.wait_until_killed()
    daemon.run()


def change_saved_check(pair: Pair, change: dict[str, Any]) -> None:
    pair.destination.client[METADATA_DATABASE].command(
        {"update": "check", "updates": [{"q": {}, "u": change}], "mayBypassWriteBlocking": True}
    )


@pytest.mark.full
def test_a_check_that_cannot_continue_does_not_pass(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    # Simulate the state of another version: the daemon must refuse it without damaging it.
    change_saved_check(pair, {"$inc": {"format": 5}})
    daemon.run()
    assert daemon.wait_for_state("FAILED")["error"] == "IncompatibleMetadata"
    daemon.kill()
    change_saved_check(pair, {"$inc": {"format": -5}})
    daemon.run()
    daemon.wait_until_committable()
    daemon.kill()
    change_saved_check(pair, {"$set": {"destination.position.token": {"_data": "82"}}})
    daemon.run()
    assert daemon.wait_for_state("FAILED")["error"] == "VerificationIncomplete"


@pytest.mark.full
def test_a_check_survives_a_loss_that_the_oplog_does_not_confirm(
    pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    lost = {"failCommands": ["getMore"], "errorCode": 286}
    fail_point = {"configureFailPoint": "failCommand", "mode": {"times": 1}, "data": lost}
    pair.destination.client.admin.command(fail_point)
    wait_for(lambda: "no longer reaches back" in daemon.log, "the error has struck")
    behind_our_back(pair, set_number(1, -1))
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    assert listed(daemon) == {("content", None, 1)}


def test_a_ttl_index_that_enters_the_filter_by_rename_is_refused(
    pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    pair.source.client.outside.expires.create_index("when", expireAfterSeconds=10**8)
    daemon.start(buildIndexes="never", includeNamespaces=[{"database": "d"}])
    daemon.wait_until_committable()
    rename = {"renameCollection": "outside.expires", "to": "d.expires"}
    pair.source.client.admin.command(rename)
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "TTLNotVerifiable"
    assert "when_1" in progress["errorDescription"]


@pytest.mark.full
def test_a_destination_that_does_not_answer_is_named(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    hangs = {"failCommands": ["find"], "blockConnection": True, "blockTimeMS": 15_000}
    fail_point = {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": hangs}
    pair.destination.client.admin.command(fail_point)
    try:
        answer = daemon.get("mismatches")
        assert_refused(answer, 409, "ClusterUnreachable")
        daemon.progress()
    finally:
        pair.destination.client.admin.command({**fail_point, "mode": "off"})
    daemon.commit()
