"""Makes servers lose a cursor between two pages of a read: the read must be repeated, or continue, without a gap.

One test reads within a time limit of the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pymongo
import pytest

from syncsvc import __version__
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.partitions import Partition, Partitions
from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from tests.support import writes
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across, across_topologies
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.cluster.failures import lost_cursor
from verifier.cluster.inventory import list_collections
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import split
from verifier.cluster.rawcursor import RawCursor, resilient_pages
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

NAME = Namespace("d", "c")
# The error codes for a lost cursor.
CURSOR_NOT_FOUND, QUERY_PLAN_KILLED = 43, 175
# More documents than the first page of a driver's cursor or of one of our cursors contains.
ROWS = 1200
APPLICATION = "lost cursors"


@contextmanager
def failing_pages(pair: Pair, mode: Any, code: int, application: str) -> Iterator[None]:
    """During the block, make getMore commands of the application fail with this error code on all servers.

    `mode` is a mode of configureFailPoint. On shards, the getMore commands of all applications fail, because shards do
    not know which application sends a command through a router.
    """
    with ExitStack() as stack:
        for side in (pair.source, pair.destination):
            data: dict[str, Any] = {"failCommands": ["getMore"], "errorCode": code}
            data |= {"failInternalCommands": True} if side.shards else {"appName": application}
            shards = [stack.enter_context(each.client()) for each in side.shards]
            for client in shards or [side.client]:
                fail = partial(client.admin.command, "configureFailPoint", "failCommand")
                stack.callback(fail, mode="off")
                fail(mode=mode, data=data)
        yield


@pytest.fixture
def cluster(pair: Pair) -> Iterator[Cluster]:
    opened = open_cluster("source", pair.source.uri, APPLICATION)
    yield opened
    opened.client.close()


# Reads more than one page, and returns the number of items found. The functions below prepare data and return a Read.
Read = Callable[[], int]


def _views(cluster: Cluster, stop: StopToken) -> Read:
    """Create views whose listing is too large for one page of 16 MB; return a function that lists them."""
    large = {"$match": {"x": "x" * (7 << 20)}}
    for number in range(5):
        cluster.client.d.create_collection(f"v{number}", viewOn="c", pipeline=[large])
    return lambda: len(read(lambda: list(list_collections(cluster.client)), stop))


def _ranges(cluster: Cluster, stop: StopToken) -> Read:
    cluster.client.d.c.insert_many({"_id": number} for number in range(ROWS))
    return lambda: len(split(cluster.client, NAME, ROWS, ROWS * 1000, 2000, stop))


def _registry(cluster: Cluster, stop: StopToken) -> Read:
    writer = ClusterWriter(cluster.client, False, stop)
    names = (Namespace("d", f"c{number}") for number in range(ROWS))
    specs = (CollectionSpec(each, Kind.COLLECTION, uuid4().bytes) for each in names)
    found = (CollectionRecord(each, CopyStatus.WAITING, each.namespace) for each in specs)
    Registry(cluster.client[METADATA_DATABASE], writer, 0, stop).save_next(found)
    registry = Registry(cluster.client[METADATA_DATABASE], writer, 1, stop)

    def reload() -> int:
        registry.reload(stop)
        return len(list(registry))

    return reload


def _partitions(cluster: Cluster, stop: StopToken) -> Read:
    writer = ClusterWriter(cluster.client, False, stop)
    partitions = Partitions(cluster.client[METADATA_DATABASE], writer, 0, "one", False, stop)
    partitions.plan_whole([Partition(uuid4().bytes, 0) for _ in range(ROWS)])
    return lambda: len(partitions.planned())


def _copied(cluster: Cluster, stop: StopToken) -> Read:
    writer = ClusterWriter(cluster.client, False, stop)
    partitions = Partitions(cluster.client[METADATA_DATABASE], writer, 0, "one", False, stop)
    partitions.plan_whole([Partition(uuid4().bytes, 0) for _ in range(ROWS)])
    return lambda: len(partitions.copied())


READS: dict[Callable[[Cluster, StopToken], Read], int] = {
    _views: 5,
    _ranges: ROWS // 2,
    _registry: ROWS,
    _partitions: ROWS,
    _copied: ROWS,
}


@pytest.mark.each_once
@across(REPLICA_SETS, SHARDED)
@pytest.mark.parametrize("prepared", READS, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("code", [CURSOR_NOT_FOUND, QUERY_PLAN_KILLED])
def test_a_read_is_repeated_as_a_whole(
    pair: Pair,
    cluster: Cluster,
    prepared: Callable[[Cluster, StopToken], Read],
    code: int,
    caplog: pytest.LogCaptureFixture,
) -> None:
    count = prepared(cluster, StopToken())
    with failing_pages(pair, {"times": 1}, code, APPLICATION):
        assert count() >= READS[prepared]
    assert "retried" in caplog.text, "no page failed"


def test_the_log_names_the_command_that_lost_the_cursor(
    pair: Pair, cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """Lose a cursor: the log must name the getMore, not the killCursors that follows it."""
    pair.source.client.d.c.insert_many({"_id": number} for number in range(ROWS))
    pages = resilient_pages(
        lambda: RawCursor(cluster.client, "d", {"find": "c"}, batch_size=500),
        lost_cursor,
        StopToken(),
    )
    with failing_pages(pair, {"times": 1}, CURSOR_NOT_FOUND, APPLICATION):
        assert sum(len(page.documents()) for page in pages) > ROWS
    (error,) = [each.__dict__["error"] for each in caplog.records if "error" in each.__dict__]
    assert error.startswith("getMore of d.c ")


@pytest.mark.full
@across_topologies
def test_a_sync_survives_lost_cursors_everywhere(pair: Pair, tmp_path: Path) -> None:
    """Make about one getMore in five fail with a lost cursor in all phases of a sync: the clusters must be equal."""
    client = pair.source.client
    pair.shard("d.big")
    writes.fill(client)
    writes.many_collections(client)
    writes.views(client)
    client.d.big.insert_many({"_id": n, "pad": "p" * 500} for n in range(10_000))
    daemon = pair.daemon(tmp_path)
    application = f"syncsvc {__version__}"
    try:
        with failing_pages(pair, {"activationProbability": 0.2}, CURSOR_NOT_FOUND, application):
            daemon.run()
            daemon.start()
            daemon.wait_until_applying()
            writes.single_document_writes(client)
            daemon.kill()
            daemon.run()
            writes.drop_and_create_again(client)
            daemon.commit()
        pair.assert_equal()
    finally:
        daemon.close()


def test_a_cursor_is_read_to_its_end_within_the_time_limit_of_a_command(pair: Pair) -> None:
    """Read several pages in a block of `pymongo.timeout`, as commands of the API do: the read must succeed.

    In such a block, the driver would add a time limit to each command, which servers refuse for getMore.
    """
    client = pair.source.client
    client.d.c.insert_many({"_id": n} for n in range(ROWS))
    with pymongo.timeout(60), RawCursor(client, "d", {"find": "c"}, batch_size=500) as cursor:
        assert sum(len(page.documents()) for page in cursor.pages()) == ROWS
