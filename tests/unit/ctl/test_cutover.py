"""Tests that `syncctl` commits despite restarts, takeovers and lost answers, and what it asks and warns of before.

The answers of the API are prepared.
"""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.ctl.client import ClientError
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.following import watch_sync
from syncsvc.ctl.tool import Tool
from tests.support.stub_api import StubApi
from tests.unit.ctl.conftest import Run
from tests.unit.ctl.progress import COMMITTABLE, COMMITTED, COMMITTING, COPYING, IDLE, answer
from tests.unit.ctl.test_odd_answers import call

SUCCESS = {"success": True}
INITIALIZING = {**IDLE, "state": "INITIALIZING"}
SUPERSEDED = {**COMMITTING, "state": "FAILED", "error": "Superseded", "role": "active"}


@pytest.mark.parametrize("between", [INITIALIZING, SUPERSEDED, None])
def test_a_commit_waits_through_a_restart(
    api: StubApi, run: Run, between: dict[str, Any] | None
) -> None:
    api.answer("progress", *map(answer, (COMMITTABLE, COMMITTING)))
    for _ in range(2):
        if between is None:
            api.break_off("progress")
        else:
            api.answer("progress", answer(between))
    api.answer("progress", answer(COMMITTING), answer(COMMITTED))
    api.answer("commit", SUCCESS)
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, api.bodies("commit")) == (Exit.OK, [{}]), done.output


def test_a_commit_that_was_withdrawn_unnoticed_ends_the_wait(api: StubApi, run: Run) -> None:
    api.answer("progress", *map(answer, (COMMITTABLE, COMMITTING)))
    api.break_off("progress")  # meanwhile, the commit fails, and the sync is resumed
    api.answer("progress", answer(COPYING))
    api.answer("commit", SUCCESS)
    done = run("commit", "--wait", "--yes", "--timeout", "5")
    assert (done.exit_code, api.bodies("commit")) == (Exit.FAILED, [{}]), done.output
    assert "CommitWithdrawn: the sync is RUNNING" in " ".join(done.stderr.split())


@pytest.mark.parametrize("shown", [{"role": "standby"}, {"desiredState": "committed"}])
def test_a_commit_that_a_standby_does_not_know_yet_or_that_is_declared_is_awaited(
    api: StubApi, run: Run, shown: dict[str, str]
) -> None:
    steps = [COMMITTABLE, COMMITTING, {**COMMITTABLE, **shown}, COMMITTING, COMMITTED]
    api.answer("progress", *map(answer, steps))
    api.answer("commit", SUCCESS)
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, api.bodies("commit")) == (Exit.OK, [{}]), done.output


def test_a_takeover_before_the_commit_does_not_end_the_wait(api: StubApi, run: Run) -> None:
    replaced = {**SUPERSEDED, "canCommit": False}
    steps = [COPYING, replaced, {**COPYING, "role": "standby"}, COMMITTABLE, COMMITTING, COMMITTED]
    api.answer("progress", *map(answer, steps))
    api.answer("commit", SUCCESS)
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, api.bodies("commit")) == (Exit.OK, [{}]), done.output


@pytest.mark.parametrize("wait", [[], ["--wait", "--timeout", "5"]])
def test_a_commit_at_a_standby_names_the_active_daemon(
    api: StubApi, run: Run, wait: list[str]
) -> None:
    lease = {"host": "other", "address": "other:27182"}
    api.answer("progress", answer({**COPYING, "role": "standby", "lease": lease}))
    done = run("commit", "--yes", *wait)
    assert (done.exit_code, api.bodies("commit")) == (Exit.FAILED, []), done.output
    assert "NotActive: this daemon is a standby." in " ".join(done.stderr.split())
    assert "other:27182" in done.stderr


@pytest.mark.parametrize("arguments", [["--yes"], ["--dry-run"]])
def test_a_commit_names_the_reason_that_only_the_overview_shows(
    api: StubApi, run: Run, arguments: list[str]
) -> None:
    reason = "The indexes that are withheld from the destination are not built yet."
    api.answer("progress", answer({**COMMITTABLE, "canCommit": False}))
    step = {"text": "Wait.", "command": None, "body": None}
    commit = {"possible": False, "reasons": [reason]}
    api.answer("overview", {"overview": {"commit": commit, "next": step}, **SUCCESS})
    done = run("commit", *arguments)
    assert done.exit_code == Exit.NOT_YET
    assert reason in " ".join(done.output.split()), done.output


@pytest.mark.parametrize("arguments", [[], ["--until", "canCommit"]])
def test_a_takeover_does_not_end_a_watch(api: StubApi, run: Run, arguments: list[str]) -> None:
    steps = [COPYING, SUPERSEDED, COMMITTED if not arguments else COMMITTABLE]
    api.answer("progress", *map(answer, steps))
    done = run("watch", *arguments)
    assert done.exit_code == Exit.OK, done.output


@pytest.mark.parametrize("arrived, sent", [(True, 1), (False, 2)])
def test_a_commit_without_an_answer_is_sent_again_unless_it_has_arrived(
    api: StubApi, run: Run, arrived: bool, sent: int
) -> None:
    after = [COMMITTING] if arrived else [COMMITTABLE]
    steps = [COMMITTABLE, INITIALIZING, *after, COMMITTING, COMMITTED]
    api.answer("progress", *map(answer, steps))
    api.break_off("commit")
    api.answer("commit", SUCCESS)
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, len(api.bodies("commit"))) == (Exit.OK, sent), done.output


