"""Clients that write throughout a migration, and switch to the other cluster when their writes are refused.

Each client writes its own documents and records their expected contents: the results of its last acknowledged writes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

from pymongo import WriteConcern
from pymongo.client_session import ClientSession
from pymongo.collection import Collection
from pymongo.errors import OperationFailure

from tests.support.blocks import USER_WRITES_BLOCKED
from tests.support.daemon import Daemon
from tests.support.pair import Pair
from tests.support.waiting import wait_for

# The number of documents that one client changes again and again, and the number of writes that `wait_for_writes` waits
# for.
_DOCUMENTS = 25
_SOME = 30

Document = dict[str, Any]


class SwitchingClient:
    """One thread of an application, which writes to the source first.

    When its writes are blocked, the thread waits until the daemon reports `canWrite`, and then writes to the
    destination that the daemon reports. The thread pauses while the event `going` is not set.
    """

    def __init__(self, name: str, pair: Pair, daemon: Daemon, going: threading.Event) -> None:
        self.acknowledged = 0
        self.documents: dict[str, Document] = {}
        self.is_waiting = False
        self._name = name
        self._random = Random(name)
        self._clients = {"cluster0": pair.source.client, "cluster1": pair.destination.client}
        self._daemon = daemon
        self._going = going
        self._current = "cluster0"
        self._end = threading.Event()

    def end(self) -> None:
        self._end.set()

    def run(self) -> None:
        while not self._end.is_set():
            self._going.wait()
            identity = f"{self._name} {self._random.randrange(_DOCUMENTS)}"
            try:
                self._write(identity)
            except OperationFailure as error:
                if error.code != USER_WRITES_BLOCKED:
                    raise
                self._switch()
            else:
                self.acknowledged += 1

    def _write(self, identity: str) -> None:
        """Insert, replace, update or delete the document `identity` at random, or insert two in a transaction."""
        collection = self._collection()
        if self._random.random() < 0.2:
            self._insert_two(collection, identity)
            return
        document = self.documents.get(identity)
        if document is None:
            self._replace(collection, identity, upsert=True)
        elif self._random.random() < 0.2:
            collection.delete_one({"_id": identity})
            del self.documents[identity]
        elif self._random.random() < 0.5:
            self._replace(collection, identity, upsert=False)
        else:
            collection.update_one({"_id": identity}, {"$inc": {"n": 1}, "$set": {"pad": "p" * 99}})
            self.documents[identity] = {**document, "n": document["n"] + 1, "pad": "p" * 99}

    def _replace(self, collection: Collection[Any], identity: str, upsert: bool) -> None:
        document = {
            "_id": identity,
            "n": self.acknowledged,
            "unique": f"{identity} {self.acknowledged}",
        }
        collection.replace_one({"_id": identity}, document, upsert=upsert)
        self.documents[identity] = document

    def _insert_two(self, collection: Collection[Any], identity: str) -> None:
        pair = [{"_id": f"{identity} {self.acknowledged} {which}", "n": 0} for which in "ab"]

        def insert(session: ClientSession) -> None:
            for document in pair:
                collection.insert_one(document, session=session)

        with collection.database.client.start_session() as session:
            # `with_transaction` retries a transaction that waits for a lock while write blocking is being enabled.
            session.with_transaction(insert, write_concern=WriteConcern("majority"))
        self.documents.update((str(document["_id"]), document) for document in pair)

    def _collection(self) -> Collection[Any]:
        majority = WriteConcern("majority")
        return self._clients[self._current].app.get_collection("data", write_concern=majority)

    def _switch(self) -> None:
        """Wait until the daemon reports `canWrite`, or this client is ended; then switch to the destination."""
        self.is_waiting = True
        progress = wait_for(self._writable, "canWrite")
        self._current = progress["directionMapping"]["Destination"].partition(":")[0]
        self.is_waiting = False

    def _writable(self) -> Document | None:
        progress = self._daemon.progress()
        return progress if progress["canWrite"] or self._end.is_set() else None


class Application:
    """Several clients that write to one collection with a unique index during the block of `writing`."""

    def __init__(self, pair: Pair, daemon: Daemon, clients: int = 3) -> None:
        pair.source.client.app.data.create_index("unique", unique=True, sparse=True)
        self._going = threading.Event()
        self._clients = [
            SwitchingClient(f"client {number}", pair, daemon, self._going)
            for number in range(clients)
        ]
        self._running: list[Any] = []

    @contextmanager
    def writing(self) -> Iterator[None]:
        """Run the clients during the block. At its end, raise the error of a client that failed."""
        self._going.set()
        with ThreadPoolExecutor(len(self._clients)) as executor:
            self._running = [executor.submit(each.run) for each in self._clients]
            try:
                yield
            finally:
                for each in self._clients:
                    each.end()
                self._going.set()
        for each in self._running:
            each.result()

    def wait_for_writes(self) -> None:
        """Wait until each client has made 30 more successful writes; raise the error of a client that has failed."""
        goals = [each.acknowledged + _SOME for each in self._clients]
        self._wait(
            lambda: all(each.acknowledged >= goal for each, goal in zip(self._clients, goals)),
            "more is written",
        )

    def wait_until_refused(self) -> None:
        """Wait until the writes of all clients are refused, so that all clients wait for canWrite."""
        self._wait(lambda: all(each.is_waiting for each in self._clients), "all are refused")

    def suspend(self) -> None:
        """Make the clients wait before their next write, until `resume` is called.

        Call this after the writes of all clients were refused.
        """
        self._going.clear()

    def resume(self) -> None:
        self._going.set()

    @property
    def documents(self) -> dict[str, Document]:
        """Return the expected documents of all clients by `_id`: the results of their acknowledged writes.

        The documents are exact only while no client writes.
        """
        return {name: each for client in self._clients for name, each in client.documents.items()}

    def _wait(self, condition: Any, what: str) -> None:
        def look() -> bool:
            for each in self._running:
                if each.done():
                    each.result()
            return bool(condition())

        wait_for(look, what)
