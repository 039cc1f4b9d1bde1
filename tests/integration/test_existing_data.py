"""Tests syncs to a destination with other data: a sync may touch only the collections and views that it has created."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bson.binary import UUID_SUBTYPE, Binary

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.replica_set import Client
from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import APPLICATION, failing
from tests.support.fleet import Fleet
from tests.support.foreign import assert_synced, content, create_foreign, user_namespaces
from tests.support.pair import SHARDED, TO_SHARDED, Pair, across
from tests.support.waiting import wait_for

EXISTING: dict[str, Any] = {
    "preExistingDestinationData": True,
    "enableUserWriteBlocking": "none",
}

TIME_SERIES = {"type": "timeseries"}


def fill(pair: Pair) -> None:
    """Fill the source with collections and views of many kinds."""
    client = pair.source.client
    writes.indexes(client)
    writes.fill(client)
    writes.new_collections(client)
    writes.time_series(client)
    client.d.create_collection("limited", capped=True, size=100_000)
    client.d.limited.insert_many({"_id": n} for n in range(10))
    client.d.create_collection("view", viewOn="c", pipeline=[{"$match": {"n": 1}}])


def change_definitions(pair: Pair) -> None:
    """Run DDL commands of many kinds on the source, after `fill`, and insert some documents.

    The commands create, rename, replace, modify and drop collections, create an index, and create and change views.
    They drop or change no index, and drop no database.
    """
    d = pair.source.client.d
    d.created.insert_one({"_id": 1})
    d.created.create_index("x", unique=True)
    d.other.rename("renamed")
    d.replacing.insert_one({"_id": "new"})
    d.replacing.rename("created", dropTarget=True)
    d.c.aggregate([{"$limit": 5}, {"$out": "out"}])
    d.c.aggregate([{"$limit": 3}, {"$out": "out"}])
    d.create_collection("late view", viewOn="c", pipeline=[])
    d.command("collMod", "view", viewOn="c", pipeline=[{"$match": {"n": 2}}])
    d.command("collMod", "c", validator={"n": {"$exists": True}}, validationAction="warn")
    d.moving.insert_one({"_id": "moved"})
    pair.source.client.admin.command("renameCollection", "d.moving", to="elsewhere.moved")
    d.create_collection("late series", timeseries={"timeField": "at"})
    d.limited.drop()


def preflight(daemon: Daemon, **options: Any) -> list[tuple[str, str]]:
    answer = daemon.post("preflight", daemon.start_body(**{**EXISTING, **options}))
    assert answer.ok, answer.text
    found = answer.json()["violations"]
    return [(each["error"], each["errorDescription"]) for each in found]


def failure(daemon: Daemon) -> str:
    """Wait until the sync has failed with DestinationNamespaceExists, and return the error's description."""
    found = daemon.wait_for_state("FAILED")
    assert found["error"] == "DestinationNamespaceExists", found
    return str(found["errorDescription"])


