"""Runs the fault matrix on replica sets of three members: each flight is one sync with faults in several stages.

By default, a few flights cover the pairs of properties (stage, cluster, command, fault, number of times), as
`cells.pairwise` describes. With `--full`, every command is combined with every fault in each stage, more flights have
faults of 20 seconds, and one sync runs without faults. Two tests check the selection of the cells itself.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.cells import (
    LONG_ROOM,
    Flight,
    On,
    Stage,
    Times,
    all_cells,
    alternating,
    of_stage,
    pack,
    pairwise,
)
from tests.faults.flight import Journey, Record, Sabotage, fill
from tests.support.failpoints import FailPoints
from tests.support.leaks import assert_no_leaks, close_cursors, holdings
from tests.support.members import ThreeMembers
from tests.support.pair import Pair, Side
from tests.support.waiting import DeadlinePassed

# A server that refuses a command as if it were not primary, but stays primary, does not notify waiting drivers before
# the next heartbeat.
_HEARTBEAT = "&heartbeatFrequencyMS=500"

PAIRWISE = pack(pairwise(all_cells((Times.ONCE, Times.THREE_TIMES))))
FULL = pack(alternating(all_cells((Times.ONCE, Times.THREE_TIMES))))
# These flights contain every fault, and every class of faults in every stage that it applies to. 20 seconds for each
# combination of a command and a fault would take days.
LONG = pack(pairwise(all_cells((Times.FOR_20_SECONDS,))), LONG_ROOM)


@pytest.fixture(scope="module")
def members() -> Iterator[Members]:
    with Members() as members:
        yield members


class Members:
    """A context manager with two replica sets of three members, and a client and the fail points of each."""

    def __init__(self) -> None:
        self._sets = ThreeMembers("source"), ThreeMembers("destination")

    def __enter__(self) -> Members:
        for each in self._sets:
            each.start()
        sides = [Side(each.uri + _HEARTBEAT, each.client()) for each in self._sets]
        self.clients = [each.client for each in sides]
        self.pair = Pair(sides[0], sides[1])
        self.points = dict(zip(On, map(FailPoints, self._sets), strict=True))
        return self

    def __exit__(self, *error: object) -> None:
        for client in self.clients:
            client.close()
        for each in self._sets:
            each.stop()


def _leaves_cursors(flight: Flight) -> bool:
    """Return whether the flight makes servers refuse to close cursors for so long that the daemon gives up.

    The servers close such cursors after ten minutes.
    """
    return any(
        each.command == "killCursors" and each.times is Times.FOR_20_SECONDS for each in flight
    )


def _fly(members: Members, folder: Path, flight: Flight) -> Journey:
    pair = members.pair
    pair.empty()
    fill(pair)
    daemon = pair.daemon(folder)

    def actions(stage: Stage) -> list[Sabotage]:
        cells = [(members.points[on], of_stage(flight, stage, on)) for on in On]
        return [Sabotage(points, some, journey.journal) for points, some in cells if some]

    journey = Journey(pair, daemon, actions)
    try:
        daemon.run()
        before = holdings(daemon.pid, *members.clients)
        journey.fly()
        if _leaves_cursors(flight):
            close_cursors(*members.clients)
        assert_no_leaks(daemon.pid, before, *members.clients)
    except (AssertionError, DeadlinePassed) as error:
        error.add_note(f"Struck: {journey.journal}")
        raise
    finally:
        for each in members.points.values():
            each.disarm("failCommand")
        daemon.close()
    return journey


@pytest.mark.parametrize("flight", PAIRWISE, ids=range(len(PAIRWISE)))
def test_a_sync_with_faults_ends_equal(
    members: Members, tmp_path: Path, flight: Flight, record_property: Record
) -> None:
    record_property("faults on replica sets", _fly(members, tmp_path, flight).faults())


@pytest.mark.full
@pytest.mark.parametrize("flight", FULL, ids=range(len(FULL)))
def test_every_command_with_every_fault(
    members: Members, tmp_path: Path, flight: Flight, record_property: Record
) -> None:
    record_property("faults on replica sets", _fly(members, tmp_path, flight).faults())


@pytest.mark.full
@pytest.mark.parametrize("flight", LONG, ids=range(len(LONG)))
def test_long_faults(members: Members, tmp_path: Path, flight: Flight) -> None:
    _fly(members, tmp_path, flight)


@pytest.mark.full
def test_a_sync_without_faults(members: Members, tmp_path: Path) -> None:
    journey = _fly(members, tmp_path, ())
    assert (journey.failures, journey.journal) == ([], [])


def test_the_selection_contains_every_stage_cluster_class_and_command() -> None:
    cells = [cell for flight in PAIRWISE for cell in flight]
    everything = [*all_cells((Times.ONCE, Times.THREE_TIMES))]
    for properties in (
        lambda cell: (cell.stage, cell.kind),
        lambda cell: (cell.where, cell.command),
        lambda cell: (cell.command, cell.kind),
        lambda cell: (cell.fault.name, cell.on),
    ):
        assert {*map(properties, cells)} == {*map(properties, everything)}
    assert {*Stage} == {cell.stage for cell in cells}
    assert Counter(cells).most_common(1)[0][1] == 1


def test_the_full_matrix_has_every_combination_once() -> None:
    cells = [cell for flight in FULL for cell in flight]
    everything = [*all_cells((Times.ONCE, Times.THREE_TIMES))]
    combinations = Counter((cell.where, cell.command, cell.fault.name) for cell in cells)
    assert set(combinations) == {(cell.where, cell.command, cell.fault.name) for cell in everything}
    assert set(combinations.values()) == {1}
    often = {(cell.where, cell.command, cell.times) for cell in cells}
    assert often == {(cell.where, cell.command, cell.times) for cell in everything}
