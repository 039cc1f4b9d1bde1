"""Tests when the spooler begins to save change events, and which figures it shows after it has loaded a spool."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp

from syncsvc.engine.events.spooler import Spooler
from syncsvc.figures.progress import Progress, SpoolFigures, WarningKind
from syncsvc.options import EventSpool
from syncsvc.tuning import Tuning
from tests.unit.engine.contexts import context_with
from tests.unit.preflight.values import options
from tests.unit.syncsvc.records import run_record
from verifier.cluster.times import Position


def spooler(option: EventSpool, **given: Any) -> Spooler:
    record = run_record(options=options(event_spool=option))
    return Spooler(context_with(run=SimpleNamespace(record=record), **given))


@pytest.mark.parametrize("option", EventSpool)
def test_it_begins_by_itself_or_when_the_oplog_may_be_too_short(option: EventSpool) -> None:
    found = spooler(option)
    assert found.is_active is (option is EventSpool.ALWAYS)
    found.judge(100, 1)
    assert found.is_active is (option is EventSpool.ALWAYS)
    found.judge(1, 100)
    assert found.is_active is (option is not EventSpool.NEVER)


def test_it_begins_again_after_the_application_has_caught_up() -> None:
    found = spooler(EventSpool.ALWAYS)
    found.finish()
    assert not found.is_active
    found.judge(1, 100)
    assert found.is_active


@pytest.mark.parametrize("rows", [0, 1])
def test_the_figures_of_an_earlier_engine_are_replaced(rows: int) -> None:
    """When an engine loads a spool, it must replace the statistics and warnings that an earlier engine has left.

    `rows` is the number of rows (saved batches of events) in the spool, 0 or 1.
    """
    progress = Progress()
    progress.set(spool=SpoolFigures(True, 9, 10, 60, 1.0))
    progress.warn(WarningKind.SPOOL_FILLING, "The event spool has little room left.")
    begin, end = Timestamp(1, 1), Position({"_data": "01"}, Timestamp(3, 1))
    spool = SimpleNamespace(
        load=lambda position: None,
        size=rows,
        begin=begin if rows else None,
        end=end if rows else None,
    )
    found = spooler(EventSpool.AUTO, spool=spool, progress=progress, tuning=Tuning(spool_limit=10))
    found.load(Position({"_data": "00"}, begin))
    assert progress.snapshot.warnings == {}
    assert progress.snapshot.spool == (SpoolFigures(True, 1, 10, 2, 0.0) if rows else None)
    assert found.is_active is bool(rows)
