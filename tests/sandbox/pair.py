"""Writes the same or different data to two clusters, and compares the clusters with the sandbox's comparison."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pymongo import MongoClient
from pymongo.database import Database

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.equality import Equality, compare_clusters

Client = MongoClient[dict[str, Any]]


class Pair:
    """Two clusters. `both` runs the same writes on each cluster, and `differences` compares the clusters."""

    def __init__(self, source: Client, destination: Client) -> None:
        self.clients = source, destination
        self.source, self.destination = source.db, destination.db

    def empty(self) -> None:
        for client in self.clients:
            for name in client.list_database_names():
                if name not in ("admin", "config", "local"):
                    client.drop_database(name)

    def both(self, write: Callable[[Database[dict[str, Any]]], object]) -> None:
        for client in self.clients:
            write(client.db)

    def fill(self, documents: list[dict[str, Any]]) -> None:
        self.both(lambda db: db.c.insert_many(documents))

    def compare(self) -> Equality:
        return compare_clusters(*self.clients)

    def differences(self) -> list[str]:
        return list(self.compare().differences)


@contextmanager
def started_pair() -> Iterator[Pair]:
    with ReplicaSet() as source, ReplicaSet() as destination:
        with source.client() as left, destination.client() as right:
            yield Pair(left, right)
