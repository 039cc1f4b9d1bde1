"""Tests how a process confirms, by saving, that no other process has taken over its run.

Concurrent threads share one save, and a confirmation stays valid for a while.
"""

from __future__ import annotations

import threading
from typing import Any

from bson import Timestamp

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.run_store import RunStore
from tests.unit.syncsvc.records import run_record
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken


class _Held(ClusterWriter):
    """A writer that counts its commands. None of them completes before `released` is set."""

    def __init__(self) -> None:
        self._stop = StopToken()
        self.number = 0
        self.begun = threading.Event()
        self.released = threading.Event()

    def run(
        self, database: str, command: dict[str, Any], retried: bool = True, **options: Any
    ) -> dict[str, Any]:
        self.number += 1
        self.begun.set()
        assert self.released.wait(10)
        return {"n": 1, "operationTime": Timestamp(1, 1)}


def test_threads_that_wait_for_a_confirmation_share_one_save() -> None:
    writer = _Held()
    store = RunStore(METADATA_DATABASE, writer, run_record())
    threads = [threading.Thread(target=store.confirm) for _ in range(8)]
    for each in threads:
        each.start()
    assert writer.begun.wait(10)
    writer.released.set()
    for each in threads:
        each.join(10)
    assert writer.number == 1


def test_a_confirmation_is_valid_for_a_while() -> None:
    writer = _Held()
    writer.released.set()
    store = RunStore(METADATA_DATABASE, writer, run_record())
    store.confirm()
    store.confirm(within=100.0)
    assert writer.number == 1
    store.confirm(within=-1.0)
    assert writer.number == 2
