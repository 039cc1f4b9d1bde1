"""Tests that the commit and /repair remove differences between the clusters, even after the commit has failed.

Other tests write to the source during a commit: the commit must apply these writes.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import bson
import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.workload import Workload
from syncsvc.saved.repairs import Repairs
from tests.integration.test_bad_input import assert_refused
from tests.integration.test_embedded_verifier import (
    behind_our_back,
    listed,
    mismatches,
    set_number,
)
from tests.support import writes
from tests.support.blocks import is_blocked
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import APPLICATION, failing, times
from tests.support.metrics import scrape
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.selection import full
from tests.support.waiting import wait_for
from verifier.cluster.namespace import Namespace
from verifier.cluster.writer import ClusterWriter
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    StoredMismatch,
)
from verifier.compare.points import Point as CheckPoint
from verifier.compare.task import digest_of
from verifier.runtime.tasks import StopToken

JUDGING_SOON = prepared(Daemon.judge_soon)
AUTO = {"enabled": True, "repair": "auto"}
INDEXES = [[("n", 1)], [("m", -1), ("n", 1)], [("sub.a", 1)]]
DEFINITIONS = {
    ("missingOnDst", "index", "n_1"),
    ("missingOnDst", "index", "m_-1_n_1"),
    ("missingOnDst", "index", "sub.a_1"),
    ("extraOnDst", "index", "mine"),
    ("content", "spec", "validator"),
    ("extraOnDst", "spec", "validationAction"),  # the source has the default
    ("missingOnDst", "exist", ""),
}
# The number of documents in the dropped collections, including the buckets of the time series.
DROPPED = 10 + 5 + 3
DOCUMENTS = {
    *(("content", None, n) for n in range(20)),
    *(("missingOnDst", None, n) for n in range(20, 40)),
    *(("extraOnDst", None, f"extra {n}") for n in range(10)),
}


def fill(pair: Pair) -> None:
    client = pair.source.client
    pair.shard("d.c")
    writes.fill(client)
    for keys in INDEXES:
        client.d.c.create_index(keys)
    client.d.create_collection("seen", viewOn="c", pipeline=[{"$match": {"n": 1}}])
    # Specify all options, because collMod sets those that create leaves out.
    options: dict[str, Any] = {"validationLevel": "strict", "validationAction": "error"}
    client.d.create_collection("checked", validator={"n": {"$gte": 0}}, **options)
    # The number of documents in this collection is not compared, because the documents can expire.
    client.d.expiring.create_index("at", expireAfterSeconds=10**9)
    client.d.expiring.insert_many({"_id": n, "at": datetime.now(UTC)} for n in range(5))
    writes.time_series(client)
    client.left_out.c.insert_one({"_id": 1})


def corrupt(pair: Pair) -> None:
    """Corrupt the destination: change 20, delete 20 and add 10 documents; change definitions, and drop collections."""
    changes = [{"q": {"_id": n}, "u": {"$set": {"n": -1}}} for n in range(20)]
    behind_our_back(pair, {"update": "c", "updates": changes})
    deletes = [{"q": {"_id": n}, "limit": 1} for n in range(20, 40)]
    behind_our_back(pair, {"delete": "c", "deletes": deletes})
    behind_our_back(pair, {"insert": "c", "documents": [{"_id": f"extra {n}"} for n in range(10)]})
    behind_our_back(pair, {"dropIndexes": "c", "index": "*"})
    behind_our_back(pair, {"createIndexes": "c", "indexes": [{"name": "mine", "key": {"q": 1}}]})
    behind_our_back(pair, {"collMod": "checked", "validator": {"n": 1}, "validationAction": "warn"})
    for name in ("other", "expiring", "series", "seen"):
        behind_our_back(pair, {"drop": name})
    behind_our_back(pair, {"create": "mine", "viewOn": "c", "pipeline": []})


def repaired(daemon: Daemon) -> set[tuple[Any, ...]]:
    return listed(daemon, repaired=True)


@JUDGING_SOON
@across(full(REPLICA_SETS), full(TO_SHARDED), full(FROM_SHARDED), SHARDED)
def test_the_commit_repairs_what_differs(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    daemon.start(verification=AUTO, excludeNamespaces=[{"database": "left_out"}])
    daemon.wait_until_committable()
    corrupt(pair)
    with Workload([pair.source.client.d.busy], seed=5):
        wait_for(lambda: DOCUMENTS <= listed(daemon), "the running check finds the documents")
    with daemon.held_at(Point.REPAIR_DONE, "1"):
        with daemon.held_at(Point.STEP_DONE, "drained"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "drained")
            # The cut-over has changed nothing yet, so applications may still write to both clusters.
            behind_our_back(pair, {"insert": "c", "documents": [{"_id": "after the commit"}]})
            intact = {"_id": {"$gte": 100, "$lt": 300}}
            pair.source.client.d.c.update_many(intact, {"$set": {"late": True}})
        daemon.wait_until_reached(Point.REPAIR_DONE, "1")
        assert daemon.progress()["repairs"]["inProgress"] is False
        # The check has read the destination's changes up to the end of the check, and must continue to read changes.
        behind_our_back(pair, set_number(200, -1))
        behind_our_back(pair, {"insert": "c", "documents": [{"_id": "during the repair"}]})
        pair.source.client.d.c.update_one({"_id": 201}, {"$set": {"later": True}})
    daemon.wait_for_state("COMMITTED")
    assert set(pair.differences()) == {"left_out"}
    assert listed(daemon) == set()
    assert DOCUMENTS | DEFINITIONS <= repaired(daemon)
    shown = daemon.progress()["repairs"]
    assert shown["inProgress"] is False
    assert (shown["documents"], shown["definitions"]) == counts(daemon)
    assert shown["documents"] == len(DOCUMENTS) + DROPPED + 3
    assert scrape(daemon)["mongosync_repaired_documents"] == {(): shown["documents"]}


@JUDGING_SOON
@across(REPLICA_SETS, full(SHARDED), full(FROM_SHARDED))
def test_a_failed_commit_is_repaired_on_demand(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    assert_refused(daemon.post("repair"), 409, "InvalidState")
    with daemon.held_at(Point.LISTED):
        daemon.start(enableUserWriteBlocking=True)
        assert_refused(daemon.post("repair"), 409, "CannotRepair")
    daemon.wait_until_committable()
    corrupt(pair)
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    daemon.kill()
    daemon.run()
    daemon.wait_for_state("FAILED")
    before = pair.differences()
    assert_listed_only(daemon)
    assert daemon.progress()["state"] == "FAILED"
    assert pair.differences() == before
    daemon.resume()
    daemon.wait_for_state("RUNNING")
    assert not is_blocked(pair.source)
    pair.source.client.d.c.insert_one({"_id": "between"})
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    assert repaired(daemon) == set()
    daemon.kill_at(Point.RESUME_SAVED, "", 2)
    daemon.post_unanswered("repair", {})
    daemon.wait_until_killed()
    daemon.run()
    wait_until_repaired(daemon)
    pair.source.client.d.c.insert_one({"_id": "afterwards"})
    daemon.commit()
    assert is_blocked(pair.source)
    pair.assert_equal()
    assert DOCUMENTS | DEFINITIONS <= repaired(daemon)


@JUDGING_SOON
def test_a_repair_unblocks_the_source_if_the_failed_commit_could_not(
    pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking=True)
    daemon.wait_until_committable()
    behind_our_back(pair, set_number(1, -1))
    refused = {"failCommands": ["setUserWriteBlockMode"], "errorCode": 72, "appName": APPLICATION}
    with daemon.held_at(Point.FAILURE_SAVED):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.FAILURE_SAVED)
        pair.source.client.admin.command(
            {"configureFailPoint": "failCommand", "mode": times(1), "data": refused}
        )
    wait_for(
        lambda: "Could not save the failure, or could not lift" in daemon.log,
        "the failed unblocking is logged",
    )
    assert is_blocked(pair.source)
    assert "this sync still blocks user writes there" in daemon.overview()["next"]["text"]
    repair(daemon)
    assert not is_blocked(pair.source)
    daemon.commit()
    pair.assert_equal()


def assert_listed_only(daemon: Daemon) -> None:
    answer = daemon.post("repair", {"dryRun": True})
    assert answer.status_code == 200, answer.text
    plan = answer.json()
    assert plan["documents"] == len(DOCUMENTS)
    assert len(plan["repairs"]) == plan["documents"] + plan["definitions"]
    actions = {each["difference"]: each["action"] for each in plan["repairs"]}
    document = "d.c: the document with _id"
    assert actions[f"{document} int 20 is missing on the destination"].startswith("write")
    assert actions[f'{document} string "extra 1" is extra on the destination'].startswith("delete")
    assert actions["d.other: it is missing on the destination (a collection)"].startswith("create")


def repair(daemon: Daemon) -> None:
    """Send /repair, and wait until the repair is complete."""
    assert daemon.post("repair").json() == {"success": True}
    wait_until_repaired(daemon)


def wait_until_repaired(daemon: Daemon) -> None:
    daemon.wait_for_state("RUNNING")
    wait_for(lambda: not daemon.progress()["repairs"]["inProgress"], "the repair is complete")


@JUDGING_SOON
def test_a_running_sync_is_repaired_on_demand(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    daemon.start()
    daemon.wait_until_committable()
    corrupt(pair)
    wait_for(lambda: DOCUMENTS <= listed(daemon), "the running check finds the documents")
    with Workload([pair.source.client.d.c], seed=7), daemon.held_at(Point.REPAIR_BEGUN, "1"):
        assert daemon.post("repair").json() == {"success": True}
        daemon.wait_until_reached(Point.REPAIR_BEGUN, "1")
        behind_our_back(pair, {"insert": "c", "documents": [{"_id": "later"}]})
        wait_for(lambda: ("extraOnDst", None, "later") in listed(daemon), "the document is found")
        # The repair round that has begun does not include this document.
        assert daemon.post("repair").json() == {"success": True}
        assert daemon.progress()["repairs"]["inProgress"] is True
        assert daemon.progress()["canCommit"] is False
        reasons = daemon.overview()["commit"]["reasons"]
        assert "The differences between the clusters are being repaired." in reasons
    wait_for(lambda: listed(daemon) == set(), "no difference is left")
    behind_our_back(pair, {"create": "foreign"})
    # Indexes and options are compared in the commit only.
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    refused = {"failCommands": ["collMod"], "errorCode": 72, "appName": APPLICATION}
    with failing(pair.destination.client, refused):
        repair(daemon)
    assert ("content", "spec", "validator") not in repaired(daemon)
    shown = daemon.progress()["repairs"]
    assert (shown["documents"], shown["definitions"]) == counts(daemon)
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    repair(daemon)
    # The sync did not create this collection, so it may contain data that users need.
    assert "foreign" in pair.destination.client.d.list_collection_names()
    behind_our_back(pair, {"drop": "foreign"})
    daemon.commit()
    pair.assert_equal()
    assert DEFINITIONS <= repaired(daemon)


def test_an_index_that_a_user_has_hidden_becomes_visible(pair: Pair, daemon: Daemon) -> None:
    """For a hidden index, the server answers createIndexes that the index exists, and leaves it hidden."""
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", name="n")
    daemon.start(verification=AUTO)
    daemon.wait_until_committable()
    behind_our_back(pair, {"collMod": "c", "index": {"name": "n", "hidden": True}})
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@JUDGING_SOON
@across(SHARDED)
def test_orphaned_documents_are_neither_compared_nor_repaired(pair: Pair, daemon: Daemon) -> None:
    """Move a chunk of the destination, so that orphaned documents remain on the old shard.

    The check and the repair must ignore orphaned documents. Exception: if a missing document has the same `_id` as an
    orphaned document on its shard, the repair must wait until the orphaned document is deleted.
    """
    source, destination = pair.source.client, pair.destination.client
    source.d.c.create_index("k")
    pair.shard("d.c", {"k": 1})
    source.d.c.insert_many({"_id": n, "k": n} for n in range(300))
    daemon.start()
    daemon.wait_until_committable()
    one, other = pair.destination.shards
    with one.client() as shard:
        own = shard.d.c.distinct("k")
        low, high = min(own), max(own)
        destination.admin.command("moveChunk", "d.c", find={"k": low}, to=other.name)
        left = shard.d.c.count_documents({"k": low})
        behind_our_back(
            pair, {"update": "c", "updates": [{"q": {"k": low}, "u": {"$set": {"n": -1}}}]}
        )
        behind_our_back(pair, {"delete": "c", "deletes": [{"q": {"k": low + 1}, "limit": 1}]})
        behind_our_back(pair, {"delete": "c", "deletes": [{"q": {"k": high}, "limit": 1}]})
        # The shard has both chunks, so the orphaned document prevents the insertion of the missing one.
        orphan = {"_id": high, "k": low + 0.5}
        shard.d.command({"insert": "c", "documents": [orphan], "mayBypassWriteBlocking": True})
        different = {
            ("content", None, low),
            ("missingOnDst", None, low + 1),
            ("missingOnDst", None, high),
        }
        wait_for(lambda: listed(daemon) == different, "the running check finds the documents")
        assert daemon.post("repair").json() == {"success": True}
        waiting = "an orphaned document with that _id"
        daemon.wait_for_warning(waiting)
        # Delete the orphaned document, as the shard itself does later.
        delete = {"delete": "c", "deletes": [{"q": orphan, "limit": 1}]}
        shard.d.command({**delete, "mayBypassWriteBlocking": True})
        wait_for(lambda: listed(daemon) == set(), "all are repaired")
        daemon.commit()
        pair.assert_equal()
        assert shard.d.c.count_documents({"k": low}) == left == 1


@JUDGING_SOON
def test_a_reset_drops_what_a_repair_has_created(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    behind_our_back(pair, {"drop": "other"})
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    repair(daemon)
    assert pair.destination.client.d.other.count_documents({}) == 10
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    assert pair.destination.client.d.list_collection_names() == []


@pytest.mark.full
@JUDGING_SOON
def test_many_documents_are_listed_and_repaired(pair: Pair, daemon: Daemon) -> None:
    """Repair more documents than fit into one page of the list of mismatches.

    A dry run must list the first 1000 repairs, and return the total number.
    """
    number = 2500
    pair.source.client.d.c.insert_many({"_id": f"{n} " + "k" * 200} for n in range(number))
    daemon.start()
    daemon.wait_until_committable()
    behind_our_back(pair, {"delete": "c", "deletes": [{"q": {}, "limit": 0}]})
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    plan = daemon.post("repair", {"dryRun": True})
    assert plan.json()["documents"] == number
    assert len(plan.json()["repairs"]) == 1000 and len(plan.content) < 1 << 19
    # The different number of documents is a mismatch, too, but needs no repair of its own.
    repair(daemon)
    first = mismatches(daemon, repaired=True, limit=1500)
    rest = mismatches(daemon, repaired=True, after=first[-1]["place"])
    assert len(first) == 1500 and len(rest) == number - 1500
    daemon.commit()
    pair.assert_equal()


def create_again(client: writes.AnyClient) -> None:
    """Drop the collection `other` and create it again with another document, as a user with special privileges can."""
    bypass = {"mayBypassWriteBlocking": True}
    client.d.command({"drop": "other", **bypass})
    client.d.command({"insert": "other", "documents": [{"_id": "theirs"}], **bypass})


def assert_kept(daemon: Daemon, client: writes.AnyClient) -> None:
    """Fail unless a commit fails with VerificationFailed, and a repair then keeps the collection `other`.

    `create_again` must have created this collection on the cluster of `client`. At the end, drop it, and repair again.
    """
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    plan = daemon.post("repair", {"dryRun": True}).json()
    assert {each["action"].partition(" ")[0] for each in plan["repairs"]} == {"none:"}
    repair(daemon)
    assert [each["_id"] for each in client.d.other.find()] == ["theirs"]
    client.d.command({"drop": "other", "mayBypassWriteBlocking": True})
    repair(daemon)


def test_a_repair_reports_a_collection_that_was_renamed_meanwhile(
    pair: Pair, daemon: Daemon
) -> None:
    database = pair.source.client.d
    database.before.insert_many({"_id": n} for n in range(5))
    database.c.insert_many({"_id": n} for n in range(5, 10))
    daemon.start()
    daemon.wait_until_committable()
    for name in ("before", "c"):
        behind_our_back(pair, {"delete": name, "deletes": [{"q": {}, "limit": 0}]})
    wait_for(lambda: len(listed(daemon)) == 10, "the running check finds the documents")
    with daemon.held_at(Point.REPAIR_LISTED, "1"):
        assert daemon.post("repair").json() == {"success": True}
        daemon.wait_until_reached(Point.REPAIR_LISTED, "1")
        database.before.rename("after")
        wait_for(lambda: "after" in names(pair.destination.client), "the rename is applied")
    wait_until_repaired(daemon)
    assert {each["namespace"] for each in mismatches(daemon, repaired=True)} == {"d.c"}
    assert daemon.progress()["repairs"]["documents"] == 5
    assert '"namespaces": "d.before"' in daemon.log
    # The five documents of d.c are listed until the check compares them again.
    wait_for(
        lambda: [each["namespace"] for each in mismatches(daemon)] == ["d.after"] * 5,
        "the documents differ under the new name",
    )
    repair(daemon)
    daemon.commit()
    pair.assert_equal()


def names(client: writes.AnyClient) -> list[str]:
    return list(client.d.list_collection_names())


@pytest.mark.full
@JUDGING_SOON
def test_a_repair_keeps_what_users_have_created(pair: Pair, daemon: Daemon) -> None:
    """Let users drop a collection on the destination and create a new one: a repair must keep the new collection.

    The same must hold after a reversal. The new collection may hold data that the users need.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    daemon.start(verification=AUTO, reversible=True, enableUserWriteBlocking=True)
    daemon.wait_until_committable()
    create_again(destination)
    assert_kept(daemon, destination)
    # A commit may repair twice.
    behind_our_back(pair, {"drop": "c"})
    daemon.commit()
    pair.assert_equal()
    assert daemon.progress()["repairs"]["documents"] >= 310
    daemon.reverse()
    assert daemon.progress()["repairs"] == {"inProgress": False, "documents": 0, "definitions": 0}
    assert repaired(daemon) == set()
    daemon.wait_until_committable()
    create_again(source)
    assert_kept(daemon, source)
    source.d.command({"drop": "c", "mayBypassWriteBlocking": True})
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.each_once
@across(REPLICA_SETS, SHARDED)
@pytest.mark.parametrize("verification", [{"repair": "never"}, {"enabled": False}])
def test_writes_after_the_commit_are_applied(
    pair: Pair, daemon: Daemon, verification: dict[str, Any]
) -> None:
    client = pair.source.client
    writes.fill(client)
    daemon.start(verification=verification)
    daemon.wait_until_committable()
    with daemon.held_at(Point.COMMIT_POSTPONED, "", 2):
        with Workload([client.d.c, client.d.busy], seed=9):
            with daemon.held_at(Point.COMMIT_POSTPONED):
                with daemon.held_at(Point.STEP_DONE, "drained"):
                    daemon.ask_for_commit()
                    daemon.wait_until_reached(Point.STEP_DONE, "drained")
                    write_late(pair, "first")
                daemon.wait_until_reached(Point.COMMIT_POSTPONED)
                write_late(pair, "second")
            daemon.wait_until_reached(Point.COMMIT_POSTPONED, "", 2)
        (warning,) = warnings_of_writes(daemon)
        assert "d.c" in warning or "d.busy" in warning
        assert daemon.progress()["state"] == "COMMITTING"
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert not warnings_of_writes(daemon)


