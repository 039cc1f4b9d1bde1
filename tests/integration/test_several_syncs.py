"""Runs two syncs into one destination, one with a name and one without, and syncs of one source to two destinations."""

from __future__ import annotations

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.duo import role_of, running_duo
from tests.support.foreign import assert_synced, content, user_namespaces
from tests.support.pair import REPLICA_SETS, TO_SHARDED, Pair, Side, across
from tests.support.selection import full
from tests.support.verifier import Verifier
from tests.support.waiting import wait_for

SHARED: dict[str, Any] = {
    "preExistingDestinationData": True,
    "enableUserWriteBlocking": "none",
}
NAMED = f"{METADATA_DATABASE}_second"


@pytest.fixture(scope="module")
def third_cluster() -> Iterator[Side]:
    parameters = {"ttlMonitorSleepSecs": "1"}
    with ReplicaSet(name="third", parameters=parameters) as cluster, cluster.client() as client:
        yield Side(cluster.uri, client)


@pytest.fixture
def second(pair: Pair, third_cluster: Side) -> Pair:
    """Return a pair of a second, emptied source and the destination of `pair`."""
    third_cluster.empty()
    return Pair(third_cluster, pair.destination)


@contextmanager
def running(pair: Pair, folder: Path, *options: str) -> Iterator[Daemon]:
    """Run a daemon during the block; its logs are in the new folder."""
    folder.mkdir()
    with pair.daemon(folder, *options).running() as process:
        yield process


def fill(pair: Pair, name: str) -> None:
    """Fill the database `name` of the source; create a collection and a view in its database `both`.

    Their names begin with `name`.
    """
    client = pair.source.client
    client[name].c.insert_many({"_id": n, "n": n, "pad": "p" * 500} for n in range(500))
    client[name].c.create_index("n", unique=False)
    client.both[f"{name} c"].insert_many({"_id": n} for n in range(50))
    client.both.create_collection(f"{name} view", viewOn=f"{name} c", pipeline=[])


def change_definitions(pair: Pair, name: str) -> None:
    """Run DDL commands on the source, and wait until the last change is applied.

    `name` is part of the name of each database or collection, so that two sources can share a destination.
    """
    client = pair.source.client
    client.both[f"{name} c"].rename(f"{name} renamed")
    client.both.drop_collection(f"{name} view")
    client[name].created.insert_one({"_id": 1})
    client[name].c.aggregate([{"$limit": 5}, {"$out": f"{name} out"}])
    client.dropped[name].insert_one({"_id": 1})
    destination = pair.destination.client
    wait_for(lambda: destination.dropped[name].count_documents({}), "it is synced")


def refusals(daemon: Daemon, **options: Any) -> dict[str, str]:
    answer = daemon.post("preflight", daemon.start_body(**options))
    assert answer.ok, answer.text
    return {each["error"]: each["errorDescription"] for each in answer.json()["violations"]}


def of(namespaces: set[str], name: str) -> set[str]:
    """Return the `namespaces` whose database is `name`, or whose collection name begins with `name`."""
    return {each for each in namespaces if f"{name}." in each or f".{name}" in each}


def balancer_mode(client: Client) -> str:
    return str(client.admin.command("balancerStatus")["mode"])


