"""Runs syncs that combine options: renamed namespaces, document filters, and a destination with existing data."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from bson import decode

from syncsvc.engine.run.points import Point
from tests.integration.test_existing_data import EXISTING
from tests.integration.test_several_syncs import running, second, third_cluster
from tests.support.daemon import Daemon, prepared
from tests.support.foreign import content, create_foreign, user_namespaces
from tests.support.pair import Pair
from tests.support.phases import When, writes_in
from tests.support.renamed import contents, remap
from tests.support.spools import wait_until_spooled
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

# The fixtures that this module imports from `test_several_syncs`.
__all__ = ("second", "third_cluster")

NAMES = {"shop.orders": "store.sales", "hr": "people"}
OPEN = {"open": True}
OPTIONS: dict[str, Any] = {
    **EXISTING,
    "namespaceRemap": remap(NAMES),
    "documentFilter": [{"database": "shop", "collection": "orders", "filter": OPEN}],
    "excludeNamespaces": [
        {"database": "hr", "collectionsRegex": {"pattern": "^away"}},
        {"database": "private"},
    ],
    "renamedOutOfFilter": "drop",
}


def fill(client: AnyClient) -> None:
    for database, collection in (
        *(("shop", name) for name in ("orders", "items", "incoming")),
        *(("hr", name) for name in ("staff", "log", "away", "leaving", "passing")),
        ("private", "c"),
    ):
        c = client[database][collection]
        c.create_index("n", unique=True)
        c.insert_many({"_id": n, "n": n, "open": n % 2 == 0, "pad": "p" * 200} for n in range(60))
    client.hr.create_collection("seen", viewOn="staff", pipeline=[{"$match": {"n": 1}}])
    client.hr.create_collection("dropped view", viewOn="staff", pipeline=[])


def change(client: AnyClient) -> None:
    """Write to the source, and run DDL commands whose effects on the destination depend on the start options."""
    shop, hr = client.shop, client.hr
    for c in (shop.orders, shop.items, hr.staff):
        c.insert_many({"_id": f"new {n}", "n": 1000 + n, "open": n % 3 == 0} for n in range(9))
        c.update_many({"_id": {"$lt": 10}}, [{"$set": {"open": {"$not": "$open"}}}])
        c.delete_many({"_id": {"$gte": 20, "$lt": 30}})
    shop.orders.create_index("open")
    hr.command({"collMod": "seen", "viewOn": "staff", "pipeline": [{"$match": {"n": 2}}]})
    hr.drop_collection("dropped view")
    # The name shop.orders has a document filter, and another name on the destination. Rename the collection away from
    # this name, and another collection to it.
    shop.orders.rename("old orders")
    shop["old orders"].insert_one({"_id": "after the rename", "n": 2001, "open": False})
    shop.incoming.rename("orders")
    shop.orders.insert_one({"_id": "is not selected", "n": 2002, "open": False})
    # Rename collections out of the namespace filter. The last one is renamed into the filter again, with new documents.
    hr.leaving.rename("away 1")
    hr["away 1"].insert_one({"_id": "not synced"})
    hr.leaving.insert_one({"_id": "another collection"})
    hr.passing.rename("away 2")
    hr["away 2"].insert_one({"_id": "meanwhile", "n": 2003})
    hr["away 2"].rename("returned")
    hr.returned.insert_one({"_id": "afterwards", "n": 2004})
    hr.log.drop()
    hr.create_collection("log", collation={"locale": "en", "strength": 2})
    hr.log.insert_one({"_id": "A"})
    hr.staff.aggregate([{"$limit": 5}, {"$out": "out"}])
    shop.items.aggregate([{"$out": "orders"}])


def renamed(name: str) -> str:
    database, _, collection = name.partition(".")
    return NAMES.get(name, f"{NAMES.get(database, database)}.{collection}")


def assert_exact(pair: Pair, foreign: Collection[str]) -> None:
    """Fail unless the destination has exactly the selected collections and documents, under their new names.

    The namespaces in `foreign` are ignored.
    """
    source, destination = contents(pair.source.client), contents(pair.destination.client)
    synced = {
        renamed(name): (options, indexes, [*filter(_is_selected(name), documents)])
        for name, (options, indexes, documents) in source.items()
        if not name.startswith(("private.", "hr.away"))
    }
    assert len(synced) >= 8
    found = {name: each for name, each in destination.items() if _owner(name) not in foreign}
    assert sorted(found) == sorted(synced)
    for name, wanted in synced.items():
        assert found[name] == wanted, name


def _is_selected(name: str) -> Any:
    return lambda document: name != "shop.orders" or decode(document).get("open") is True


def _owner(name: str) -> str:
    return name.replace(".system.buckets.", ".", 1)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", [When.REPLAY, When.COPY, When.APPLY], ids=lambda when: when.name)
def test_names_filters_and_existing_data(pair: Pair, daemon: Daemon, when: When) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    # Create foreign collections beside a renamed collection, and under the old names of renamed collections.
    foreign = create_foreign(destination, "people") | {"store.theirs", "shop.orders", "hr.staff"}
    for each in (destination.store.theirs, destination.shop.orders, destination.hr.staff):
        each.insert_one({"_id": "theirs"})
    before = content(destination, foreign)
    with writes_in(when, daemon, **OPTIONS):
        change(source)
    daemon.wait_until_committable()
    daemon.commit()
    assert_exact(pair, foreign)
    assert content(destination, foreign) == before


@prepared(Daemon.spool_often)
def test_spooled_events_get_new_names_beside_other_data(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    foreign = create_foreign(destination, "people") | {"shop.orders"}
    destination.shop.orders.insert_one({"_id": "theirs"})
    before = content(destination, foreign)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(**OPTIONS, eventSpool="always")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        change(source)
        wait_until_spooled(source, destination)
    daemon.commit()
    assert_exact(pair, foreign)
    assert content(destination, foreign) == before


@pytest.mark.full
def test_a_kill_between_a_drop_and_a_copy_with_another_filter(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    foreign = create_foreign(destination, "store")
    before = content(destination, foreign)
    daemon.start(**OPTIONS)
    daemon.wait_until_committable()
    # The sync has passed this point for the first time at its start.
    daemon.kill_at(Point.TEMPORARY_SAVED, "store.sales", number=2)
    source.shop.incoming.rename("orders", dropTarget=True)
    daemon.wait_until_killed()
    source.shop.orders.insert_one({"_id": "later", "n": 5000, "open": True})
    daemon.run()
    daemon.commit()
    assert_exact(pair, foreign)
    assert content(destination, foreign) == before


def test_a_reset_with_new_names_leaves_other_data_alone(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    foreign = create_foreign(destination, "people")
    destination.hr.staff.insert_one({"_id": "theirs"})
    foreign.add("hr.staff")
    before = content(destination, foreign)
    daemon.start(**OPTIONS)
    daemon.wait_until_committable()
    answer = daemon.post("reset", {"confirm": "cluster1"})
    assert answer.ok, answer.text
    daemon.wait_for_state("IDLE")
    assert {_owner(name) for name in contents(destination)} == foreign
    assert content(destination, foreign) == before


def test_the_new_name_of_a_collection_is_taken(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    pair.destination.client.store.sales.insert_one({"_id": "theirs"})
    pair.destination.client.PEOPLE.c.insert_one({"_id": "theirs"})
    answer = daemon.post("preflight", daemon.start_body(**OPTIONS))
    assert answer.ok, answer.text
    found = [each["errorDescription"] for each in answer.json()["violations"]]
    assert len(found) == 2
    assert found[0].startswith("The destination already holds store.sales.")
    assert found[1].startswith("The sync needs the database people, but the destination holds the")


@pytest.mark.full
def test_two_tenants_with_the_same_names_share_a_destination(
    pair: Pair, second: Pair, tmp_path: Path
) -> None:
    destination = pair.destination.client
    tenants = {"one": pair, "two": second}
    for each in tenants.values():
        fill(each.source.client)
    with ExitStack() as opened:
        daemons = {
            name: opened.enter_context(running(each, tmp_path / name, "--syncName", name))
            for name, each in tenants.items()
        }
        for name, daemon in daemons.items():
            daemon.start(**EXISTING, namespaceRemap=remap(_of_tenant(name)))
        for daemon in daemons.values():
            daemon.wait_until_committable()
        for name, each in tenants.items():
            each.source.client.shop.items.insert_one({"_id": name, "n": name})
            each.source.client.shop.orders.rename("old")
            each.source.client.shop.incoming.rename("orders")
            each.source.client.hr.staff.aggregate([{"$limit": 5}, {"$out": "out"}])
        pair.source.client.drop_database("hr")
        wait_for(lambda: "hr_one" not in _databases(destination), "hr_one is dropped")
        for daemon in daemons.values():
            daemon.commit()
    found = contents(destination)
    expected = {
        _renamed_by(_of_tenant(name), here): each
        for name, tenant in tenants.items()
        for here, each in contents(tenant.source.client).items()
    }
    assert sorted(found) == sorted(expected)
    assert len(found) > 15
    for name, wanted in expected.items():
        assert found[name] == wanted, name


def _databases(client: AnyClient) -> set[str]:
    return {name.split(".")[0] for name in user_namespaces(client)}


def _of_tenant(name: str) -> dict[str, str]:
    """Return the new names of the databases and collections of the tenant `name`, by their old names.

    Each tenant gets its own databases, and shop.orders becomes a collection in the shared database `common`.
    """
    return {
        **{database: f"{database}_{name}" for database in ("shop", "hr", "private")},
        "shop.orders": f"common.orders of {name}",
    }


def _renamed_by(names: Mapping[str, str], name: str) -> str:
    database, _, collection = name.partition(".")
    return names.get(name, f"{names[database]}.{collection}")