def test_a_commit_does_not_wait_for_documents_that_expire(pair: Pair, daemon: Daemon) -> None:
    """Let documents expire on the source during the verification and the cut-over: the commit must not be repeated."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.expiring.create_index("at", expireAfterSeconds=0)
    now = datetime.now(UTC)
    source.d.expiring.insert_many({"at": now + timedelta(seconds=n / 20)} for n in range(6_000))
    daemon.start()
    commit_times = []
    steps = [(Point.STEP_DONE, step) for step in ("drained", "definitions prepared")]
    with daemon.held_at(*steps[1]):
        with daemon.held_at(*steps[0]):
            daemon.ask_for_commit()
            daemon.wait_until_reached(*steps[0])
            wait_until_some_expire(source)
            commit_times.append(commit_time(destination))
        daemon.wait_until_reached(*steps[1])
        wait_until_some_expire(source)
    daemon.wait_for_state("COMMITTED")
    commit_times.append(commit_time(destination))
    # The commit was neither postponed nor withdrawn.
    assert commit_times[0] is not None and commit_times[0] == commit_times[1]
    for client in (source, destination):
        client.d.expiring.drop()
    pair.assert_equal()


@across(REPLICA_SETS, full(SHARDED))
def test_deletes_by_users_of_documents_that_can_expire_are_applied(
    pair: Pair, daemon: Daemon
) -> None:
    """After the lanes have stopped, delete a document a year before it expires: the delete must be synced."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.sessions.create_index("at", expireAfterSeconds=0)
    expiration = datetime.now(UTC) + timedelta(days=365)
    source.d.sessions.insert_many({"_id": n, "at": expiration} for n in range(3))
    daemon.start()
    prepared = (Point.STEP_DONE, "definitions prepared")
    with daemon.held_at(*prepared):
        daemon.ask_for_commit()
        daemon.wait_until_reached(*prepared)
        source.d.sessions.delete_one({"_id": 1})
    daemon.wait_for_state("COMMITTED")
    assert destination.d.sessions.distinct("_id") == [0, 2]
    pair.assert_equal()


