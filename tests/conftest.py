"""Clusters that tests share, emptied between them, and the daemon between them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.equality import compare_clusters
from syncsvc.sandbox.replica_set import Client
from tests.support.checks import Checker
from tests.support.daemon import Daemon
from tests.support.spreading import Spreading
from verifier.cluster.cluster import open_cluster

_KEPT = {"admin", "config", "local"}
_WITHOUT_SERVERS = Path(__file__).parent / "unit"


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spreading:
    return Spreading(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run a test on real servers once more when it fails; the summary names it, for that is worth a look.

    A machine with more to do than it can leaves servers without a primary, or a process without its turn, for longer
    than any deadline of a test allows. Tests that need no server have no such excuse.
    """
    for item in items:
        if _WITHOUT_SERVERS not in item.path.parents:
            item.add_marker(pytest.mark.flaky(reruns=1))


@dataclass(frozen=True)
class Side:
    """One cluster of a test."""

    uri: str
    client: Client

    def empty(self) -> None:
        self.client.admin.command({"setUserWriteBlockMode": 1, "global": False})
        for name in self.client.list_database_names():
            if name not in _KEPT:
                self.client.drop_database(name)


@dataclass(frozen=True)
class Pair:
    """Source and destination."""

    source: Side
    destination: Side

    def assert_equal(self) -> None:
        """Compare by the judge that shares nothing with the product."""
        result = compare_clusters(self.source.client, self.destination.client)
        assert result.differences == ()
        assert result.namespaces > 0

    def empty(self) -> None:
        self.source.empty()
        self.destination.empty()


@contextmanager
def started_pair() -> Iterator[Pair]:
    """Two single-node replica sets without access control."""
    # A large transaction must fit into the cache beside all that was written just before.
    source = ReplicaSet(name="source", cache_size_gb=1)
    destination = ReplicaSet(name="destination", cache_size_gb=1)
    with source, destination, source.client() as first, destination.client() as second:
        yield Pair(Side(source.uri, first), Side(destination.uri, second))


@pytest.fixture(scope="session")
def replica_sets() -> Iterator[Pair]:
    """Two clusters for the whole session."""
    with started_pair() as pair:
        yield pair


@pytest.fixture
def pair(replica_sets: Pair) -> Pair:
    """The shared clusters, empty."""
    replica_sets.empty()
    return replica_sets


@pytest.fixture
def daemon(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon between the shared clusters."""
    process = Daemon(pair.source.uri, pair.destination.uri, tmp_path)
    try:
        process.run()
        yield process
    finally:
        process.close()


@pytest.fixture
def orderly(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon with one writer, which saves the resume point of a copy after every page, in their order."""
    process = Daemon(pair.source.uri, pair.destination.uri, tmp_path, "--loadLevel", "1")
    process.save_every_page()
    try:
        process.run()
        yield process
    finally:
        process.close()


@pytest.fixture
def checker(pair: Pair) -> Iterator[Checker]:
    """What begins checks of the shared clusters."""
    source = open_cluster("source", pair.source.uri, "test")
    destination = open_cluster("destination", pair.destination.uri, "test")
    yield Checker((source, destination))
    for each in (source, destination):
        each.client.close()
