"""Tests that listing, copy, change events, definitions and verification apply the same namespace filters.

Also tests warnings of filters that match nothing, and collections that are renamed out of the filter.
"""

from __future__ import annotations

import re
from typing import Any
from uuid import uuid4

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.rules.unmatched_filters import SELECTS_NOTHING
from tests.integration.test_bad_input import assert_refused
from tests.support.daemon import Daemon
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, TO_SHARDED, Pair, Side, across
from tests.support.phases import When, writes_in
from tests.support.resuming import fails_again
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

INCLUDE: list[dict[str, Any]] = [
    {"database": "shop", "collectionsRegex": {"pattern": "^orders", "options": "i"}},
    {"database": "hr"},
    {"databaseRegex": {"pattern": r"^logs_\d"}, "collections": ["app", "db"]},
]
EXCLUDE: list[dict[str, Any]] = [
    {"database": "hr", "collections": ["secret"]},
    {"database": "logs_1", "collectionsRegex": {"pattern": "b$"}},
]


def is_selected(database: str, collection: str) -> bool:
    """Return whether the filters select the collection. This uses Python's `re`, and no code of the product."""
    if database == "shop":
        return re.search("^orders", collection, re.IGNORECASE) is not None
    if database == "hr":
        return collection != "secret"
    if re.search(r"^logs_\d", database):
        return collection in ("app", "db") and (database, collection) != ("logs_1", "db")
    return False


def fill(client: AnyClient) -> None:
    for database in ("shop", "hr", "logs_1", "logs_22", "logs_x", "other"):
        for collection in ("orders", "ORDERS.old", "items", "app", "db", "secret", "late"):
            # Create indexes before the documents, because the build on an empty collection takes no time.
            client[database][collection].create_index("pad")
            documents = [{"_id": n, "pad": "p" * 500} for n in range(20)]
            client[database][collection].insert_many(documents)
    client.shop.command({"create": "orders view", "viewOn": "items", "pipeline": []})
    client.shop.command({"create": "view", "viewOn": "orders", "pipeline": []})


def change(pair: Pair) -> None:
    client = pair.source.client
    for database in ("shop", "hr", "logs_1", "logs_22", "logs_x"):
        for collection in ("orders", "items", "app", "db", "secret", "new"):
            c = client[database][collection]
            c.insert_one({"_id": "new"})
            c.update_one({"_id": 1}, {"$set": {"n": 1}})
            c.delete_one({"_id": 2})
            c.create_index("n")
    client.shop.orders.rename("orders 2")
    client.shop.items.aggregate([{"$out": "orders out"}])
    client.shop.command({"convertToCapped": "ORDERS.old", "size": 100_000})
    # Rename collections into the filter.
    client.shop.app.rename("orders app")
    client.shop["orders app"].insert_one({"_id": "after"})
    client.shop.db.rename("orders db")
    client.shop["orders db"].rename("orders db 2")
    client.logs_x.app.rename("never seen")
    client.hr.late.drop()
    # This command uses a temporary collection of the server, whose name matches the filter.
    client.hr.app.aggregate([{"$out": "secret"}])
    # Syncs to sharded clusters refuse renames across databases, and sharded sources refuse some of these renames.
    if not pair.is_sharded:
        rename_across_databases(client)
    client.drop_database("other")
    client.other.c.insert_one({"_id": 1})
    client.shop.command({"create": "orders view 2", "viewOn": "orders 2", "pipeline": []})


def rename_across_databases(client: AnyClient) -> None:
    client.admin.command({"renameCollection": "shop.items", "to": "hr.items from shop"})
    client.admin.command({"renameCollection": "logs_x.db", "to": "hr.secret", "dropTarget": True})


def names(side: Side) -> set[tuple[str, str]]:
    return {
        (database, collection)
        for database in side.client.list_database_names()
        if database not in ("admin", "config", "local", METADATA_DATABASE)
        for collection in side.client[database].list_collection_names()
        if not collection.startswith("system.")
    }


def documents(side: Side, database: str, collection: str) -> list[Any]:
    return list(side.client[database][collection].find().sort("_id"))


def indexes(side: Side, database: str, collection: str) -> Any:
    return side.client[database][collection].index_information()


def is_view(side: Side, database: str, collection: str) -> bool:
    return bool(
        side.client[database].list_collection_names(filter={"name": collection, "type": "view"})
    )


def assert_selected(pair: Pair) -> None:
    expected = {each for each in names(pair.source) if is_selected(*each)}
    assert names(pair.destination) == expected
    # The documents of views may differ, because a view may be defined on a collection that is not selected.
    for each in [each for each in expected if not is_view(pair.source, *each)]:
        assert documents(pair.destination, *each) == documents(pair.source, *each), each
        assert indexes(pair.destination, *each) == indexes(pair.source, *each), each