def wait_until_some_expire(client: writes.AnyClient) -> None:
    before = client.d.expiring.count_documents({})
    wait_for(lambda: client.d.expiring.count_documents({}) < before, "some expire")


def commit_time(destination: writes.AnyClient) -> Any:
    run = destination[METADATA_DATABASE].runs.find_one()
    assert run is not None
    return run["commitTime"]


def test_the_warning_of_a_failed_commit_ends(pair: Pair, daemon: Daemon) -> None:
    """Let user writes delay a commit, which then fails: the warning about these writes must disappear."""
    client = pair.source.client
    writes.fill(client)
    daemon.start()
    daemon.wait_until_committable()
    with daemon.held_at(Point.COMMIT_POSTPONED):
        with daemon.held_at(Point.STEP_DONE, "drained"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "drained")
            write_late(pair, "late")
        daemon.wait_until_reached(Point.COMMIT_POSTPONED)
        assert warnings_of_writes(daemon)
        refusing = {"name": "mine", "key": {"n": 1}, "unique": True, "sparse": True}
        behind_our_back(pair, {"createIndexes": "other", "indexes": [refusing]})
        client.d.other.insert_many({"n": 1} for _ in range(2))
    assert daemon.wait_for_state("FAILED")["error"] == "EventNotApplicable"
    # The applications may write to the source again, so no warning may tell operators to stop them.
    daemon.wait_without_warning("wrote to the source")
    behind_our_back(pair, {"dropIndexes": "other", "index": "mine"})
    daemon.resume()
    daemon.wait_until_committable()
    assert not warnings_of_writes(daemon)
    daemon.commit()
    pair.assert_equal()