@across(REPLICA_SETS, full(TO_SHARDED))
def test_two_sources_are_synced_into_one_destination(
    pair: Pair, second: Pair, tmp_path: Path
) -> None:
    """Sync two sources under load, and commit both: each must be equal to its part of the destination.

    On a sharded destination, the end of the first sync starts the balancer: the second one must warn, and commit.
    """
    destination = pair.destination.client
    destination.theirs.c.insert_one({"_id": "kept"})
    fill(pair, "one")
    fill(second, "two")
    pair.shard("one.c")
    second.shard("two.c", {"n": 1})
    with ExitStack() as opened:
        one = opened.enter_context(running(pair, tmp_path / "one"))
        two = opened.enter_context(running(second, tmp_path / "two", "--syncName", "second"))
        loads = [
            opened.enter_context(Workload([pair.source.client.one.c])),
            opened.enter_context(Workload([second.source.client.two.c])),
        ]
        for each in (one, two):
            each.start(**SHARED)
        for each in (one, two):
            each.wait_until_applying()
        # Kill and restart both daemons: each must continue with its own run record.
        for each in (one, two):
            each.kill()
            each.run()
        change_definitions(pair, "one")
        change_definitions(second, "two")
        pair.source.client.drop_database("dropped")
        wait_for(lambda: destination.dropped.list_collection_names() == ["two"], "it is dropped")
        for load in loads:
            load.stop()
        if pair.is_sharded:
            assert balancer_mode(destination) == "off"
        one.commit()
        assert_synced(
            pair.source.client,
            destination,
            user_namespaces(destination) - user_namespaces(pair.source.client),
            pair.shard_keys,
        )
        if pair.is_sharded:
            assert balancer_mode(destination) == "full"
            two.wait_for_warning("balancer of cluster1")
        two.wait_until_committable()
        second.source.client.two.c.insert_one({"_id": "later"})
        two.commit()
    everything = user_namespaces(destination)
    ours, theirs = of(everything, "one"), of(everything, "two")
    assert everything == {*ours, *theirs, "theirs.c"}
    assert ours == user_namespaces(pair.source.client)
    assert theirs == user_namespaces(second.source.client)
    assert_synced(pair.source.client, destination, everything - ours, pair.shard_keys)
    assert_synced(second.source.client, destination, everything - theirs, second.shard_keys)
    for database in (METADATA_DATABASE, NAMED):
        states = [each["state"] for each in destination[database].runs.find()]
        assert states == ["COMMITTED"]
    assert_verified(pair, "one", tmp_path)
    assert_verified(second, "two", tmp_path)


def assert_verified(pair: Pair, name: str, folder: Path) -> None:
    """Fail unless the standalone verifier finds both clusters equal.

    `name` is the name of the pair's own database. Filters exclude the data of the other pair and of users, but no
    metadata.
    """
    other = {"one": "two", "two": "one"}[name]
    left_out = [
        {"database": "theirs"},
        {"database": other},
        {"database": "dropped", "collections": [other]},
        {"database": "both", "collectionsRegex": {"pattern": f"^{other}"}},
    ]
    (folder / f"verify {name}").mkdir()
    options = ("--verifyAll", "--excludeNamespaces", json.dumps(left_out))
    process = Verifier(pair.source.uri, pair.destination.uri, folder / f"verify {name}", *options)
    try:
        process.run()
        process.assert_passed(process.verify())
    finally:
        process.close()
        # The next check has another source.
        pair.destination.client.drop_database("__mdb_internal_syncsvc_verifier")


@pytest.mark.full
def test_the_collections_of_one_sync_are_foreign_to_the_other(
    pair: Pair, second: Pair, tmp_path: Path
) -> None:
    destination = pair.destination.client
    fill(pair, "one")
    fill(second, "two")
    second.source.client.one.c.insert_one({"_id": "of the second source"})
    with (
        running(pair, tmp_path / "one") as one,
        running(second, tmp_path / "two", "--syncName", "second") as two,
    ):
        one.start(**SHARED)
        one.wait_until_committable()
        before = content(destination, ["one.c"])
        found = refusals(two, **SHARED)
        assert "The destination already holds one.c." in found["DestinationNamespaceExists"]
        second.source.client.drop_database("one")
        two.start(**SHARED)
        two.wait_until_committable()
        second.source.client.one.c.insert_one({"_id": "of the second source"})
        assert two.wait_for_state("FAILED")["error"] == "DestinationNamespaceExists"
        assert content(destination, ["one.c"]) == before
        # The reset of one sync leaves the other alone.
        theirs = user_namespaces(destination) - of(user_namespaces(destination), "two")
        answer = two.post("reset", {"confirm": "cluster1"})
        assert answer.ok, answer.text
        two.wait_for_state("IDLE")
        assert user_namespaces(destination) == theirs
        assert content(destination, ["one.c"]) == before
        pair.source.client.one.c.insert_one({"_id": "afterwards"})
        one.commit()
        assert_synced(pair.source.client, destination, ())


