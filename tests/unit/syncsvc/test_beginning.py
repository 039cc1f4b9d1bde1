"""Tests in which states a second start is refused, and what the refusal says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.options import Repair, StartOptions
from syncsvc.running.beginning import refuse_second
from syncsvc.saved.run import PhaseBegin
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import run_record
from verifier.runtime.errors import OperationError

OPTIONS = StartOptions("cluster0", "cluster1")


def refusal(options: StartOptions = OPTIONS, **fields: Any) -> str:
    """Return the text of the refusal if this is the second start of a run with the fields `fields`."""
    with pytest.raises(OperationError) as raised:
        refuse_second(run_record(**{"state": State.RUNNING, **fields}), options)
    assert raised.value.kind.name == "InvalidState"
    return raised.value.description


@pytest.mark.parametrize(
    "state, advice",
    [
        (State.PAUSED, "and is paused: POST /api/v1/resume continues it."),
        (State.RUNNING, "and continues: do not start it again."),
    ],
)
def test_the_same_options_are_recognized(state: State, advice: str) -> None:
    phases = (PhaseBegin(Phase.INITIALIZING, 1767225600.0), PhaseBegin(Phase.COPYING, 1767225601.0))
    assert refusal(state=state, phases=phases) == (
        f"start needs state IDLE; the state is {state.value}. A sync was already started at 2026-01-01T00:00:00Z. "
        f"The existing sync has the options of this request, {advice}"
    )


def test_a_reset_is_proposed_only_if_it_is_possible() -> None:
    other = replace(OPTIONS, repair=Repair.NEVER)
    assert "first reset this sync" in refusal(other)
    assert "can no longer be reset" in refusal(other, can_write=True)


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"verification": False, "repair": Repair.NEVER}, "verification.enabled"),
        ({"repair": Repair.NEVER}, "verification.repair"),
        ({"reversible": True, "detect_random_id": False}, "reversible"),
        ({"source": "cluster1", "destination": "cluster0"}, "source"),
    ],
)
def test_the_first_option_that_differs_is_named(changes: dict[str, Any], named: str) -> None:
    text = refusal(replace(OPTIONS, **changes))
    assert "A sync was already started. The existing sync has" in text
    assert f" another value of the start option {named} than this request." in text


@pytest.mark.parametrize("state", [State.COMMITTED, State.FAILED, State.RESETTING])
def test_in_other_states_nothing_is_refused(state: State) -> None:
    refuse_second(run_record(state=state), OPTIONS)
