"""Tests that the option `sharding` is refused unless only the destination is sharded, and syncs unique shard keys."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.daemon import Daemon
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, Pair, Side, across
from tests.support.selection import full

ENTRY = {"database": "d", "collection": "c", "shardCollection": {"key": [{"n": 1}]}}


@across(REPLICA_SETS, SHARDED, FROM_SHARDED)
@pytest.mark.parametrize("entries", [[], [ENTRY]], ids=["no entry", "an entry"])
def test_the_option_sharding_needs_a_replica_set_and_a_sharded_destination(
    pair: Pair, daemon: Daemon, entries: list[Any]
) -> None:
    pair.source.client.d.c.insert_one({})
    body = daemon.start_body(sharding={"createSupportingIndexes": True, "shardingEntries": entries})
    answer = daemon.post("start", body)
    assert (answer.status_code, answer.json()["error"]) == (409, "ShardingNotApplicable")
    assert daemon.progress()["state"] == "IDLE"


def make_unique(pair: Pair) -> None:
    """Create a collection on the source, with a unique shard key whose index has a custom name."""
    source = pair.source.client
    source.d.create_collection("c", collation={"locale": "en", "strength": 2})
    simple = {"locale": "simple"}
    source.d.c.create_index("n", name="own", unique=True, collation=simple)
    source.admin.command("shardCollection", "d.c", key={"n": 1}, unique=True, collation=simple)
    source.d.c.insert_many({"_id": str(n), "n": n} for n in range(300))


def found(pair: Pair) -> tuple[bool, dict[str, bool]]:
    """Return whether the destination's shard key of d.c is unique, and whether each index is unique, by its name."""
    client = pair.destination.client
    row = client.config.collections.find_one({"_id": "d.c"})
    assert row is not None
    indexes = client.d.c.index_information()
    return row["unique"], {name: each.get("unique", False) for name, each in indexes.items()}


@pytest.mark.in_turns
@across(SHARDED)
@pytest.mark.parametrize(
    "options, index",
    [
        ({}, "own"),
        full({"buildIndexes": "afterDataCopy"}, "own"),
        ({"buildIndexes": "never"}, "n_1"),
    ],
    ids=["before the copy", "after the copy", "never"],
)
def test_a_unique_key_is_unique_from_the_commit_on(
    pair: Pair, daemon: Daemon, options: dict[str, Any], index: str
) -> None:
    make_unique(pair)
    daemon.start(**options)
    daemon.wait_until_committable()
    # Before the commit, documents can have the contents of different times, and so violate uniqueness.
    assert found(pair) == (True, {"_id_": False, index: False})
    daemon.commit()
    assert found(pair) == (True, {"_id_": False, index: True})
    if not options:
        pair.assert_equal()


@across(SHARDED)
def test_a_reversal_builds_no_index_for_a_unique_key(pair: Pair, daemon: Daemon) -> None:
    make_unique(pair)
    daemon.start(reversible=True, enableUserWriteBlocking="sourceAndDestination")
    daemon.commit()
    before = index_builds(pair.source)
    daemon.reverse()
    daemon.wait_until_committable()
    assert index_builds(pair.source) == before
    daemon.commit()
    pair.assert_equal()


def index_builds(side: Side) -> int:
    """Return how many builds of indexes of d.c the oplogs of a cluster's shards contain."""
    builds = {"ns": "d.$cmd", "$or": [{"o.createIndexes": "c"}, {"o.startIndexBuild": "c"}]}
    total = 0
    for shard in side.shards:
        with shard.client() as client:
            total += client.local["oplog.rs"].count_documents(builds)
    return total