@across(REPLICA_SETS, full(SHARDED))
def test_writes_during_the_cut_over_are_applied(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(pair)
    client.d.single.insert_many({"_id": n, "n": n} for n in range(9))
    client.d.single.create_index("n", unique=True)
    client.d.create_collection("capped", capped=True, size=100_000, max=5)
    daemon.start()
    daemon.wait_until_committable()
    prepared = (Point.STEP_DONE, "definitions prepared")
    with daemon.held_at(*prepared):
        daemon.ask_for_commit()
        daemon.wait_until_reached(*prepared)
        client.d.single.delete_one({"_id": 1})
        client.d.single.insert_one({"_id": "second", "n": 1})
        client.d.capped.insert_many({"_id": n} for n in range(9))
        client.d.c.create_index("late")
        daemon.kill_at(Point.COLLECTION_WEAKENED)
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


def test_a_warning_lasts_while_the_commit_is_repeated(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    writes.fill(client)
    daemon.start()
    daemon.wait_until_committable()
    prepared = (Point.STEP_DONE, "definitions prepared")
    with daemon.held_at(*prepared, 3):
        with daemon.held_at(*prepared, 2):
            with daemon.held_at(*prepared):
                daemon.ask_for_commit()
                daemon.wait_until_reached(*prepared)
                assert not warnings_of_writes(daemon)
                client.d.c.insert_one({"_id": "first"})
            daemon.wait_until_reached(*prepared, 2)
            (warning,) = warnings_of_writes(daemon)
            assert "d.c" in warning
            client.d.other.insert_one({"_id": "second"})
        daemon.wait_until_reached(*prepared, 3)
        (warning,) = warnings_of_writes(daemon)
        assert "d.other" in warning
    daemon.wait_for_state("COMMITTED")
    assert not warnings_of_writes(daemon)
    pair.assert_equal()


@pytest.mark.in_turns(2)
@across(REPLICA_SETS, SHARDED)
@pytest.mark.parametrize("step", ["drained", "definitions prepared"])
def test_writes_that_pass_the_block_of_the_source_are_applied(
    pair: Pair, daemon: Daemon, step: str
) -> None:
    """Write to the blocked source as a user with the privilege to bypass the block, after all changes are applied."""
    writes.fill(pair.source.client)
    daemon.start(enableUserWriteBlocking="sourceAndDestination", verification={"enabled": False})
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, step):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, step)
        insert = {"insert": "c", "documents": [{"_id": "late"}], "mayBypassWriteBlocking": True}
        assert pair.source.client.d.command(insert)["n"] == 1
    daemon.wait_for_state("COMMITTED")
    assert pair.destination.client.d.c.find_one({"_id": "late"})
    pair.assert_equal()


