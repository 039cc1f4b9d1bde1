"""Runs the fault matrix on sharded clusters: shards fail, and the router reports write errors or command errors.

Fail points on shards cannot be limited to the daemon's commands. They are limited to one collection and, on the source,
to reads.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.faults.cells import (
    SHARD_COMMANDS,
    SHARD_ROOM,
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
from tests.support.pair import FROM_SHARDED, SHARDED, TO_SHARDED, Pair, across
from tests.support.selection import full

# After three false election errors, shards wait for each other for many seconds, so each fault occurs only once.
PAIRWISE = pack(pairwise(all_cells((Times.ONCE,), SHARD_COMMANDS)), SHARD_ROOM, SHARD_COMMANDS)
_CELLS = alternating(all_cells((Times.ONCE, Times.THREE_TIMES), SHARD_COMMANDS))
FULL = pack(_CELLS, SHARD_ROOM, SHARD_COMMANDS)
_FILTERS = {"namespace": "d.hashed", "failInternalCommands": True}


def _fly(pair: Pair, folder: Path, flight: Flight, record: Record) -> None:
    fill(pair)
    with ExitStack() as stack:
        sides = {On.SOURCE: pair.source, On.DESTINATION: pair.destination}
        points = {
            on: stack.enter_context(FailPoints(*side.shards, application=None))
            for on, side in sides.items()
            if side.shards
        }

        def actions(stage: Stage) -> list[Sabotage]:
            cells = [(each, of_stage(flight, stage, on)) for on, each in points.items()]
            return [
                Sabotage(each, some, journey.journal, **_FILTERS) for each, some in cells if some
            ]

        daemon = pair.daemon(folder)
        stack.callback(daemon.close)
        journey = Journey(pair, daemon, actions)
        daemon.run()
        journey.fly()
    record("faults on shards", journey.faults())


@pytest.mark.each_once
@across(TO_SHARDED, SHARDED, full(FROM_SHARDED))
@pytest.mark.parametrize("flight", PAIRWISE, ids=range(len(PAIRWISE)))
def test_a_sync_with_faults_of_shards_ends_equal(
    pair: Pair, tmp_path: Path, flight: Flight, record_property: Record
) -> None:
    _fly(pair, tmp_path, flight, record_property)


@pytest.mark.full
@across(TO_SHARDED, SHARDED, FROM_SHARDED)
@pytest.mark.parametrize("flight", FULL, ids=range(len(FULL)))
def test_every_command_with_every_fault(
    pair: Pair, tmp_path: Path, flight: Flight, record_property: Record
) -> None:
    _fly(pair, tmp_path, flight, record_property)
