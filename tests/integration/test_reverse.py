"""Reverses a committed sync, and reverses it again after each commit.

No collection may be copied again, no change may be lost, and each commit must restore the definitions.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.blocks import block, blocked, is_blocked
from tests.support.daemon import Daemon, prepared
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, Side, across
from tests.support.selection import full
from tests.support.waiting import wait_for

pytestmark = pytest.mark.three_members

REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}
_FAR = datetime(2099, 6, 1, tzinfo=UTC)
# Collections whose documents can expire without an index.
EXPIRING: dict[str, dict[str, Any]] = {
    "sessions": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
    "measured": {"timeseries": {"timeField": "at"}},
}


def address(client: writes.AnyClient) -> str:
    """Return the address that the progress shows for a cluster: that of its primary, or of its first router."""
    host, port = client.primary or min(client.topology_description.server_descriptions())
    return f"{host}:{port}"


def _fill(pair: Pair) -> None:
    client = pair.source.client
    pair.shard("d.c")
    writes.indexes(client, unique=not pair.is_sharded)
    writes.fill(client)
    writes.new_collections(client)
    writes.time_series(client)
    writes.views(client)
    writes.many_collections(client)
    d = client.d
    d.kept.create_index("u", unique=True)
    d.kept.create_index("p", name="prepared")
    d.command({"collMod": "kept", "index": {"name": "prepared", "prepareUnique": True}})
    d.kept.create_index("when", expireAfterSeconds=10**8, hidden=True)
    d.kept.create_index([("twin", 1)], name="unique", unique=True, sparse=True)
    d.kept.create_index([("twin", 1)], name="plain", sparse=True)
    d.kept.insert_many({"_id": n, "u": n, "p": n, "twin": n} for n in range(50))


def _change(client: writes.AnyClient, mark: str) -> None:
    """Make writes and DDL operations of many kinds. `mark` makes the changes of each call different."""
    _move_unique_values(client, mark)
    _change_other_values(client, mark)


def _change_other_values(client: writes.AnyClient, mark: str) -> None:
    d = client.d
    d.kept.insert_many(
        {"_id": f"{mark} {n}", "u": f"{mark} {n}", "p": f"{mark} {n}"} for n in range(9)
    )
    d.kept.update_many({}, {"$set": {f"sub.{mark}": [1, {"a": mark}]}, "$push": {"list": mark}})
    d.kept.update_many({}, [{"$set": {"t": mark}}])
    d.capped.insert_many({"n": f"{mark} {n}"} for n in range(30))
    d.series.insert_many({"at": _FAR, "place": mark, "n": n} for n in range(20))
    d.collated.insert_one({"_id": mark, "s": mark})
    d[f"new {mark}"].insert_many({"_id": n} for n in range(20))
    d[f"new {mark}"].create_index("n", unique=True, sparse=True, expireAfterSeconds=10**8)
    d.kept.create_index(f"i.{mark}", unique=True, sparse=True)
    d[f"gone {mark}"].insert_one({"_id": 1})
    d[f"gone {mark}"].rename(f"renamed {mark}")
    d.kept.aggregate([{"$match": {"_id": {"$lt": 9}}}, {"$out": f"out {mark}"}])
    client[mark].c.insert_one({"_id": mark})
    client[mark].c.rename("moved")
    d.command({"create": f"view {mark}", "viewOn": "kept", "pipeline": [{"$match": {"n": 1}}]})
    series = {"timeField": "at"}
    d.create_collection(f"series {mark}", timeseries=series, expireAfterSeconds=10**9)
    d[f"series {mark}"].insert_one({"at": _FAR})


def _move_unique_values(client: writes.AnyClient, mark: str) -> None:
    """Move a unique value from one document to the next, in several steps. `mark` is part of the value.

    WARNING: while the index is prepareUnique, this can crash a MongoDB 6.0 secondary.
    """
    for n in range(1, 5):
        client.d.kept.update_one({"_id": n}, {"$set": {"u": f"{mark} goes round"}})
        change = {"$unset": {"twin": 1}, "$set": {"u": f"{mark} was at {n}"}}
        client.d.kept.update_one({"_id": n}, change)


def _redefine(client: writes.AnyClient) -> None:
    """Change or drop collections, indexes and views whose definitions the commit has restored on the destination."""
    d = client.d
    d.command({"collMod": "capped", "cappedSize": 8192, "cappedMax": 40})
    d.command({"collMod": "clustered", "expireAfterSeconds": 10**7})
    d.command({"collMod": "series", "expireAfterSeconds": "off"})
    d.command({"collMod": "validated", "validator": {"n": {"$exists": True}}})
    index = {"name": "when_1", "hidden": False, "expireAfterSeconds": 10**7}
    d.command({"collMod": "kept", "index": index})
    d.kept.drop_index("prepared")
    d.kept.create_index("p", name="prepared", hidden=True)
    d.kept.drop_index("u_1")
    d.kept.drop_index("plain")
    d.command({"collMod": "view", "viewOn": "kept", "pipeline": []})
    d.drop_collection("on view")
    d.drop_collection("images")
    writes.drop_and_create_again(client)
    client.drop_database("db1")
    client.drop_database("db2")
    client.db2.c2.insert_one({"_id": 1})


def _assert_direction(pair: Pair, daemon: Daemon, source: str, destination: str) -> None:
    addresses = {
        "cluster0": address(pair.source.client),
        "cluster1": address(pair.destination.client),
    }
    assert daemon.progress()["directionMapping"] == {
        "Source": f"{source}: {addresses[source]}",
        "Destination": f"{destination}: {addresses[destination]}",
    }


def _assert_committed(pair: Pair, daemon: Daemon, writable: Side, refusing: Side) -> None:
    progress = daemon.progress()
    assert (progress["state"], progress["canWrite"]) == ("COMMITTED", True)
    assert (is_blocked(writable), is_blocked(refusing)) == (False, True)
    pair.assert_equal()
    writable.client.d.enforced.insert_one({"u": 1})
    with pytest.raises(DuplicateKeyError):
        writable.client.d.enforced.insert_one({"u": 1})
    writable.client.d.enforced.delete_many({})


def _assert_reversed(pair: Pair, daemon: Daemon, expected: tuple[bool, bool]) -> None:
    """Fail unless the reversed sync applies events, and user writes are blocked as `expected`.

    `expected` has two flags: whether cluster0 (the first source) is blocked, and whether cluster1 is.
    """
    progress = daemon.progress()
    assert (progress["canWrite"], progress["info"]) == (False, "change event application")
    assert blocked(pair) == expected


@across(REPLICA_SETS, full(SHARDED))
def test_a_sync_is_reversed_twice(pair: Pair, daemon: Daemon) -> None:
    source, destination = pair.source, pair.destination
    _fill(pair)
    source.client.d.enforced.create_index("u", unique=True)
    daemon.start(**REVERSIBLE)
    _assert_direction(pair, daemon, "cluster0", "cluster1")
    daemon.commit()
    _assert_committed(pair, daemon, destination, source)
    _change(destination.client, "one")
    daemon.reverse()
    _assert_reversed(pair, daemon, (True, False))
    _assert_direction(pair, daemon, "cluster1", "cluster0")
    _redefine(destination.client)
    daemon.pause()
    _change(destination.client, "two")
    daemon.resume()
    daemon.commit()
    _assert_committed(pair, daemon, source, destination)
    _change(source.client, "three")
    daemon.reverse()
    _assert_reversed(pair, daemon, (False, True))
    _assert_direction(pair, daemon, "cluster0", "cluster1")
    _change(source.client, "four")
    daemon.commit()
    _assert_committed(pair, daemon, destination, source)
    assert daemon.log.count("Starting collection copy phase") == 1


@pytest.mark.full
def test_users_write_before_the_end_of_the_commit(pair: Pair, daemon: Daemon) -> None:
    """Write to the destination and change its definitions as soon as canWrite is true, before the commit ends.

    Some changes come before the indexes become unique, and some afterwards. The commit must respect all of them, and a
    reversed sync must apply them.
    """
    _fill(pair)
    d = pair.source.client.d
    for name in (
        "dropped",
        "recreated",
        "viewed",
        "moved",
        "replaced",
        "unprepared",
        "left",
        "expires",
    ):
        d[name].create_index("u", name="u", unique=True, sparse=True)
        d[name].create_index("u", name="plain", sparse=True)
        d[name].insert_many({"u": n} for n in range(3))
    for name, options in EXPIRING.items():
        d.create_collection(name, **options, expireAfterSeconds=10**8)
    for name in ("kept", "changed", "gone"):
        d.expires.create_index(name, name=name, expireAfterSeconds=10**8)
    daemon.start(**REVERSIBLE)
    with daemon.held_at(Point.STEP_DONE, "indexes unique"):
        with daemon.held_at(Point.STEP_DONE, "destination writable"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "destination writable")
            assert daemon.progress()["canWrite"]
            d = pair.destination.client.d
            with pytest.raises(DuplicateKeyError):
                d.left.insert_one({"u": 1})
            d.drop_collection("dropped")
            for name in ("recreated", "viewed"):
                d.drop_collection(name)
            d.recreated.insert_many([{"u": 1}, {"u": 1}])
            d.command({"create": "viewed", "viewOn": "c", "pipeline": []})
            d.moved.rename("moved away")
            d.replaced.drop_index("u")
            d.replaced.insert_one({"u": 1})
            d.replaced.create_index("u", name="u", sparse=True)
            d.command({"collMod": "unprepared", "index": {"name": "u", "prepareUnique": False}})
            d.unprepared.insert_one({"u": 1})
            d.left.insert_one({"u": "new"})
            d.command(
                {"collMod": "expires", "index": {"name": "changed", "expireAfterSeconds": 10**7}}
            )
            d.expires.drop_index("gone")
            for name, options in EXPIRING.items():
                d.drop_collection(name)
                d.create_collection(name, **options)
            _change_other_values(pair.destination.client, "early")
        daemon.wait_until_reached(Point.STEP_DONE, "indexes unique")
        assert d.left.index_information()["u"]["unique"]
        _move_unique_values(pair.destination.client, "early")
    daemon.wait_for_state("COMMITTED")
    assert set(d.list_collection_names()) & {"dropped"} == set()
    assert set(d.recreated.index_information()) == {"_id_"}
    expiring = d.expires.index_information()
    assert expiring["kept"]["expireAfterSeconds"] == 10**8
    assert expiring["changed"]["expireAfterSeconds"] == 10**7
    assert "gone" not in expiring
    for name in EXPIRING:
        assert "expireAfterSeconds" not in d[name].options()
    daemon.reverse()
    _change(pair.destination.client, "later")
    daemon.commit()
    pair.assert_equal()


def _assert_refused(daemon: Daemon, name: str) -> str:
    before = daemon.progress()
    answer = daemon.post("reverse")
    assert (answer.status_code, answer.json()["error"]) == (409, name), answer.text
    assert daemon.progress()["state"] == before["state"]
    description: str = answer.json()["errorDescription"]
    return description


def test_a_reversal_is_refused_if_users_wrote_to_the_old_source(pair: Pair, daemon: Daemon) -> None:
    _assert_refused(daemon, "InvalidState")
    writes.fill(pair.source.client)
    daemon.start(**REVERSIBLE)
    _assert_refused(daemon, "InvalidState")
    daemon.commit()
    # Reading the old source after its block was lifted does not prevent a reverse.
    block(pair.source, False)
    pair.source.client.d.c.find_one()
    daemon.reverse()
    assert is_blocked(pair.source)
    daemon.commit()
    pair.assert_equal()
    block(pair.destination, False)
    pair.destination.client.d.c.update_one({"_id": 1}, {"$set": {"test": True}})
    description = _assert_refused(daemon, "OldSourceWritten")
    assert "users wrote to collections on cluster1: d.c." in description
    assert not is_blocked(pair.destination)
    assert daemon.progress()["canWrite"]


def test_a_reversal_of_an_irreversible_sync_is_refused(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client, 10)
    daemon.start()
    daemon.commit()
    _assert_refused(daemon, "NotReversible")


@prepared(Daemon.judge_soon)
def test_a_difference_fails_the_commit_of_a_reversed_sync(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    daemon.start(**REVERSIBLE)
    daemon.commit()
    daemon.reverse()
    update: dict[str, Any] = {"q": {"_id": 3}, "u": {"$set": {"n": "spoilt"}}}
    pair.source.client.d.command(
        {"update": "c", "updates": [update], "mayBypassWriteBlocking": True}
    )
    progress = daemon.commit_or_fail()
    assert (progress["state"], progress["error"]) == ("FAILED", "VerificationFailed")
    assert not progress["canWrite"]
    # The failure is shown before the block of the source is lifted.
    wait_for(lambda: blocked(pair) == (True, False), "users can write to the source again")