def test_changes_of_excluded_collections_do_not_extend_the_commit(
    pair: Pair, daemon: Daemon
) -> None:
    client = pair.source.client
    client.d.c.insert_one({"_id": 1})
    client.left_out.c.insert_one({"_id": 1})
    daemon.start(excludeNamespaces=[{"database": "left_out"}])
    daemon.wait_until_committable()
    daemon.kill_at(Point.COMMIT_POSTPONED)
    prepared = (Point.STEP_DONE, "definitions prepared")
    with daemon.held_at(*prepared):
        with daemon.held_at(Point.STEP_DONE, "drained"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "drained")
            change_all(client.left_out)
        daemon.wait_until_reached(*prepared)
        change_all(client.left_out)
    daemon.wait_for_state("COMMITTED")
    daemon.forget_kills()
    assert "repeats the commit" not in daemon.log
    assert pair.differences().keys() == {"left_out"}


def change_all(database: Any) -> None:
    """Insert a document into the collection `c`, create an index on it, and rename it twice."""
    database.c.insert_one({})
    database.c.create_index("n")
    database.c.rename("renamed", dropTarget=True)
    database.renamed.rename("c")


def warnings_of_writes(daemon: Daemon) -> list[str]:
    return daemon.warnings("wrote to the source")


@pytest.mark.full
@JUDGING_SOON
@across(REPLICA_SETS, full(SHARDED))
def test_a_killed_repair_continues(pair: Pair, daemon: Daemon) -> None:
    fill(pair)
    daemon.start(verification=AUTO)
    daemon.wait_until_committable()
    corrupt(pair)
    daemon.kill_at(Point.REPAIR_LISTED)
    daemon.commit_until_killed()
    add_outdated(pair)
    for point in (Point.REPAIR_BEGUN, Point.REPAIR_APPLIED):
        daemon.kill_at(point)
        daemon.run()
        daemon.wait_until_killed()
    # An earlier process has repaired documents after it saved its commit time. The next process must not end the check
    # at that time.
    with daemon.held_at(Point.STEP_DONE, "commit saved"):
        daemon.kill_at(Point.REPAIR_DONE)
        daemon.run()
        daemon.wait_until_reached(Point.STEP_DONE, "commit saved")
        check = pair.destination.client[METADATA_DATABASE].check.find_one({})
        assert check is not None
        assert (check["source"]["end"], check["destination"]["end"]) == (None, None)
        behind_our_back(pair, set_number(201, -1))
    daemon.wait_until_killed()
    # The check passes WRITES_OFF for the second time after the write to the source.
    stops: tuple[tuple[Point | CheckPoint, int], ...] = (
        (Point.COMMIT_POSTPONED, 1),
        (CheckPoint.WRITES_OFF, 2),
    )
    for stop, number in stops:
        daemon.kill_at(stop, "", number)
        with daemon.held_at(Point.STEP_DONE, "drained"):
            daemon.run()
            daemon.wait_until_reached(Point.STEP_DONE, "drained")
            write_late(pair, stop.name)
        daemon.wait_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert DOCUMENTS | DEFINITIONS <= repaired(daemon)
    assert ("extraOnDst", None, "outdated") not in repaired(daemon)


