"""Syncs many collections with several threads; after a kill in the middle, no collection may be missing."""

from __future__ import annotations

import pytest

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.pair import SHARDED, Pair, across
from verifier.compare import points

NUMBER = 24
INDEXES = [
    {"name": "unique", "key": {"a": 1}, "unique": True},
    {"name": "ttl", "key": {"at": 1}, "expireAfterSeconds": 10**8},
    {"name": "hidden", "key": {"b": 1}, "hidden": True},
    {"name": "twin", "key": {"a": 1}, "sparse": True},
]


def _fill(pair: Pair) -> None:
    database = pair.source.client.d
    for number in range(NUMBER):
        database.command({"createIndexes": f"c{number}", "indexes": INDEXES})
        database[f"c{number}"].insert_one({"_id": 1, "a": number})
    # The server refuses to build this index in one command with the others, so the daemon builds each index separately.
    database.c0.create_index("a", name="deferred")


@pytest.mark.full
def test_kills_in_the_middle_of_many_collections(pair: Pair, daemon: Daemon) -> None:
    _fill(pair)
    daemon.kill_at(Point.COLLECTION_CREATED, "d.c20")
    daemon.post_unanswered("start", daemon.start_body())
    daemon.wait_until_killed()
    # Kill the daemon before the ranges of the last collections are saved.
    daemon.kill_at(points.Point.TASK_DONE, "d.c20")
    daemon.run()
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_until_committable()
    # Start a new process, in which only the definitions after the last write are left to be compared.
    daemon.kill()
    daemon.kill_at(points.Point.DEFINITION_COMPARED, "d.c20")
    daemon.run()
    daemon.commit_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
@across(SHARDED)
def test_kills_in_the_middle_of_many_collections_of_shards(pair: Pair, daemon: Daemon) -> None:
    test_kills_in_the_middle_of_many_collections(pair, daemon)
