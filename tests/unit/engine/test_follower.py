"""Tests what a follower saves when the coordinator has finished change event application."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bson import Timestamp

from syncsvc.engine.follower import Follower
from syncsvc.figures.progress import Progress
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_store import RunStore
from syncsvc.state import Phase, State
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import run_record
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

NAMES = ("a", "b")
CUT_OVER = run_record(
    instance="a", instances=NAMES, state=State.COMMITTING, phase=Phase.CUTTING_OVER
)


class _Saving(ClusterWriter):
    """A writer whose commands all succeed."""

    def __init__(self) -> None:
        self._stop = StopToken()

    def run(
        self, database: str, command: dict[str, Any], retried: bool = True, **options: Any
    ) -> dict[str, Any]:
        return {"n": 1, "operationTime": Timestamp(1, 1)}


def follower(state: State, phase: Phase) -> tuple[Follower, RunStore]:
    """Return a follower in this state and phase, whose coordinator has begun its cut-over, and its run record."""
    record = run_record(instance="b", instances=NAMES, state=state, phase=phase)
    run = RunStore(METADATA_DATABASE, _Saving(), record)

    def coordinator(holds: Any, stop: StopToken) -> RunRecord:
        assert holds(CUT_OVER)
        return CUT_OVER

    context = context_with(
        run=run,
        instances=SimpleNamespace(wait_for_coordinator=coordinator),
        destination_writer=SimpleNamespace(settle=lambda: None),
        progress=Progress(),
        spool=SimpleNamespace(end=None),
        registry=(),
        partitions=SimpleNamespace(copied=lambda instance: {}),
    )
    return Follower(context, StopToken()), run


@pytest.mark.parametrize("state", [State.RUNNING, State.COMMITTING])
@pytest.mark.parametrize("phase", [Phase.APPLYING, Phase.WITHDRAWING])
def test_a_follower_enters_the_cut_over_committing(state: State, phase: Phase) -> None:
    """The state is RUNNING if the save of the commit command was not acknowledged, but the coordinator has read it."""
    found, run = follower(state, phase)
    found._read(StopToken())
    assert (run.record.state, run.record.phase) == (State.COMMITTING, Phase.CUTTING_OVER)


@pytest.mark.parametrize("state", [State.PAUSED, State.RESETTING])
def test_a_stopped_follower_does_not_enter_the_cut_over(state: State) -> None:
    found, run = follower(state, Phase.APPLYING)
    with pytest.raises(OperationError) as error:
        found._read(StopToken())
    assert error.value.kind.name == "InvalidState"
    assert (run.record.state, run.record.phase) == (state, Phase.APPLYING)
