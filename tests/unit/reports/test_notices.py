"""Each new state except INITIALIZING, and each begin and end of a warning, must cause one notice.

The failure by which a daemon with `--standby` becomes a standby must cause none. A standby must send only the ends of
the warnings that it sent while it was active.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.figures.progress import Progress, ProgressSnapshot, WarningKind
from syncsvc.reports.notices import Notice, Told, news
from syncsvc.reports.standing import Role, Standing
from syncsvc.reports.sync import Sync
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import known, run_record
from verifier.runtime.waits import LongWait

ACTIVE, STANDBY = Standing(Role.ACTIVE), Standing(Role.STANDBY)


def entered(*states: State, progress: Progress | None = None) -> ProgressSnapshot:
    progress = progress or Progress()
    for each in states:
        progress.enter(each)
    return progress.snapshot


def told(before: Told, sync: Sync) -> tuple[Told, list[tuple[str, Any]]]:
    """Return the result of `news`: the new Told, and each notice shortened to (event, state or kind of the warning)."""
    after, notices = news(before, sync, 5.0)
    return after, [(each.event, _subject(each)) for each in notices]


def _subject(notice: Notice) -> Any:
    warning = notice.fields["warning"]
    return notice.fields["state"] if warning is None else warning["kind"]


def test_every_state_is_told_once_even_if_it_was_short() -> None:
    progress = Progress()
    snapshot = entered(State.INITIALIZING, State.IDLE, State.RUNNING, progress=progress)
    before, notices = told(Told(), known(run_record(), snapshot))
    assert notices == [("state", "IDLE"), ("state", "RUNNING")]
    assert told(before, known(run_record(), snapshot)) == (before, [])
    snapshot = entered(State.COMMITTING, State.COMMITTED, progress=progress)
    committed = known(run_record(state=State.COMMITTED, phase=Phase.DONE), snapshot)
    _, found = news(before, committed, 5.0)
    assert [each.fields["previousState"] for each in found] == ["RUNNING", "COMMITTING"]
    assert found[-1].fields == {
        "state": "COMMITTED",
        "previousState": "COMMITTING",
        "info": "commit completed",
        "error": None,
        "errorDescription": None,
        "warning": None,
    }


def test_a_failure_is_told_even_if_the_sync_was_resumed_at_once() -> None:
    progress = Progress()
    progress.enter(State.RUNNING)
    progress.enter(State.FAILED, "DuplicateIds", "Two documents have the same _id.")
    snapshot = entered(State.RUNNING, progress=progress)
    _, notices = news(Told(1, State.RUNNING), known(run_record(), snapshot), 5.0)
    assert [each.fields["error"] for each in notices] == ["DuplicateIds", None]
    assert notices[0].fields["errorDescription"] == "Two documents have the same _id."


def test_a_warning_begins_and_ends_once_although_its_text_changes() -> None:
    snapshot = entered(State.RUNNING)
    before, _ = told(Told(), known(run_record(), snapshot))
    first = replace(snapshot, warnings={WarningKind.OPLOG_SHORT: "12 minutes left."})
    before, notices = told(before, known(run_record(), first))
    assert notices == [("warningBegan", "oplog short")]
    later = replace(snapshot, warnings={WarningKind.OPLOG_SHORT: "11 minutes left."})
    before, notices = told(before, known(run_record(), later))
    assert notices == []
    _, ended = news(before, known(run_record(), snapshot), 5.0)
    warning = {"kind": "oplog short", "text": "12 minutes left."}
    assert [(each.event, each.at, each.fields["warning"]) for each in ended] == [
        ("warningEnded", 5.0, warning)
    ]


def test_a_long_wait_is_a_warning_also_before_a_start() -> None:
    wait = LongWait("A call fails", "Look.", 15.0)
    before, notices = told(Told(), known(None, ProgressSnapshot(waits=(wait,))))
    assert notices == [("warningBegan", "long wait")]
    longer = replace(wait, seconds=70.0)
    before, notices = told(before, known(None, ProgressSnapshot(waits=(longer,))))
    assert notices == []
    assert told(before, known(None))[1] == [("warningEnded", "long wait")]


def test_a_standby_tells_nothing_until_it_is_active() -> None:
    progress = Progress()
    waiting = replace(entered(State.INITIALIZING, progress=progress), waits=())
    before, notices = told(Told(), known(None, waiting, standing=STANDBY))
    assert notices == []
    snapshot = entered(State.RUNNING, progress=progress)
    before, notices = told(before, known(run_record(), snapshot, standing=ACTIVE))
    assert notices == [("state", "RUNNING")]


def test_a_daemon_that_becomes_active_again_tells_the_state_again() -> None:
    progress = Progress()
    snapshot = entered(State.RUNNING, progress=progress)
    before, _ = told(Told(), known(run_record(), snapshot, standing=ACTIVE))
    progress.enter(State.FAILED, "Superseded", "Another process.")
    before, notices = told(before, known(run_record(), progress.snapshot, standing=ACTIVE))
    assert notices == []
    snapshot = entered(State.INITIALIZING, progress=progress)
    before, notices = told(before, known(None, snapshot, standing=STANDBY))
    snapshot = entered(State.RUNNING, progress=progress)
    assert told(before, known(run_record(), snapshot, standing=ACTIVE))[1] == [("state", "RUNNING")]


def test_a_daemon_that_becomes_a_standby_ends_its_warnings() -> None:
    progress = Progress()
    progress.warn(WarningKind.OPLOG_SHORT, "short")
    before, _ = told(Told(), known(run_record(), progress.snapshot, standing=ACTIVE))
    before, notices = told(before, known(None, standing=STANDBY))
    assert notices == [("warningEnded", WarningKind.OPLOG_SHORT.value)]
    assert told(before, known(None, standing=STANDBY))[1] == []


@pytest.mark.parametrize("standing", [None, ACTIVE])
def test_only_a_process_without_standby_tells_that_it_was_superseded(
    standing: Standing | None,
) -> None:
    progress = Progress()
    progress.enter(State.FAILED, "Superseded", "Another process.")
    sync = known(run_record(state=State.FAILED), progress.snapshot, standing=standing)
    assert bool(told(Told(), sync)[1]) is (standing is None)
