"""Tests DDL operations on a source before MongoDB 6.0, whose change streams lack most DDL events.

The tests have no such server: the daemon treats a source of MongoDB 6.0 like one of 5.0.

`make test` leaves out some rare cases: the model test runs DDL operations on such a source, too.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.daemon import Daemon, prepared
from tests.support.fleet import Fleet
from tests.support.pair import REPLICA_SETS, TO_SHARDED, Pair, across
from tests.support.phases import When, writes_in
from tests.support.resuming import fails_again
from tests.support.waiting import wait_for

old = prepared(Daemon.believe_the_source_is_old)
# The daemon compares definitions ten times a second. Otherwise, it does so only at its start and for a commit.
watched = prepared(Daemon.believe_the_source_is_old, Daemon.watch_closely)


def fill(client: writes.AnyClient) -> None:
    writes.fill(client)
    client.d.create_collection("items", validator={"n": {"$gte": 0}})
    client.d.items.insert_many({"_id": n, "n": n, "u": n} for n in range(50))
    client.d.items.create_index("old")
    client.d.items.create_index("ttl", expireAfterSeconds=10**8)
    client.d.create_collection("view", viewOn="items")
    for name in ("dropped", "replaced", "renamed", "target", "out"):
        client.d[name].insert_many({"_id": f"{name} {n}"} for n in range(20))
    for name in ("lost", "regained"):
        client[name].c.insert_one({"_id": "before"})
        client[name].create_collection("v", viewOn="c")


def redefine(client: writes.AnyClient) -> None:
    """Change definitions of most kinds, and write documents before and after."""
    redefine_items(client)
    create(client)
    replace(client)
    client.d.items.insert_one({"_id": "last", "n": 1, "u": -2})


def redefine_items(client: writes.AnyClient) -> None:
    items = client.d.items
    items.insert_one({"_id": "first", "n": 1, "u": 1})  # u is not unique yet
    items.update_one({"_id": "first"}, {"$set": {"u": -1}})
    items.create_index("u", unique=True)
    items.create_index([("n", 1)], hidden=True, name="hidden")
    items.drop_index("old_1")
    ttl = {"keyPattern": {"ttl": 1}, "expireAfterSeconds": 10**7}
    client.d.command("collMod", "items", index=ttl, validator={"n": {"$gt": -5}})
    client.d.c.drop_indexes()


def create(client: writes.AnyClient) -> None:
    options: dict[str, dict[str, Any]] = {
        "capped": {"capped": True, "size": 1 << 16, "max": 5},
        "collated": {"collation": {"locale": "en", "strength": 2}},
        "clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
        "empty": {"validator": {"n": 1}},
    }
    for name, each in options.items():
        client.d.create_collection(name, **each)
        if name != "empty":
            client.d[name].insert_many({"_id": n, "n": 1} for n in range(8))
            client.d[name].create_index("n")
    client.d.view.drop()
    client.d.create_collection("other view", viewOn="items", pipeline=[{"$limit": 3}])


def replace(client: writes.AnyClient) -> None:
    """Drop, create, rename and replace collections, so that existing names belong to other collections afterwards.

    One collection is renamed and renamed back. Two databases are dropped, and one of them is created again.
    """
    client.d.dropped.drop()
    client.d.replaced.insert_one({"_id": "A"})
    client.d.replaced.drop()
    client.d.create_collection("replaced", collation={"locale": "en", "strength": 2})
    client.d.replaced.insert_many([{"_id": "a"}, {"_id": "b"}])
    client.d.renamed.update_one({"_id": "renamed 1"}, {"$set": {"n": 1}})
    client.d.renamed.rename("target", dropTarget=True)
    client.d.target.update_many({}, {"$set": {"after": 1}})
    client.d.target.rename("away")
    client.d.away.insert_one({"_id": "away"})
    client.d.away.rename("target")
    client.d.items.aggregate([{"$match": {"n": {"$lt": 5}}}, {"$out": "out"}])
    client.d.out.update_one({"_id": 1}, {"$set": {"n": "after"}})
    client.admin.command({"renameCollection": "d.other", "to": "moved.other"})
    for name in ("lost", "regained"):
        client.drop_database(name)
    client.regained.create_collection("c", capped=True, size=1 << 16)
    client.regained.c.insert_many({"_id": n} for n in range(5))


@pytest.mark.full
@old
@pytest.mark.parametrize("when", [w for w in When if w is not When.BEFORE], ids=lambda w: w.name)
def test_ddl_is_applied_for_the_commit_at_the_latest(
    pair: Pair, daemon: Daemon, when: When
) -> None:
    fill(pair.source.client)
    with writes_in(when, daemon):
        redefine(pair.source.client)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@watched
@across(REPLICA_SETS, TO_SHARDED)
def test_ddl_is_applied_during_change_event_application(pair: Pair, daemon: Daemon) -> None:
    pair.shard("d.new", {"n": 1})
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    redefine(pair.source.client)
    pair.source.client.d.new.insert_one({"_id": 1, "n": 1})
    there = pair.destination.client
    wait_for(lambda: there.d.new.find_one(), "a new collection")
    wait_for(lambda: "u_1" in there.d.items.index_information(), "a new index")
    wait_for(lambda: there.moved.other.estimated_document_count() > 0, "a moved collection")
    pair.source.client.d.new.update_one({"_id": 1}, {"$set": {"later": 1}})
    wait_for(lambda: there.d.new.find_one({"later": 1}), "a later event")
    assert "warnings" not in daemon.wait_until_committable()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@watched
@pytest.mark.parametrize(
    ("point", "subject"),
    [
        (Point.REDEFINED, "d.items"),
        (Point.BATCH_WRITTEN, "d.new"),
        (Point.DEFINITION_APPLIED, "d.target"),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_ddl_is_applied_despite_a_kill(
    pair: Pair, daemon: Daemon, point: Point, subject: str
) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill_at(point, subject)
    pair.source.client.d.new.insert_many({"_id": n} for n in range(100))
    redefine(pair.source.client)
    daemon.wait_until_killed()
    pair.source.client.d.new.delete_many({"_id": {"$lt": 50}})
    pair.source.client.d.new.update_many({}, {"$set": {"killed": 1}})
    pair.source.client.d.items.create_index("later")
    daemon.run()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@watched
def test_a_collection_that_is_filled_without_events_is_copied_as_a_whole(
    pair: Pair, daemon: Daemon
) -> None:
    d = pair.source.client.d
    d.many.insert_many({"_id": n} for n in range(30_000))
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    d.command("cloneCollectionAsCapped", "many", toCollection="clone", size=1 << 24)
    d.command("convertToCapped", "many", size=1 << 24)
    daemon.commit()
    pair.assert_equal()


SERIES = {"create": "series", "timeseries": {"timeField": "t"}}


@watched
def test_a_new_time_series_prevents_the_commit_until_it_is_dropped(
    pair: Pair, daemon: Daemon
) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    pair.source.client.d.command(SERIES)
    warning = daemon.wait_for_warning("d.series was created. A source of version ")
    assert "undone on the source (d.series must be dropped)" in warning
    assert daemon.warnings() == [warning]
    wait_for(lambda: not daemon.progress()["canCommit"], "canCommit is false")
    assert daemon.post("commit").json()["error"] == "CannotCommit"
    pair.source.client.d.series.drop()
    assert "warnings" not in daemon.wait_until_committable()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@watched
def test_an_option_that_the_destination_cannot_change_fails_the_sync(
    pair: Pair, daemon: Daemon
) -> None:
    d = pair.source.client.d
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    d.command("collMod", "items", recordPreImages=True)
    daemon.wait_for_failure(
        "UnsupportedChange", "collMod cannot change on the destination: recordPreImages."
    )
    fails_again(daemon, "UnsupportedChange")
    d.command("collMod", "items", recordPreImages=False)
    d.items.insert_one({"_id": "meanwhile", "n": 1})
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@old
def test_a_time_series_is_found_by_the_commit(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    pair.source.client.d.command(SERIES)
    daemon.ask_for_commit()
    daemon.wait_for_failure("UnsupportedChange", "d.series was created. ")
    pair.source.client.d.series.drop()
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@old
def test_ddl_during_the_commit_fails_it_by_name(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "commit time saved"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "commit time saved")
        redefine_items(pair.source.client)
    daemon.wait_for_failure("UnsupportedChange", "definitions were changed: d.items.")
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@contextmanager
def postponed_commit(pair: Pair, daemon: Daemon) -> Iterator[writes.AnyClient]:
    """Commit a sync without verification, and hold the commit in the block, after a write has postponed it."""
    client = pair.source.client
    fill(client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    with daemon.held_at(Point.COMMIT_POSTPONED):
        with daemon.held_at(Point.STEP_DONE, "commit time saved"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "commit time saved")
            client.d.items.insert_one({"_id": "during the commit", "n": 1, "u": -3})
        daemon.wait_until_reached(Point.COMMIT_POSTPONED)
        yield client


@pytest.mark.full
@old
def test_ddl_while_the_commit_is_postponed_fails_it_by_name(pair: Pair, daemon: Daemon) -> None:
    """Change a definition while a write postpones the commit: the commit must fail with a named error.

    After a resume, the clusters must be equal.
    """
    with postponed_commit(pair, daemon) as client:
        client.d.items.aggregate([{"$limit": 5}, {"$out": "out"}])
    assert daemon.wait_for_state("FAILED")["error"] == "UnsupportedChange"
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@old
def test_a_view_that_is_created_while_the_commit_is_postponed_is_synced(
    pair: Pair, daemon: Daemon
) -> None:
    """The source does not report views, so the commit copies them: it must do so again after it was postponed."""
    with postponed_commit(pair, daemon) as client:
        client.d.create_collection("late view", viewOn="items")
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


@old
def test_a_rename_out_of_the_filter_fails_by_name(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    names = ["c", "items", "renamed"]
    daemon.start(includeNamespaces=[{"database": "d", "collections": names}])
    daemon.wait_until_committable()
    pair.source.client.d.renamed.rename("excluded")
    assert daemon.wait_for_state("FAILED")["error"] == "RenamedOutOfFilter"
    fails_again(daemon, "RenamedOutOfFilter")
    pair.source.client.d.excluded.insert_one({"_id": "excluded"})
    pair.source.client.d.excluded.rename("renamed")
    daemon.resume()
    daemon.commit()
    there = pair.destination.client.d
    assert sorted(there.list_collection_names()) == names
    for name in names:
        assert [*there[name].find(sort=["_id"])] == [*pair.source.client.d[name].find(sort=["_id"])]


@old
def test_ddl_outside_of_the_filter_is_ignored(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.x.c.insert_one({"_id": 1})
    daemon.start(includeNamespaces=[{"database": "d"}])
    daemon.wait_until_committable()
    pair.source.client.x.new.insert_one({"_id": 1})
    pair.source.client.x.c.rename("d")
    pair.source.client.drop_database("x")
    pair.source.client.d.c.insert_one({"_id": "after"})
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@watched
@pytest.mark.parametrize("unreported", [True, False], ids=["index", "drop"])
def test_several_instances_refuse_ddl_by_name(pair: Pair, fleet: Fleet, unreported: bool) -> None:
    fill(pair.source.client)
    fleet.start()
    fleet.wait_until_committable()
    if unreported:
        pair.source.client.d.items.create_index("new")
        fleet.coordinator.wait_for_warning(
            "index new_1 of d.items was created. A source of version "
        )
        pair.source.client.d.items.drop_index("new_1")
        fleet.commit()
        pair.assert_equal()
    else:
        pair.source.client.d.items.drop()
        fleet.coordinator.wait_for_failure(
            "UnsupportedChange", "drop was run on d.items on the source. Several instances "
        )


@watched
def test_several_instances_survive_the_drop_of_a_database_that_is_not_synced(
    pair: Pair, fleet: Fleet
) -> None:
    """Create and drop a database during a sync, then drop a synced one: only the second drop must fail the sync."""
    source = pair.source.client
    fill(source)
    fleet.start()
    fleet.wait_until_committable()
    source.temporary.create_collection("c")
    source.temporary.create_collection("v", viewOn="c")
    source.drop_database("temporary")
    source.d.c.insert_one({"_id": "after"})
    wait_for(lambda: pair.destination.client.d.c.find_one({"_id": "after"}), "a later event")
    source.drop_database("lost")
    fleet.coordinator.wait_for_failure("UnsupportedChange", "drop was run on lost.c on the source.")


@old
def test_preflight_warns_of_an_old_source(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    answer = daemon.post("preflight", daemon.start_body()).json()
    assert answer["violations"] == []
    assert "servers before 6.0 do not report every DDL event" in " ".join(answer["warnings"])
