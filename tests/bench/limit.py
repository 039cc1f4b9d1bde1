"""The upper limits for the benchmarks: the speed of the servers if a client does as little as possible.

It forwards the bytes of documents, only reads the change stream, or lets both servers hash their documents. This client
has no state, no retries and no progress. It uses no code of the product, so it cannot share the bugs of the product.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

from bson.timestamp import Timestamp
from pymongo import MongoClient

from syncsvc.sandbox.replica_set import Client
from tests.bench.backlog import MARKER_IDS
from tests.bench.data import DATABASE, PAGE_BYTES, fingerprint
from tests.bench.wire import Wire

_EVENTS_A_PAGE = 5_000


def copy(source: str, destination: str, writers: int) -> None:
    """Copy all collections: one thread reads in natural order, `writers` threads insert batches of about 3 MB."""
    own = threading.local()

    def connect() -> None:
        own.wire = Wire(destination)

    def insert(name: str, array: memoryview) -> None:
        own.wire.insert(DATABASE, name, array)

    def leave(done: Future[None]) -> None:
        room.release()

    room = threading.Semaphore(2 * writers)
    sent = []
    with ThreadPoolExecutor(writers, initializer=connect) as pool:
        for name, array in _arrays(source):
            room.acquire()
            sent.append(pool.submit(insert, name, array))
            sent[-1].add_done_callback(leave)
    for each in sent:
        each.result()


def read_stream(source: str, start: Timestamp) -> None:
    """Read the change stream from the cluster time `start` up to the last marker of the backlog, and apply nothing."""
    stage = {"$changeStream": {"startAtOperationTime": start}}
    cursor = {"batchSize": _EVENTS_A_PAGE}
    command = {"aggregate": 1, "pipeline": [stage], "cursor": cursor}
    last = MARKER_IDS[-1].encode()
    with Wire(source) as wire:
        for array in wire.batches(DATABASE, command, _EVENTS_A_PAGE):
            if last in bytes(array):
                return


def hash_both(source: str, destination: str) -> None:
    """Hash the benchmark's database on both servers at the same time; raise RuntimeError if the hashes differ."""

    def hashed(uri: str) -> str:
        client: Client = MongoClient(uri)
        with client:
            return fingerprint(client)

    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(hashed, (source, destination))
    if first != second:
        raise RuntimeError("the clusters differ")


def _arrays(source: str) -> Iterator[tuple[str, memoryview]]:
    client: Client = MongoClient(source)
    with client, Wire(source) as wire:
        for name in client[DATABASE].list_collection_names():
            average = client[DATABASE].command("collStats", name)["avgObjSize"]
            size = max(1, PAGE_BYTES // average)
            command = {"find": name, "hint": {"$natural": 1}, "batchSize": size}
            for array in wire.batches(DATABASE, command, size):
                yield name, array
