"""Writes that the destination delays while their process is killed must have no effect after newer writes.

The server delays one command for some seconds before it runs it, although the client has disconnected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from syncsvc import __version__
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for

_APPLICATION = f"syncsvc {__version__}"
_HELD_MS = 12_000
_UNVERIFIED = {"verification": {"enabled": False}}
# More than a few, so that they are sent in one transaction, or in one insert.
_MANY = range(40)


@dataclass(frozen=True)
class Held:
    """A command of the daemon that the primary of a cluster delays."""

    client: Client
    name: str
    operation: int

    def wait_until_over(self) -> None:
        """Wait until the server has run or refused the command."""
        wait_for(lambda: self.operation not in _held(self.client, self.name), "it has run")


@contextmanager
def holding(client: Client, name: str) -> Iterator[Callable[[], Held]]:
    """Delay the next command of that name on d.c, or the next commit, on the primary.

    The value waits until the command is delayed, and returns it.
    """
    data = {
        "failCommands": [name],
        "appName": _APPLICATION,
        "blockConnection": True,
        "blockTimeMS": _HELD_MS,
    }
    if name != "commitTransaction":
        data["namespace"] = "d.c"
    point = {"configureFailPoint": "failCommand"}
    client.admin.command({**point, "mode": {"times": 1}, "data": data})

    def held() -> Held:
        found = wait_for(lambda: _held(client, name), f"{name} is held")
        return Held(client, name, found[0])

    try:
        yield held
    finally:
        client.admin.command({**point, "mode": "off"})


def _held(client: Client, name: str) -> list[int]:
    """Return the IDs of the daemon's operations with that command that have not begun to run."""
    wanted = {
        "appName": _APPLICATION,
        f"command.{name}": {"$exists": True},
        "microsecs_running": {"$exists": False},
    }
    found = client.admin.aggregate([{"$currentOp": {}}, {"$match": wanted}])
    return [each["opid"] for each in found]


@pytest.fixture(scope="module", params=[1, 3], ids=["one member", "three members"])
def clusters(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with ExitStack() as stack:
        sides = []
        for name, members in (("source", 1), ("destination", request.param)):
            cluster = stack.enter_context(ReplicaSet(name=name, members=members))
            sides.append(Side(cluster.uri, stack.enter_context(cluster.client(w="majority"))))
        yield Pair(*sides)


@pytest.fixture
def pair(clusters: Pair) -> Pair:
    clusters.empty()
    clusters.source.client.d.c.insert_many({"_id": n, "v": 0} for n in _MANY)
    return clusters


def _applied(pair: Pair, number: int) -> None:
    """Wait until all present changes of the source are applied."""
    pair.source.client.d.marks.insert_one({"_id": number})
    found = pair.destination.client.d.marks.find_one
    wait_for(lambda: found({"_id": number}), f"mark {number} is applied")


def _started(pair: Pair, daemon: Daemon, **options: Any) -> None:
    daemon.start(**(options or _UNVERIFIED))
    daemon.wait_until_committable()


# By name: the delayed command, the change before it, and the change after the restart.
Change = Callable[[Any], Any]
SCENARIOS: dict[str, tuple[str, Change, Change]] = {
    "one update": (
        "update",
        lambda c: c.update_one({"_id": 1}, {"$set": {"v": 1}}),
        lambda c: c.update_one({"_id": 1}, {"$set": {"v": 2}}),
    ),
    "updates": (
        "update",
        lambda c: c.update_many({}, {"$set": {"v": 1}}),
        lambda c: c.update_many({}, {"$set": {"v": 2}}),
    ),
    "commit of updates": (
        "commitTransaction",
        lambda c: c.update_many({}, {"$set": {"v": 1}}),
        lambda c: c.update_many({}, {"$set": {"v": 2}}),
    ),
    "deletes": (
        "delete",
        lambda c: c.delete_many({}),
        lambda c: c.insert_many({"_id": n, "again": n} for n in _MANY),
    ),
    "inserts": (
        "insert",
        lambda c: c.insert_many({"_id": f"new {n}"} for n in _MANY),
        lambda c: c.delete_many({"_id": {"$type": "string"}}),
    ),
}


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_write_that_outlives_its_process(pair: Pair, daemon: Daemon, scenario: str) -> None:
    command, first, then = SCENARIOS[scenario]
    _started(pair, daemon)
    with holding(pair.destination.client, command) as until_held:
        first(pair.source.client.d.c)
        held = until_held()
        daemon.kill()
        daemon.run()
        then(pair.source.client.d.c)
        _applied(pair, 1)
        held.wait_until_over()
    daemon.commit()
    pair.assert_equal()


def test_a_write_that_comes_after_the_commit(pair: Pair, daemon: Daemon) -> None:
    _started(pair, daemon, verification={"enabled": True})
    with holding(pair.destination.client, "update") as until_held:
        pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"v": 1}})
        held = until_held()
        daemon.kill()
        daemon.run()
        pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"v": 2}})
        daemon.commit()
        pair.assert_equal()
        held.wait_until_over()
    pair.assert_equal()


def test_an_insert_of_the_copy_that_outlives_its_process(pair: Pair, daemon: Daemon) -> None:
    with holding(pair.destination.client, "insert") as until_held:
        daemon.start(**_UNVERIFIED)
        held = until_held()
        daemon.kill()
        daemon.run()
        daemon.wait_until_applying()
        pair.source.client.d.c.delete_many({})
        _applied(pair, 1)
        held.wait_until_over()
    daemon.commit()
    pair.assert_equal()


def test_a_write_of_a_process_that_was_replaced(pair: Pair, daemon: Daemon, tmp_path: Path) -> None:
    _started(pair, daemon)
    (tmp_path / "successor").mkdir()
    successor = pair.daemon(tmp_path / "successor")
    try:
        with holding(pair.destination.client, "update") as until_held:
            pair.source.client.d.c.update_many({}, {"$set": {"v": 1}})
            held = until_held()
            successor.run()
            pair.source.client.d.c.update_many({}, {"$set": {"v": 2}})
            _applied(pair, 1)
            held.wait_until_over()
        assert daemon.wait_for_state("FAILED")["error"] == "Superseded"
        successor.commit()
        pair.assert_equal()
    finally:
        successor.close()
