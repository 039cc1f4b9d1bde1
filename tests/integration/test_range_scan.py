"""Tests a RangeScan, which reads a sharded collection in ranges of `_id`, through a router.

The scan must return every document once, in the order of `_id`, from any resume point. If two documents have equal
`_id`s, it must raise an error. Some tests scan a collection that is not sharded.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from threading import Timer
from typing import Any

import bson
import pytest
from bson import MaxKey, MinKey, Regex
from bson.raw_bson import RawBSONDocument

from syncsvc.sandbox.replica_set import Client
from syncsvc.source.equal_ids import EqualIds, refuse_equal
from syncsvc.source.range_scan import RangeScan
from syncsvc.source.scanned import ScannedCollection
from tests.support.documents import IDS
from tests.support.failpoints import failing, times
from tests.support.keys import in_order_of_index
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from tests.support.sharded.cluster import ShardedCluster
from tests.support.waiting import PATIENCE
from verifier.cluster.connect import connect
from verifier.cluster.inventory import find_named
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.ranges import Range, split
from verifier.cluster.rawcursor import FIRST_PAGE
from verifier.cluster.renamed import CollectionGone
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")
FOLDING = {"locale": "en", "strength": 2}
SIMPLE = {"locale": "simple"}
CLUSTERED: dict[str, Any] = {"clusteredIndex": {"key": {"_id": 1}, "unique": True}}
TEXTS = [f"{letter}{number}" for letter in "aBcD" for number in range(30)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[ShardedCluster]:
    with ShardedCluster(name="source") as started:
        yield started


@pytest.fixture
def client(cluster: ShardedCluster) -> Iterator[Client]:
    with connect(cluster.uri, "test") as client:
        client.drop_database(NAME.database)
        yield client


def sharded(client: Client, halved: bool = True, **options: Any) -> None:
    """Create an empty collection with these `options`, sharded by `k` or, without options, by `k` and `_id`.

    Each of two shards owns one half of the range of `k`; if `halved` is false, one shard owns all of it.
    """
    client[NAME.database].create_collection(NAME.collection, **options)
    key = {"k": 1, "_id": 1} if not options else {"k": 1}
    client.admin.command("shardCollection", str(NAME), key=key, collation=SIMPLE)
    if halved:
        move(client, 0)


def move(client: Client, bound: int) -> None:
    """Move the documents whose shard key `k` is `bound` or more to another shard."""
    (metadata,) = client.config.collections.find({"_id": str(NAME)})
    *_, chunk = client.config.chunks.find({"uuid": metadata["uuid"]}).sort("min")
    (other,) = client.config.shards.find({"_id": {"$ne": chunk["shard"]}})
    low = {"k": bound, "_id": MinKey()} if len(metadata["key"]) > 1 else {"k": bound}
    client.admin.command("moveRange", str(NAME), toShard=other["_id"], min=low)


def fill(client: Client, ids: list[Any]) -> list[bytes]:
    """Insert documents with these `_id`s in random order. The shard key `k` of one half is 1, and that of the other -1.

    Return their keys, as BSON documents with `_id` alone, in the order of the index on `_id`.
    """
    mixed = Random(1).sample(ids, len(ids))
    documents = [{"_id": each, "k": (-1) ** n, "t": "x" * 100} for n, each in enumerate(mixed)]
    # Unordered, because a router sends ordered inserts to one shard at a time.
    client[NAME.database][NAME.collection].insert_many(documents, ordered=False)
    return [bson.encode({"_id": bson.decode(each)["_id"]}) for each in in_order(client)]


def in_order(client: Client) -> list[bytes]:
    return in_order_of_index(client, NAME)


def scan(client: Client, portion: Range = Range(), resume_point: bytes | None = None) -> RangeScan:
    stop = StopToken()
    definition = find_named(client, NAME)
    assert definition is not None
    collation = definition.options["collation"] if definition.collated else None

    def check(name: Namespace, keys: Any) -> None:
        refuse_equal(client, name, definition.uuid, collation, keys, stop)

    time = append_note(client, stop)
    scanned = ScannedCollection(client, NAME, definition.uuid, time)
    return RangeScan(scanned, portion, resume_point, stop, check)


def read(scanned: RangeScan) -> list[bytes]:
    return [bytes(each) for block, _ in scanned.pages() for each in block.documents()]


MIXED = [*IDS, *TEXTS, *range(100, 200), {"a": Regex("^x")}, {"x": [1, {"y": MaxKey()}]}]
KINDS: dict[str, dict[str, Any]] = {"plain": {}, "collated": {"collation": FOLDING}}


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_yield_every_document_of_both_shards_once(client: Client, kind: str) -> None:
    sharded(client, **KINDS[kind])
    fill(client, MIXED)
    stored = in_order(client)
    ranges = split(client, NAME, len(stored), 150 * len(stored), 1500, StopToken())
    assert len(ranges) > 10
    assert [each for portion in ranges for each in read(scan(client, portion))] == stored
    assert read(scan(client)) == stored


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", KINDS)
def test_a_scan_can_resume_after_every_document(client: Client, kind: str) -> None:
    sharded(client, **KINDS[kind])
    keys = fill(client, [*IDS, "b", 3])
    stored = in_order(client)
    for number, resume_point in enumerate(keys):
        assert read(scan(client, resume_point=resume_point)) == stored[number + 1 :]
        assert read(scan(client, Range(keys[0]), resume_point)) == stored[number + 1 :]
    client[NAME.database][NAME.collection].delete_one({"_id": bson.decode(keys[5])["_id"]})
    assert read(scan(client, resume_point=keys[5])) == stored[6:]


def test_a_clustered_collection_and_buckets_are_read(client: Client) -> None:
    database = client[NAME.database]
    database.create_collection(NAME.collection, **CLUSTERED)
    keys = fill(client, [each for each in MIXED if not isinstance(each, dict)])
    stored = in_order(client)
    half = len(keys) // 2
    assert read(scan(client, Range(None, keys[half]))) == stored[:half]
    assert read(scan(client, Range(keys[half]), keys[-2])) == stored[-1:]
    assert bson.decode(stored[-1])["_id"] == MaxKey()


def test_orphans_are_not_read(client: Client) -> None:
    sharded(client, halved=False)
    fill(client, TEXTS)
    move(client, 0)
    # The orphaned documents are older than the documents on the new shard.
    client.d.c.update_many({}, {"$set": {"t": "new"}})
    found = [bson.decode(each) for each in read(scan(client))]
    assert [each["_id"] for each in found] == sorted(TEXTS)
    assert {each["t"] for each in found} == {"new"}


def many(client: Client, halved: bool = True) -> None:
    """Create a sharded collection with more documents than fit into one page of a scan.

    Each of two shards has one half of them; if `halved` is false, one shard has all of them.
    """
    sharded(client, halved)
    fill(client, [*range(3000)])


def begun(client: Client) -> tuple[list[bytes], Iterator[list[bytes]]]:
    """Start a scan; return its first page, and an iterator over the other pages. A page is a list of BSON documents."""
    pages = ([bytes(each) for each in block.documents()] for block, _ in scan(client).pages())
    return next(pages), pages


def test_chunks_may_move_during_a_scan(client: Client) -> None:
    many(client, halved=False)
    first, rest = begun(client)
    move(client, 0)
    client.d.c.insert_many({"_id": f"new {n}", "k": 1} for n in range(5))
    found = [*first, *(each for page in rest for each in page)]
    assert [bson.decode(each)["_id"] for each in found][:3000] == [*range(3000)]


def test_a_scan_continues_after_a_lost_cursor(client: Client, cluster: ShardedCluster) -> None:
    many(client)
    stored = in_order(client)
    first, rest = begun(client)
    lost = {"failCommands": ["getMore"], "errorCode": 43}
    with ExitStack() as block:
        for shard in cluster.shards:
            member = block.enter_context(shard.client())
            block.enter_context(failing(member, lost, times(1)))
        assert [*first, *(each for page in rest for each in page)] == stored


def test_a_scan_ends_if_the_cursor_is_lost_after_the_last_possible_key(
    cluster: ShardedCluster,
) -> None:
    # Connect to a shard, because a router reads ahead.
    with connect(cluster.shards[0].uri, "test") as client:
        client.drop_database(NAME.database)
        # The first page is full, so its cursor stays open.
        fill(client, [*range(FIRST_PAGE - 1), MaxKey()])
        first, rest = begun(client)
        assert len(first) == FIRST_PAGE
        with failing(client, {"failCommands": ["getMore"], "errorCode": 43}, times(1)):
            assert list(rest) == [[]]
        client.drop_database(NAME.database)


def test_a_scan_follows_a_rename(client: Client) -> None:
    many(client)
    stored = in_order(client)
    first, rest = begun(client)
    client.admin.command("renameCollection", "d.c", to="d.renamed")
    client.d.c.insert_one({"_id": 5000})
    assert [*first, *(each for page in rest for each in page)] == stored


def test_a_drop_ends_the_scan(client: Client) -> None:
    many(client)
    _, rest = begun(client)
    client.d.c.drop()
    client.d.c.insert_one({"_id": 5000})
    with pytest.raises(CollectionGone):
        list(rest)


def test_documents_larger_than_a_page_and_keys_longer_than_a_bound(client: Client) -> None:
    sharded(client)
    documents = [{"_id": n, "k": (-1) ** n, "t": "x" * (7 << 20)} for n in range(4)]
    keys = [{"_id": "y" * (100_000 + n), "k": (-1) ** n} for n in range(4)]
    for each in [*documents, *keys]:
        client.d.c.insert_one(each)
    assert [len(each) for each in read(scan(client))] == [len(each) for each in in_order(client)]
    *_, (_, resume_point) = scan(client).pages()
    assert resume_point == bson.encode({"_id": 3})
    assert len(read(scan(client, resume_point=resume_point))) == len(keys)


@pytest.mark.parametrize(
    "before, first, second",
    [(999, 5000, 5000), (10, 5000, 5000.0), (10, "a", "a"), (999, "a", "A")],
)
def test_duplicate_ids_are_found(client: Client, before: int, first: Any, second: Any) -> None:
    """Scan a collection in which two documents have equal `_id`s, `first` and `second`: the scan must raise EqualIds.

    `before` is the number of other documents, which decides whether the two are on the same page.
    """
    collated = first != second and isinstance(first, str)
    sharded(client, **(KINDS["collated"] if collated else {}))
    client.d.c.insert_many({"_id": number, "k": 1} for number in range(before))
    client.d.c.insert_many([{"_id": first, "k": 1}, {"_id": second, "k": -1}])
    client.d.c.insert_one({"_id": "b", "k": 1})
    with pytest.raises(EqualIds) as raised:
        read(scan(client))
    assert bson.decode(raised.value.key)["_id"] in (first, second)


def test_a_document_read_twice_is_no_duplicate(client: Client) -> None:
    """Pass the key of one document twice to the check for duplicate `_id`s, which must not raise an error.

    A scan can read a document twice if the document moves to another shard meanwhile.
    """
    sharded(client)
    (key,) = fill(client, ["a"])
    definition = find_named(client, NAME)
    assert definition is not None
    uuid = definition.uuid
    refuse_equal(client, NAME, uuid, None, [key, key], StopToken())
    refuse_equal(client, NAME, uuid, FOLDING, [key, bson.encode({"_id": "A"})], StopToken())


@pytest.mark.in_turns
@across(REPLICA_SETS, SHARDED)
def test_a_range_without_matches_for_longer_than_the_driver_waits(pair: Pair) -> None:
    """Let the server need 4 seconds to find the second match, and the driver wait for one.

    The scan must find all matches, also from a resume point after the first one. The `_id` of the last match is MaxKey.
    """
    ids = [*range(400), MaxKey()]
    matches = [0, 399, MaxKey()]
    pair.source.client.d.c.insert_many([{"_id": each, "n": each in matches} for each in ids])
    slow = RawBSONDocument(bson.encode({"$where": "sleep(10) || this.n"}))
    keys = [bson.encode({"_id": each}) for each in matches]
    with connect(pair.source.uri, "test", socket_ms=1000) as client:
        definition = find_named(client, NAME)
        assert definition is not None
        stop = StopToken()
        time = append_note(client, stop)
        scanned = ScannedCollection(client, NAME, definition.uuid, time, query=slow, first_page=50)
        deadline = Timer(PATIENCE, stop.stop, ["the scan does not advance"])
        deadline.start()
        try:
            for resume_point, left in ((None, keys), (keys[0], keys[1:])):
                scan = RangeScan(scanned, Range(), resume_point, stop)
                assert [
                    bson.encode({"_id": bson.decode(each)["_id"]}) for each in read(scan)
                ] == left
        finally:
            deadline.cancel()
