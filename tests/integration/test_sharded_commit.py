"""Tests that each shard of the destination with documents of a collection has the source's indexes after a commit."""

from __future__ import annotations

from typing import Any

import pytest
from pymongo.errors import DuplicateKeyError

from syncsvc.engine.run.points import Point
from tests.support.daemon import Daemon
from tests.support.pair import SHARDED, TO_SHARDED, Pair, Side, across

pytestmark = across(TO_SHARDED, SHARDED)


def fill(pair: Pair) -> None:
    c = pair.source.client.d.c
    c.create_index("k")
    c.create_index([("k", 1), ("u", 1)], name="unique", unique=True)
    c.create_index([("k", 1), ("v", 1)], name="hidden unique", unique=True, hidden=True)
    c.create_index("h", hidden=True)
    c.create_index("t", expireAfterSeconds=10**8)
    c.create_index([("k", 1), ("twin", 1)], name="twin")
    c.create_index([("k", 1), ("twin", 1)], name="unique twin", unique=True, sparse=True)
    pair.shard("d.c", {"k": 1})
    c.insert_many({"_id": n, "k": n, "u": n, "v": n, "twin": n} for n in range(100))


def leave_the_primary_shard(side: Side) -> str:
    """Move all chunks of d.c away from the primary shard of the database d, and return this shard's name."""
    config = side.client.config
    (database,) = config.databases.find({"_id": "d"})
    (metadata,) = config.collections.find({"_id": "d.c"})
    primary = str(database["primary"])
    other = next(each.name for each in side.shards if each.name != primary)
    for chunk in config.chunks.find({"uuid": metadata["uuid"], "shard": primary}):
        side.client.admin.command(
            "moveRange", "d.c", min=chunk["min"], max=chunk["max"], toShard=other
        )
    return primary


def indexes(side: Side, without: str = "") -> list[Any]:
    """Return the indexes of d.c on each shard, except the shard named `without`; by default, on all shards."""
    found = []
    for each in side.shards:
        if each.name != without:
            with each.client() as client:
                found.append(client.d.c.index_information())
    return found


@pytest.mark.in_turns
@pytest.mark.each_once
@pytest.mark.parametrize("primary_has_chunks", [True, False])
def test_indexes_are_those_of_the_source_on_every_shard(
    pair: Pair, daemon: Daemon, primary_has_chunks: bool
) -> None:
    fill(pair)
    daemon.start()
    daemon.wait_until_committable()
    without = "" if primary_has_chunks else leave_the_primary_shard(pair.destination)
    daemon.kill_at(Point.STEP_DONE, "definitions prepared")
    daemon.commit_until_killed()
    daemon.kill_at(Point.STEP_DONE, "destination writable")
    daemon.run(ready=False)
    daemon.wait_until_killed()
    daemon.run()
    daemon.wait_for_state("COMMITTED")
    wanted = pair.source.client.d.c.index_information()
    for each in indexes(pair.destination, without):
        assert each == wanted
    pair.assert_equal()
    with pytest.raises(DuplicateKeyError):
        pair.destination.client.d.c.insert_one({"k": 99, "u": 99})
