"""Syncs collections and databases to other names on the destination, with changes in every phase.

Also tests names that collide, before the start and during a sync, and the verifier with such names.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.integration.test_bad_input import assert_refused
from tests.integration.test_embedded_verifier import mismatches
from tests.support.daemon import Daemon, prepared
from tests.support.fleet import Fleet
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.phases import When, writes_in
from tests.support.renamed import (
    assert_renamed,
    change_exchanged,
    contents,
    fill_exchanged,
    remap,
)
from tests.support.resuming import fails_again
from tests.support.selection import full
from tests.support.verifier import Verifier
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

# The renamed namespaces: into another database, within a database, a whole database, a collection of that database that
# goes elsewhere, and another whole database.
NAMES = {
    "shop.orders": "store.sales",
    "shop.items": "shop.things",
    "hr": "people",
    "hr.apart": "people_apart.alone",
    "gone": "vanished",
}
NOW = datetime(2026, 1, 1, tzinfo=UTC)


def pipeline(items: str) -> list[dict[str, Any]]:
    """Return a pipeline that refers to the collection `items` in $lookup, $graphLookup and $unionWith, also nested."""
    inner = [{"$lookup": {"from": items, "localField": "n", "foreignField": "n", "as": "inner"}}]
    graph = {
        "from": items,
        "startWith": "$n",
        "connectFromField": "n",
        "connectToField": "_id",
        "as": "graph",
    }
    return [
        {"$match": {"items": {"$ne": "items"}}},
        {"$lookup": {"from": items, "let": {"n": "$n"}, "pipeline": inner, "as": "items"}},
        {"$graphLookup": graph},
        {"$unionWith": items},
        {"$unionWith": {"coll": items, "pipeline": [*inner, {"$unionWith": "plain"}]}},
        {"$facet": {"one": [*inner, {"$count": "items"}], "other": [{"$sortByCount": "$items"}]}},
    ]


# The views on the destination that refer to other names than on the source.
VIEWS = {
    "shop.seen": {"viewOn": "things", "pipeline": pipeline("things")},
    "shop.late view": {"viewOn": "plain", "pipeline": pipeline("things")},
}


def fill(client: AnyClient) -> None:
    for database, collection in (
        *(("shop", name) for name in ("orders", "items", "plain", "moved", "extra")),
        *(("hr", name) for name in ("staff", "apart", "log", "extra")),
        *(("gone", name) for name in ("one", "two")),
    ):
        c = client[database][collection]
        c.create_index("n", unique=True)
        c.create_index("at", expireAfterSeconds=10**9)
        c.insert_many({"_id": n, "n": n, "pad": "p" * 200} for n in range(50))
    client.hr.create_collection("ring", capped=True, size=1 << 20)
    client.hr.ring.insert_many({"n": n} for n in range(20))
    client.hr.create_collection("series", timeseries={"timeField": "at", "metaField": "m"})
    client.hr.series.insert_many({"at": NOW, "m": n % 3, "n": n} for n in range(20))
    client.shop.create_collection("seen", viewOn="items", pipeline=pipeline("items"))
    client.hr.create_collection("seen", viewOn="staff", pipeline=[{"$unionWith": "ring"}])
    client.hr.create_collection("dropped view", viewOn="staff")
    client.gone.create_collection("view", viewOn="one")
    client.alone.c.insert_one({"_id": 1})


def change_documents(client: AnyClient) -> None:
    for name in ("shop.orders", "shop.items", "shop.plain", "hr.staff", "hr.apart", "gone.one"):
        c = client.get_database(name.split(".")[0])[name.split(".")[1]]
        c.insert_many({"_id": f"new {n}", "n": 1000 + n} for n in range(10))
        c.update_many({"_id": {"$lt": 20}}, {"$set": {"changed": True, "sub.a": 1}})
        c.replace_one({"_id": 20}, {"n": 20, "replaced": True})
        c.delete_many({"_id": {"$gte": 30, "$lt": 40}})
    client.hr.ring.insert_many({"n": n} for n in range(20, 30))
    client.hr.series.insert_many({"at": NOW, "m": n, "n": -n} for n in range(5))


def change_definitions(client: AnyClient) -> None:
    shop, hr = client.shop, client.hr
    for c in (shop.orders, hr.apart, hr.staff):
        c.create_index([("sub.a", 1)], partialFilterExpression={"n": {"$gt": 1}})
        c.drop_index("at_1")
    hr.command({"collMod": "apart", "validator": {"n": {"$exists": True}}})
    shop.command({"collMod": "orders", "index": {"name": "n_1", "hidden": True}})
    shop.create_collection("late view", viewOn="plain", pipeline=pipeline("items"))
    shop.command({"collMod": "seen", "viewOn": "items", "pipeline": pipeline("items")})
    hr.command({"collMod": "seen", "viewOn": "ring", "pipeline": []})
    hr.drop_collection("dropped view")
    hr.log.drop()
    hr.create_collection("log", collation={"locale": "en", "strength": 2})
    hr.log.insert_many([{"_id": "a"}, {"_id": "B"}])
    hr.command({"convertToCapped": "extra", "size": 100_000})
    shop.create_collection("late", changeStreamPreAndPostImages={"enabled": True})
    hr.new.insert_one({"_id": 1})


def change_names(client: AnyClient) -> None:
    shop, hr = client.shop, client.hr
    # Rename a collection away from a name in NAMES, and another collection to this name.
    shop.items.rename("old items")
    shop.extra.rename("items")
    shop.items.insert_one({"_id": "in its place", "n": 5001})
    # On the destination, these renames lead to another database.
    shop.orders.rename("old orders")
    shop["old orders"].insert_one({"_id": "after the rename", "n": 5002})
    shop.moved.rename("orders")
    shop.orders.update_one({"_id": 1}, {"$set": {"moved": True}})
    hr.apart.rename("together")
    # This rename stays within one database.
    hr.staff.rename("crew")
    hr.crew.insert_one({"_id": "after", "n": 5003})
    # `$out` replaces collections through temporary collections of the server.
    shop.plain.aggregate([{"$match": {"n": {"$lt": 10}}}, {"$out": "orders"}])
    shop.orders.insert_one({"_id": "after $out", "n": 5004})
    shop.plain.aggregate([{"$match": {"n": {"$lt": 20}}}, {"$out": "items"}])
    shop.items.delete_one({"_id": 3})
    hr.crew.aggregate([{"$out": "copy"}])
    hr.crew.aggregate([{"$out": {"db": "shop", "coll": "from hr"}}])
    client.admin.command({"renameCollection": "hr.copy", "to": "gone.from hr"})
    client.admin.command({"renameCollection": "alone.c", "to": "shop.orders", "dropTarget": True})
    shop.orders.insert_one({"_id": "from alone"})
    client.drop_database("gone")
    client.gone.again.insert_one({"_id": 1})
    client.gone.create_collection("view", viewOn="again")


def change(client: AnyClient) -> None:
    change_documents(client)
    change_definitions(client)
    change_names(client)


def change_late(client: AnyClient) -> None:
    """Insert and update documents in collections that `change` has renamed, replaced or created."""
    for c in (client.shop.orders, client.shop.items, client.hr.crew, client.gone.again):
        c.insert_many({"_id": f"late {n}", "n": 9000 + n} for n in range(30))
        c.update_many({"_id": {"$lt": 5}}, {"$set": {"late": 1}})


@pytest.mark.in_turns
@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_everything_is_synced_under_its_name_on_the_destination(
    pair: Pair, daemon: Daemon, when: When
) -> None:
    client = pair.source.client
    fill(client)
    with writes_in(when, daemon, namespaceRemap=remap(NAMES)):
        change(client)
    daemon.commit()
    assert_renamed(pair, NAMES, VIEWS)


def fill_two(client: AnyClient) -> None:
    """Fill a collection that the sync renames, and one that keeps its name."""
    for c in (client.shop.orders, client.shop.plain):
        c.create_index("n")
        c.insert_many({"_id": n, "n": n, "pad": "p" * 500} for n in range(300))


@pytest.mark.full
def test_a_filter_names_the_namespaces_of_the_source(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(client)
    # Leave out collections that have the new names of other ones, and collections whose names stay free.
    client.store.sales.insert_one({"_id": "not synced"})
    client.vanished.one.insert_one({"_id": "not synced"})
    left_out = [
        {"database": "store"},
        {"database": "vanished"},
        {"database": "shop", "collections": ["extra"]},
        {"database": "hr", "collectionsRegex": {"pattern": "^lo"}},
    ]
    daemon.start(namespaceRemap=remap(NAMES), excludeNamespaces=left_out)
    daemon.wait_until_committable()
    change_documents(client)
    # Changes of the excluded namespaces must not reach the collections that have their names on the destination.
    client.store.sales.insert_one({"_id": 1, "excluded": True})
    client.store.sales.create_index("excluded")
    client.store.sales.drop()
    client.store.create_collection("sales", viewOn="x")
    client.store.drop_collection("sales")
    client.drop_database("store")
    client.drop_database("vanished")
    client.shop.orders.insert_one({"_id": "last"})
    daemon.commit()
    assert_renamed(pair, NAMES, VIEWS, left_out=("shop.extra", "hr.log"))


@pytest.mark.in_turns
@pytest.mark.parametrize("swapped", [("d.a", "d.b"), ("d.a", "e.a"), ("d", "e")], ids=str)
def test_two_namespaces_exchange_their_names(
    pair: Pair, daemon: Daemon, swapped: tuple[str, str]
) -> None:
    names = dict([swapped, swapped[::-1]])
    client = pair.source.client
    fill_exchanged(client)
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    change_exchanged(client)
    daemon.commit()
    assert_renamed(pair, names)


@pytest.mark.full
@prepared(Daemon.save_every_page, Daemon.small_partitions)
def test_a_kill_and_a_restart_in_every_phase(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(client)
    client.shop.orders.insert_many(
        {"_id": n, "n": n, "pad": "p" * 1000} for n in range(10_000, 12_000)
    )
    kills = [
        (Point.COLLECTION_CREATED, "", 3),
        (Point.COPY_SAVED, "store.sales", 2),
        (Point.BATCH_WRITTEN, "", 1),
    ]
    daemon.kill_at(*kills[0])
    daemon.start(namespaceRemap=remap(NAMES))
    daemon.wait_until_killed()
    for kill in kills[1:]:
        daemon.kill_at(*kill)
        daemon.run()
        daemon.wait_until_killed()
    change(client)
    for kill in [
        (Point.EVENTS_APPLIED, "", 2),
        *((Point.DEFINITION_APPLIED, "", n) for n in (3, 9, 12)),
    ]:
        daemon.kill_at(*kill)
        daemon.run()
        daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    assert_renamed(pair, NAMES, VIEWS)


@pytest.mark.full
def test_a_kill_while_a_collection_moves_to_another_database(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill_two(client)
    client.shop.big.insert_many({"_id": n, "pad": "p" * 5000} for n in range(3000))
    names = {"shop.orders": "store.sales"}
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    daemon.kill_at(Point.BATCH_WRITTEN, "store.sales", 3)
    client.shop.big.rename("orders", dropTarget=True)
    daemon.wait_until_killed()
    client.shop.orders.delete_many({"_id": {"$lt": 10}})
    client.shop.orders.create_index("late")
    daemon.run()
    daemon.commit()
    assert_renamed(pair, names)


@pytest.mark.full
@prepared(Daemon.judge_soon)
def test_differences_are_found_under_both_names_and_repaired(pair: Pair, daemon: Daemon) -> None:
    client, there = pair.source.client, pair.destination.client
    fill(client)
    daemon.start(namespaceRemap=remap(NAMES), enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    there.store.sales.update_one({"_id": 1}, {"$set": {"n": -1}})
    there.people.staff.delete_one({"_id": 2})
    there.people.staff.drop_index("n_1")
    there["people"].drop_collection("system.buckets.series")
    there.shop.things.insert_one({"_id": "extra"})
    # Create collections under names that no synced collection has on the destination.
    there.shop.create_collection("orders")
    there.hr.create_collection("staff")
    failed = daemon.commit_or_fail()
    assert failed["error"] == "VerificationFailed", failed
    found = {
        (each["type"], each["namespace"], each.get("destinationNamespace"))
        for each in mismatches(daemon)
    }
    assert {
        ("content", "shop.orders", "store.sales"),
        ("missingOnDst", "hr.staff", "people.staff"),
        ("extraOnDst", "shop.items", "shop.things"),
        ("missingOnDst", "hr.series", "people.series"),
        ("extraOnDst", "store.sales", "shop.orders"),
        ("extraOnDst", "people.staff", "hr.staff"),
    } == found
    assert "hr.staff (people.staff on the destination): " in failed["errorDescription"]
    there.hr.drop_collection("staff")
    there.shop.drop_collection("orders")
    assert daemon.post("repair", {}).ok
    daemon.wait_for_state("RUNNING")
    # The first repair round creates a collection again, and the second round writes its documents.
    wait_for(lambda: not mismatches(daemon), "all differences are repaired")
    daemon.commit()
    assert_renamed(pair, NAMES, VIEWS)
    repaired = {
        (each["namespace"], each.get("destinationNamespace"))
        for each in mismatches(daemon, repaired="true")
    }
    assert {
        ("shop.orders", "store.sales"),
        ("hr.system.buckets.series", "people.system.buckets.series"),
    } <= repaired


def test_the_answers_name_both_namespaces(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(namespaceRemap=remap(NAMES))
    daemon.wait_until_committable()
    lines = daemon.namespaces()["namespaces"]
    found = {each["namespace"]: each.get("destinationNamespace") for each in lines}
    assert found["shop.orders"] == "store.sales"
    assert found["hr.apart"] == "people_apart.alone"
    assert found["shop.plain"] is None
    assert all(each["verification"]["mismatches"] == 0 for each in lines)
    reported = {each["namespace"]: each for each in daemon.report()["namespaces"]["collections"]}
    assert reported["hr.series"]["destinationNamespace"] == "people.series"
    assert reported["hr.series"]["comparedDocuments"] > 0


def recreated_view(client: AnyClient) -> bool:
    """Return whether the destination has the newest view `vanished.view`, the result of the test's last DDL event."""
    listed = client.vanished.list_collections(filter={"name": "view"})
    return any(each["options"]["viewOn"] == "again" for each in listed)


