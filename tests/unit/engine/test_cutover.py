"""Tests which steps of a cut-over a restart repeats."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.engine.cutover import Cutover
from syncsvc.options import StartOptions, WriteBlocking
from syncsvc.saved.run import RunRecord
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import run_record
from verifier.runtime.tasks import StopToken

PREPARED, COPIED = "definitions prepared", "users and roles copied"
CHECKED, UNBLOCKED = "source checked", "destination unblocked"


class _Cluster:
    """A fake of the run store, and of the write block of the destination."""

    def __init__(self, record: RunRecord, blocked: bool) -> None:
        self.record = record
        self._blocked = blocked

    def update(self, **fields: Any) -> None:
        self.record = replace(self.record, **fields)

    def is_set(self) -> bool:
        return self._blocked


@pytest.mark.parametrize(
    ("steps", "blocked", "kept"),
    [
        ((PREPARED, COPIED), True, (PREPARED,)),
        ((PREPARED, COPIED, CHECKED), True, (PREPARED,)),
        # The process was killed after it unblocked the destination, and before it saved that.
        ((PREPARED, COPIED, CHECKED), False, (PREPARED, COPIED, CHECKED)),
        ((PREPARED, COPIED, CHECKED, UNBLOCKED), False, (PREPARED, COPIED, CHECKED, UNBLOCKED)),
        # An earlier version of syncsvc, which did not save the check, has unblocked the destination.
        ((PREPARED, COPIED, UNBLOCKED), False, (PREPARED, COPIED, UNBLOCKED)),
    ],
)
def test_the_source_is_read_again_unless_users_may_write_to_the_destination(
    steps: tuple[str, ...], blocked: bool, kept: tuple[str, ...]
) -> None:
    options = StartOptions("cluster0", "cluster1", write_blocking=WriteBlocking.DESTINATION_ONLY)
    fake = _Cluster(run_record(options=options, steps=steps), blocked)
    Cutover(context_with(run=fake, destination_block=fake), StopToken())._forget_reads()
    assert fake.record.steps == kept
