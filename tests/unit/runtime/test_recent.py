"""The list of recent commands keeps those of users, even if the process often retries one of its own commands."""

from __future__ import annotations

from contextlib import suppress

from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.errors import OperationError
from verifier.runtime.recent import RecentCommands


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
