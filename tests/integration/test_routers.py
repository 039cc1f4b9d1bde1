"""Tests reads through several routers: each cursor must be read on the router that opened it, and must be closed.

Also tests how a client of a cluster is opened: the address of the cluster, and unexpected errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient

from syncsvc.source.range_scan import RangeScan
from syncsvc.source.scanned import ScannedCollection
from tests.support.cursors import open_cursors
from tests.support.sharded.cluster import ShardedCluster
from tests.support.waiting import wait_for
from verifier.cluster.changes import ChangeStream, start_position
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.cluster.inventory import find_named, list_raw
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.ranges import Range, split
from verifier.cluster.rawcursor import RawCursor
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Cancelled, StopToken

NAME = Namespace("d", "c")
DOCUMENTS = 20_000
# Enough tries that a wrong choice of the router cannot succeed every time by chance.
TRIES = 5


@pytest.fixture(scope="module")
def sharded() -> Iterator[ShardedCluster]:
    with ShardedCluster(name="routers") as started:
        with started.client() as client:
            client.admin.command("shardCollection", str(NAME), key={"_id": "hashed"})
            client.d.c.insert_many({"_id": n, "p": "p" * 400} for n in range(DOCUMENTS))
        yield started


@pytest.fixture
def cluster(sharded: ShardedCluster) -> Iterator[Cluster]:
    opened = open_cluster("source", sharded.uri, "test")
    yield opened
    opened.client.close()


def _scan(cluster: Cluster, stop: StopToken) -> RangeScan:
    definition = find_named(cluster.client, NAME)
    assert definition is not None
    time = append_note(cluster.client, stop)
    scanned = ScannedCollection(cluster.client, NAME, definition.uuid, time)
    return RangeScan(scanned, Range(), None, stop)


@pytest.mark.full
def test_the_address_of_a_cluster_is_the_same_at_every_start(sharded: ShardedCluster) -> None:
    addresses = set()
    for _ in range(TRIES):
        opened = open_cluster("source", sharded.uri, "test")
        addresses.add(opened.facts.address)
        opened.client.close()
    assert addresses == {min(each.address for each in sharded.routers)}


def test_every_page_comes_from_one_router(
    cluster: Cluster, sharded: ShardedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    stop = StopToken()
    for _ in range(TRIES):
        pages = [block.count for block, _ in _scan(cluster, stop).pages()]
        assert sum(pages) == DOCUMENTS and len(pages) > 3
    assert len(split(cluster.client, NAME, DOCUMENTS, DOCUMENTS * 400, 40_000, stop)) > 100
    assert "retried" not in caplog.text
    assert open_cursors(sharded.shards) == 0


def test_an_abandoned_or_stopped_scan_leaves_no_cursor(
    cluster: Cluster, sharded: ShardedCluster
) -> None:
    for _ in range(TRIES):
        pages = _scan(cluster, StopToken()).pages()
        next(pages)
        assert open_cursors(sharded.shards) > 0
        del pages
        stop = StopToken()
        pages = _scan(cluster, stop).pages()
        next(pages)
        stop.stop("test")
        with pytest.raises(Cancelled):
            next(pages)
    wait_for(lambda: open_cursors(sharded.shards) == 0, "all cursors are closed")


def test_a_scan_continues_when_its_router_dies(cluster: Cluster, sharded: ShardedCluster) -> None:
    for router in sharded.routers:
        stop = StopToken()
        scans = [_scan(cluster, stop).pages() for _ in range(TRIES)]
        begun = [next(scan)[0].count for scan in scans]
        router.kill()
        try:
            for first, scan in zip(begun, scans):
                assert first + sum(block.count for block, _ in scan) == DOCUMENTS
        finally:
            router.start()
        wait_for(lambda: len(cluster.client.nodes) == 2, "the router is known again")


def test_a_stream_starts_after_writes_through_other_routers(
    cluster: Cluster, sharded: ShardedCluster
) -> None:
    stream = ChangeStream(cluster.client, cluster.facts)
    for router in sharded.routers * TRIES:
        with MongoClient[dict[str, Any]](f"mongodb://{router.address}/") as users:
            reply = users.d.command({"insert": "times", "documents": [{}]})
        assert start_position(stream).time > reply["operationTime"]


def test_an_unexpected_error_at_the_start_is_an_internal_error(
    sharded: ShardedCluster,
) -> None:
    with sharded.shards[0].client() as client:
        fail = {"failCommands": ["connectionStatus"], "errorCode": 2, "appName": "refused"}
        client.admin.command(
            {"configureFailPoint": "failCommand", "mode": "alwaysOn", "data": fail}
        )
        try:
            with pytest.raises(OperationError) as caught:
                open_cluster("source", sharded.shards[0].uri, "refused")
        finally:
            client.admin.command({"configureFailPoint": "failCommand", "mode": "off"})
    assert caught.value.kind.name == "InternalError"
    assert "(code 2)" in caught.value.description


def test_a_listing_of_many_pages_leaves_no_cursor(
    cluster: Cluster, sharded: ShardedCluster
) -> None:
    command = {"listCollections": 1}
    with RawCursor(cluster.client, "config", command, batch_size=1) as cursor:
        assert next(cursor.pages()).documents()
    assert list_raw(cluster.client, "d", {"name": "c"})
    assert open_cursors((sharded.config,)) == 0
