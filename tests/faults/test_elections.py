"""Causes elections and rollbacks, and kills and suspends servers and daemons, in every stage of a sync.

Both clusters are replica sets of three members. The clusters must be equal at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from pymongo import MongoClient

from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox.replica_set import Client
from syncsvc.sandbox.workload import Workload
from syncsvc.saved.registry import CopyStatus
from tests.faults.cells import Stage
from tests.faults.disturbances import (
    LEAVE_CURSORS,
    OF_DAEMON,
    OF_SERVERS,
    disturbance,
    kill_primary,
)
from tests.faults.flight import Disturbance, Journey, fill
from tests.support.daemon import Daemon
from tests.support.leaks import assert_no_cursors_since, assert_no_leaks, close_cursors, holdings
from tests.support.members import ThreeMembers
from tests.support.metrics import scrape
from tests.support.pair import Pair, Side
from tests.support.selection import full
from tests.support.waiting import wait_for
from verifier.cluster.connect import connect
from verifier.cluster.rawcursor import RawCursor

Sets = tuple[ThreeMembers, ThreeMembers]
REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}


@pytest.fixture(scope="module")
def sets() -> Iterator[Sets]:
    with ThreeMembers("source") as source, ThreeMembers("destination") as destination:
        yield source, destination


def _fly(
    sets: Sets,
    folder: Path,
    disturb: Callable[[Stage, Daemon], list[Disturbance]],
    leaves_cursors: bool = False,
    lost: int = 0,
) -> None:
    """Run a sync with these disturbances in each stage. Up to `lost` cursors may be left open.

    If `leaves_cursors`, the number of open cursors is not checked.
    """
    clients = [each.client() for each in sets]
    sides = [Side(each.uri, client) for each, client in zip(sets, clients, strict=True)]
    pair = Pair(sides[0], sides[1])
    pair.empty()
    fill(pair)
    daemon = pair.daemon(folder)
    try:
        daemon.run()
        before = holdings(daemon.pid, *clients)
        Journey(pair, daemon, lambda stage: disturb(stage, daemon)).fly()
        if leaves_cursors:
            close_cursors(*clients)
        assert_no_leaks(daemon.pid, before, *clients, lost=lost)
    finally:
        daemon.close()
        for each in clients:
            each.close()


# Disturbances of most kinds, spread over the stages and both clusters (0: source, 1: destination).
MIXED = {
    Stage.LISTING: ("step-down", 0),
    Stage.COPY: ("killed primary", 1),
    Stage.INDEXES: ("stopped primary", 1),
    Stage.VERIFICATION: ("killed primary", 0),
    Stage.EVENTS: ("rollback", 1),
    Stage.COMMIT: ("no primary for 5 s", 1),
    Stage.REVERSE: ("step-down", 1),
}
MORE = {
    Stage.LISTING: ("killed daemon", 0),
    Stage.COPY: ("rolling restart", 0),
    Stage.VERIFICATION: ("stopped daemon", 0),
    Stage.EVENTS: ("rollback", 0),
    Stage.COMMIT: ("no majority", 1),
    Stage.REVERSE: ("rolling restart", 1),
}


@pytest.mark.parametrize("plan", [MIXED, full(MORE)], ids=["one", "another"])
def test_a_sync_through_disturbances(
    sets: Sets, tmp_path: Path, plan: dict[Stage, tuple[str, int]]
) -> None:
    def disturb(stage: Stage, daemon: Daemon) -> list[Disturbance]:
        if stage not in plan:
            return []
        name, side = plan[stage]
        return [disturbance(name, sets[side], daemon)]

    _fly(sets, tmp_path, disturb, lost=1)


def test_a_cursor_on_a_former_primary_is_closed(sets: Sets) -> None:
    members = sets[0]
    former = members.primary()
    with closing(connect(members.uri, "cursors")) as client:
        before = client.primary
        client.drop_database("d")
        client.d.plain.insert_many({"_id": n} for n in range(100))
        with RawCursor(client, "d", {"find": "plain"}, batch_size=10) as cursor:
            assert next(cursor.pages()).size
            members.step_down()
            wait_for(
                lambda: client.primary not in (None, before), "the client knows the new primary"
            )
    with MongoClient[dict[str, Any]](former.address, directConnection=True) as direct:
        assert_no_cursors_since(frozenset(), direct)


@pytest.mark.full
@pytest.mark.parametrize(
    "documents, size, partition, renamed",
    [
        pytest.param(12_000, 5000, 6_000_000, False, id="listed"),
        pytest.param(12_000, 5000, 6_000_000, True, id="renamed into the filter"),
        pytest.param(2_000_000, 500, 64_000_000, False, id="2 million listed"),
    ],
)
def test_a_failover_costs_a_small_part_of_a_large_collection(
    documents: int, size: int, partition: int, renamed: bool, sets: Sets, tmp_path: Path
) -> None:
    """Kill the source's primary during the copy of a collection.

    With `renamed`, a rename into the filter starts the copy. Fewer than a tenth of the documents may be copied again.
    """
    clients = [each.client() for each in sets]
    sides = [Side(each.uri, client) for each, client in zip(sets, clients, strict=True)]
    pair = Pair(sides[0], sides[1])
    pair.empty()
    database = clients[0].d
    database["other" if renamed else "large"].insert_many(
        {"_id": n, "pad": "p" * size} for n in range(documents)
    )
    # With one reader and one writer, the copy stands still while the writer is held.
    daemon = pair.daemon(tmp_path, "--loadLevel", "1")
    daemon.small_partitions(partition)
    try:
        daemon.run()
        excluded = [{"database": "d", "collections": ["other"]}]
        with daemon.held_at(Point.BATCH_WRITTEN, number=6):
            daemon.start(excludeNamespaces=excluded)
            if renamed:
                daemon.wait_until_committable()
                database.other.rename("large")
            daemon.wait_until_reached(Point.BATCH_WRITTEN, number=6)
            kill_primary(sets[0])
            database.other.insert_one({"_id": 1})
        with Workload([database.large], seed=4) as workload:
            copied = {"status": CopyStatus.DONE.value}
            metadata = clients[1][METADATA_DATABASE]
            wait_for(lambda: metadata.collections.find_one(copied), "the end of the copy")
            workload.stop()
        again = scrape(daemon)["mongosync_documents_copied_again_total"][()]
        print(f"{again:,.0f} of {documents:,} documents were copied again")
        assert again < documents / 10
        (saved,) = metadata.collections.find()
        assert saved["documents"] < documents * 1.1
        assert metadata.partitions.count_documents({}) > 5
        daemon.commit()
        database.other.drop()
        pair.assert_equal()
    finally:
        daemon.close()
        for each in clients:
            each.close()


@pytest.mark.full
@pytest.mark.parametrize("reversals", [0, 1])
def test_definitions_that_are_rolled_back_are_prepared_again(
    sets: Sets, tmp_path: Path, reversals: int
) -> None:
    """Roll back the collMod commands of a commit, which only the primary had run: the commit must repeat them.

    With one reversal, the commit is that of a reversed sync, whose destination does not hold the run record.
    """
    written = sets[1 - reversals]
    clients = [each.client() for each in sets]
    sides = [Side(each.uri, client) for each, client in zip(sets, clients, strict=True)]
    pair = Pair(sides[0], sides[1])
    pair.empty()
    for name in ("a", "b"):
        clients[0].d[name].create_index("unique", name="unique", unique=True)
        clients[0].d[name].insert_many({"_id": n, "unique": n} for n in range(10))
    daemon = pair.daemon(tmp_path)
    hold = ExitStack()

    destination = clients[1 - reversals]

    def write(primary: Client) -> None:
        hold.close()
        wait_for(lambda: all(is_prepared(primary, name) for name in ("a", "b")), "prepareUnique")

    def is_prepared(client: Client, name: str) -> bool:
        return bool(client.d[name].index_information()["unique"].get("prepareUnique"))

    try:
        daemon.run()
        daemon.start(**REVERSIBLE)
        for _ in range(reversals):
            daemon.commit()
            daemon.reverse()
        daemon.wait_until_committable()
        assert not is_prepared(destination, "a")
        # Each commit passes CHANGES_BEGIN twice; the last commit first repeats its first changes, after the rollback.
        first, again = 2 * reversals + 1, 2 * reversals + 2
        hold.enter_context(daemon.held_at(Point.CHANGES_BEGIN, number=first))
        assert daemon.post("commit").ok
        daemon.wait_until_reached(Point.CHANGES_BEGIN, number=first)
        with daemon.held_at(Point.CHANGES_BEGIN, number=again):
            written.roll_back(write)
            daemon.wait_until_reached(Point.CHANGES_BEGIN, number=again)
            assert not is_prepared(destination, "a")
        daemon.wait_for_state("COMMITTED")
        pair.assert_equal()
    finally:
        daemon.close()
        for each in clients:
            each.close()


@pytest.mark.full
def test_a_conversion_that_is_rolled_back_is_repeated(sets: Sets, tmp_path: Path) -> None:
    """Roll back converted and deferred indexes that only the primary had: the commit must repeat both steps."""
    source, destination = (each.client() for each in sets)
    pair = Pair(Side(sets[0].uri, source), Side(sets[1].uri, destination))
    pair.empty()
    for name in ("a", "b"):
        source.d[name].create_index("n", name="unique", unique=True)
        source.d[name].create_index("n", name="twin")
        source.d[name].insert_many({"_id": n, "n": n} for n in range(10))
    daemon = pair.daemon(tmp_path)
    hold = ExitStack()

    def converted(client: Client) -> list[str]:
        indexes = [client.d[name].index_information() for name in ("a", "b")]
        return [
            name for each in indexes for name in each if name == "twin" or "unique" in each[name]
        ]

    def write(primary: Client) -> None:
        hold.close()
        wait_for(lambda: len(converted(primary)) == 4, "all indexes are converted")

    try:
        daemon.run()
        daemon.start()
        daemon.wait_until_committable()
        # The commit passes CHANGES_BEGIN when it prepares the definitions, and when it converts the indexes.
        hold.enter_context(daemon.held_at(Point.CHANGES_BEGIN, number=2))
        assert daemon.post("commit").ok
        daemon.wait_until_reached(Point.CHANGES_BEGIN, number=2)
        with daemon.held_at(Point.CHANGES_BEGIN, number=3):
            sets[1].roll_back(write)
            daemon.wait_until_reached(Point.CHANGES_BEGIN, number=3)
            assert converted(destination) == []
        daemon.wait_for_state("COMMITTED")
        pair.assert_equal()
    finally:
        daemon.close()
        for each in (source, destination):
            each.close()


@pytest.mark.full
@pytest.mark.parametrize("side", [(0,), (1,), (0, 1)], ids=["source", "destination", "both"])
@pytest.mark.parametrize("name", OF_SERVERS)
def test_a_disturbance_of_servers_in_every_stage(
    sets: Sets, tmp_path: Path, name: str, side: tuple[int, ...]
) -> None:
    def disturb(stage: Stage, daemon: Daemon) -> list[Disturbance]:
        return [disturbance(name, sets[each], daemon) for each in side]

    # A server that steps down can close a connection before it sends the ID of a new cursor.
    _fly(sets, tmp_path, disturb, name in LEAVE_CURSORS, lost=len(side))


@pytest.mark.full
@pytest.mark.parametrize("name", OF_DAEMON)
def test_a_disturbance_of_the_daemon_in_every_stage(sets: Sets, tmp_path: Path, name: str) -> None:
    def disturb(stage: Stage, daemon: Daemon) -> list[Disturbance]:
        return [disturbance(name, sets[0], daemon)]

    _fly(sets, tmp_path, disturb, name in LEAVE_CURSORS)
