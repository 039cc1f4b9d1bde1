"""Tests that the workload really writes, counts its writes correctly, and reports its errors."""

from collections.abc import Iterator
from typing import Any

import pytest
from pymongo import MongoClient
from pymongo.errors import WriteError

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.workload import Workload
from tests.support.waiting import wait_for


@pytest.fixture(scope="module")
def client() -> Iterator[MongoClient[dict[str, Any]]]:
    with ReplicaSet() as server, server.client() as client:
        yield client


def wait_for_writes(workload: Workload, number: int) -> None:
    def has_written() -> bool:
        workload.check()
        return min(workload.written.updated, workload.written.inserted) >= number

    wait_for(has_written, f"{number} writes of each kind")


def test_counts_equal_the_written_documents(client: MongoClient[dict[str, Any]]) -> None:
    old, new = client.counted.old, client.counted.new
    old.insert_many([{"number": number} for number in range(1000)])
    with Workload([old, new], pause_seconds=0) as workload:
        wait_for_writes(workload, 200)
        written = workload.stop()
    present = old.count_documents({}) + new.count_documents({})
    assert present == 1000 + written.inserted - written.deleted
    assert written.deleted > 0
    assert new.count_documents({}) > 0
    assert old.count_documents({"number": {"$exists": True}}) < 1000


def test_equal_seeds_can_share_a_collection(client: MongoClient[dict[str, Any]]) -> None:
    for _ in range(2):
        with Workload([client.shared.c], seed=7, pause_seconds=0) as workload:
            wait_for_writes(workload, 20)


def test_nothing_is_written_after_stop(client: MongoClient[dict[str, Any]]) -> None:
    workload = Workload([client.stopped.c], pause_seconds=0)
    workload.start()
    wait_for_writes(workload, 10)
    written = workload.stop()
    present = client.stopped.c.count_documents({})
    assert present == written.inserted - written.deleted
    assert workload.stop() == written


def test_an_error_ends_the_workload_and_is_raised(client: MongoClient[dict[str, Any]]) -> None:
    collection = client.broken.create_collection("c", validator={"name": {"$type": "int"}})
    with pytest.raises(WriteError, match="failed validation"):
        with Workload([collection], pause_seconds=0) as workload:
            wait_for_writes(workload, 1)
    with pytest.raises(WriteError):
        workload.stop()


def test_the_error_of_the_block_is_raised(client: MongoClient[dict[str, Any]]) -> None:
    with pytest.raises(KeyError):
        with Workload([client.block.c]):
            raise KeyError("of the block")
