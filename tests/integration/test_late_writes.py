"""Searches an idle sharded cluster for user writes: the change stream stands still until each shard writes."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Timer
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.engine.late_writes import first_written, names_of
from tests.support.sharded.cluster import ShardedCluster
from verifier.cluster.changes import ChangeStream, start_position
from verifier.cluster.cluster import Cluster, open_cluster
from verifier.cluster.note import append_note
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken


@pytest.fixture(scope="module")
def idle() -> Iterator[Cluster]:
    """Return a sharded cluster that writes no periodic no-ops."""
    with ShardedCluster(name="idle", parameters={"writePeriodicNoops": "false"}) as shards:
        cluster = open_cluster("idle", shards.uri, "test")
        with cluster.client:
            yield cluster


def search(cluster: Cluster, longest_stall: float) -> Any:
    """Search for user writes up to a time that the change stream reaches only after a later write."""
    client, stop = cluster.client, StopToken()
    since = start_position(ChangeStream(client, cluster.facts))
    until = Timestamp(append_note(client, stop).time + 2, 0)
    with impatient(0.1):
        return first_written(cluster, since, until, names_of, stop, longest_stall)


def test_a_search_waits_for_an_idle_shard(idle: Cluster) -> None:
    late = Timer(3.0, append_note, [idle.client, StopToken()])
    late.start()
    assert not search(idle, 25.0)
    late.join()


def test_a_search_gives_up_if_the_stream_stands_still(idle: Cluster) -> None:
    with pytest.raises(OperationError, match="newest changes within 1 second") as raised:
        search(idle, 1.0)
    assert raised.value.kind.name == "ClusterUnreachable"
