"""Tests how a refused or failed command of `--desiredState` is shown."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc import reconciler
from syncsvc.desired import DesiredState, Goal
from syncsvc.errors import INSUFFICIENT_MEMORY
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.options import StartOptions
from syncsvc.reports.sync import Sync
from syncsvc.saved.journal import Sender
from syncsvc.service import Service
from syncsvc.state import State
from syncsvc.tuning import LOAD_LEVELS
from tests.unit.syncsvc.test_api import refuse_to_spawn
from verifier.runtime import waits
from verifier.runtime.errors import OperationError
from verifier.runtime.observer import ignore
from verifier.runtime.recent import RecentCommands
from verifier.runtime.tasks import StopToken

RETRY = 10.0


class ShortOfMemory(Service):
    """A service without a sync that refuses every start; the text of each refusal has another number."""

    available = 400

    def sync(self) -> Sync:
        return Sync(State.IDLE, None, ProgressSnapshot(), can_commit=False)

    def start(self, options: StartOptions, sender: Sender) -> None:
        self.available -= 1
        raise OperationError(INSUFFICIENT_MEMORY, f"Only {self.available} MB are available.")


class Failing(ShortOfMemory):
    """A service that refuses the first start, and fails with a bug at each of the next four starts."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        refused = OperationError(INSUFFICIENT_MEMORY, "Only 1 MB is available.")
        self.errors = iter([refused, KeyError(1), KeyError(2), ValueError(3), KeyError(4)])

    def start(self, options: StartOptions, sender: Sender) -> None:
        raise next(self.errors)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list whose only element is the time in seconds, for the reconciler and for waits."""
    time = [0.0]
    for module in (reconciler, waits):
        monkeypatch.setattr(module, "monotonic", lambda: time[0])
    return time


def test_a_refusal_is_shown_although_its_text_changes(clock: list[float]) -> None:
    subject = reconciler_of(ShortOfMemory)
    for _ in range(3):
        subject._step()
        clock[0] += RETRY
    [shown] = waits.long_waits()
    assert shown.seconds == 3 * RETRY
    assert shown.what.endswith("start is refused with InsufficientMemory")
    assert shown.remedy.startswith("Only 397 MB are available. ")
    assert shown.remedy.endswith(" The command is retried every 10 s.")
    subject._rest()
    assert waits.long_waits() == ()


def test_each_kind_of_bug_is_logged_once(
    clock: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    subject = reconciler_of(Failing)
    for _ in range(5):
        subject._step()
        clock[0] += RETRY
    subject._rest()
    bugs = [each.exc_info[0] for each in caplog.records if each.exc_info]
    assert bugs == [KeyError, ValueError]


def reconciler_of(service: type[Service]) -> reconciler.Reconciler:
    """Return a reconciler that wants a service of this class to start a sync."""
    goal = Goal(DesiredState.RUNNING, StartOptions("cluster0", "cluster1"))
    return reconciler.Reconciler(
        service("me", LOAD_LEVELS[1], refuse_to_spawn, ignore, StopToken()),
        goal,
        RecentCommands(),
        RETRY,
    )
