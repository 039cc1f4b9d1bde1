"""The registry of the collections, used by several threads at the same time."""

from __future__ import annotations

import threading
from uuid import uuid4

from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from tests.support.pair import Pair
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken


def test_loading_again_loses_no_change(pair: Pair) -> None:
    """Load the records again and again, as the commit does, while another thread adds and removes collections."""
    stop = StopToken()
    client = pair.destination.client
    registry = Registry(client, ClusterWriter(client, False, stop), 0, stop)
    ended = threading.Event()

    def reload() -> None:
        while not ended.wait(0.001):
            registry.reload(stop)

    thread = threading.Thread(target=reload)
    thread.start()
    try:
        for number in range(100):
            name = Namespace("d", f"c{number}")
            spec = CollectionSpec(name, Kind.COLLECTION, uuid4().bytes)
            record = CollectionRecord(spec, CopyStatus.DONE, name)
            registry.save(record)
            assert registry.at(name) == record
            if number % 2:
                registry.remove(record)
                assert registry.at(name) is None
    finally:
        ended.set()
        thread.join()
