"""Through a router, every document is read once by ranges, in the order of `_id`, from any place on."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import bson
import pytest
from bson import MaxKey, MinKey, Regex

from syncsvc.sandbox.replica_set import Client
from tests.support.documents import IDS
from tests.support.keys import in_order_of_index
from tests.support.sharded import ShardedCluster
from verifier.cluster.equalids import refuse_equal
from verifier.cluster.inventory import find_named
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.ranges import Range, split
from verifier.cluster.rangescan import RangeScan
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")
FOLDING = {"locale": "en", "strength": 2}
SIMPLE = {"locale": "simple"}
CLUSTERED = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}
TEXTS = [f"{letter}{number}" for letter in "aBcD" for number in range(30)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    with ShardedCluster(name="source") as started:
        yield started


@pytest.fixture
def client(cluster: ShardedCluster) -> Iterator[Client]:
    with cluster.client() as client:
        client.drop_database(NAME.database)
        yield client


def sharded(client: Client, **options: Any) -> None:
    """A collection of which each shard has a half, by `k`."""
    client[NAME.database].create_collection(NAME.collection, **options)
    key = {"k": 1, "_id": 1} if not options else {"k": 1}
    client.admin.command("shardCollection", str(NAME), key=key, collation=SIMPLE)
    move(client, 0)


def move(client: Client, bound: int) -> None:
    """From that key on, to the other shard."""
    (metadata,) = client.config.collections.find({"_id": str(NAME)})
    *_, chunk = client.config.chunks.find({"uuid": metadata["uuid"]}).sort("min")
    (other,) = client.config.shards.find({"_id": {"$ne": chunk["shard"]}})
    low = {"k": bound, "_id": MinKey()} if len(metadata["key"]) > 1 else {"k": bound}
    client.admin.command("moveRange", str(NAME), toShard=other["_id"], min=low)


def fill(client: Client, ids: list[Any]) -> list[bytes]:
    """Documents of these, in any order and on both shards; the keys in the order of the index."""
    mixed = Random(1).sample(ids, len(ids))
    documents = [{"_id": each, "k": (-1) ** n, "t": "x" * 100} for n, each in enumerate(mixed)]
    client[NAME.database][NAME.collection].insert_many(documents)
    return [bson.encode({"_id": bson.decode(each)["_id"]}) for each in in_order(client)]


def in_order(client: Client) -> list[bytes]:
    return in_order_of_index(client, NAME)


def scan(client: Client, portion: Range = Range(), place: bytes | None = None) -> RangeScan:
    stop = StopToken()
    definition = find_named(client, NAME)
    assert definition is not None
    collation = definition.options["collation"] if definition.collated else None

    def check(name: Namespace, keys: Any) -> None:
        refuse_equal(client, name, definition.uuid, collation, keys, stop)

    time = append_note(client, stop)
    return RangeScan(client, NAME, definition.uuid, portion, time, place, stop, check)


def read(scanned: RangeScan) -> list[bytes]:
    return [bytes(each) for documents, _ in scanned.pages() for each in documents]


MIXED = [*IDS, *TEXTS, *range(100, 200), {"a": Regex("^x")}, {"x": [1, {"y": MaxKey()}]}]
KINDS = {"plain": {}, "collated": {"collation": FOLDING}}


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_hold_every_document_of_both_shards_once(client: Client, kind: str) -> None:
    sharded(client, **KINDS[kind])
    fill(client, MIXED)
    stored = in_order(client)
    ranges = split(client, NAME, len(stored), 150 * len(stored), 1500, StopToken())
    assert len(ranges) > 10
    assert [each for portion in ranges for each in read(scan(client, portion))] == stored
    assert read(scan(client)) == stored


@pytest.mark.parametrize("kind", KINDS)
def test_every_place_is_one_to_go_on_from(client: Client, kind: str) -> None:
    sharded(client, **KINDS[kind])
    keys = fill(client, [*IDS, "b", 3])
    stored = in_order(client)
    for number, place in enumerate(keys):
        assert read(scan(client, place=place)) == stored[number + 1 :]
        assert read(scan(client, Range(keys[0]), place)) == stored[number + 1 :]
    client[NAME.database][NAME.collection].delete_one({"_id": bson.decode(keys[5])["_id"]})
    assert read(scan(client, place=keys[5])) == stored[6:]


def test_a_clustered_collection_and_buckets_are_read(client: Client) -> None:
    database = client[NAME.database]
    database.create_collection(NAME.collection, **CLUSTERED)
    keys = fill(client, [each for each in MIXED if not isinstance(each, dict)])
    stored = in_order(client)
    half = len(keys) // 2
    assert read(scan(client, Range(None, keys[half]))) == stored[:half]
    assert read(scan(client, Range(keys[half]), keys[-2])) == stored[-1:]
    assert bson.decode(stored[-1])["_id"] == MaxKey()
