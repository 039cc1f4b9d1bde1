"""The oplog watch ends its warnings when it is stopped, and when the sync no longer needs the oplog.

Its warning about lost entries names the members that still have them.
"""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.engine import oplog_watch
from syncsvc.engine.events.spooler import Spooler
from syncsvc.engine.oplog_watch import OplogWatch
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.source.oplog import Oplog
from syncsvc.state import Phase
from syncsvc.tuning import Tuning
from tests.unit.engine.contexts import context_with
from tests.unit.preflight.values import facts
from tests.unit.syncsvc.records import START, run_record
from verifier.cluster.oplog_reach import Reach
from verifier.runtime.tasks import Cancelled, StopToken

COPYING = run_record(position=START)


class _FailingClient:
    """A client with which every read of the oplog fails."""

    def __getattr__(self, name: str) -> Any:
        raise OperationFailure(f"{name} is refused")


class Watched:
    """An OplogWatch whose two warnings about the oplog are active, and which cannot read the oplog."""

    def __init__(self) -> None:
        self.run = SimpleNamespace(record=COPYING)
        self.progress = Progress()
        context = context_with(
            run=self.run,
            progress=self.progress,
            source_facts=facts(),
            source_client=_FailingClient(),
            tuning=Tuning(),
        )
        self.watch = OplogWatch(context, Spooler(context))
        for kind in (WarningKind.OPLOG_SHORT, WarningKind.OPLOG_UNKNOWN):
            self.progress.warn(kind, "It was so.")


def test_a_phase_that_needs_no_oplog_ends_its_warnings() -> None:
    watched = Watched()
    watched.run.record = replace(COPYING, phase=Phase.CUTTING_OVER)
    watched.watch.run(StopToken())
    assert not watched.progress.snapshot.warnings


def test_the_member_that_still_has_lost_entries_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    watched = Watched()
    begin = START.time.time
    oplog = Oplog(Timestamp(begin + 100, 1), Timestamp(begin + 500, 1), 100, 1000)
    monkeypatch.setattr(watched.watch, "_read", lambda stop: oplog)
    monkeypatch.setattr(watched.watch, "_spooled", lambda: None)
    monkeypatch.setattr(watched.watch, "_copied", lambda: 0)
    monkeypatch.setattr(oplog_watch, "reach", lambda *arguments: Reach(("m2:27017",), ()))
    watched.watch._look(StopToken())
    warning = watched.progress.snapshot.warnings[WarningKind.OPLOG_SHORT]
    assert "Members whose oplog reaches back far enough: m2:27017." in warning


def test_a_stop_ends_its_warnings() -> None:
    watched = Watched()
    watched.run.record = replace(COPYING, position=None)
    stop = StopToken()
    stop.stop("pause")
    with pytest.raises(Cancelled):
        watched.watch.run(stop)
    assert not watched.progress.snapshot.warnings
