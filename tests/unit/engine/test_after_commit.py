"""Tests what the watch of the source after a commit finds, and the texts of its two warnings."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import pytest
from bson.timestamp import Timestamp

from syncsvc.engine.after_commit import unchecked_warning, warning_of, watch_source
from syncsvc.figures.progress import Progress, WarningKind
from syncsvc.saved.late_findings import LateFindings
from syncsvc.state import State
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import run_record
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import position_after
from verifier.runtime.tasks import Cancelled, StopToken

NAMES = "cluster0", "cluster1"
# 2026-01-01T00:00:00Z
NEW_YEAR = 1767225600
NOTHING = LateFindings(position_after(Timestamp(NEW_YEAR, 1)))


def at(second: int) -> Timestamp:
    return Timestamp(NEW_YEAR + second, 3)


def test_the_warning_says_what_is_lost_and_what_to_do() -> None:
    first = NOTHING.with_writes({Namespace("d", "b"): 4}, [at(0), at(5)])
    found = first.with_writes({Namespace("d", "a"): 1, Namespace("d", "b"): 1}, [at(60)])
    assert warning_of(NAMES, found) == (
        "After the commit, cluster0 (the old source) accepted user writes that are not on cluster1: at least 6, in "
        "d.a, d.b; the first at 2026-01-01T00:00:00Z, the last at 2026-01-01T00:01:00Z. Stop the applications that "
        "make these writes. Then list the changes since Timestamp({t: 1767225600, i: 3}), and compare each document on "
        "both clusters before you correct it on cluster1, which may have a newer version: see 'Writes reached the "
        "source after the commit' in docs/howto/troubleshoot."
    )


def test_few_of_many_collections_are_kept() -> None:
    many = {Namespace("d", f"c{n:02}"): 1 for n in range(40)}
    found = NOTHING.with_writes(many, [at(0)])
    assert found.writes == 40
    assert "at least 40, in d.c00, d.c01, d.c02, d.c03, d.c04 and others;" in warning_of(
        NAMES, found
    )


def test_an_interval_without_a_check_only_grows() -> None:
    found = NOTHING.resumed_at(position_after(at(10))).resumed_at(position_after(at(60)))
    assert found.gap == (NOTHING.position.time, at(60))
    assert found.position.time == at(60)


def test_the_warning_says_which_writes_were_not_checked_and_why() -> None:
    lost = replace(NOTHING, gap=(at(0), at(60)))
    assert unchecked_warning(NAMES, lost, "no such command (code 59)") == (
        "User writes to cluster0 (the old source) after the commit, from 2026-01-01T00:00:00Z to 2026-01-01T00:01:00Z, "
        "were not checked: its oplog no longer had all of them. User writes to cluster0 (the old source) after the "
        "commit cannot be checked now: no such command (code 59). The check is retried. If no application has written "
        "to cluster0 since the commit, you need not do anything. Otherwise, cluster1 lacks these writes: see 'Writes "
        "reached the source after the commit' in docs/howto/troubleshoot."
    )
    assert "cannot be checked now" not in unchecked_warning(NAMES, lost, None)
    assert "no longer had all" not in unchecked_warning(NAMES, NOTHING, "an error")
    ended = unchecked_warning(NAMES, replace(NOTHING, ended=True), "an error")
    assert (
        "after 2026-01-01T00:00:00Z could not be checked: an error. The check has ended, because"
        in ended
    )


def test_the_findings_of_a_watch_that_is_over_are_shown_after_a_restart() -> None:
    found = NOTHING.with_writes({Namespace("d", "b"): 4}, [at(0)])
    record = run_record(
        state=State.COMMITTED,
        can_write=True,
        commit_time=at(0),
        late_findings=replace(found, ended=True),
    )
    progress = Progress()
    shown: list[WarningKind] = []

    class Ending(StopToken):
        def sleep(self, seconds: float) -> None:
            shown.extend(progress.snapshot.warnings)
            raise Cancelled

    context = context_with(run=SimpleNamespace(record=record), progress=progress)
    with pytest.raises(Cancelled):
        watch_source(context, Ending())
    assert shown == [WarningKind.WRITTEN_AFTER_COMMIT]
