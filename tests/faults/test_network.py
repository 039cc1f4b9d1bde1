"""Delays, cuts and resets connections of the daemon, or drops their messages, during a sync with live writes.

One test compares the commands of an undisturbed sync with those of the fault matrix. `make test` runs only the test of
lost replies: the fault matrix also breaks connections.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pytest

from tests.faults.cells import COMMANDS, On, Stage
from tests.faults.flight import Disturbance, Journey, fill
from tests.faults.proxied import Proxied
from tests.support.proxy import PRODUCT, Network, Rule, Way
from tests.support.selection import full
from tests.support.waiting import wait_for

# Commands outside the matrix: the driver's own, those of a start (a start is refused if one fails), and some that other
# parts of the matrix cover.
_ELSEWHERE = frozenset(
    {
        *("hello", "ismaster", "ping", "endSessions", "buildinfo", "connectionStatus"),
        *("replSetGetConfig", "serverStatus", "collStats", "getParameter", "killCursors"),
        "killSessions",
    }
)


def _reset(network: Network) -> None:
    for _ in range(3):
        wait_for(network.reset, "a connection is reset")


def _struck(within: AbstractContextManager[Rule], hits: int = 3) -> None:
    with within as rule:
        wait_for(lambda: rule.hits >= hits, "messages meet the rule")


def _silent(network: Network, *ways: Way) -> None:
    """Make the daemon's open connections lose all messages in these directions; return after three lost messages.

    A connection that has lost a message stays silent afterwards. New connections work.
    """
    chosen = frozenset(ways)
    lost = Rule(lost=True, ways=chosen, connections=network.of(PRODUCT))
    _struck(network.obeying(lost))


BRIEF: dict[str, Callable[[Network], None]] = {
    "reset": _reset,
    "cut requests": lambda network: _struck(network.cut(Way.TO_SERVER, 50)),
    "cut replies": lambda network: _struck(network.cut(Way.TO_CLIENT, 30)),
}
SILENT: dict[str, Callable[[Network], None]] = {
    "requests are lost": lambda network: _silent(network, Way.TO_SERVER),
    "replies are lost": lambda network: _silent(network, Way.TO_CLIENT),
    "everything is lost": lambda network: _silent(network, *Way),
}


def _fly(proxied: Proxied, folder: Path, disturb: Callable[[Stage], list[Disturbance]]) -> Journey:
    pair = proxied.pair
    pair.empty()
    fill(pair)
    daemon = pair.daemon(folder)
    # Otherwise, the daemon waits a minute for a reply that is lost.
    daemon.give_up_soon()
    with daemon.running():
        journey = Journey(pair, daemon, disturb)
        journey.fly()
    return journey


@pytest.mark.full
def test_a_slow_network(proxied: Proxied, tmp_path: Path) -> None:
    with ExitStack() as stack:
        for network in proxied.networks:
            stack.enter_context(network.slow(latency=0.02, bytes_per_second=2_000_000))
        _fly(proxied, tmp_path, lambda stage: [])


@pytest.mark.full
def test_broken_connections(proxied: Proxied, tmp_path: Path) -> None:
    stages = [*Stage]

    def disturb(stage: Stage) -> list[Disturbance]:
        number = stages.index(stage)
        name = [*BRIEF][number % len(BRIEF)]
        return [Disturbance(name, lambda: BRIEF[name](proxied.networks[number % 2]))]

    _fly(proxied, tmp_path, disturb)


@pytest.mark.full
@pytest.mark.parametrize("name", BRIEF)
def test_broken_connections_in_every_stage(proxied: Proxied, tmp_path: Path, name: str) -> None:
    def disturb(stage: Stage) -> list[Disturbance]:
        # One cluster at a time: disturbing both would test no more, and each would delay the other.
        network = proxied.networks[[*Stage].index(stage) % 2 == 0]
        return [Disturbance(name, lambda: BRIEF[name](network))]

    _fly(proxied, tmp_path, disturb)


@pytest.mark.full
def test_the_matrix_has_the_commands_of_a_sync(proxied: Proxied, tmp_path: Path) -> None:
    """Run a sync without faults: the daemon must send every command of the fault matrix.

    The only other commands that it may send are in `_ELSEWHERE`. The sync must not fail.
    """
    for network in proxied.networks:
        network.sent.clear()
    journey = _fly(proxied, tmp_path, lambda stage: [])
    assert (journey.failures, journey.journal) == ([], [])
    every = {command for names in COMMANDS.values() for command in names}
    for on, network in zip(On, proxied.networks, strict=True):
        known = {each for where, names in COMMANDS.items() if where[1] is on for each in names}
        # The sync writes to both clusters: after the reverse, it writes to the source.
        assert known - {*network.sent} == set()
        assert {*network.sent} - every - _ELSEWHERE == set()


SILENCES = [
    ("replies are lost", 0, Stage.EVENTS),
    *(
        full(name, side, stage)
        for name in SILENT
        for side in (0, 1)
        for stage in Stage
        if (name, side, stage) != ("replies are lost", 0, Stage.EVENTS)
    ),
]


@pytest.mark.parametrize(("name", "side", "stage"), SILENCES)
def test_connections_that_never_answer(
    proxied: Proxied, tmp_path: Path, name: str, side: int, stage: Stage
) -> None:
    def disturb(now: Stage) -> list[Disturbance]:
        if now is not stage:
            return []
        return [Disturbance(name, lambda: SILENT[name](proxied.networks[side]))]

    _fly(proxied, tmp_path, disturb)
