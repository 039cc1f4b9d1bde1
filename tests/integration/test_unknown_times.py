"""Tests with a primary that does not know the cluster time yet: its replies have no `operationTime`.

A newly elected or restarted primary with access control is in this state until it has keys to sign the time. In these
tests, a fail point keeps the server from generating keys.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from itertools import islice

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import NotPrimaryError

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.replica_set import Client
from syncsvc.saved.rows import Rows
from syncsvc.source.oplog import read_oplog
from verifier.cluster.changes import ChangeReader, ChangeStream, start_position
from verifier.cluster.connect import connect
from verifier.cluster.facts import gather
from verifier.cluster.failures import temporary
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

_POINT = "disableKeyGeneration"


@pytest.fixture
def client() -> Iterator[Client]:
    """Return a client of a primary whose replies have no cluster time."""
    parameters = {f"failpoint.{_POINT}": "{mode: 'alwaysOn'}"}
    with (
        ReplicaSet(name="keyless", access_control=True, parameters=parameters) as replica_set,
        connect(replica_set.root_uri, "test") as client,
    ):
        assert "operationTime" not in client.admin.command("ping")
        yield client


def test_a_change_stream_continues(client: Client) -> None:
    """Read the change stream: the time of a page must not be before its last event, or an event of an earlier page."""
    stream = ChangeStream(client, gather(client))
    position = start_position(stream)
    inserted = client.d.command({"insert": "c", "documents": [{"_id": 1}]})["opTime"]["ts"]
    pages = [*islice(ChangeReader(stream, position, StopToken()).pages(), 4)]
    times = [page.source_time for page in pages]
    assert any(page.events for page in pages)
    assert times == sorted(times) and times[-1] >= inserted
    assert all(page.source_time >= page.position.time for page in pages if page.events)


def test_saved_rows_wait_for_the_time(client: Client) -> None:
    """Save rows of the metadata: the call must wait until the primary knows the time, and not fail."""
    stop = StopToken()
    rows = Rows(client[METADATA_DATABASE], ClusterWriter(client, True, stop), "rows", stop)
    statements = [{"q": {"_id": 1}, "u": {"$set": {"a": 1}}, "upsert": True}]
    with ThreadPoolExecutor() as pool:
        saving = pool.submit(rows.save, statements)
        try:
            assert not wait([saving], 1.0).done
        finally:
            client.admin.command({"configureFailPoint": _POINT, "mode": "off"})
        assert isinstance(saving.result(), Timestamp)
    assert client[METADATA_DATABASE].rows.find_one() == {"_id": 1, "a": 1}


def test_the_oplog_is_read_again(client: Client) -> None:
    with pytest.raises(NotPrimaryError) as raised:
        read_oplog(client)
    assert temporary(raised.value) is not None
