"""Changes collections on the destination as soon as users may write there, before the commit ends.

If users rename collections, the commit must make the indexes unique, build the deferred ones and restore expiration
under the new names. Other tests write to the source during the cut-over, sync unique indexes that differ only in their
filters, and drop indexes that an earlier version would not have built yet.
"""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.failpoints import APPLICATION, delayed, failing, times
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from tests.support.waiting import wait_for

WRITABLE, UNIQUE = "destination writable", "indexes unique"
EXISTING = {"preExistingDestinationData": True, "enableUserWriteBlocking": "none"}
TTL = 10**8
_HELD = {"appName": APPLICATION, "blockConnection": True, "blockTimeMS": 5000}


def _fill(database: Any, *names: str) -> None:
    """Create collections with the same indexes: a unique one, a deferred one with the same key, and a TTL index.

    Each collection has one document. The value of its field `u` is the name of the collection.
    """
    for name in names:
        database[name].create_index("u", name="u", unique=True, sparse=True)
        database[name].create_index("u", name="plain", sparse=True)
        database[name].create_index("when", name="when", expireAfterSeconds=TTL)
        database[name].insert_one({"u": name})


def _assert_restored(database: Any, name: str, former: str) -> None:
    assert database[name].find_one({}, {"_id": 0}) == {"u": former}
    indexes = database[name].index_information()
    assert indexes["u"].get("unique"), (name, indexes)
    assert "plain" in indexes, (name, indexes)
    assert indexes["when"]["expireAfterSeconds"] == TTL, (name, indexes)


@pytest.mark.in_turns(2)
@across(REPLICA_SETS, SHARDED)
@pytest.mark.parametrize("options", [{}, EXISTING], ids=["alone", "with existing data"])
def test_users_rename_collections_before_the_end_of_the_commit(
    pair: Pair, daemon: Daemon, options: dict[str, Any]
) -> None:
    _fill(pair.source.client.d, "early", "replaced", "one", "other", "late", "dropped")
    d = pair.destination.client.d
    daemon.start(**options)
    with daemon.held_at(Point.STEP_DONE, UNIQUE):
        with daemon.held_at(Point.STEP_DONE, WRITABLE):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, WRITABLE)
            d.early.rename("renamed early")
            d.replaced.rename("beside")
            d.replaced.insert_many([{"u": 1}, {"u": 1}])
            d.replaced.create_index("when", name="when", expireAfterSeconds=5 * TTL)
            d.one.rename("between")
            d.other.rename("one")
            d.between.rename("other")
            d.dropped.drop()
        daemon.wait_until_reached(Point.STEP_DONE, UNIQUE)
        d.late.rename("renamed late")
    daemon.wait_for_state("COMMITTED")
    renamed = {
        "renamed early": "early",
        "beside": "replaced",
        "one": "other",
        "other": "one",
        "renamed late": "late",
    }
    for name, former in renamed.items():
        _assert_restored(d, name, former)
    indexes = d.replaced.index_information()
    assert indexes.keys() == {"_id_", "when"}
    assert indexes["when"]["expireAfterSeconds"] == 5 * TTL
    assert set(d.list_collection_names()) == {*renamed, "replaced"}


def test_an_aggregation_replaces_a_collection_before_the_end_of_the_commit(
    pair: Pair, daemon: Daemon
) -> None:
    """Replace a collection with `$out`, which keeps the indexes: the commit must restore them in the new one, too."""
    _fill(pair.source.client.d, "c", "other")
    d = pair.destination.client.d
    daemon.start()
    with daemon.held_at(Point.STEP_DONE, WRITABLE):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, WRITABLE)
        d.other.aggregate([{"$out": "c"}])
    daemon.wait_for_state("COMMITTED")
    _assert_restored(d, "c", "other")


@pytest.mark.in_turns
@pytest.mark.parametrize("step", [WRITABLE, UNIQUE])
def test_users_rename_a_collection_while_the_commit_changes_it(
    pair: Pair, daemon: Daemon, step: str
) -> None:
    """Rename a collection after a command of the commit was sent under the old name, and before the command runs.

    The commit must repeat its work under the new name.
    """
    _fill(pair.source.client.d, "c")
    client = pair.destination.client
    held = {**_HELD, "failCommands": ["collMod"]}
    daemon.start()
    with daemon.held_at(Point.STEP_DONE, step):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, step)
        client.admin.command({"configureFailPoint": "failCommand", "mode": times(1), "data": held})
    wait_for(lambda: delayed(client, "collMod"), "collMod is held")
    client.d.c.rename("renamed")
    assert delayed(client, "collMod"), "the command ran too early to prove anything"
    daemon.wait_for_state("COMMITTED")
    _assert_restored(client.d, "renamed", "c")


def test_an_index_of_users_keeps_only_the_equal_deferred_index_out(
    pair: Pair, daemon: Daemon
) -> None:
    c = pair.source.client.d.c
    for key in ("u", "v"):
        c.create_index(key, name=key, unique=True)
        c.create_index(key, name=f"plain {key}")
    c.insert_one({"u": 1, "v": 1})
    c = pair.destination.client.d.c
    daemon.start()
    with daemon.held_at(Point.STEP_DONE, WRITABLE):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, WRITABLE)
        c.drop_index("v")
        c.create_index("v", name="of users")
    daemon.wait_for_state("COMMITTED")
    assert c.index_information().keys() == {"_id_", "u", "plain u", "of users"}


