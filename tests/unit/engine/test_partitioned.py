"""Tests which instances know what all instances of a sync have copied, and how often this is added up."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from syncsvc.engine.copying import partitioned
from syncsvc.engine.copying.partitioned import copied_in_all
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import CopiedAmount
from syncsvc.state import Phase
from syncsvc.tuning import Tuning
from tests.unit.syncsvc.records import collection_record, run_record
from verifier.runtime.tasks import Cancelled, StopToken

INSTANCES = ("coordinator", "b")


@pytest.mark.parametrize(
    "instance, phase, known_in_all",
    [
        ("coordinator", Phase.COPYING, True),
        ("coordinator", Phase.INDEXING, True),
        ("b", Phase.COPYING, False),
        # The coordinator may still copy.
        ("b", Phase.INDEXING, False),
        ("b", Phase.APPLYING, True),
    ],
)
def test_an_instance_knows_the_copy_of_all_when_their_records_are_up_to_date(
    instance: str, phase: Phase, known_in_all: bool
) -> None:
    records = [collection_record(copied=copied, documents=copied // 10) for copied in (100, 200)]
    record = run_record(instance=instance, instances=INSTANCES, phase=phase)
    found = CopiedAmount(300, 30) if known_in_all else None
    assert copied_in_all(record, records) == found
    assert copied_in_all(replace(record, instances=()), records) is None
    assert copied_in_all(replace(record, reversals=1), records) is None


@pytest.mark.parametrize("duration, pause", [(0.01, 1.0), (0.7, 14.0), (600.0, 60.0)])
def test_the_pause_grows_with_the_time_that_settling_takes(
    monkeypatch: pytest.MonkeyPatch, duration: float, pause: float
) -> None:
    now, pauses = [100.0], []

    def settle(context: RunContext) -> None:
        now[0] += duration

    class Stop(StopToken):
        def sleep(self, seconds: float) -> None:
            pauses.append(seconds)
            raise Cancelled("test")

    monkeypatch.setattr(partitioned, "settle", settle)
    monkeypatch.setattr(partitioned, "monotonic", lambda: now[0])
    context = cast(RunContext, SimpleNamespace(tuning=Tuning(settle_interval=1.0)))
    with pytest.raises(Cancelled):
        partitioned.settle_often(context, Stop())
    assert pauses == [pytest.approx(pause)]
