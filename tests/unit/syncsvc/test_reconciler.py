"""Tests how a refused command of `--desiredState` is shown."""

from __future__ import annotations

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


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return a list whose only element is the time in seconds, for the reconciler and for waits."""
    time = [0.0]
    for module in (reconciler, waits):
        monkeypatch.setattr(module, "monotonic", lambda: time[0])
    return time


def test_a_refusal_is_shown_although_its_text_changes(clock: list[float]) -> None:
    service = ShortOfMemory("me", LOAD_LEVELS[1], refuse_to_spawn, ignore, StopToken())
    goal = Goal(DesiredState.RUNNING, StartOptions("cluster0", "cluster1"))
    subject = reconciler.Reconciler(service, goal, RecentCommands(), RETRY)
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
