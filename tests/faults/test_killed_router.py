"""Kills one router at a time while a sync uses two; the sync must continue through the other router."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pymongo import MongoClient

from syncsvc.sandbox.workload import Workload
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.pair import SHARDED, Pair, Side, across
from tests.support.phases import When, writes_in
from tests.support.sharded.cluster import Router
from tests.support.waiting import wait_for

pytestmark = across(SHARDED)


@contextmanager
def _dead(router: Router) -> Iterator[None]:
    router.kill()
    try:
        yield
    finally:
        router.start()


def _fill(pair: Pair) -> None:
    client = pair.source.client
    pair.shard("d.big")
    client.d.big.insert_many({"_id": n, "pad": "p" * 500} for n in range(10_000))
    writes.fill(client, 2000)


def _side(pair: Pair, name: str) -> Side:
    return pair.source if name == "source" else pair.destination


@pytest.mark.full
@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("name", ["source", "destination"])
def test_a_router_dies_during_the_copy(pair: Pair, daemon: Daemon, name: str, number: int) -> None:
    _fill(pair)
    router = _side(pair, name).routers[number]
    with writes_in(When.COPY, daemon):
        router.kill()
    try:
        daemon.wait_until_applying()
    finally:
        router.start()
    writes.single_document_writes(pair.source.client)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize("name", ["source", "destination"])
def test_both_routers_die_in_turn_while_events_are_applied(
    pair: Pair, daemon: Daemon, name: str
) -> None:
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_applying()
    routers = _side(pair, name).routers
    for router, other in (routers, reversed(routers)):
        # The users' router survives: the stand-in for mongos would run a retried write twice.
        users_router = other if name == "source" else pair.source.routers[0]
        with MongoClient[dict[str, Any]](f"mongodb://{users_router.address}/") as users:
            with Workload([users.d.other], seed=3), _dead(router):
                _wait_for_events(daemon)
                daemon.wait_until_committable()
    daemon.commit()
    pair.assert_equal()


def _wait_for_events(daemon: Daemon) -> None:
    """Wait until the daemon has applied more than 100 events since this call."""
    before = daemon.progress()["totalEventsApplied"]
    wait_for(lambda: daemon.progress()["totalEventsApplied"] > before + 100, "more events")
