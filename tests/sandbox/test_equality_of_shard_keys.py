"""Tests that the sandbox's comparison reports different shard keys.

It must accept an index that exists only to support a requested shard key.
"""

from __future__ import annotations

from tests.support.pair import SHARDED, TO_SHARDED, Pair, across


@across(SHARDED)
def test_shard_keys_that_differ_are_named(pair: Pair) -> None:
    for side, keys in ((pair.source, "aab"), (pair.destination, "ab ")):
        for name, key in zip(("same", "other", "missing"), keys):
            for field in "ab":
                side.client.d[name].create_index(field)
            if key != " ":
                side.client.admin.command("shardCollection", f"d.{name}", key={key: 1})
    assert pair.differences()["d"] == (
        "d.missing: sharded on source only",
        "d.other: shard key differs: {'a': 1} on source, {'b': 1} on destination",
    )


@across(TO_SHARDED)
def test_an_index_that_supports_a_shard_key_is_no_difference(pair: Pair) -> None:
    pair.source.client.d.c.insert_one({"_id": 1, "k": 1})
    pair.shard("d.c", {"k": 1})
    pair.destination.client.admin.command("shardCollection", "d.c", key={"k": 1})
    pair.destination.client.d.c.insert_one({"_id": 1, "k": 1})
    pair.assert_equal()
    pair.destination.client.d.c.create_index("other")
    assert pair.differences() == {"d": ("d.c: index other_1 extra on destination",)}
