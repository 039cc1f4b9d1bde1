"""A reset names the commands that undo what it cannot undo itself."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.engine.reset import undo_commands
from tests.unit.syncsvc.records import run_record

UNBLOCK = "db.adminCommand({setUserWriteBlockMode: 1, global: false})"
START = "sh.startBalancer()"


@pytest.mark.parametrize(
    "saved, commands",
    [
        ({}, []),
        ({"found_blocked": {"cluster1": False}}, []),
        ({"found_blocked": {"cluster0": False}}, [UNBLOCK]),
        ({"found_blocked": {"cluster0": True}}, []),
        ({"found_balancing": {"cluster0": True}}, [START]),
        ({"found_balancing": {"cluster0": False}}, []),
        (
            {"found_blocked": {"cluster0": False}, "found_balancing": {"cluster0": True}},
            [UNBLOCK, START],
        ),
    ],
)
def test_only_changes_of_the_sync_are_undone(saved: dict[str, Any], commands: list[str]) -> None:
    assert undo_commands(run_record(**saved), "cluster0") == commands
