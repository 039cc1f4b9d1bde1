"""The error description of a failed sync says on which clusters users are blocked, and how to unblock them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.options import StartOptions, WriteBlocking
from syncsvc.reports.failure import failure_description
from syncsvc.saved.run import UNBLOCK, Failure, RunRecord
from syncsvc.state import State
from tests.unit.syncsvc.records import run_record

BOTH, DESTINATION, NONE = (
    WriteBlocking.SOURCE_AND_DESTINATION,
    WriteBlocking.DESTINATION_ONLY,
    WriteBlocking.NONE,
)


def failed(mode: WriteBlocking, blocked: tuple[str, ...], reversals: int = 0) -> RunRecord:
    return run_record(
        state=State.FAILED,
        options=StartOptions("cluster0", "cluster1", write_blocking=mode),
        failure=Failure("SomeError", "Why."),
        found_blocked=dict.fromkeys(blocked, False),
        reversals=reversals,
    )


@pytest.mark.parametrize(
    "mode, blocked, reversals, said",
    [
        (NONE, (), 0, None),
        (DESTINATION, (), 0, "on neither cluster"),
        (BOTH, (), 0, "on neither cluster"),
        (DESTINATION, ("cluster1",), 0, "blocked on cluster1 (the destination). To give this sync"),
        (BOTH, ("cluster1",), 1, "blocked on cluster1 (the source). Only if you no longer"),
        (BOTH, ("cluster1", "cluster0"), 0, "cluster0 (the source) and cluster1 (the destination)"),
    ],
)
def test_write_blocks_are_described(
    mode: WriteBlocking, blocked: tuple[str, ...], reversals: int, said: str | None
) -> None:
    description = failure_description(failed(mode, blocked, reversals))
    assert description is not None and description.startswith("Why.")
    assert (UNBLOCK in description) is bool(blocked)
    assert said in description if said else description == "Why."


def test_a_follower_refers_to_the_coordinator_for_write_blocks() -> None:
    several: dict[str, Any] = {"instance": "b", "instances": ("a", "b")}
    description = failure_description(replace(failed(DESTINATION, ()), **several))
    assert description == (
        "Why. Only the coordinator a blocks user writes. If it is FAILED, too, its errorDescription says on which "
        "clusters they are blocked; otherwise, the blocks stay as they are."
    )
    assert failure_description(replace(failed(NONE, ()), **several)) == "Why."


def test_without_a_failure_there_is_no_description() -> None:
    assert failure_description(run_record(found_blocked={"cluster1": False})) is None
