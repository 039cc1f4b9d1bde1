"""Reverses a committed sync that renames collections and databases: the changes return under the old names.

`make test` leaves out the cases that `test_rename` covers in one direction, and `test_reverse` without renames.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.integration.test_bad_input import assert_refused
from tests.integration.test_embedded_verifier import mismatches
from tests.integration.test_rename import NAMES, NOW, VIEWS, change_late, fill, pipeline
from tests.support.blocks import blocked
from tests.support.daemon import Daemon, prepared
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from tests.support.renamed import assert_renamed, change_exchanged, fill_exchanged, remap
from tests.support.resuming import fails_again
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

REVERSIBLE = {
    "reversible": True,
    "enableUserWriteBlocking": "sourceAndDestination",
    "namespaceRemap": remap(NAMES),
}
# The views on the old source that refer to other names than on the new one.
VIEWS_BACK = {
    "shop.seen": {"viewOn": "items", "pipeline": pipeline("items")},
    "shop.late view": {"viewOn": "plain", "pipeline": pipeline("items")},
}


def assert_both_ways(pair: Pair) -> None:
    """Fail unless both clusters have the same data, each under its own names, also in the definitions of views."""
    assert_renamed(pair, NAMES, VIEWS)
    back = {there: here for here, there in NAMES.items()}
    assert_renamed(
        replace(pair, source=pair.destination, destination=pair.source), back, VIEWS_BACK
    )


def commit_and_reverse(daemon: Daemon, **options: Any) -> None:
    daemon.start(**{**REVERSIBLE, **options})
    daemon.commit()
    daemon.reverse()


def change_documents(client: AnyClient) -> None:
    for database, collection in (
        *(("store", "sales"), ("shop", "things"), ("shop", "plain"), ("people", "staff")),
        *(("people_apart", "alone"), ("vanished", "one")),
    ):
        c = client[database][collection]
        c.insert_many({"_id": f"back {n}", "n": 2000 + n} for n in range(10))
        c.update_many({"_id": {"$lt": 20}}, {"$set": {"back": True, "sub.a": 2}})
        c.replace_one({"_id": 20}, {"n": 20, "replaced": "back"})
        c.delete_many({"_id": {"$gte": 30, "$lt": 40}})
    client.people.ring.insert_many({"n": n} for n in range(30, 40))
    client.people.series.insert_many({"at": NOW, "m": n, "n": -n} for n in range(5))


def change_definitions(client: AnyClient) -> None:
    shop, people = client.shop, client.people
    for c in (client.store.sales, client.people_apart.alone, people.staff):
        c.create_index([("sub.a", 1)], partialFilterExpression={"n": {"$gt": 1}})
        c.drop_index("at_1")
    client.people_apart.command({"collMod": "alone", "validator": {"n": {"$exists": True}}})
    client.store.command({"collMod": "sales", "index": {"name": "n_1", "hidden": True}})
    shop.create_collection("late view", viewOn="plain", pipeline=pipeline("things"))
    shop.command({"collMod": "seen", "viewOn": "things", "pipeline": pipeline("things")})
    people.command({"collMod": "seen", "viewOn": "ring", "pipeline": []})
    people.drop_collection("dropped view")
    people.log.drop()
    people.create_collection("log", collation={"locale": "en", "strength": 2})
    people.log.insert_many([{"_id": "a"}, {"_id": "B"}])
    people.command({"convertToCapped": "extra", "size": 100_000})
    people.create_collection("late series", timeseries={"timeField": "at"})
    people["late series"].insert_one({"at": NOW})
    shop.create_collection("late", changeStreamPreAndPostImages={"enabled": True})
    people.new.insert_one({"_id": 1})


def change_names(client: AnyClient) -> None:
    shop, people = client.shop, client.people
    # Rename a collection away from a renamed name, and another collection to this name.
    shop.things.rename("old things")
    shop.extra.rename("things")
    shop.things.insert_one({"_id": "in its place", "n": 5001})
    # On the old source, these renames lead to another database.
    client.store.sales.rename("old sales")
    client.store["old sales"].insert_one({"_id": "after the rename", "n": 5002})
    client.store.moving.insert_many({"_id": n, "n": n} for n in range(50))
    client.store.moving.rename("sales")
    client.store.sales.update_one({"_id": 1}, {"$set": {"moved": True}})
    # On the old source, this rename stays in one database.
    client.admin.command({"renameCollection": "people_apart.alone", "to": "people.together"})
    people.staff.rename("crew")
    people.crew.insert_one({"_id": "after", "n": 5003})
    # `$out` replaces collections through temporary collections of the server.
    shop.plain.aggregate(
        [{"$match": {"n": {"$lt": 10}}}, {"$out": {"db": "store", "coll": "sales"}}]
    )
    client.store.sales.insert_one({"_id": "after $out", "n": 5004})
    shop.plain.aggregate([{"$match": {"n": {"$lt": 20}}}, {"$out": "things"}])
    shop.things.delete_one({"_id": 3})
    people.crew.aggregate([{"$out": "copy"}])
    people.crew.aggregate([{"$out": {"db": "shop", "coll": "from people"}}])
    client.admin.command({"renameCollection": "people.copy", "to": "vanished.from people"})
    client.admin.command({"renameCollection": "alone.c", "to": "store.sales", "dropTarget": True})
    client.store.sales.insert_one({"_id": "from alone"})
    client.drop_database("vanished")
    client.vanished.again.insert_one({"_id": 1})
    client.vanished.create_collection("view", viewOn="again")


def change(client: AnyClient) -> None:
    change_documents(client)
    change_definitions(client)
    change_names(client)


@pytest.mark.in_turns
@pytest.mark.parametrize("early", [True, False])
def test_changes_return_under_the_old_names_and_the_sync_is_reversed_again(
    pair: Pair, daemon: Daemon, early: bool
) -> None:
    """Change documents, definitions and names on the former destination before the reversal (`early`) or after it.

    After each commit, the clusters must be equal.
    """
    here, there = pair.source.client, pair.destination.client
    fill(here)
    daemon.start(**REVERSIBLE)
    daemon.commit()
    if early:
        change(there)
    daemon.reverse()
    if not early:
        change(there)
    daemon.commit()
    assert blocked(pair) == (False, True)
    assert_both_ways(pair)
    change_late(here)
    daemon.reverse()
    here.shop.create_collection("last view", viewOn="plain", pipeline=[{"$limit": 3}])
    here.shop.items.rename("last")
    daemon.commit()
    assert blocked(pair) == (True, False)
    assert_both_ways(pair)
    assert daemon.log.count("Starting collection copy phase") == 1


@pytest.mark.full
@prepared(Daemon.save_every_page)
def test_a_kill_and_a_restart_in_the_reversed_sync(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.kill_at(Point.REVERSAL_SAVED)
    daemon.start(**REVERSIBLE)
    daemon.commit_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    daemon.kill_at(Point.COLLECTION_WEAKENED, "", 3)
    daemon.post_unanswered("reverse", {})
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_for_state("RUNNING")
    daemon.kill_at(Point.EVENTS_APPLIED, "", 2)
    change(pair.destination.client)
    daemon.wait_until_killed()
    for number in (3, 9, 12):
        daemon.kill_at(Point.DEFINITION_APPLIED, "", number)
        daemon.run()
        daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    assert_both_ways(pair)


@pytest.mark.full
def test_the_answers_of_a_reversed_sync_name_the_current_source(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    commit_and_reverse(daemon)
    pair.destination.client.store.sales.insert_one({"_id": "new"})
    lines = wait_for(lambda: compared(daemon), "all collections are compared")
    found = {each["namespace"]: each.get("destinationNamespace") for each in lines}
    assert found["store.sales"] == "shop.orders"
    assert found["people_apart.alone"] == "hr.apart"
    assert found["people.series"] == "hr.series"
    assert found["shop.plain"] is None
    reported = {each["namespace"]: each for each in daemon.report()["namespaces"]["collections"]}
    assert reported["people.series"]["destinationNamespace"] == "hr.series"
    assert_views_reported(daemon, ["gone.view", "hr.dropped view", "hr.seen", "shop.seen"])
    daemon.commit()
    assert_both_ways(pair)
    assert_views_reported(daemon, ["gone.view", "hr.dropped view", "hr.seen", "shop.seen"])
    daemon.reverse()
    daemon.commit()
    assert_views_reported(
        daemon, ["people.dropped view", "people.seen", "shop.seen", "vanished.view"]
    )


def assert_views_reported(daemon: Daemon, expected: list[str]) -> None:
    """Fail unless the report has exactly these views, by their names on the current destination."""
    report = daemon.report()
    assert report["namespaces"]["views"] == expected
    assert report["copy"]["views"] == len(expected)


def compared(daemon: Daemon) -> list[dict[str, Any]]:
    """Return the collections of the sync; an empty list until the verification has found all of them equal."""
    lines: list[dict[str, Any]] = daemon.namespaces()["namespaces"]
    done = all(each["verification"] and each["verification"]["mismatches"] == 0 for each in lines)
    return lines if done else []


@pytest.mark.full
@prepared(Daemon.judge_soon)
def test_differences_in_the_reversed_sync_are_found_and_repaired(
    pair: Pair, daemon: Daemon
) -> None:
    fill(pair.source.client)
    commit_and_reverse(daemon)
    spoil: dict[str, Any] = {"mayBypassWriteBlocking": True}
    update = {"q": {"_id": 1}, "u": {"$set": {"n": -1}}}
    pair.source.client.shop.command({"update": "orders", "updates": [update], **spoil})
    delete = {"q": {"_id": 2}, "limit": 1}
    pair.source.client.hr.command({"delete": "apart", "deletes": [delete], **spoil})
    failed = daemon.commit_or_fail()
    assert failed["error"] == "VerificationFailed", failed
    found = {
        (each["type"], each["namespace"], each.get("destinationNamespace"))
        for each in mismatches(daemon)
    }
    assert found == {
        ("content", "store.sales", "shop.orders"),
        ("missingOnDst", "people_apart.alone", "hr.apart"),
    }
    assert daemon.post("repair", {}).ok
    daemon.wait_for_state("RUNNING")
    wait_for(lambda: not mismatches(daemon), "all differences are repaired")
    daemon.commit()
    assert_both_ways(pair)


def old_collection(client: AnyClient) -> None:
    client.shop.orders.insert_one({"_id": 1})


def old_view(client: AnyClient) -> None:
    client.shop.create_collection("orders", viewOn="plain")


def old_database(client: AnyClient) -> None:
    client.hr.staff.insert_one({"_id": 1})


def gap(client: AnyClient) -> None:
    client.people.apart.insert_one({"_id": 1})


def view_in_gap(client: AnyClient) -> None:
    client.people.create_collection("apart", viewOn="staff")


def rename_into(client: AnyClient) -> None:
    client.shop.plain.rename("orders")


def apart_from_its_collection(client: AnyClient) -> None:
    client.store.create_collection("view", viewOn="sales")


_TAKEN = "shop.orders would keep its name on the destination, but with namespaceRemap, store.sales has this name there."
_IN_GAP = (
    "people.apart would be renamed to hr.apart with its database, but with namespaceRemap, people_apart.alone has this "
    "name on the destination."
)
COLLIDE: dict[Callable[[AnyClient], None], tuple[str, str, str]] = {
    old_collection: ("shop.orders", "NamespaceCollision", _TAKEN),
    old_view: ("shop.orders", "NamespaceCollision", _TAKEN),
    rename_into: ("shop.orders", "NamespaceCollision", _TAKEN),
    old_database: (
        "hr.staff",
        "NamespaceCollision",
        "hr.staff would keep its name on the destination, but with namespaceRemap, people.staff has this name there.",
    ),
    gap: ("people.apart", "NamespaceCollision", _IN_GAP),
    view_in_gap: ("people.apart", "NamespaceCollision", _IN_GAP),
    apart_from_its_collection: (
        "store.view",
        "NotRenamable",
        "store.sales, to which the view refers, would be named shop.orders",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("early", [True, False])
@pytest.mark.parametrize("collide", COLLIDE)
def test_a_collision_after_the_commit_fails_the_reversed_sync_and_can_be_undone(
    pair: Pair, daemon: Daemon, collide: Callable[[AnyClient], None], early: bool
) -> None:
    name, error, said = COLLIDE[collide]
    there = pair.destination.client
    fill(pair.source.client)
    daemon.start(**REVERSIBLE)
    daemon.commit()
    if early:
        collide(there)
        answer = daemon.post("reverse")
        assert answer.ok, answer.text
    else:
        daemon.reverse()
        collide(there)
    daemon.wait_for_failure(error, said, "POST /api/v1/resume")
    fails_again(daemon, error)
    there.store.sales.update_one({"_id": 1}, {"$set": {"meanwhile": True}})
    database, _, collection = name.partition(".")
    if collide is rename_into:
        there.shop.orders.rename("plain")
    else:
        there[database].drop_collection(collection)
    daemon.resume()
    daemon.commit()
    assert_both_ways(pair)


def in_gap(client: AnyClient) -> None:
    client.people.apart.insert_one({"_id": 1})
    client.people.apart.create_index("n")
    client.people.command({"collMod": "apart", "validator": {"n": {"$exists": False}}})


def renamed_into_gap(client: AnyClient) -> None:
    client.hr.extra.rename("other")
    client.admin.command({"renameCollection": "hr.other", "to": "people.apart"})


_NOT_MAPPED_BACK = (
    "reversible is true, but people.apart could not be synced back: with namespaceRemap, a reversed sync would map "
    "people.apart to hr.apart, the old name of people_apart.alone."
)


@pytest.mark.full
@pytest.mark.parametrize("collide", [in_gap, view_in_gap, renamed_into_gap])
def test_a_name_that_cannot_be_mapped_back_is_refused(
    pair: Pair, daemon: Daemon, collide: Callable[[AnyClient], None]
) -> None:
    client = pair.source.client
    fill(client)
    gap(client)
    irreversible = daemon.start_body(namespaceRemap=remap(NAMES))
    assert daemon.post("preflight", irreversible).json()["violations"] == []
    body = daemon.start_body(**REVERSIBLE)
    assert_refused(daemon.post("start", body), 409, "NamespaceCollision", (_NOT_MAPPED_BACK,))
    client.people.apart.drop()
    daemon.start(**REVERSIBLE)
    daemon.wait_until_committable()
    collide(client)
    daemon.wait_for_failure("NamespaceCollision", _NOT_MAPPED_BACK)
    fails_again(daemon, "NamespaceCollision")
    client.people.apart.drop()
    daemon.resume()
    daemon.commit()
    daemon.reverse()
    pair.destination.client.people.staff.insert_one({"_id": "new"})
    daemon.commit()
    assert_both_ways(pair)


@pytest.mark.in_turns
@pytest.mark.parametrize("swapped", [("d.a", "d.b"), ("d.a", "e.a"), ("d", "e")], ids=str)
def test_exchanged_names_are_exchanged_back(
    pair: Pair, daemon: Daemon, swapped: tuple[str, str]
) -> None:
    names = dict([swapped, swapped[::-1]])
    fill_exchanged(pair.source.client)
    commit_and_reverse(daemon, namespaceRemap=remap(names))
    change_exchanged(pair.destination.client)
    daemon.commit()
    assert_renamed(pair, names)


@pytest.mark.full
@across(REPLICA_SETS, SHARDED)
def test_a_chain_of_names_is_followed_back(pair: Pair, daemon: Daemon) -> None:
    names = {"shop.orders": "store.sales", "hr": "people", "people": "humans"}
    client = pair.source.client
    for name in ("shop.orders", "hr.staff", "people.all"):
        pair.shard(name, {"n": 1})
        database, _, collection = name.partition(".")
        client[database][collection].create_index("n")
        client[database][collection].insert_many({"_id": n, "n": n} for n in range(50))
    commit_and_reverse(daemon, namespaceRemap=remap(names))
    there = pair.destination.client
    for c in (there.store.sales, there.people.staff, there.humans.all):
        c.insert_many({"_id": f"new {n}", "n": 1000 + n} for n in range(10))
        c.update_many({"n": {"$lt": 20}}, {"$set": {"changed": True}})
        c.delete_many({"n": {"$gte": 30, "$lt": 40}})
        c.create_index("changed")
    there.people.fresh.insert_many({"_id": n} for n in range(10))
    there.people.fresh.rename("crew")
    there.people.create_collection("seen", viewOn="crew", pipeline=[{"$unionWith": "staff"}])
    daemon.commit()
    assert_renamed(pair, names)
    if pair.is_sharded:
        sharded = {each["_id"] for each in client.config.collections.find()}
        assert {"shop.orders", "hr.staff", "people.all"} <= sharded
        assert not {"store.sales", "people.staff", "humans.all"} & sharded