def test_a_sync_leaves_foreign_data_alone(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(pair)
    foreign = create_foreign(destination)
    before = content(destination, foreign)
    assert preflight(daemon) == []
    with Workload([source.d.c, source.d.new]):
        daemon.start(**EXISTING)
        daemon.wait_until_applying()
        change_definitions(pair)
        daemon.wait_until_committable()
        source.dropped.c.insert_one({"_id": 1})
        destination.dropped.theirs.insert_one({"_id": 1})
        wait_for(lambda: destination.dropped.c.count_documents({}), "it is synced")
        source.drop_database("dropped")
        wait_for(lambda: "c" not in destination.dropped.list_collection_names(), "it is dropped")
    assert destination.dropped.theirs.count_documents({}) == 1
    daemon.commit()
    assert_synced(source, destination, {*foreign, "dropped.theirs"})
    assert content(destination, foreign) == before


def test_a_time_series_that_was_created_again_is_not_the_same(pair: Pair) -> None:
    """`content`, which the tests compare, must include the buckets of a time series: only the buckets have a UUID."""
    there = pair.destination.client.d
    found = []
    for _ in range(2):
        there.create_collection("their series", timeseries={"timeField": "at"})
        found.append(content(pair.destination.client, ["d.their series"]))
        there.drop_collection("their series")
    assert found[0] != found[1]
    assert found[0].keys() == {"d.their series", "d.system.buckets.their series"}


@pytest.mark.parametrize("kind", ["collection", "view", "time series"])
def test_a_taken_name_is_refused_at_the_start(pair: Pair, daemon: Daemon, kind: str) -> None:
    writes.fill(pair.source.client)
    there = pair.destination.client.d
    if kind == "collection":
        there.c.insert_one({"_id": "theirs"})
    elif kind == "view":
        there.create_collection("c", viewOn="x", pipeline=[])
    else:
        there.create_collection("c", timeseries={"timeField": "at"})
    before = content(pair.destination.client, ["d.c"])
    ((name, text),) = preflight(daemon)
    assert name == "DestinationNamespaceExists"
    assert "The destination already holds d.c." in text
    answer = daemon.post("start", daemon.start_body(**EXISTING))
    assert (answer.status_code, answer.json()["error"]) == (409, "DestinationNamespaceExists")
    assert content(pair.destination.client, ["d.c"]) == before
    assert preflight(daemon, excludeNamespaces=[{"database": "d", "collections": ["c"]}]) == []


def test_many_taken_names_are_named_in_part(pair: Pair, daemon: Daemon) -> None:
    for client in (pair.source.client, pair.destination.client):
        for number in range(8):
            client.d.create_collection(f"c{number}")
    ((_, text),) = preflight(daemon)
    assert "holds d.c0, d.c1, d.c2, d.c3, d.c4 and others." in text


def test_a_database_that_differs_only_in_case_is_refused(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.Shop.c.insert_one({})
    pair.destination.client.shop.x.insert_one({})
    ((name, text),) = preflight(daemon)
    assert name == "DestinationNamespaceExists"
    assert "needs the database Shop, but the destination holds the database shop" in text


@pytest.mark.parametrize(
    "options, expected",
    [
        ({"enableUserWriteBlocking": "destinationOnly"}, ["WriteBlockingWithExistingData"]),
        (
            {"enableUserWriteBlocking": "sourceAndDestination", "reversible": True},
            ["WriteBlockingWithExistingData", "ReversibleWithExistingData"],
        ),
    ],
)
def test_options_that_concern_the_whole_destination_are_refused(
    daemon: Daemon, options: dict[str, Any], expected: list[str]
) -> None:
    found = preflight(daemon, **options)
    assert [name for name, _ in found] == expected
    assert "Set enableUserWriteBlocking to none" in found[0][1]


def _create(pair: Pair) -> None:
    pair.source.client.d.wanted.insert_one({"_id": "ours"})


def _rename(pair: Pair) -> None:
    pair.source.client.d.other.rename("wanted")


def _rename_from_elsewhere(pair: Pair) -> None:
    pair.source.client.admin.command("renameCollection", "e.c", to="d.wanted")


def _create_view(pair: Pair) -> None:
    pair.source.client.d.create_collection("wanted", viewOn="c", pipeline=[])


def _create_time_series(pair: Pair) -> None:
    pair.source.client.d.create_collection("wanted", timeseries={"timeField": "at"})


def _out(pair: Pair) -> None:
    pair.source.client.d.c.aggregate([{"$limit": 2}, {"$out": "wanted"}])


EVENTS = [_create, _rename, _rename_from_elsewhere, _create_view, _create_time_series, _out]


@pytest.mark.in_turns
@pytest.mark.parametrize("event", EVENTS, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("is_view", [False, True], ids=["collection", "view"])
def test_an_event_that_meets_foreign_data_fails_the_sync(
    pair: Pair, daemon: Daemon, event: Any, is_view: bool
) -> None:
    source, there = pair.source.client, pair.destination.client.d
    writes.fill(source, 20)
    source.e.c.insert_one({"_id": "elsewhere"})
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    if is_view:
        there.create_collection("wanted", viewOn="c", pipeline=[{"$match": {"n": 5}}])
    else:
        there.wanted.insert_one({"_id": "theirs"})
    before = content(pair.destination.client, ["d.wanted"])
    event(pair)
    assert "The sync needs the name d.wanted on the destination" in failure(daemon)
    assert content(pair.destination.client, ["d.wanted"]) == before
    # The foreign collection still has the name: a resume fails again, and changes nothing.
    daemon.resume()
    failure(daemon)
    assert content(pair.destination.client, ["d.wanted"]) == before
    there.wanted.drop()
    there.theirs.insert_one({"_id": "theirs"})
    daemon.resume()
    daemon.commit()
    assert_synced(source, pair.destination.client, {"d.theirs"})


@pytest.mark.full
@pytest.mark.parametrize(
    "point", [Point.TEMPORARY_CREATED, Point.TEMPORARY_SAVED, Point.COLLECTION_CREATED]
)
def test_a_sync_killed_while_it_creates_collections_continues(
    pair: Pair, tmp_path: Path, point: Point
) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(pair)
    foreign = create_foreign(destination)
    before = content(destination, foreign)
    # One thread creates the collections. With several, the kill could hit a time series that is not saved yet, which
    # then counts as foreign (see the next test).
    daemon = pair.daemon(tmp_path, "--loadLevel", "1")
    daemon.kill_at(point)
    with daemon.running():
        daemon.start(**EXISTING)
        daemon.wait_until_killed()
        daemon.run()
        daemon.wait_until_applying()
        daemon.kill_at(point if point is not Point.COLLECTION_CREATED else Point.DEFINITION_APPLIED)
        daemon.kill()
        daemon.run()
        change_definitions(pair)
        daemon.wait_until_killed()
        daemon.run()
        daemon.commit()
        assert_synced(source, destination, foreign)
        assert content(destination, foreign) == before


@pytest.mark.full
@pytest.mark.parametrize("by_event", [False, True], ids=["before the copy", "by an event"])
def test_a_sync_killed_just_after_it_has_created_a_time_series_needs_help(
    pair: Pair, daemon: Daemon, by_event: bool
) -> None:
    """Kill the daemon between creating a time series and saving this fact: the time series must count as foreign.

    The sync must fail. The remedy of the error must work: drop the empty collection, and resume.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source, 20)
    daemon.kill_at(Point.CREATED_WITH_NAME)
    if by_event:
        daemon.start(**EXISTING)
        daemon.wait_until_applying()
        writes.time_series(source)
    else:
        writes.time_series(source)
        daemon.post_unanswered("start", daemon.start_body(**EXISTING))
    daemon.wait_until_killed()
    daemon.run()
    daemon.post_unanswered("start", daemon.start_body(**EXISTING))
    text = failure(daemon)
    created = {each["name"] for each in destination.d.list_collections(filter=TIME_SERIES)}
    (name,) = created
    assert f"d.{name}" in text
    assert not destination.d[name].count_documents({})
    destination.d[name].drop()
    daemon.resume()
    daemon.commit()
    assert_synced(source, destination, set())


def test_an_empty_database_whose_name_differs_in_case_fails_the_sync(
    pair: Pair, daemon: Daemon
) -> None:
    """Drop a database of the source, and create one whose name differs only in case: the sync must fail.

    It must continue after a user has dropped the former database, which is empty, on the destination.
    """
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source, 20)
    source.Shop.c.insert_one({"_id": 1})
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    source.drop_database("Shop")
    source.shop.c.insert_one({"_id": 2})
    found = daemon.wait_for_state("FAILED")
    assert found["error"] == "DefinitionNotApplicable", found
    assert "Shop" in found["errorDescription"]
    destination.drop_database("Shop")
    daemon.resume()
    daemon.commit()
    assert_synced(source, destination, set())


@pytest.mark.in_turns
@pytest.mark.parametrize("kept", [True, False], ids=["kept", "dropped"])
def test_a_foreign_database_whose_name_differs_in_case_fails_the_sync(
    pair: Pair, daemon: Daemon, kept: bool
) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source, 20)
    destination.depot.theirs.insert_one({"_id": "theirs"})
    before = content(destination, ["depot.theirs"])
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    source.Depot.c.insert_one({"_id": 1})
    assert "needs the database Depot, but the destination holds the database depot" in failure(
        daemon
    )
    assert content(destination, ["depot.theirs"]) == before
    if kept:
        source.drop_database("Depot")
    else:
        destination.drop_database("depot")
    daemon.resume()
    daemon.commit()
    assert_synced(source, destination, {"depot.theirs"} if kept else set())


def test_an_own_view_that_users_have_changed_is_foreign(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source, 20)
    source.d.create_collection("view", viewOn="c", pipeline=[])
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    destination.d.command("collMod", "view", viewOn="c", pipeline=[{"$match": {"n": 5}}])
    before = content(destination, ["d.view"])
    source.d.command("collMod", "view", viewOn="c", pipeline=[{"$match": {"n": 2}}])
    assert "The sync needs the name d.view on the destination" in failure(daemon)
    assert content(destination, ["d.view"]) == before
    destination.d.view.drop()
    daemon.resume()
    daemon.commit()
    assert_synced(source, destination, set())


def test_a_reset_leaves_foreign_data_alone(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(pair)
    foreign = create_foreign(destination)
    before = content(destination, foreign)
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    change_definitions(pair)
    wait_for(lambda: "late view" in destination.d.list_collection_names(), "the events")
    answer = daemon.post("reset", {"confirm": "cluster1"})
    assert answer.ok, answer.text
    daemon.wait_for_state("IDLE")
    assert user_namespaces(destination) == foreign
    assert content(destination, foreign) == before
    daemon.start(**EXISTING)
    daemon.commit()
    assert_synced(source, destination, foreign)


@pytest.mark.in_turns
@pytest.mark.parametrize("point", [Point.TEMPORARY_CREATED, Point.TEMPORARY_SAVED])
def test_a_reset_drops_collections_with_temporary_names(
    pair: Pair, daemon: Daemon, point: Point
) -> None:
    writes.fill(pair.source.client, 20)
    # An empty foreign collection must not count as one that the sync has created, but not saved yet.
    pair.destination.client.d.create_collection("theirs")
    daemon.kill()
    daemon.kill_at(point)
    daemon.run()
    daemon.start(**EXISTING)
    daemon.wait_until_killed()
    # After the start, users create collections with names that the sync also needs, but has not created yet.
    pair.destination.client.d.create_collection("c")
    pair.destination.client.d.create_collection("other")
    daemon.run()
    failure(daemon)
    assert any(".syncsvc.new." in each for each in user_namespaces(pair.destination.client))
    answer = daemon.post("reset", {"confirm": "cluster1"})
    assert answer.ok, answer.text
    daemon.wait_for_state("IDLE")
    assert user_namespaces(pair.destination.client) == {"d.c", "d.other", "d.theirs"}


@prepared(Daemon.judge_soon)
def test_the_verification_reports_the_own_namespaces_only(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source, 20)
    source.d.create_collection("view", viewOn="c", pipeline=[])
    foreign = create_foreign(destination)
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    destination.d.theirs.insert_one({"_id": "new"})
    destination.d.c.update_one({"_id": 3}, {"$set": {"n": "changed by a user"}})
    destination.d.c.insert_one({"_id": "extra"})
    destination.d.other.rename("moved away")
    daemon.ask_for_commit()
    found = daemon.wait_for_state("FAILED")
    assert found["error"] == "VerificationFailed"
    listed = [json.loads(line) for line in daemon.get("mismatches").text.splitlines()]
    assert {each["namespace"] for each in listed} == {"d.c", "d.other", "d.moved away"}
    destination.d["moved away"].rename("other")
    answer = daemon.post("repair", {})
    assert answer.ok, answer.text
    daemon.commit()
    assert_synced(source, destination, foreign)


def test_a_sync_to_existing_data_has_its_own_format(pair: Pair, daemon: Daemon) -> None:
    """Check that the sync is saved in format 8, which earlier versions refuse: they would change foreign data."""
    writes.fill(pair.source.client, 5)
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    runs = pair.destination.client[METADATA_DATABASE].runs
    assert [each["format"] for each in runs.find()] == [8]


@pytest.mark.in_turns
@pytest.mark.parametrize("write", ["insert", "update", "delete", "many"])
def test_no_document_is_written_to_a_collection_that_replaced_an_own_one(
    pair: Pair, daemon: Daemon, write: str
) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source, 20)
    daemon.start(**EXISTING, verification={"enabled": False})
    daemon.wait_until_committable()
    destination.d.c.rename("kept")
    destination.d.c.insert_many({"_id": n} for n in range(50))
    before = content(destination, ["d.c"])
    if write == "insert":
        source.d.c.insert_one({"_id": "new", "pad": "p" * 100_000})
    elif write == "update":
        source.d.c.update_one({"_id": 1}, {"$set": {"n": "changed"}})
    elif write == "delete":
        source.d.c.delete_one({"_id": 1})
    else:
        source.d.c.update_many({}, {"$set": {"n": "changed"}})
    assert "is not the collection that the sync has created" in failure(daemon)
    assert content(destination, ["d.c"]) == before
    destination.d.c.drop()
    destination.d.kept.rename("c")
    daemon.resume()
    daemon.commit()
    assert_synced(source, destination, ())


@pytest.mark.full
def test_several_instances_leave_foreign_data_alone(pair: Pair, fleet: Fleet) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(pair)
    foreign = create_foreign(destination)
    before = content(destination, foreign)
    with Workload([source.d.c, source.d.new]):
        fleet.start(**EXISTING)
        fleet.wait_until_committable()
        change_definitions(pair)
    fleet.commit()
    assert_synced(source, destination, foreign)
    assert content(destination, foreign) == before


def test_users_have_their_own_rules(pair: Pair, daemon: Daemon) -> None:
    """Copy users to a destination with foreign users, which must stay. A user with the same name must be refused."""
    source, destination = pair.source.client, pair.destination.client
    source.d.c.insert_one({"_id": 1})
    source.shop.command("createUser", "ours", pwd="x", roles=[])
    destination.shop.command("createUser", "theirs", pwd="x", roles=[])
    try:
        destination.shop.command("createUser", "ours", pwd="another", roles=[])
        options = {**EXISTING, "usersAndRoles": {"copy": True}}
        assert [name for name, _ in preflight(daemon, **options)] == ["UserOrRoleExists"]
        destination.shop.command("dropUser", "ours")
        daemon.start(**options)
        daemon.commit()
        found = destination.shop.command("usersInfo")["users"]
        assert {each["user"] for each in found} == {"ours", "theirs"}
    finally:
        for client in (source, destination):
            client.shop.command("dropAllUsersFromDatabase")


def create_foreign_sharded(destination: Client) -> set[str]:
    """Create foreign data of all kinds, among them a sharded collection in the database d; return the namespaces."""
    foreign = create_foreign(destination)
    key = {"_id": "hashed"}
    destination.admin.command("shardCollection", "d.their sharded one", key=key)
    destination.d["their sharded one"].insert_many({"_id": n} for n in range(100))
    return foreign | {"d.their sharded one"}


@pytest.mark.full
@across(TO_SHARDED, SHARDED)
@pytest.mark.parametrize("point", [Point.TEMPORARY_CREATED, Point.TEMPORARY_SAVED, Point.ZONES_SET])
def test_a_sync_killed_while_it_shards_beside_foreign_data_continues(
    pair: Pair, daemon: Daemon, point: Point
) -> None:
    """Kill the daemon twice while it creates a sharded collection: before the copy, and while it applies events.

    The sync must continue, and the foreign data must not change.
    """
    source, destination = pair.source.client, pair.destination.client
    # Use a ranged shard key, because the sync needs zones only for ranges of values.
    pair.shard("d.c", {"n": 1})
    writes.fill(source)
    if pair.changes_to_shards:
        pair.shard("d.late", {"n": 1})
    foreign = create_foreign_sharded(destination)
    before = content(destination, foreign)
    daemon.kill_at(point, "d.c")
    daemon.post_unanswered("start", daemon.start_body(**EXISTING))
    daemon.wait_until_killed()
    # Delete documents, so that the restarted daemon divides the remaining ones into other ranges.
    source.d.c.delete_many({"n": {"$lt": 150}})
    daemon.run()
    daemon.post_unanswered("start", daemon.start_body(**EXISTING))
    daemon.wait_until_applying()
    daemon.kill_at(point, "d.late")
    if not pair.changes_to_shards:
        pair.shard("d.late", {"n": 1})
    source.d.late.insert_many({"_id": n, "n": n} for n in range(100))
    daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    assert_synced(source, destination, foreign, pair.shard_keys)
    assert content(destination, foreign) == before
    ours = {each["_id"] for each in destination.config.collections.find({"_id": {"$regex": "^d"}})}
    assert ours == {"d.c", "d.late", "d.their sharded one"}
    assert list(destination.config.tags.find()) == []


@pytest.mark.in_turns
@across(TO_SHARDED, SHARDED)
def test_a_sharded_destination_keeps_foreign_data(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source.client, pair.destination.client
    pair.shard("d.c")
    writes.fill(source)
    writes.new_collections(source)
    source.d.create_collection("view", viewOn="c", pipeline=[])
    # Then the database d, which the sync also needs, already has a primary shard.
    foreign = create_foreign_sharded(destination)
    before = content(destination, foreign)
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    source.d.other.rename("renamed")
    source.d.created.insert_one({"_id": 1})
    source.dropped.c.insert_one({"_id": 1})
    destination.dropped.theirs.insert_one({"_id": 1})
    wait_for(lambda: destination.dropped.c.count_documents({}), "it is synced")
    source.drop_database("dropped")
    wait_for(lambda: "c" not in destination.dropped.list_collection_names(), "it is dropped")
    foreign |= {"dropped.theirs"}
    destination.d.wanted.insert_one({"_id": "theirs"})
    source.d.wanted.insert_one({"_id": "ours"})
    failure(daemon)
    destination.d.wanted.drop()
    daemon.resume()
    daemon.commit()
    assert_synced(source, destination, foreign, pair.shard_keys)
    assert content(destination, before) == before


@across(SHARDED)
def test_the_shard_key_of_a_foreign_collection_is_not_refined(pair: Pair, daemon: Daemon) -> None:
    """Replace an own collection with one that has the same indexes and shard key; then refine the key on the source."""
    pair.shard("d.c", {"n": 1})
    index = [("n", 1), ("m", 1)]
    pair.source.client.d.c.create_index(index)
    there = pair.destination.client
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    there.d.c.drop()
    there.admin.command("shardCollection", "d.c", key={"n": 1})
    there.d.c.create_index(index)
    pair.source.client.admin.command("refineCollectionShardKey", "d.c", key=dict(index))
    daemon.commit_or_fail()
    row = there.config.collections.find_one({"_id": "d.c"})
    assert row is not None
    assert row["key"] == {"n": 1}
    assert "refineCollectionShardKey" in daemon.progress()["errorDescription"]


@pytest.mark.full
@across(TO_SHARDED, SHARDED)
def test_a_reset_on_a_sharded_destination_leaves_foreign_data_alone(
    pair: Pair, daemon: Daemon
) -> None:
    source, destination = pair.source.client, pair.destination.client
    pair.shard("d.c")
    writes.fill(source)
    foreign = create_foreign(destination)
    before = content(destination, foreign)
    daemon.start(**EXISTING)
    daemon.wait_until_committable()
    answer = daemon.post("reset", {"confirm": "cluster1"})
    assert answer.ok, answer.text
    daemon.wait_for_state("IDLE")
    assert user_namespaces(destination) == foreign
    assert content(destination, foreign) == before


def test_a_collection_with_encrypted_fields_is_created_without_a_rename(
    pair: Pair, daemon: Daemon
) -> None:
    """Servers refuse to rename such a collection, if they are old or the user lacks a privilege."""
    field = {
        "path": "p",
        "bsonType": "string",
        "keyId": Binary(bytes(16), UUID_SUBTYPE),
        "queries": {"queryType": "equality"},
    }
    source, destination = pair.source.client, pair.destination.client
    create = {"encryptedFields": {"fields": [field]}}
    source.d.command({"create": "early", **create})
    destination.foreign.c.insert_one({"_id": 1})
    refused = {"errorCode": 20, "failCommands": ["renameCollection"], "appName": APPLICATION}
    with failing(destination, refused):
        daemon.start(**EXISTING)
        daemon.wait_until_committable()
        source.d.command({"create": "late", **create})
        source.d.drop_collection("early")
        source.d.command({"create": "early", **create})
        daemon.commit()
    assert_synced(source, destination, {"foreign.c"})
