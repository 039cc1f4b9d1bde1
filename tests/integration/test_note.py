"""Tests that a no-op in the oplog moves change streams past its cluster time, even on an idle cluster.

The time of a page of a change stream must not be in the future.
"""

from __future__ import annotations

from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.support.pair import TO_SHARDED, Pair, Side, across
from tests.support.sharded.cluster import ShardedCluster
from tests.support.waiting import wait_for
from verifier.cluster.changes import ChangeReader, ChangeStream, start_position
from verifier.cluster.cluster import open_cluster
from verifier.cluster.connect import connect
from verifier.cluster.newest import read_after
from verifier.cluster.note import append_note, reply_time
from verifier.cluster.times import position_after
from verifier.runtime.tasks import StopToken


def test_the_change_stream_of_idle_shards_passes_a_noop() -> None:
    """Append a no-op on an idle sharded cluster without periodic no-ops: the change stream must move past it."""
    still = {"writePeriodicNoops": "false"}
    with ShardedCluster(name="still", parameters=still) as shards, ExitStack() as opened:
        cluster = open_cluster("still", shards.uri, "test")
        opened.callback(cluster.client.close)
        stream, stop = ChangeStream(cluster.client, cluster.facts), StopToken()
        position = start_position(stream)
        time = append_note(cluster.client, stop)
        pages = ChangeReader(stream, position, stop).pages()
        wait_for(lambda: next(pages).position.time > time, "the stream is past the note")


@across(TO_SHARDED)
def test_a_noop_is_later_than_each_write_through_another_router(pair: Pair) -> None:
    """Change a document of each shard through one router: a no-op through the other router must be later."""
    uris = (f"mongodb://{each.address}/" for each in pair.destination.routers)
    with ExitStack() as opened:
        client, writing = (opened.enter_context(closing(connect(each, "test"))) for each in uris)
        for shard in pair.destination.shards:
            database = shard.name
            writing.admin.command("enableSharding", database, primaryShard=shard.name)
            writing[database].c.insert_one({"_id": 1, "n": 0})
            # Unlike an update, the stand-in for mongos sends this only to the shard of the document.
            change = {"findAndModify": "c", "query": {"_id": 1}, "update": {"$inc": {"n": 1}}}
            for _ in range(20):
                reply = writing[database].command(change)
            assert append_note(client, StopToken()) > reply_time(reply)


def test_the_time_of_a_page_is_not_in_the_future(replica_sets: Pair) -> None:
    """Read at the time of the first page of a change stream on an idle cluster: the read must succeed.

    The stream begins at each kind of position in turn.
    """
    client = replica_sets.source.client
    cluster = open_cluster("source", replica_sets.source.uri, "test")
    with cluster.client:
        stream, stop = ChangeStream(cluster.client, cluster.facts), StopToken()
        for position in (start_position(stream), position_after(append_note(client, stop))):
            page = next(ChangeReader(stream, position, stop).pages())
            assert read_after(page.source_time, cluster.client, "d", "missing") == []
            again = next(ChangeReader(stream, page.position, stop).pages())
            assert read_after(again.source_time, cluster.client, "d", "missing") == []


@pytest.mark.full
def test_a_sync_to_idle_shards_stays_committable(replica_sets: Pair, tmp_path: Path) -> None:
    """Sync to shards that write no periodic no-ops: the verification must catch up although one shard is idle."""
    still = {"writePeriodicNoops": "false"}
    with ShardedCluster(name="still", parameters=still) as shards, ExitStack() as stack:
        client = stack.enter_context(shards.client())
        pair = Pair(
            replica_sets.source, Side(shards.uri, client, shards.shards, tuple(shards.routers))
        )
        pair.source.empty()
        pair.source.client.d.c.insert_one({"_id": 1})
        daemon = pair.daemon(tmp_path)
        stack.callback(daemon.close)
        daemon.run()
        daemon.start()
        daemon.wait_until_committable()

        def lag() -> int:
            seconds = daemon.progress()["verification"]["destination"]["lagTimeSeconds"]
            return 0 if seconds is None else int(seconds)

        # The metadata is on one shard only, so the other one is idle.
        wait_for(lambda: lag() > 10, "the stream of the idle shard falls behind")
        wait_for(lambda: lag() < 10, "a no-op advances it")
        daemon.commit()
        pair.assert_equal()
