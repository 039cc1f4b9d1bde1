"""Tests which warnings end when a sync fails."""

from __future__ import annotations

from types import SimpleNamespace
from unittest.mock import Mock

import pytest

from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.running.runner import Runner
from tests.unit.syncsvc.records import run_record

OF_COMMIT = {WarningKind.FOREIGN_BLOCK, WarningKind.SOURCE_WRITTEN}


@pytest.mark.parametrize("can_write", [False, True])
def test_after_a_failed_commit_no_warning_tells_users_to_stop_applications(can_write: bool) -> None:
    """The applications return to the source, unless they may already write to the destination."""
    runner, progress = Runner.__new__(Runner), Progress()
    runner._store = Mock(record=run_record(can_write=can_write))
    runner._process = Mock(progress=progress, clusters={"cluster0": SimpleNamespace()})
    runner._assembly, runner._releasing = Mock(), Mock()
    for kind in (*OF_COMMIT, WarningKind.CHECK_REPEATED):
        progress.warn(kind, "")
    runner._release()
    left = OF_COMMIT if can_write else set[WarningKind]()
    assert {*progress.snapshot.warnings} == {WarningKind.CHECK_REPEATED, *left}
