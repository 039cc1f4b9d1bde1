"""A wait of a thread is shown to operators as a warning if it is long, until it ends; a short wait is never shown."""

from __future__ import annotations

import logging
import re
import threading

import pytest

from tests.support.waiting import wait_for
from verifier.runtime import waits
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup


def test_a_short_wait_is_not_shown() -> None:
    with waits.waiting("a lock", "Wait."):
        assert waits.long_waits() == ()


def test_a_long_wait_is_shown_until_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    with waits.waiting("a lock", "Wait."):
        (shown,) = waits.long_waits()
        pattern = r"a lock, since \d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC \(0 s\)\. Wait\."
        assert re.fullmatch(pattern, shown.text)
    assert waits.long_waits() == ()


def test_the_same_wait_of_several_threads_is_shown_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    with waits.waiting("older", ""), waits.waiting("newer", ""), waits.waiting("older", ""):
        assert [each.what for each in waits.long_waits()] == ["older", "newer"]


def test_a_wait_that_fails_ends() -> None:
    with pytest.raises(ValueError), waits.waiting("a lock", "Wait."):
        raise ValueError
    wait = waits.begin("a lock", "Wait.")
    waits.end(wait)
    waits.end(wait)
    assert not waits._waits


def test_the_beginning_and_the_end_of_a_long_wait_are_logged_once(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    stop = StopToken()
    wait = waits.begin("a lock", "Wait.")
    seen: list[list[str]] = []

    def show(shown: tuple[waits.LongWait, ...]) -> None:
        seen.append([each.what for each in shown])
        if len(seen) == 3:
            waits.end(wait)
        if len(seen) == 5:
            stop.stop("enough")

    with caplog.at_level(logging.INFO), pytest.raises(Cancelled):
        waits.watch(show, lambda seconds: stop.sleep(0.0))
    assert seen == [["a lock"]] * 3 + [[]] * 2
    assert [each.message for each in caplog.records] == [
        "A wait has become long. The field `wait` names the cause and the remedy.",
        "A long wait has ended, or its cause has changed.",
    ]


def test_a_failure_that_waits_for_other_threads_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    release = threading.Event()

    def fail() -> None:
        raise ValueError("the reason")

    def hang() -> None:
        release.wait()

    def leave() -> None:
        with TaskGroup("group", StopToken()) as group:
            group.spawn("hanging", hang)
            group.spawn("failing", fail)
            group.stop.sleep(60)

    outer = StopToken()
    with pytest.raises(ValueError, match="the reason"), TaskGroup("outer", outer) as watched:
        watched.spawn("group", leave)
        try:
            (shown,) = wait_for(waits.long_waits, "the failure is shown")
        finally:
            release.set()
    assert (
        shown.what
        == "The task group has failed (the reason), and waits until its calls to the clusters end"
    )