@pytest.mark.full
def test_a_repeated_repair_recognizes_its_time_series(pair: Pair, daemon: Daemon) -> None:
    """Kill the daemon after a repair has created a time series: the repeated repair must not mistake it for another."""
    writes.time_series(pair.source.client)
    daemon.start(verification=AUTO, preExistingDestinationData=True, enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    pair.destination.client.d.drop_collection("series")
    daemon.kill_at(Point.REPAIR_APPLIED)
    daemon.commit_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


@across(TO_SHARDED)
def test_what_a_later_round_does_not_repair_stays_listed_for_the_earlier_one(pair: Pair) -> None:
    client, name = pair.destination.client, Namespace("d", "c")
    stop = StopToken()
    repairs = Repairs(client[METADATA_DATABASE], ClusterWriter(client, False, stop), stop)
    document = DocumentMismatch(name, bson.encode({"_id": 1}), Difference.CONTENT)
    definition = DefinitionMismatch(name, Difference.MISSING, Aspect.INDEX, "n_1")
    found = [StoredMismatch(each, 1, 0.0, 0.0, "") for each in (document, definition)]
    new = DocumentMismatch(name, bson.encode({"_id": 2}), Difference.MISSING)
    for made_again in (True, False):
        repairs.add(1, found)
        repairs.add(2, [*found, StoredMismatch(new, 1, 0.0, 0.0, "")])
        assert [*repairs.documents(1)] == []
        if made_again:
            repairs.remove_all(2)
        else:
            repairs.remove_documents(2, [name])
            repairs.remove(2, [definition])
        assert repairs.counts() == (1, 1)
        assert ([*repairs.documents(1)], repairs.definitions(1)) == ([document], [definition])
        assert ([*repairs.documents(2)], repairs.definitions(2)) == ([], [])
        repairs.forget()


def add_outdated(pair: Pair) -> None:
    """Add a difference that no longer exists to the saved differences of a repair round that has not begun."""
    list_of_repairs = pair.destination.client[METADATA_DATABASE].repairs
    row = list_of_repairs.find_one(
        {"_id.n": "d.c", "type": "extraOnDst", "_id.h": {"$exists": True}}
    )
    assert row is not None
    key = bson.encode({"_id": "outdated"})
    row.update(_id={"n": "d.c", "h": digest_of(key)}, key=key)
    command = {"insert": "repairs", "documents": [row], "mayBypassWriteBlocking": True}
    assert list_of_repairs.database.command(command)["n"] == 1


def write_late(pair: Pair, name: str) -> None:
    """Insert a document on the source, and wait until the destination has it."""
    pair.source.client.d.c.insert_one({"_id": name})
    wait_for(lambda: pair.destination.client.d.c.find_one({"_id": name}), "the write is applied")


def counts(daemon: Daemon) -> tuple[int, int]:
    every = mismatches(daemon, repaired=True)
    definitions = sum("aspect" in each for each in every)
    return len(every) - definitions, definitions


@pytest.mark.full
@JUDGING_SOON
@across(full(REPLICA_SETS), full(TO_SHARDED), full(FROM_SHARDED), SHARDED)
def test_documents_of_every_kind_are_repaired(pair: Pair, daemon: Daemon) -> None:
    """Corrupt documents of many kinds, such as on a wrong shard or in a capped collection: all must be repaired."""
    client, changed = pair.source.client, pair.destination.client
    pair.shard("d.placed", {"place": "hashed"})
    client.d.placed.insert_many({"_id": n, "place": n} for n in range(60))
    client.d.create_collection("capped", capped=True, size=100_000)
    client.d.capped.insert_many({"_id": n, "n": n} for n in range(20))
    writes.time_series(client)
    client.d.free.insert_many({"_id": n, "n": n % 3} for n in range(9))
    client.d.hidden.insert_many({"_id": n} for n in range(9))
    daemon.start(verification=AUTO)
    daemon.wait_until_committable()
    moved = range(20)
    deletes = [{"q": {"_id": n}, "limit": 1} for n in moved]
    behind_our_back(pair, {"delete": "placed", "deletes": deletes})
    behind_our_back(
        pair, {"insert": "placed", "documents": [{"_id": n, "place": -n - 1} for n in moved]}
    )
    second = [{"_id": n, "place": n + 1000} for n in range(20, 60)]
    insert_some(pair, "placed", second)
    behind_our_back(pair, {"delete": "series", "deletes": [{"q": {"place": 1}, "limit": 0}]})
    changes = [{"q": {"_id": n}, "u": {"$set": {"n": -n}}} for n in range(1, 5)]
    behind_our_back(pair, {"update": "capped", "updates": changes})
    behind_our_back(pair, {"delete": "capped", "deletes": [{"q": {"_id": 19}, "limit": 1}]})
    behind_our_back(pair, {"delete": "free", "deletes": [{"q": {"_id": {"$gt": 2}}, "limit": 0}]})
    unique = {"name": "mine", "key": {"n": 1}, "unique": True}
    behind_our_back(pair, {"createIndexes": "free", "indexes": [unique]})
    behind_our_back(pair, {"drop": "hidden"})
    behind_our_back(pair, {"create": "hidden", "viewOn": "free", "pipeline": []})
    client.d.placed.delete_one({"_id": 0})
    daemon.commit()
    pair.assert_equal()
    assert changed.d.placed.count_documents({}) == 59


def insert_some(pair: Pair, name: str, documents: list[dict[str, Any]]) -> None:
    """Insert documents whose `_id`s already exist on the destination, and check how many of them the server refuses.

    A replica set must refuse all. A sharded cluster must accept some: those that belong to another shard than the
    existing document.
    """
    command = {"insert": name, "documents": documents, "ordered": False}
    reply = pair.destination.client.d.command(
        {**command, "mayBypassWriteBlocking": True}, check=False
    )
    refused = len(reply["writeErrors"])
    assert refused < len(documents) if pair.destination.shards else refused == len(documents)
