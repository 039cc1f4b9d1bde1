"""Tests which clusters the daemon unblocks when a sync fails permanently."""

from __future__ import annotations

import pytest

from syncsvc.engine.run.writeblock import to_put_back
from syncsvc.state import Phase
from tests.unit.syncsvc.records import run_record

LATER = [phase for phase in Phase if phase is not Phase.INITIALIZING]


@pytest.mark.parametrize(
    "phase, can_write, reversals, expected",
    [
        (Phase.INITIALIZING, False, 0, ("cluster0", "cluster1")),
        *((phase, False, 0, ("cluster0",)) for phase in LATER),
        *((phase, False, 1, ("cluster1",)) for phase in LATER),
        # Users were told to write to the destination, so the source must not accept writes as well.
        (Phase.CUTTING_OVER, True, 0, ()),
        (Phase.CUTTING_OVER, True, 1, ()),
    ],
)
def test_a_failure_unblocks_the_cluster_used_by_production(
    phase: Phase, can_write: bool, reversals: int, expected: tuple[str, ...]
) -> None:
    assert (
        to_put_back(run_record(phase=phase, can_write=can_write, reversals=reversals)) == expected
    )
