"""A no-op that the product appends to the oplog must advance change streams past its time, even on an idle cluster."""

from __future__ import annotations

from contextlib import ExitStack

from tests.support.sharded.cluster import ShardedCluster
from tests.support.waiting import wait_for
from verifier.cluster.changes import ChangeReader, ChangeStream, start_position
from verifier.cluster.cluster import open_cluster
from verifier.cluster.note import append_note
from verifier.runtime.tasks import StopToken


def test_the_change_stream_of_idle_shards_passes_a_noop() -> None:
    """Append a no-op on a sharded cluster that writes no periodic no-ops, so only this one can advance the stream."""
    still = {"writePeriodicNoops": "false"}
    with ShardedCluster(name="still", parameters=still) as shards, ExitStack() as opened:
        cluster = open_cluster("still", shards.uri, "test")
        opened.callback(cluster.client.close)
        stream, stop = ChangeStream(cluster.client, cluster.facts), StopToken()
        position = start_position(stream)
        time = append_note(cluster.client, stop)
        pages = ChangeReader(stream, position, stop).pages()
        wait_for(lambda: next(pages).position.time > time, "the stream is past the note")