@pytest.mark.parametrize("error", ["CommandInProgress", "InvalidState", "ClusterUnreachable"])
def test_a_commit_without_an_answer_may_still_be_executed(
    api: StubApi, run: Run, error: str
) -> None:
    steps = [COMMITTABLE, COMMITTABLE, COMMITTING, COMMITTED]
    api.answer("progress", *map(answer, steps))
    api.break_off("commit")
    api.refuse("commit", error)
    done = run("commit", "--wait", "--yes")
    assert (done.exit_code, len(api.bodies("commit"))) == (Exit.OK, 2), done.output


def test_the_timeout_also_ends_the_retries_of_a_commit(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.refuse("commit", "CommandInProgress")
    done = run("commit", "--wait", "--yes", "--timeout", "1.5")
    assert done.exit_code == Exit.NOT_YET and "TimedOut" in done.stderr


def test_without_wait_a_commit_is_sent_once(api: StubApi, run: Run) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.break_off("commit")
    done = run("commit", "--yes")
    assert done.exit_code == Exit.UNREACHABLE and "NoAnswer" in done.stderr
    assert "It is unknown whether syncsvc executed the request" in " ".join(done.stderr.split())
    assert api.bodies("commit") == [{}]


@pytest.mark.parametrize("wait", [[], ["--wait", "--timeout", "1.5"]])
def test_the_lag_counts_when_the_commit_is_sent(
    api: StubApi, monkeypatch: pytest.MonkeyPatch, wait: list[str]
) -> None:
    late = {**COMMITTABLE, "lagTimeSeconds": 20}
    api.answer("progress", answer(COMMITTABLE), answer(late))
    command = ["--url", api.url, "commit", "--max-lag", "2", *wait]
    status, output = call(monkeypatch, command, terminal=True, typed="cluster1\n")
    assert (status, api.bodies("commit")) == (Exit.NOT_YET, []), output


def holding(collections: int) -> dict[str, Any]:
    """Return the parts of an overview that a commit reads; `collections` is the number of synced collections."""
    step = {"text": "Done.", "command": None, "body": None}
    return {"overview": {"namespaces": {"total": collections}, "next": step}, **SUCCESS}


@pytest.mark.parametrize("wait", [[], ["--wait"]])
@pytest.mark.parametrize("yes", [[], ["--yes"]])
@pytest.mark.parametrize("collections, warned", [(0, True), (12, False)])
def test_a_commit_shows_the_number_of_collections_and_warns_if_there_are_none(
    api: StubApi,
    monkeypatch: pytest.MonkeyPatch,
    collections: int,
    warned: bool,
    yes: list[str],
    wait: list[str],
) -> None:
    before = [COMMITTABLE] if yes else [COMMITTABLE, COMMITTABLE]
    api.answer("progress", *map(answer, [*before, COMMITTED]))
    api.answer("overview", holding(collections))
    api.answer("commit", SUCCESS)
    command = ["--url", api.url, "commit", *yes, *wait]
    status, output = call(monkeypatch, command, terminal=True, typed="cluster1\n")
    assert (status, api.bodies("commit")) == (Exit.OK, [{}]), output
    shown = " ".join(output.split())
    assert ("WARNING: the sync contains no collections" in shown) == warned
    asked = not yes and not warned
    assert ("The number of synced collections is 12." in shown) == asked


def test_a_commit_with_json_warns_on_stderr_if_there_are_no_collections(
    api: StubApi, run: Run
) -> None:
    api.answer("progress", answer(COMMITTABLE))
    api.answer("overview", holding(0))
    api.answer("commit", SUCCESS)
    done = run("commit", "--yes", "--json")
    assert "WARNING: the sync contains no collections" in " ".join(done.stderr.split())
    assert "WARNING" not in done.stdout


@pytest.mark.parametrize(
    "blocking, said",
    [
        ("sourceAndDestination", "the commit blocks user writes to the source."),
        ("destinationOnly", "the commit does not block user writes to the source"),
        ("none", "the commit does not block user writes to the source"),
    ],
)
def test_the_question_says_whether_the_source_is_blocked(
    api: StubApi, monkeypatch: pytest.MonkeyPatch, blocking: str, said: str
) -> None:
    api.answer("progress", answer({**COMMITTABLE, "enableUserWriteBlocking": blocking}))
    api.answer("commit", SUCCESS)
    command = ["--url", api.url, "commit"]
    status, output = call(monkeypatch, command, terminal=True, typed="cluster1\n")
    assert status == Exit.OK
    assert said in " ".join(output.split())


def test_the_timeout_limits_all_waits_together(api: StubApi) -> None:
    api.answer("progress", answer(COMMITTING))
    watching = watch_sync(Tool(url=api.url, json=True), timeout=60.0)
    watching.until(lambda _: True)
    watching._began -= 61.0
    with pytest.raises(ClientError, match="TimedOut"):
        watching.until(lambda _: False)


@pytest.mark.parametrize("lag", ["nan", "-1", "x"])
def test_a_lag_is_a_number(api: StubApi, run: Run, lag: str) -> None:
    api.answer("progress", answer(COMMITTABLE))
    assert run("commit", "--yes", "--max-lag", lag).exit_code == Exit.USAGE
