"""Tests that a late write of a killed or replaced daemon cannot overwrite newer writes on the destination.

A fail point delays one command for some seconds. The server runs the command even if its client has disconnected.

`make test` runs one of these tests. The others repeat it with other writes, after the commit, during the copy, or with
a second daemon that replaces the first; the module `test_late_writes` repeats it with delays in the network.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from tests.support.daemon import Daemon
from tests.support.failpoints import APPLICATION, delayed, failing, times
from tests.support.pair import Pair, Side
from tests.support.selection import full
from tests.support.waiting import wait_for

# The server cannot end a delay early. Each test begins with the shortest delay. It is repeated with the next one if a
# busy machine needs longer than the delay to restart the process and to apply newer writes.
_DELAYS_MS = (3_000, 12_000, 48_000)
_UNVERIFIED = {"verification": {"enabled": False}}
# Enough documents that each lane of the daemon writes its part in a transaction, also if the clusters answer slowly:
# then the daemon uses more lanes.
_MANY = range(200)


class DelayTooShort(Exception):
    """Raised if the delayed command ran before newer writes were applied, so that the test proved nothing."""


@dataclass(frozen=True)
class Held:
    """A command of the daemon that the primary of a cluster is delaying."""

    client: Client
    name: str
    operation: int

    def wait_until_over(self) -> None:
        """Wait until the server has run or refused the delayed command.

        Raises DelayTooShort if the server has already done so before the call.
        """
        if not self._is_delayed():
            raise DelayTooShort
        wait_for(lambda: not self._is_delayed(), "it has run")

    def _is_delayed(self) -> bool:
        return self.operation in delayed(self.client, self.name)


@contextmanager
def holding(client: Client, name: str, delay_ms: int) -> Iterator[Callable[[], Held]]:
    """Make the primary delay the daemon's next command with that name on d.c, or its next commitTransaction.

    The yielded function waits until a command is delayed, and returns it.
    """
    data = {
        "failCommands": [name],
        "appName": APPLICATION,
        "blockConnection": True,
        "blockTimeMS": delay_ms,
    }
    if name != "commitTransaction":
        data["namespace"] = "d.c"

    def held() -> Held:
        found = wait_for(lambda: delayed(client, name), f"{name} is held")
        return Held(client, name, found[0])

    with failing(client, data, times(1)):
        yield held


_MEMBERS = ("one member", "three members")


@pytest.fixture(scope="module", params=[1, 3], ids=_MEMBERS)
def clusters(request: pytest.FixtureRequest) -> Iterator[Pair]:
    with ExitStack() as stack:
        sides = []
        for name, members in (("source", 1), ("destination", request.param)):
            cluster = stack.enter_context(ReplicaSet(name=name, members=members))
            sides.append(Side(cluster.uri, stack.enter_context(cluster.client(w="majority"))))
        source, destination = sides
        yield Pair(source, destination)


def _members(*numbers: Any) -> pytest.MarkDecorator:
    """Return a mark that runs a test once for each of these `numbers` of members of the destination's replica set."""
    return pytest.mark.parametrize("clusters", numbers, indirect=True, ids=_MEMBERS)


@pytest.fixture
def pair(clusters: Pair) -> Pair:
    return clusters


Test = Callable[[Daemon, int], None]
Run = Callable[[Test], None]


@pytest.fixture
def run(pair: Pair, tmp_path: Path) -> Run:
    """Return a function that empties the clusters and runs a test with a new daemon.

    If the test raises DelayTooShort, the function repeats the test with a longer delay.
    """

    def run_once(test: Test, delay_ms: int) -> None:
        pair.empty()
        pair.source.client.d.c.insert_many({"_id": n, "v": 0} for n in _MANY)
        folder = tmp_path / str(delay_ms)
        folder.mkdir()
        with closing(pair.daemon(folder)) as daemon:
            daemon.run()
            test(daemon, delay_ms)

    def run(test: Test) -> None:
        for delay_ms in _DELAYS_MS[:-1]:
            with suppress(DelayTooShort):
                return run_once(test, delay_ms)
        run_once(test, _DELAYS_MS[-1])

    return run


def _applied(pair: Pair) -> None:
    """Wait until all changes of the collection d.c are applied."""

    def documents(side: Side) -> list[dict[str, Any]]:
        return list(side.client.d.c.find(sort={"_id": 1}))

    wait_for(lambda: documents(pair.destination) == documents(pair.source), "d.c is equal")


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


@pytest.mark.in_turns
@pytest.mark.each_once
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_write_that_outlives_its_process(pair: Pair, run: Run, scenario: str) -> None:
    command, first, then = SCENARIOS[scenario]

    def outlive(daemon: Daemon, delay_ms: int) -> None:
        _started(pair, daemon)
        with holding(pair.destination.client, command, delay_ms) as until_held:
            first(pair.source.client.d.c)
            held = until_held()
            daemon.kill()
            daemon.run()
            then(pair.source.client.d.c)
            _applied(pair)
            held.wait_until_over()
        daemon.commit()
        pair.assert_equal()

    run(outlive)


@pytest.mark.full
@_members(full(1), 3)
def test_a_delayed_write_that_arrives_after_the_commit(pair: Pair, run: Run) -> None:
    def come_late(daemon: Daemon, delay_ms: int) -> None:
        _started(pair, daemon, verification={"repair": "never"})
        with holding(pair.destination.client, "update", delay_ms) as until_held:
            pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"v": 1}})
            held = until_held()
            daemon.kill()
            daemon.run()
            pair.source.client.d.c.update_one({"_id": 1}, {"$set": {"v": 2}})
            daemon.commit()
            pair.assert_equal()
            held.wait_until_over()
        pair.assert_equal()

    run(come_late)


@pytest.mark.full
@_members(1, full(3))
def test_an_insert_of_the_copy_that_outlives_its_process(pair: Pair, run: Run) -> None:
    def outlive(daemon: Daemon, delay_ms: int) -> None:
        with holding(pair.destination.client, "insert", delay_ms) as until_held:
            daemon.start(**_UNVERIFIED)
            held = until_held()
            daemon.kill()
            daemon.run()
            daemon.wait_until_applying()
            pair.source.client.d.c.delete_many({})
            _applied(pair)
            held.wait_until_over()
        daemon.commit()
        pair.assert_equal()

    run(outlive)


@pytest.mark.full
@_members(full(1), 3)
def test_a_write_of_a_process_that_was_replaced(pair: Pair, run: Run) -> None:
    def replace(daemon: Daemon, delay_ms: int) -> None:
        _started(pair, daemon)
        with pair.successor(daemon) as successor:
            with holding(pair.destination.client, "update", delay_ms) as until_held:
                pair.source.client.d.c.update_many({}, {"$set": {"v": 1}})
                held = until_held()
                successor.run()
                pair.source.client.d.c.update_many({}, {"$set": {"v": 2}})
                _applied(pair)
                held.wait_until_over()
            assert daemon.wait_for_state("FAILED")["error"] == "Superseded"
            successor.commit()
            pair.assert_equal()

    run(replace)
