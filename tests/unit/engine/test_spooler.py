"""When the spooler begins to save change events."""

from __future__ import annotations

from dataclasses import fields
from types import SimpleNamespace

import pytest

from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.run.context import RunContext
from syncsvc.options import EventSpool
from tests.unit.preflight.values import options


def spooler(option: EventSpool) -> Spooler:
    record = SimpleNamespace(options=options(event_spool=option))
    given = {"run": SimpleNamespace(record=record)}
    return Spooler(RunContext(**{each.name: given.get(each.name) for each in fields(RunContext)}))


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
