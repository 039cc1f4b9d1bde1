"""Tests when one instance counts the others as ready, how often it reads their records, and which waits it shows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from syncsvc.engine.run.instances import Instances
from syncsvc.figures.progress import Progress
from syncsvc.saved.run import RunRecord
from syncsvc.state import State
from tests.unit.syncsvc.records import run_record
from verifier.runtime import waits
from verifier.runtime.tasks import Cancelled, StopToken

NAMES = ("a", "b", "c")


def of(instance: str, **fields: Any) -> RunRecord:
    return run_record(instance=instance, instances=NAMES, **fields)


class Own:
    """A fake RunStore, which saves nothing."""

    def __init__(self, record: RunRecord) -> None:
        self.record = record


class Others:
    """A fake of the other instances; `reads` is the number of times that their records were read.

    The first read of all records stops `stop`. The first record is that of the coordinator; for each read of this
    record, `shown` contains a list of the long waits that were shown at that moment.
    """

    def __init__(self, records: Iterable[RunRecord], stop: StopToken) -> None:
        self._records = list(records)
        self._stop = stop
        self.reads = 0
        self.shown: list[list[str]] = []

    def others(self, stop: StopToken) -> list[RunRecord]:
        self.reads += 1
        self._stop.stop("read")
        return self._records

    def coordinator(self, stop: StopToken) -> RunRecord:
        self.shown.append([each.what for each in waits.long_waits()])
        return replace(self._records[0], repair=len(self.shown))


def instances(records: Iterable[RunRecord]) -> tuple[Instances, Others]:
    """Return the instances after `watch` has read these records once."""
    stop = StopToken()
    others: Any = Others(records, stop)
    own: Any = Own(of("a"))
    found = Instances(own, others, Progress())
    with pytest.raises(Cancelled):
        found.watch(stop)
    return found, others


@pytest.mark.parametrize(
    "records, held",
    [
        ([of("b"), of("c")], True),
        ([of("b")], False),
        ([], False),
        ([of("b"), of("c", repair=1)], False),
        ([of("b"), of("c", state=State.FAILED)], False),
    ],
)
def test_the_last_read_records_answer_without_another_read(
    records: list[RunRecord], held: bool
) -> None:
    found, others = instances(records)
    for _ in range(20):
        assert found.all_held(lambda other: not other.repair) is held
    assert others.reads == 1


def test_nothing_is_held_before_the_first_read() -> None:
    own: Any = Own(of("a"))
    nobody: Any = Others([], StopToken())
    assert not Instances(own, nobody, Progress()).all_held(lambda other: True)
    own.record = run_record()
    assert Instances(own, nobody, Progress()).all_held(lambda other: False)


def test_a_wait_for_long_work_of_the_coordinator_is_not_shown(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Wait for work of the coordinator that may take hours, such as index builds: this wait must not cause a warning.

    Other waits for the coordinator must.
    """
    monkeypatch.setattr(waits, "LONG", 0.0)
    own: Any = Own(of("b"))
    others: Any = Others([of("a")], StopToken())
    found = Instances(own, others, Progress())
    assert found.wait_for_coordinator(lambda other: other.repair == 2, StopToken()).repair == 2
    assert found.wait_for_long_work(lambda other: other.repair == 4, StopToken()).repair == 4
    assert others.shown == [["This instance waits for the coordinator"]] * 2 + [[]] * 2
