"""Clusters that tests share, emptied between them, and the daemon between them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.checks import Checker
from tests.support.daemon import Daemon
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Clusters, Pair, Topology
from tests.support.spreading import Spreading
from verifier.cluster.cluster import open_cluster

_WITHOUT_SERVERS = Path(__file__).parent / "unit"
_ORDER = {SHARDED: 0, FROM_SHARDED: 1, TO_SHARDED: 2}
# For a test on real servers that fails; the summary names it, for that is worth a look. A machine with more to do than
# it can leaves servers without a primary, or a process without its turn, for longer than any deadline of a test allows.
# Tests that need no server have no such excuse.
_ONCE_MORE = pytest.mark.flaky(reruns=1)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Spreading:
    return Spreading(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=_by_topology)
    for item in items:
        if _WITHOUT_SERVERS not in item.path.parents:
            item.add_marker(_ONCE_MORE)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say why a test was run once more."""
    for report in terminalreporter.getreports("rerun"):
        terminalreporter.section(f"first run of {report.nodeid}", sep="-")
        terminalreporter.line(report.longreprtext)


def _by_topology(item: pytest.Item) -> int:
    """Tests of one topology follow one another, so that few servers run at once."""
    callspec = getattr(item, "callspec", None)
    topology = None if callspec is None else callspec.params.get("pair")
    return _ORDER.get(topology, len(_ORDER))


@pytest.fixture(scope="session")
def clusters() -> Iterator[Clusters]:
    """The clusters of this process."""
    with Clusters() as clusters:
        yield clusters


@pytest.fixture(scope="session")
def replica_sets(clusters: Clusters) -> Pair:
    """Two of them."""
    return clusters.pair()


@pytest.fixture
def pair(request: pytest.FixtureRequest, clusters: Clusters) -> Pair:
    """The shared clusters, empty; replica sets where a test does not say otherwise by `across`."""
    pair = clusters.pair(getattr(request, "param", Topology.REPLICA_SETS))
    pair.empty()
    return pair


@pytest.fixture
def daemon(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon between the shared clusters."""
    process = pair.daemon(tmp_path)
    try:
        process.run()
        yield process
    finally:
        process.close()


@pytest.fixture
def orderly(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """A running daemon with one writer, which saves the resume point of a copy after every page, in their order."""
    process = pair.daemon(tmp_path, "--loadLevel", "1")
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
