"""Tests how the process remembers its own commands: with their answers, and a command that is retried only once."""

from __future__ import annotations

from contextlib import suppress

import pytest

from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.errors import OperationError
from verifier.runtime.recent import RecentCommands
from verifier.runtime.tasks import Cancelled


def test_a_command_that_is_retried_displaces_no_other() -> None:
    recent = RecentCommands()
    with recent.own("alice", "pause"):
        pass
    for _ in range(100):
        with suppress(OperationError), recent.own("desiredState", "start"):
            raise OperationError(COMMAND_IN_PROGRESS, "Why.")
    with recent.own("desiredState", "start"):
        pass
    assert [(each.command, each.error) for each in recent.newest] == [
        ("start", None),
        ("start", COMMAND_IN_PROGRESS.name),
        ("pause", None),
    ]


@pytest.mark.parametrize("ending", [ZeroDivisionError, Cancelled])
def test_a_command_without_an_answer_is_not_remembered(ending: type[BaseException]) -> None:
    recent = RecentCommands()
    with suppress(ending), recent.own("desiredState", "start"):
        raise ending
    assert recent.newest == ()
