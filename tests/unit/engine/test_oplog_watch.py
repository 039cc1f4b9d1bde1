"""The oplog watch ends its warnings when it is stopped, and when the sync no longer needs the oplog."""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.oplog_watch import OplogWatch
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.state import Phase
from syncsvc.tuning import Tuning
from tests.unit.preflight.values import facts
from tests.unit.syncsvc.records import START, run_record
from verifier.runtime.tasks import Cancelled, StopToken

COPYING = run_record(position=START)


class Watched:
    """An OplogWatch whose two warnings about the oplog are active.

    Its fake context has no source client, so every read of the oplog fails.
    """

    def __init__(self) -> None:
        self.run = SimpleNamespace(record=COPYING)
        self.progress = Progress()
        given: dict[str, Any] = {
            "run": self.run,
            "progress": self.progress,
            "source_facts": facts(),
            "tuning": Tuning(),
        }
        context = RunContext(**{each.name: given.get(each.name) for each in fields(RunContext)})
        self.watch = OplogWatch(context, Spooler(context))
        for kind in (WarningKind.OPLOG_SHORT, WarningKind.OPLOG_UNKNOWN):
            self.progress.warn(kind, "It was so.")


def test_a_phase_that_needs_no_oplog_ends_its_warnings() -> None:
    watched = Watched()
    watched.run.record = replace(COPYING, phase=Phase.CUTTING_OVER)
    watched.watch.run(StopToken())
    assert not watched.progress.snapshot.warnings


def test_a_stop_ends_its_warnings() -> None:
    watched = Watched()
    watched.run.record = replace(COPYING, position=None)
    stop = StopToken()
    stop.stop("pause")
    with pytest.raises(Cancelled):
        watched.watch.run(stop)
    assert not watched.progress.snapshot.warnings
