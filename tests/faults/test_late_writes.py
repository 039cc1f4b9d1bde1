"""Tests that late requests of a killed, disconnected or replaced process cannot change the destination.

Proxies or a fail point delay the requests. Meanwhile, the source changes again; in most tests, the restarted process or
its successor applies the newer changes. The late requests must have no effect, neither before the commit nor after it.
Exception: some late DDL commands (`OPEN`) have an effect, which the verification must detect.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.faults.proxied import Proxied
from tests.support.daemon import Daemon
from tests.support.failpoints import APPLICATION, blocked, times
from tests.support.pair import Pair
from tests.support.proxy import PRODUCT, Network, Rule, Way
from tests.support.selection import full
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

_pause = threading.Event()
_UNVERIFIED = {"verification": {"enabled": False}}


@pytest.fixture
def pair(proxied: Proxied) -> Pair:
    proxied.pair.empty()
    c = proxied.pair.source.client.d.c
    c.create_index("n")
    c.insert_many({"_id": n, "n": n, "pad": "p" * 500} for n in range(300))
    return proxied.pair


def _applied(pair: Pair, document: dict[str, Any]) -> None:
    """Wait until the document with the same `_id` in d.c on the destination equals `document`."""
    found = pair.destination.client.d.c.find_one
    wait_for(lambda: found({"_id": document["_id"]}) == document, f"{document} is applied")


def test_an_update_delayed_on_the_server(proxied: Proxied, pair: Pair, daemon: Daemon) -> None:
    daemon.start(**_UNVERIFIED)
    daemon.wait_until_committable()
    c = pair.source.client.d.c
    with proxied.points.armed(blocked(12), ["update"], times(1), namespace="d.c") as held:
        c.replace_one({"_id": 1}, {"v": 1})
        wait_for(held.has_struck, "an update is held")
        daemon.kill()
        daemon.run()
        c.replace_one({"_id": 1}, {"v": 2})
        _applied(pair, {"_id": 1, "v": 2})
        wait_for(lambda: not _blocked(pair.destination.client), "the held update has run")
    daemon.commit()
    pair.assert_equal()


def _blocked(client: AnyClient) -> bool:
    operations = client.admin.aggregate([{"$currentOp": {}}])
    return any(each.get("appName") == APPLICATION and each["ns"] == "d.c" for each in operations)


@pytest.mark.full
@pytest.mark.parametrize("committed", [full(False), True], ids=["before", "after commit"])
def test_inserts_delayed_in_the_network(
    proxied: Proxied, pair: Pair, daemon: Daemon, committed: bool
) -> None:
    c = pair.source.client.d.c
    with ExitStack() as stack:
        with daemon.held_at(Point.LISTED):
            daemon.start(**_UNVERIFIED)
            daemon.wait_until_reached(Point.LISTED)
            rule = proxied.network.held(Way.TO_SERVER, commands=("insert",))
            held = stack.enter_context(rule)
        _kill_with_held(proxied.network, held, daemon)
        daemon.run()
        daemon.wait_until_committable()
        c.delete_many({"_id": {"$lt": 100}})
        c.update_many({}, {"$set": {"new": True}})
        c.insert_one({"_id": "mark"})
        _applied(pair, {"_id": "mark"})
        if committed:
            daemon.commit()
            pair.assert_equal()
    _wait_until_delivered(proxied.network, held)
    if not committed:
        daemon.commit()
    pair.assert_equal()


def _kill_with_held(network: Network, held: Rule, daemon: Daemon) -> None:
    """Kill the daemon as soon as the proxy rule `held` delays one of its requests.

    Afterwards, the rule delays only requests on the connections of the killed process.
    """
    wait_for(lambda: held.hits, "a request is held")
    held.connections = network.of(PRODUCT)
    daemon.kill()


def _wait_until_delivered(network: Network, held: Rule) -> None:
    left = held.connections or frozenset()
    wait_for(lambda: not left & network.connections, "held requests were answered")


# By name: the first change of the source, the command of the daemon that is held, and the next change of the source.
Definition = tuple[Callable[[Any], Any], str, Callable[[Any], Any]]
DEFINITIONS: dict[str, Definition] = {
    "drop": (
        lambda d: d.drop_collection("c"),
        "drop",
        lambda d: d.c.insert_many({"_id": n, "second": n} for n in range(50)),
    ),
    "rename": (
        lambda d: d.c.rename("e"),
        "renameCollection",
        lambda d: (d.e.rename("f"), d.c.insert_many({"_id": n, "again": n} for n in range(50))),
    ),
    "collMod": (
        lambda d: d.command({"collMod": "c", "validator": {"first": {"$exists": False}}}),
        "collMod",
        lambda d: d.command({"collMod": "c", "validator": {"second": {"$exists": False}}}),
    ),
    "createIndexes": (
        lambda d: d.c.create_index("late"),
        "createIndexes",
        lambda d: d.c.drop_index("late_1"),
    ),
    "dropIndexes": (
        lambda d: d.c.drop_index("n_1"),
        "dropIndexes",
        lambda d: d.c.create_index("n"),
    ),
    "create": (
        lambda d: d.create_collection("made"),
        "create",
        lambda d: d.drop_collection("made"),
    ),
}


# **Known limit:** nothing refuses these commands if they arrive late and find the collection they were meant for. The
# verification detects their effect: see docs/reference/limits.rst.
OPEN = {"collMod", "createIndexes", "dropIndexes", "create"}


@pytest.mark.parametrize(
    "definition",
    ["drop", *(full(each) for each in [*DEFINITIONS][1:])],
)
def test_ddl_commands_delayed_in_the_network(
    proxied: Proxied, pair: Pair, daemon: Daemon, definition: str
) -> None:
    first, command, then = DEFINITIONS[definition]
    daemon.start()
    daemon.wait_until_committable()
    d = pair.source.client.d
    with proxied.network.held(Way.TO_SERVER, commands=(command,)) as held:
        first(d)
        _kill_with_held(proxied.network, held, daemon)
        daemon.run()
        then(d)
        d.marks.insert_one({"_id": "mark"})
        wait_for(lambda: pair.destination.client.d.marks.find_one(), "the mark is applied")
    _wait_until_delivered(proxied.network, held)
    if definition in OPEN:
        assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    else:
        daemon.commit()
        pair.assert_equal()


def test_a_takeover_while_updates_are_delayed(proxied: Proxied, pair: Pair, daemon: Daemon) -> None:
    daemon.start(**_UNVERIFIED)
    daemon.wait_until_committable()
    c = pair.source.client.d.c
    with pair.successor(daemon) as successor:
        with proxied.network.held_of_existing(Way.TO_SERVER) as held:
            c.update_many({"_id": {"$lt": 50}}, {"$set": {"v": 1}})
            c.insert_many({"_id": f"late {n}"} for n in range(10))
            wait_for(lambda: held.hits, "requests are held")
            successor.run()
            c.update_many({"_id": {"$lt": 50}}, {"$set": {"v": 2}})
            c.delete_many({"_id": {"$regex": "late"}})
            c.insert_one({"_id": "mark"})
            _applied(pair, {"_id": "mark"})
        daemon.wait_for_state("FAILED")
        successor.commit()
        pair.assert_equal()


@pytest.mark.full
@pytest.mark.parametrize("way", [(Way.TO_SERVER,), (Way.TO_CLIENT,), tuple(Way)])
def test_a_daemon_cut_off_for_35_seconds(
    proxied: Proxied, pair: Pair, daemon: Daemon, way: tuple[Way, ...]
) -> None:
    daemon.start(**_UNVERIFIED)
    daemon.wait_until_committable()
    c = pair.source.client.d.c
    with proxied.network.held(*way):
        for number in range(35):
            c.update_many({"_id": {"$lt": 50}}, {"$set": {"v": number}})
            c.insert_one({"_id": f"late {number}"})
            c.delete_one({"_id": f"late {number - 5}"})
            _pause.wait(1)
    c.insert_one({"_id": "mark"})
    _applied(pair, {"_id": "mark"})
    daemon.commit()
    pair.assert_equal()