@pytest.mark.in_turns
@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_only_selected_namespaces_are_synced(pair: Pair, daemon: Daemon, when: When) -> None:
    fill(pair.source.client)
    with writes_in(when, daemon, includeNamespaces=INCLUDE, excludeNamespaces=EXCLUDE):
        change(pair)
    daemon.commit()
    assert_selected(pair)


@pytest.mark.in_turns
@across(TO_SHARDED, SHARDED, FROM_SHARDED)
def test_only_selected_namespaces_are_synced_with_shards(pair: Pair, daemon: Daemon) -> None:
    # Shard by `_id`, whose index always exists.
    for each in ("hr.app", "shop.orders"):
        pair.shard(each, {"_id": 1})
    test_only_selected_namespaces_are_synced(pair, daemon, When.APPLY)


def test_an_exclude_filter_alone_syncs_everything_else(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(excludeNamespaces=[{"databaseRegex": {"pattern": "LOGS", "options": "i"}}])
    daemon.commit()
    assert {database for database, _ in names(pair.destination)} == {"shop", "hr", "other"}


def warnings_of_preflight(daemon: Daemon, **options: Any) -> list[str]:
    """Return the warnings of a preflight, except those about oplogs. Fail if the preflight reports violations."""
    body = {"source": "cluster0", "destination": "cluster1", **options}
    answer = daemon.post("preflight", body).json()
    assert (answer["success"], answer["violations"]) == (True, []), answer
    return [each for each in answer["warnings"] if "oplog" not in each]


UNMATCHED = "matches no collection or view of the source"


@across(REPLICA_SETS, SHARDED)
def test_a_preflight_names_the_filters_that_match_nothing(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    warned = warnings_of_preflight(
        daemon,
        includeNamespaces=[
            *INCLUDE,
            {"database": "SHOP"},
            {"database": "hr", "collections": ["apps", "db"]},
        ],
        excludeNamespaces=[
            *EXCLUDE,
            {"database": "shop", "collections": ["orders view"]},
            {"databaseRegex": {"pattern": "^LOGS"}},
            {
                "databaseRegex": {"pattern": "^LOGS", "options": "i"},
                "collectionsRegex": {"pattern": "^Orders"},
            },
        ],
    )
    starts = [
        f'includeNamespaces[3]: {{"database": "SHOP"}} {UNMATCHED}, so nothing is copied for it',
        f'includeNamespaces[4]: {{"database": "hr", "collections": ["apps"]}} {UNMATCHED}, ',
        f'excludeNamespaces[3]: {{"databaseRegex": {{"pattern": "^LOGS"}}}} {UNMATCHED}, so nothing is excluded by it',
        f'excludeNamespaces[4]: {{"databaseRegex": {{"pattern": "^LOGS", "options": "i"}}, "collectionsRegex": '
        f'{{"pattern": "^Orders"}}}} {UNMATCHED}, ',
    ]
    assert len(warned) == len(starts), warned
    assert all(text.startswith(start) for text, start in zip(warned, starts, strict=True)), warned
    assert "The databases of the source are: shop, hr, logs_1, logs_22, logs_x, other." in warned[0]
    assert "The collections and views of hr are: hr.app, hr.ORDERS.old, hr.db, " in warned[1]
    excluded = warnings_of_preflight(
        daemon, excludeNamespaces=[{"databaseRegex": {"pattern": "."}}]
    )
    (text,) = excluded
    assert text.startswith(SELECTS_NOTHING)
    assert warnings_of_preflight(daemon, includeNamespaces=INCLUDE, excludeNamespaces=EXCLUDE) == []


@across(REPLICA_SETS, SHARDED)
def test_a_sync_that_selects_nothing_warns_until_a_collection_is_created(
    pair: Pair, daemon: Daemon
) -> None:
    client = pair.source.client
    client.shop.orders.insert_one({"_id": 1})
    filters = [{"database": "store"}]
    first, second = warnings_of_preflight(daemon, includeNamespaces=filters)
    assert first.startswith(f"{SELECTS_NOTHING}. ")
    assert second.startswith(f'includeNamespaces[0]: {{"database": "store"}} {UNMATCHED}, ')

    daemon.start(includeNamespaces=filters)
    daemon.wait_for_warning(SELECTS_NOTHING)
    daemon.wait_until_committable()
    assert daemon.warnings(SELECTS_NOTHING)
    metrics = daemon.get("/metrics").text
    assert 'mongosync_warning{warning="nothing selected"} 1.0' in metrics
    assert f'includeNamespaces[0]: {{\\"database\\": \\"store\\"}} {UNMATCHED}' in daemon.log
    # A restarted process warns, too.
    daemon.kill()
    daemon.run()
    daemon.wait_for_warning(SELECTS_NOTHING)
    client.store.orders.insert_one({"_id": 2})
    daemon.wait_without_warning(SELECTS_NOTHING)
    daemon.commit()
    assert names(pair.destination) == {("store", "orders")}
    assert not daemon.warnings(SELECTS_NOTHING)


def test_a_view_ends_the_warning_of_a_sync_that_selects_nothing(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    client.shop.orders.insert_one({"_id": 1})
    daemon.start(includeNamespaces=[{"database": "shop", "collections": ["Orders", "view"]}])
    daemon.wait_for_warning(SELECTS_NOTHING)
    client.shop.command({"create": "view", "viewOn": "orders", "pipeline": []})
    daemon.wait_without_warning(SELECTS_NOTHING)
    daemon.commit()
    assert names(pair.destination) == {("shop", "view")}


def test_a_committed_sync_that_selected_nothing_still_warns(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.shop.orders.insert_one({"_id": 1})
    daemon.start(includeNamespaces=[{"database": "Shop"}])
    daemon.wait_for_warning(SELECTS_NOTHING)
    daemon.commit()
    assert daemon.warnings(SELECTS_NOTHING)


@pytest.mark.in_turns
@across(REPLICA_SETS, SHARDED)
def test_ddl_of_excluded_collections_does_not_delay_changes(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    source.inside.c.insert_one({"_id": "first"})
    source.inside.away.insert_one({})
    daemon.start(includeNamespaces=[{"database": "inside", "collections": ["c"]}])
    daemon.wait_until_committable()
    with daemon.held_at(Point.BARRIER_REACHED):
        for number in range(50):
            excluded = source.outside[f"c{number}"]
            excluded.create_index("n")
            excluded.insert_one({"n": number})
            source.inside.c.insert_one({"_id": number})
            excluded.drop_index("n_1")
            excluded.drop()
        source.inside.away.aggregate([{"$out": "elsewhere"}])
        source.inside.away.aggregate([{"$out": "elsewhere"}])
        source.inside.elsewhere.rename("renamed")
        source.inside.command("collMod", "renamed", validator={})
        source.outside.create_collection("view", viewOn="c", pipeline=[])
        source.outside.view.drop()
        source.outside.create_collection("series", timeseries={"timeField": "t"})
        source.outside.series.drop()
        source.inside.c.insert_one({"_id": "last"})
        wait_for(lambda: destination.inside.c.find_one({"_id": "last"}), "the last change")
        assert not daemon.has_reached(Point.BARRIER_REACHED)
        # A rename into the filter waits for the barrier.
        source.inside.c.rename("was c")
        source.inside.renamed.rename("c")
        daemon.wait_until_reached(Point.BARRIER_REACHED)
    assert daemon.wait_for_state("FAILED")["error"] == "RenamedOutOfFilter"
    source.inside["was c"].drop()
    daemon.resume()
    daemon.commit()
    assert names(pair.destination) == {("inside", "c")}
    assert documents(pair.destination, "inside", "c") == documents(pair.source, "inside", "c")


@pytest.mark.full
def test_an_unmarked_temporary_collection_of_out_may_leave_the_filter(
    pair: Pair, daemon: Daemon
) -> None:
    """Replace an excluded collection as `$out` does on shards of MongoDB 8.0, which do not set the option `temp`."""
    client = pair.source.client
    fill(client)
    daemon.start(excludeNamespaces=[{"database": "shop", "collections": ["orders"]}])
    daemon.wait_until_committable()
    temporary = client.shop[f"tmp.agg_out.{uuid4()}"]
    temporary.insert_one({"_id": 1})
    temporary.rename("orders", dropTarget=True)
    daemon.commit()
    assert names(pair.source) - names(pair.destination) == {("shop", "orders")}
    assert "was renamed on the source" not in daemon.log


def test_a_rename_out_of_the_filter_fails_the_sync_by_name(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(includeNamespaces=INCLUDE)
    daemon.wait_until_committable()
    pair.source.client.shop.orders.rename("done")
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "RenamedOutOfFilter"
    assert "shop.orders was renamed to shop.done" in progress["errorDescription"]
    assert pair.destination.client.shop.orders.count_documents({}) == 20
    fails_again(daemon, "RenamedOutOfFilter")
    # The stream has no events of the name that the filter excludes, so renaming the collection back must not help.
    pair.source.client.shop.done.insert_one({"_id": "meanwhile"})
    pair.source.client.shop.done.rename("orders")
    fails_again(daemon, "RenamedOutOfFilter")
    pair.source.client.shop.orders.drop()
    daemon.resume()
    daemon.commit()
    assert ("shop", "orders") not in names(pair.destination)


@pytest.mark.full
@across(REPLICA_SETS, FROM_SHARDED)
def test_a_new_collection_replaces_one_that_was_renamed_out_of_the_filter(
    pair: Pair, daemon: Daemon
) -> None:
    client = pair.source.client
    fill(client)
    daemon.start(includeNamespaces=INCLUDE, excludeNamespaces=EXCLUDE)
    daemon.wait_until_committable()
    client.shop.orders.rename("done")
    client.shop.orders.insert_one({"_id": "another collection"})
    daemon.wait_for_failure("RenamedOutOfFilter")
    client.shop.done.drop()
    daemon.resume()
    daemon.commit()
    assert_selected(pair)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", [When.REPLAY, When.COPY, When.APPLY], ids=lambda when: when.name)
def test_a_collection_renamed_out_of_the_filter_is_dropped_on_request(
    pair: Pair, daemon: Daemon, when: When
) -> None:
    """Rename collections to names that the filter excludes: the destination must drop them.

    One collection is renamed into the filter again after more writes, and must be copied again.
    """
    client = pair.source.client
    fill(client)
    options = {"includeNamespaces": INCLUDE, "excludeNamespaces": EXCLUDE}
    with writes_in(when, daemon, **options, renamedOutOfFilter="drop"):
        client.shop.orders.rename("done")
        client.shop.orders.insert_one({"_id": "another collection"})
        client.shop["ORDERS.old"].rename("away")
        client.shop.away.insert_one({"_id": "meanwhile"})
        client.shop.away.rename("orders 3")
        client.shop["orders 3"].insert_one({"_id": "afterwards"})
    daemon.commit()
    assert_selected(pair)


@pytest.mark.full
@across(TO_SHARDED, SHARDED, FROM_SHARDED)
def test_a_sharded_collection_renamed_out_of_the_filter_is_dropped_on_request(
    pair: Pair, daemon: Daemon
) -> None:
    # Shard by `_id`, whose index always exists.
    for each in ("shop.orders", "shop.ORDERS.old"):
        pair.shard(each, {"_id": 1})
    test_a_collection_renamed_out_of_the_filter_is_dropped_on_request(pair, daemon, When.APPLY)


@pytest.mark.full
def test_a_kill_while_a_renamed_collection_is_dropped(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    fill(client)
    daemon.start(includeNamespaces=INCLUDE, excludeNamespaces=EXCLUDE, renamedOutOfFilter="drop")
    daemon.wait_until_committable()
    daemon.kill_at(Point.DEFINITION_APPLIED)
    client.shop.orders.rename("done")
    client.shop.orders.insert_one({"_id": "another collection"})
    daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    assert_selected(pair)


@pytest.mark.full
def test_a_kill_while_a_collection_is_renamed_into_the_filter(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    pad = "p" * 5000
    pair.source.client.shop.big.insert_many({"_id": n, "pad": pad} for n in range(3000))
    daemon.start(includeNamespaces=INCLUDE, excludeNamespaces=EXCLUDE)
    daemon.wait_until_committable()
    daemon.kill_at(Point.BATCH_WRITTEN, number=13)
    pair.source.client.shop.big.rename("orders big")
    daemon.wait_until_killed()
    pair.source.client.shop["orders big"].delete_many({"_id": {"$lt": 10}})
    daemon.run()
    daemon.commit()
    assert_selected(pair)


@pytest.mark.full
def test_a_restart_within_a_transaction_across_the_filter(pair: Pair, daemon: Daemon) -> None:
    client = pair.source.client
    client.inside.c.insert_one({"_id": 1})
    client.outside.c.insert_one({"_id": 1})
    daemon.kill_at(Point.DEFINITION_APPLIED)
    with writes_in(When.COPY, daemon, includeNamespaces=[{"database": "inside"}]):
        with client.start_session() as session, session.start_transaction():
            client.outside.c.insert_one({"_id": 2}, session=session)
            client.inside.c.insert_one({"_id": 2}, session=session)
        # The resume point is saved before this event.
        client.inside.c.create_index("n")
    daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    assert names(pair.destination) == {("inside", "c")}
    assert pair.destination.client.inside.c.count_documents({}) == 2


@pytest.mark.parametrize(
    ("element", "said"),
    [
        ({"database": "d", "collectionsRegex": {"pattern": "("}}, "includeNamespaces[0].collectionsRegex: Regular"),
        ({"databaseRegex": {"pattern": "a\0b"}}, "includeNamespaces[0].databaseRegex: Regular"),
        ({"database": "admin"}, "includeNamespaces[0].database: System"),
    ],
)  # fmt: skip
def test_a_bad_filter_is_refused(
    pair: Pair, daemon: Daemon, element: dict[str, Any], said: str
) -> None:
    body = {"source": "cluster0", "destination": "cluster1", "includeNamespaces": [element]}
    assert_refused(daemon.post("start", body), 400, "InvalidRequest", (said,))
    assert daemon.progress()["state"] == "IDLE"