@pytest.mark.in_turns
@across(REPLICA_SETS, SHARDED)
def test_unique_indexes_that_only_their_filters_distinguish(pair: Pair, daemon: Daemon) -> None:
    """Sync two unique indexes that differ only in their filters: both must refuse duplicates once users may write."""
    c = pair.source.client.d.c
    states = ("active", "trial")
    for state in states:
        c.create_index("user", name=state, unique=True, partialFilterExpression={"state": state})
        c.create_index(
            "user",
            name=f"{state} too",
            partialFilterExpression={"state": state, "user": {"$gt": 0}},
        )
    c.insert_many({"user": 1, "state": each} for each in (*states, "old", "old"))
    daemon.start()
    with daemon.held_at(Point.STEP_DONE, WRITABLE):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, WRITABLE)
        for state in states:
            with pytest.raises(DuplicateKeyError):
                pair.destination.client.d.c.insert_one({"user": 1, "state": state})
        pair.destination.client.d.c.insert_one({"user": 2, "state": "trial"})
    daemon.wait_for_state("COMMITTED")
    pair.destination.client.d.c.delete_one({"user": 2})
    pair.assert_equal()


def test_an_index_refuses_a_document_that_users_write_during_the_cut_over(
    pair: Pair, daemon: Daemon
) -> None:
    """During the cut-over, write a document that an index of the destination refuses: the commit must be repeated.

    When the sync reads the changed document again, the user has already dropped the index on the source, and has
    written values that this index refuses. So the sync must withhold the indexes of the collection.
    """
    c = pair.source.client.d.c
    c.create_index([("p", 1), ("q", 1)], name="both")
    c.create_index("u", unique=True)
    c.insert_one({"_id": 1, "u": 1, "kept": True})
    verified = (Point.STEP_DONE, "verified")
    daemon.start(documentFilter=[{"database": "d", "collection": "c", "filter": {"kept": True}}])
    daemon.wait_until_committable()
    held = {**_HELD, "failCommands": ["find"], "namespace": "d.c"}
    with daemon.held_at(*verified):
        daemon.ask_for_commit()
        daemon.wait_until_reached(*verified)
        with failing(pair.source.client, held, times(1)):
            c.update_one({"_id": 1}, {"$set": {"n": 1}})
            wait_for(lambda: delayed(pair.source.client, "find"), "the document is read again")
            c.drop_index("both")
            c.update_one({"_id": 1}, {"$set": {"p": [1, 2], "q": [1, 2]}})
            assert delayed(pair.source.client, "find"), "the find ran too early to prove anything"
            daemon.wait_for_warning("The indexes of d.c are withheld")
    daemon.wait_for_state("COMMITTED")
    assert "repeats the commit" in daemon.log
    pair.assert_equal()


@pytest.mark.parametrize("step", ["verified", "definitions prepared"])
def test_indexes_that_an_earlier_version_has_not_built_yet(
    pair: Pair, daemon: Daemon, step: str
) -> None:
    """Drop the indexes that an earlier version would not have built at this step: the commit must build them.

    If two indexes differ only in their filters, earlier versions built the second one only after the verification.
    """
    _fill_with_partial_indexes(pair.source.client.d.c)
    daemon.start(enableUserWriteBlocking="none")
    with daemon.held_at(Point.STEP_DONE, step):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, step)
        _drop_second_indexes(pair.destination.client.d.c)
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


def test_users_drop_an_index_that_only_its_filter_distinguishes(pair: Pair, daemon: Daemon) -> None:
    """Drop indexes once users may write: the commit must not build them again."""
    _fill_with_partial_indexes(pair.source.client.d.c)
    daemon.start()
    with daemon.held_at(Point.STEP_DONE, WRITABLE):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, WRITABLE)
        _drop_second_indexes(pair.destination.client.d.c)
    daemon.wait_for_state("COMMITTED")
    assert pair.destination.client.d.c.index_information().keys() == {"_id_", "active", "active m"}


def test_a_sync_of_an_earlier_version_lacks_indexes(pair: Pair, daemon: Daemon) -> None:
    """Drop the indexes that an earlier version would not have built, and restart: the commit must build them.

    It must not need a repair for this, because the start options may forbid repairs.
    """
    _fill_with_partial_indexes(pair.source.client.d.c)
    daemon.start(enableUserWriteBlocking="none", verification={"enabled": True, "repair": "never"})
    daemon.wait_until_committable()
    daemon.kill()
    _drop_second_indexes(pair.destination.client.d.c)
    daemon.run()
    daemon.commit()
    pair.assert_equal()


def _fill_with_partial_indexes(collection: Any) -> None:
    for name in ("active", "trial"):
        filters: dict[str, Any] = {"state": name}
        collection.create_index("n", name=name, unique=True, partialFilterExpression=filters)
        filters = {"state": name, "m": {"$gt": 0}}
        collection.create_index("m", name=f"{name} m", partialFilterExpression=filters)
    collection.insert_many({"n": 1, "m": 1, "state": each} for each in ("active", "trial"))


def _drop_second_indexes(collection: Any) -> None:
    collection.drop_index("trial")
    collection.drop_index("trial m")
