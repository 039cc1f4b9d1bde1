"""Applies change events on a sharded cluster to documents that already contain later writes.

The result must equal the source, although the two clusters have different chunks.

`make test` leaves these tests out: they repeat `test_exactness`, and the model test writes to sharded clusters too.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random
from typing import Any

import pytest
from bson import Int64
from pymongo import InsertOne, ReplaceOne, UpdateOne
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from tests.integration.test_exactness import RAW, Replay, Write, Writes, write
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Pair, across

KEY = {"k": 1, "b.c": 1}

_DOCUMENTS = 40
_WRITES = 20


class KeyedWrites(Writes):
    """Generates random writes to one document of a sharded collection; some writes change its shard key."""

    def document(self, identity: int) -> dict[str, Any]:
        return {**super().document(identity), **self._shard_key()}

    def keyed(self, collection: Collection[Any], identity: int) -> Write:
        """Return a random write to the document whose `_id` is `identity`; an insert if the document does not exist.

        The filter contains the `_id`; also the current shard key if the write replaces the document or sets its key.
        """
        present = collection.find_one({"_id": identity}, {"k": 1, "b.c": 1})
        if present is None:
            return InsertOne(self.document(identity))
        if self._random.random() < 0.6:
            return self._keyless(identity)
        known = {"_id": identity, "k": present.get("k"), "b.c": present.get("b", {}).get("c")}
        if self._random.random() < 0.3:
            return ReplaceOne(known, self.document(identity))
        change = self._shard_key()
        if self._random.random() < 0.2:
            return UpdateOne(known, {"$unset": {"k": 1}, "$set": {"b": change["b"]}})
        return UpdateOne(known, {"$set": change})

    def _keyless(self, identity: int) -> Write:
        chosen = self.write(identity)
        if isinstance(chosen, (ReplaceOne, InsertOne)):
            # With another shard key, there could be two documents with the same `_id`.
            return UpdateOne({"_id": identity}, {"$set": {"pad2": identity}})
        return chosen

    def _shard_key(self) -> dict[str, Any]:
        values = [1, 1.0, Int64(5), 40, 60, 100, "x", None, {"d": 1}]
        return {"k": self._random.choice(values), "b": {"c": self._random.choice(values)}}


def prepare(pair: Pair) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("c")
        if side.shards:
            side.client.admin.command("shardCollection", "d.c", key=KEY)
            (metadata,) = side.client.config.collections.find({"_id": "d.c"})
            (chunk,) = side.client.config.chunks.find({"uuid": metadata["uuid"]})
            (other,) = {each.name for each in side.shards} - {chunk["shard"]}
            # Use different bounds, so that a new key moves a document on one side but not on the other.
            least = {"k": 50 if side is pair.source else 5, "b.c": 30}
            side.client.admin.command("moveRange", "d.c", min=least, toShard=other)


@pytest.mark.full
@across(TO_SHARDED, SHARDED, FROM_SHARDED)
@pytest.mark.parametrize("seed", range(2))
def test_replayed_documents_have_the_sources_bytes(pair: Pair, seed: int) -> None:
    random = Random(seed)
    writes = KeyedWrites(random, odd=seed % 2 == 1)
    prepare(pair)
    source, destination = (
        side.client.d.get_collection("c", codec_options=RAW)
        for side in (pair.source, pair.destination)
    )
    source.insert_many([writes.document(n) for n in range(_DOCUMENTS)])
    replay = Replay(pair, {"key": KEY, "unique": False})
    copied_at = {n: random.randrange(_WRITES) for n in range(_DOCUMENTS + 20)}
    for turn in range(_WRITES):
        for number in copied_at:
            # Send each write separately, because a router refuses a change of the shard key in a batch.
            with suppress(OperationFailure):
                write(source, [writes.keyed(pair.source.client.d.c, number)])
        now = [n for n, when in copied_at.items() if when == turn]
        if copied := list(source.find({"_id": {"$in": now}})):
            destination.insert_many(copied)
    assert replay.run(random) > _DOCUMENTS
    left: list[list[Any]] = [list(each.find().sort("_id", 1)) for each in (source, destination)]
    assert [each.raw for each in left[0]] == [each.raw for each in left[1]]