@pytest.mark.in_turns
@pytest.mark.parametrize("is_first", [True, False], ids=["the first", "the second"])
def test_both_syncs_must_allow_other_data(
    pair: Pair, second: Pair, tmp_path: Path, is_first: bool
) -> None:
    pair.source.client.one.c.insert_one({})
    second.source.client.two.c.insert_one({})
    with (
        running(pair, tmp_path / "one") as one,
        running(second, tmp_path / "two", "--syncName", "second") as two,
    ):
        one.start(**({} if is_first else SHARED))
        one.wait_until_committable()
        found = refusals(two, **(SHARED if is_first else {}))
        assert METADATA_DATABASE in found["OtherSyncOnDestination"]
        answer = two.post("start", two.start_body(**(SHARED if is_first else {})))
        assert answer.status_code == 409, answer.text
        one.commit()
        if is_first:
            # The committed first sync makes no more changes, so it does not prevent another sync.
            two.start(**SHARED)
            two.commit()
            assert_synced(second.source.client, pair.destination.client, {"one.c"})


def test_one_of_two_starts_at_the_same_time_is_refused(
    pair: Pair, second: Pair, tmp_path: Path
) -> None:
    """Start two syncs to one destination at the same time: at most one start may succeed.

    Neither preflight sees the other sync yet, and the first sync would own the whole destination.
    """
    pair.source.client.one.c.insert_one({})
    second.source.client.two.c.insert_one({})
    with (
        running(pair, tmp_path / "one") as one,
        running(second, tmp_path / "two", "--syncName", "second") as two,
        ThreadPoolExecutor() as pool,
    ):
        bodies = one.start_body(), two.start_body(**SHARED)
        answers = list(
            pool.map(lambda daemon, body: daemon.post("start", body), (one, two), bodies)
        )
        started = [each.ok for each in answers]
        assert started.count(True) <= 1, [each.text for each in answers]


@pytest.mark.full
def test_a_named_sync_has_its_own_lease(pair: Pair, second: Pair, tmp_path: Path) -> None:
    destination = pair.destination.client
    fill(pair, "one")
    fill(second, "two")
    with (
        running(pair, tmp_path / "one", "--standby") as one,
        running_duo(second, tmp_path / "two", "--syncName", "second", leases=(3, 3)) as duo,
    ):
        wait_for(lambda: role_of(one) == "active", "the unnamed daemon is active")
        one.start(**SHARED)
        duo.active.start(**SHARED)
        duo.active.wait_until_applying()
        duo.active.kill()
        duo.await_takeover("a kill")
        change_definitions(second, "two")
        duo.active.commit()
        assert role_of(one) == "active"
        one.commit()
    everything = user_namespaces(destination)
    assert_synced(pair.source.client, destination, of(everything, "two"))
    assert_synced(second.source.client, destination, of(everything, "one"))


def test_one_source_is_synced_to_two_destinations(
    pair: Pair, third_cluster: Side, tmp_path: Path
) -> None:
    third_cluster.empty()
    other = Pair(pair.source, third_cluster)
    fill(pair, "one")
    with ExitStack() as opened:
        first = opened.enter_context(running(pair, tmp_path / "first"))
        last = opened.enter_context(running(other, tmp_path / "last"))
        load = opened.enter_context(Workload([pair.source.client.one.c]))
        for each in (first, last):
            each.start()
        for each in (first, last):
            each.wait_until_applying()
        change_definitions(pair, "one")
        last.kill_at(Point.EVENTS_APPLIED)
        last.kill()
        last.run()
        writes.fill(pair.source.client)
        last.wait_until_killed()
        last.run()
        load.stop()
        first.commit()
        pair.assert_equal()
        pair.source.client.one.c.insert_one({"_id": "after the first commit"})
        last.commit()
    other.assert_equal()