@pytest.mark.full
@prepared(Daemon.judge_soon)
def test_views_are_repaired_by_the_commit(pair: Pair, daemon: Daemon) -> None:
    client, there = pair.source.client, pair.destination.client
    fill(client)
    daemon.start(namespaceRemap=remap(NAMES), enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    there.shop.drop_collection("seen")
    there.people.command({"collMod": "seen", "viewOn": "series", "pipeline": []})
    there.shop.create_collection("orders", viewOn="plain")
    daemon.commit()
    assert_renamed(pair, NAMES, VIEWS)


@pytest.mark.full
def test_two_instances_share_the_renamed_collections(pair: Pair, fleet: Fleet) -> None:
    client = pair.source.client
    fill(client)
    for each in fleet.daemons:
        each.kill()
        each.small_partitions(2000)
        each.run()
    fleet.start(namespaceRemap=remap(NAMES))
    fleet.wait_until_committable()
    change(client)
    fleet.wait_until_committable()
    change_late(client)
    fleet.commit()
    assert_renamed(pair, NAMES, VIEWS)


@pytest.mark.full
def test_a_reset_drops_what_the_sync_created(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(client)
    daemon.start(namespaceRemap=remap(NAMES), enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    change_names(client)
    wait_for(lambda: recreated_view(pair.destination.client), "the last event")
    daemon.wait_until_committable()
    pair.destination.client.shop.orders.insert_one({"_id": "of a user"})
    listed = daemon.post("reset", {"confirm": "cluster1", "dryRun": True}).json()
    assert listed["kept"] == ["shop.orders"]
    assert {"store.sales", "people.crew", "vanished.again"} <= {*listed["collections"]}
    assert daemon.post("reset", {"confirm": "cluster1"}).ok
    daemon.wait_for_state("IDLE")
    left = {name for name in contents(pair.destination.client) if ".system." not in name}
    assert left == {"shop.orders"}
    # After the reset, the source can be synced with other names.
    pair.destination.client.drop_database("shop")
    daemon.start(namespaceRemap=remap({"hr": "humans"}))
    daemon.commit()
    assert_renamed(pair, {"hr": "humans"})


REFUSED: dict[str, tuple[Any, str, str]] = {
    "two to one": (
        {"d.a": "x.a", "d.b": "x.a"},
        "NamespaceCollision",
        "namespaceRemap[0] and namespaceRemap[1] would both use the name x.a on the destination.",
    ),
    "a collection into a renamed database": (
        {"d": "x", "e.a": "x.b"},
        "NamespaceCollision",
        "would both use the name x.b on the destination.",
    ),
    "the name of a synced collection": (
        {"d.a": "d.b"},
        "NamespaceCollision",
        "d.b would keep its name on the destination, but with namespaceRemap, d.a has this name there.",
    ),
    "the name of a synced view": ({"d.a": "d.v"}, "NamespaceCollision", "d.v would keep its name"),
    "the name of a synced database": ({"d": "e"}, "NamespaceCollision", "e.a would keep its name"),
    "databases that differ in case": ({"d.b": "E.b"}, "NamespaceCollision", "differ only in case"),
    "a view apart from its collection": (
        {"d.a": "x.a"},
        "NotRenamable",
        "The view d.v does not fit namespaceRemap: the view would be named d.v, but d.a, "
        "to which the view refers, would be named x.a",
    ),
}


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("names, error, said", REFUSED.values(), ids=REFUSED)
def test_what_cannot_be_exact_is_refused_before_the_start(
    pair: Pair, daemon: Daemon, names: dict[str, str], error: str, said: str
) -> None:
    client = pair.source.client
    for name in ("a", "b"):
        client.d[name].insert_one({"_id": 1})
        client.e[name].insert_one({"_id": 1})
    client.d.create_collection("v", viewOn="a")
    options = {"namespaceRemap": remap(names)}
    answer = daemon.post("preflight", daemon.start_body(**options)).json()
    assert [each["error"] for each in answer["violations"]].count(error) >= 1, answer
    assert_refused(daemon.post("start", daemon.start_body(**options)), 409, error, (said,))
    assert daemon.progress()["state"] == "IDLE"


@pytest.mark.parametrize(
    "options, error, said",
    [
        (
            {"usersAndRoles": {"copy": True}},
            "RemapWithUsersAndRoles",
            "usersAndRoles.copy is true, but the start options contain namespaceRemap.",
        ),
    ],
)
def test_options_that_exclude_new_names(
    daemon: Daemon, options: dict[str, Any], error: str, said: str
) -> None:
    body = daemon.start_body(**options, namespaceRemap=remap({"d": "e"}))
    assert_refused(daemon.post("start", body), 400, error, (said,))


def test_a_source_before_6_0_is_refused(pair: Pair, daemon: Daemon) -> None:
    daemon.believe_the_source_is_old()
    daemon.kill()
    daemon.run()
    body = daemon.start_body(namespaceRemap=remap({"d": "e"}))
    assert_refused(daemon.post("start", body), 409, "RemapNeedsNewerSource")


def create(client: AnyClient) -> None:
    client.store.sales.insert_one({"_id": 1})


def rename_into(client: AnyClient) -> None:
    client.admin.command({"renameCollection": "shop.plain", "to": "store.sales"})


def create_view(client: AnyClient) -> None:
    client.store.create_collection("sales", viewOn="x")


def create_time_series(client: AnyClient) -> None:
    client.store.create_collection("sales", timeseries={"timeField": "at"})


def rename_within(client: AnyClient) -> None:
    client.store.other.rename("sales")


@pytest.mark.in_turns
@pytest.mark.parametrize("remedy", ["drop", "rename"])
@pytest.mark.parametrize(
    "collide", [create, rename_into, rename_within, create_view, create_time_series]
)
def test_a_collision_during_the_sync_fails_it_and_can_be_undone(
    pair: Pair, daemon: Daemon, collide: Callable[[AnyClient], None], remedy: str
) -> None:
    client = pair.source.client
    names = {"shop.orders": "store.sales"}
    fill_two(client)
    client.store.other.insert_one({"_id": 1})
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    collide(client)
    said = "store.sales would keep its name on the destination, but with namespaceRemap, shop.orders has this name"
    daemon.wait_for_failure("NamespaceCollision", said, "POST /api/v1/resume")
    fails_again(daemon, "NamespaceCollision")
    client.shop.orders.update_one({"_id": 1}, {"$set": {"meanwhile": True}})
    if remedy == "drop" or collide in (create_view, create_time_series):
        client.store.drop_collection("sales")
    else:
        client.store.sales.insert_one({"_id": "meanwhile"})
        client.store.sales.rename("harmless")
    daemon.resume()
    daemon.commit()
    assert_renamed(pair, names)


def create_in_other_case(client: AnyClient) -> None:
    client.Store.c.insert_one({"_id": 1})


def rename_into_other_case(client: AnyClient) -> None:
    client.admin.command({"renameCollection": "shop.plain", "to": "Store.c"})


def create_view_in_other_case(client: AnyClient) -> None:
    client.Store.create_collection("c", viewOn="x")


def create_time_series_in_other_case(client: AnyClient) -> None:
    client.Store.create_collection("c", timeseries={"timeField": "at"})


IN_OTHER_CASE = [
    (REPLICA_SETS, create_in_other_case),
    (REPLICA_SETS, rename_into_other_case),
    (REPLICA_SETS, create_view_in_other_case),
    (REPLICA_SETS, create_time_series_in_other_case),
    (SHARDED, create_in_other_case),
    (SHARDED, create_view_in_other_case),
]


@pytest.mark.full
@pytest.mark.parametrize("pair, collide", IN_OTHER_CASE, indirect=["pair"])
def test_a_database_in_other_case_during_the_sync_fails_it_and_can_be_dropped(
    pair: Pair, daemon: Daemon, collide: Callable[[AnyClient], None]
) -> None:
    client = pair.source.client
    names = {"shop.orders": "store.sales"}
    fill_two(client)
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    collide(client)
    said = " needs the database Store on the destination, but the destination has the database store, whose name "
    daemon.wait_for_failure("NamespaceCollision", said)
    fails_again(daemon, "NamespaceCollision")
    client.shop.orders.update_one({"_id": 1}, {"$set": {"meanwhile": True}})
    client.drop_database("Store")
    daemon.resume()
    daemon.commit()
    assert_renamed(pair, names)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "collide",
    [create_in_other_case, create_view_in_other_case, create_time_series_in_other_case],
)
def test_an_empty_database_in_other_case_fails_the_sync(
    pair: Pair, daemon: Daemon, collide: Callable[[AnyClient], None]
) -> None:
    client, there = pair.source.client, pair.destination.client
    names = {"shop.orders": "store.sales"}
    fill_two(client)
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    client.shop.orders.drop()
    wait_for(lambda: not there.store.list_collection_names(), "the database is empty")
    collide(client)
    daemon.wait_for_failure("DefinitionNotApplicable", "[store]")
    fails_again(daemon, "DefinitionNotApplicable")
    client.drop_database("Store")
    daemon.resume()
    daemon.commit()
    assert_renamed(pair, {})


def test_a_collection_can_leave_a_name_that_an_empty_database_prevents(
    pair: Pair, daemon: Daemon
) -> None:
    client, there = pair.source.client, pair.destination.client
    fill_two(client)
    client.shop.orders.rename("later")
    names = {"shop.orders": "store.sales"}
    daemon.start(namespaceRemap=remap(names), enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    # The server keeps the name of the database, although it has no collections.
    there.Store.c.insert_one({"_id": 1})
    there.Store.c.drop()
    client.shop.later.rename("orders")
    daemon.wait_for_failure("DefinitionNotApplicable")
    fails_again(daemon, "DefinitionNotApplicable")
    client.shop.orders.rename("unlike")
    daemon.resume()
    daemon.commit()
    assert_renamed(pair, {})


def test_a_collection_can_leave_a_database_in_other_case(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    names = {"shop.orders": "store.sales"}
    fill_two(client)
    client.Store.c.insert_one({"_id": 1})
    client.shop.orders.rename("later")
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    client.shop.later.rename("orders")
    daemon.wait_for_failure(
        "NamespaceCollision", "shop.orders of the source needs the database store"
    )
    client.shop.orders.update_one({"_id": 1}, {"$set": {"meanwhile": True}})
    client.shop.orders.rename("unlike")
    daemon.resume()
    daemon.commit()
    assert_renamed(pair, {})


def test_a_view_that_cannot_be_renamed_during_the_sync_fails_it(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    names = {"shop.orders": "store.sales"}
    fill_two(client)
    client.shop.create_collection("seen", viewOn="plain")
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    lookup = {"from": "orders", "localField": "n", "foreignField": "n", "as": "n"}
    client.shop.command({"collMod": "seen", "viewOn": "plain", "pipeline": [{"$lookup": lookup}]})
    daemon.wait_for_failure("NotRenamable", "The view shop.seen does not fit namespaceRemap: ")
    fails_again(daemon, "NotRenamable")
    client.shop.command({"collMod": "seen", "viewOn": "plain", "pipeline": [{"$limit": 5}]})
    daemon.resume()
    daemon.commit()
    assert_renamed(pair, names)


@pytest.fixture
def verifier(pair: Pair, tmp_path: Path) -> Iterator[Verifier]:
    folder = tmp_path / "verifier"
    folder.mkdir()
    with Verifier(pair.source.uri, pair.destination.uri, folder).running() as process:
        yield process


@pytest.fixture
def synced(pair: Pair, daemon: Daemon) -> None:
    """Run a sync that renames namespaces on the destination, and commit it."""
    fill(pair.source.client)
    daemon.start(namespaceRemap=remap(NAMES))
    daemon.commit()


@pytest.mark.full
@pytest.mark.usefixtures("synced")
def test_the_verifier_accepts_the_same_list(pair: Pair, verifier: Verifier) -> None:
    there = pair.destination.client
    verifier.assert_passed(verifier.verify(namespaceRemap=remap(NAMES)))
    there.store.sales.update_one({"_id": 1}, {"$set": {"n": -1}})
    there.people.staff.delete_one({"_id": 2})
    there.shop.orders.insert_one({"_id": "under a name that nothing has"})
    there.shop.command({"collMod": "seen", "viewOn": "things", "pipeline": pipeline("items")})
    progress = verifier.verify(namespaceRemap=remap(NAMES))
    assert progress["verdict"] == "failed"
    lines = [*verifier.lines("docMismatches"), *verifier.lines("nsMismatches")]
    found = {
        (each["type"], each["namespace"], each.get("destinationNamespace"), each.get("component"))
        for each in lines
    }
    assert found == {
        ("content", "shop.orders", "store.sales", None),
        ("missingOnDst", "hr.staff", "people.staff", None),
        ("extraOnDst", "store.sales", "shop.orders", ""),
        ("content", "shop.seen", None, "pipeline"),
    }
    assert any(
        "shop.orders (store.sales on the destination)" in each
        for each in progress["verdictReasons"]
    )
    # The renamed namespaces are saved with the check, so a new process shows the result of the check.
    verifier.kill()
    verifier.run()
    assert wait_for(lambda: verifier.progress()["verdict"], "the saved verdict") == "failed"
    report = verifier.get("report").json()["report"]
    assert report["options"]["renamed"]["shop.orders"] == "store.sales"


@pytest.mark.full
@pytest.mark.usefixtures("synced")
def test_a_check_with_other_names_continues_after_a_kill(pair: Pair, verifier: Verifier) -> None:
    verifier.check(namespaceRemap=remap(NAMES))
    pair.source.client.hr.staff.update_one({"_id": 1}, {"$set": {"late": 1}})
    verifier.wait_for_generation(1)
    verifier.kill()
    pair.destination.client.people.staff.update_one({"_id": 1}, {"$set": {"late": 1}})
    verifier.run()
    verifier.writes_off()
    verifier.assert_passed(verifier.wait_for_verdict())


def test_the_verifier_refuses_names_that_collide(pair: Pair, verifier: Verifier) -> None:
    for name in ("a", "b"):
        pair.source.client.d[name].insert_one({"_id": 1})
    body = {"namespaceRemap": remap({"d.a": "d.b"})}
    said = "d.b would keep its name on the destination, but with namespaceRemap, d.a has this name there."
    assert_refused(verifier.post("check", body), 409, "NamespaceCollision", (said,))
    body = {"namespaceRemap": remap({"d.a": "e.b", "d.b": "e.b"})}
    assert_refused(
        verifier.post("check", body), 409, "NamespaceCollision", ("would both use the name e.b",)
    )
    body = {"namespaceRemap": [{"from": {"database": "d"}, "to": {"database": "admin"}}]}
    assert_refused(
        verifier.post("check", body), 400, "InvalidRequest", ("namespaceRemap[0].to.database: ",)
    )


def test_the_verifier_takes_names_from_one_place_only(pair: Pair, tmp_path: Path) -> None:
    options = ("--srcNamespace", "d.a", "--dstNamespace", "e.a")
    with Verifier(pair.source.uri, pair.destination.uri, tmp_path, *options).running() as verifier:
        answer = verifier.post("check", {"namespaceRemap": remap({"d.b": "e.b"})})
        assert_refused(answer, 400, "InvalidRequest", ("--dstNamespace",))


@pytest.mark.in_turns
@across(TO_SHARDED, SHARDED, full(FROM_SHARDED))
def test_new_names_between_sharded_clusters(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    names = {"shop.orders": "store.sales", "hr": "people"}
    for name in ("shop.orders", "hr.staff"):
        pair.shard(name, {"n": 1})
    for c in (client.shop.orders, client.shop.plain, client.hr.staff, client.hr.crew):
        c.create_index("n")
        c.insert_many({"_id": n, "n": n, "pad": "p" * 200} for n in range(100))
    daemon.start(namespaceRemap=remap(names))
    daemon.wait_until_committable()
    for c in (client.shop.orders, client.shop.plain, client.hr.staff, client.hr.crew):
        c.insert_many({"_id": f"new {n}", "n": 1000 + n} for n in range(10))
        c.update_many({"n": {"$lt": 20}}, {"$set": {"changed": True}})
        c.delete_many({"n": {"$gte": 30, "$lt": 40}})
        c.create_index("changed")
    client.hr.crew.rename("gang")
    client.shop.plain.aggregate([{"$match": {"n": {"$lt": 10}}}, {"$out": "late"}])
    client.hr.create_collection("seen", viewOn="gang", pipeline=[{"$unionWith": "staff"}])
    daemon.commit()
    there = pair.destination.client
    if pair.destination.shards:
        sharded = {each["_id"] for each in there.config.collections.find()}
        assert {"store.sales", "people.staff"} <= sharded
        assert not {"shop.orders", "hr.staff", "people.gang"} & sharded
    assert_renamed(pair, names)
