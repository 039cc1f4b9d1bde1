"""Tests the registry (the saved list of the source's collections) when several threads use it at the same time."""

from __future__ import annotations

import threading
from uuid import uuid4

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from tests.support.pair import Pair
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken


def test_loading_again_loses_no_change(pair: Pair) -> None:
    """Reload the registry repeatedly, as a commit does, while another thread adds and removes collections.

    The other thread must see each of its own changes immediately.
    """
    stop = StopToken()
    client = pair.destination.client
    registry = Registry(client[METADATA_DATABASE], ClusterWriter(client, False, stop), 0, stop)
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
