"""Fixtures for all tests: shared clusters, which are emptied before each test, and the daemons that sync them."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.support.checks import Checker
from tests.support.daemon import Daemon
from tests.support.fleet import Fleet, running_fleet
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Clusters, Pair, Topology
from tests.support.spreading import Spreading
from tests.support.waiting import PATIENCE
from verifier.cluster.cluster import open_cluster
from verifier.runtime import waits
from verifier.runtime.retry import impatient

pytest_plugins = (
    "tests.support.recording",
    "tests.support.retries",
    "tests.support.selection",
)

_UNIT = Path(__file__).parent / "unit"
# Unit tests do not use servers. A failed fault or model test may have found a bug, even if it looks like a timeout.
_NEVER_RETRIED = {_UNIT, *(Path(__file__).parent / name for name in ("faults", "model"))}
_THREE_MEMBERS = {Path(__file__).parent / name for name in ("faults", "model")}
_ORDER = {SHARDED: 0, FROM_SHARDED: 1, TO_SHARDED: 2}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spreading:
    return Spreading(config, log)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--members",
        type=int,
        choices=(1, 3),
        default=1,
        help="the number of members of replica sets and shards, for tests that require no particular number",
    )


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if _NEVER_RETRIED.isdisjoint(item.path.parents):
            item.add_marker("retry")
        if not _THREE_MEMBERS.isdisjoint(item.path.parents):
            item.add_marker("three_members")
    items.sort(key=_by_clusters)


def _by_clusters(item: pytest.Item) -> tuple[bool, int, int]:
    """Return a sort key that groups tests with the same clusters, so that few servers run at the same time.

    Unit tests come last, because they are short: then all test processes end at about the same time.
    """
    callspec = getattr(item, "callspec", None)
    topology: Any = None if callspec is None else callspec.params.get("pair")
    return _UNIT in item.path.parents, _ORDER.get(topology, len(_ORDER)), _members(item)


def _members(item: pytest.Item) -> int:
    return 3 if item.get_closest_marker("three_members") else item.config.getoption("members")


@pytest.fixture(autouse=True)
def no_wait_remains() -> Iterator[None]:
    """Require that the test ends its waits: tests that follow in the same process would find them."""
    yield
    with waits._lock:
        left = {each.what for each in waits._waits}
        waits._waits.clear()
    assert not left, "The test leaves waits."


@pytest.fixture(scope="session")
def clusters(pytestconfig: pytest.Config) -> Iterator[Clusters]:
    """Return the Clusters that all tests of this pytest process share."""
    with Clusters(pytestconfig.getoption("members")) as clusters:
        yield clusters


@pytest.fixture(scope="session")
def replica_sets(clusters: Clusters) -> Pair:
    """Return the shared pair of replica sets of one member each, without emptying them."""
    return clusters.pair()


@pytest.fixture
def pair(request: pytest.FixtureRequest, clusters: Clusters) -> Iterator[Pair]:
    """Empty and return the shared clusters: replica sets, or the topology that the mark `across` of the test names."""
    pair = clusters.pair(getattr(request, "param", Topology.REPLICA_SETS), _members(request.node))
    try:
        pair.empty()
        # Code of the product that the test calls itself must not retry for ever.
        with impatient(PATIENCE):
            yield pair
    finally:
        clusters.discard_dead()


@pytest.fixture
def daemon(request: pytest.FixtureRequest, pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon between the shared clusters, prepared as the `prepared` marks of the test say."""
    process = pair.daemon(tmp_path)
    _prepare(request.node, process)
    with process.running():
        yield process


@pytest.fixture
def orderly(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon with one reader and one writer. The daemon saves the resume point of the copy after every page."""
    process = pair.daemon(tmp_path, "--loadLevel", "1")
    process.save_every_page()
    with process.running():
        yield process


@pytest.fixture
def fleet(request: pytest.FixtureRequest, pair: Pair, tmp_path: Path) -> Iterator[Fleet]:
    """Run the daemons of a Fleet, which can share one sync, prepared as the `prepared` marks of the test say."""
    with running_fleet(pair, tmp_path, prepare=partial(_prepare, request.node)) as fleet:
        yield fleet


def _prepare(item: pytest.Item, process: Daemon) -> None:
    for mark in item.iter_markers("prepared"):
        for prepare in mark.args:
            prepare(process)


@pytest.fixture
def checker(pair: Pair) -> Iterator[Checker]:
    """Return a Checker, which compares the source and the destination of the pair."""
    source = open_cluster("source", pair.source.uri, "test")
    destination = open_cluster("destination", pair.destination.uri, "test")
    yield Checker((source, destination))
    for each in (source, destination):
        each.client.close()
