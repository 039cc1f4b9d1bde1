"""Each new phase of a check that is seen, and each begin and end of a long wait, must cause one notice.

The notice of the end of a check has the verdict.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from verifier.compare.check_progress import CheckProgress, Outcome, Phase, Verdict
from verifier.notices import Notice, Told, news
from verifier.runtime.waits import LongWait

NOW = 130.0
CHECKING = CheckProgress(Phase.CHECK, 0, started=110.0)
ENDED = replace(
    CHECKING, phase=Phase.IDLE, ended=120.0, verdict=Verdict(Outcome.FAILED, ("It differs.",))
)


def told(before: CheckProgress, now: CheckProgress) -> list[Notice]:
    return news(Told(before), now, (), NOW)[1]


def phases(notices: list[Notice]) -> list[tuple[Any, ...]]:
    return [(each.fields["previousPhase"], each.fields["phase"]) for each in notices]


def test_each_phase_is_told_once() -> None:
    assert phases(told(CheckProgress(), CHECKING)) == [("idle", "check")]
    assert told(CHECKING, CHECKING) == []
    recheck = replace(CHECKING, phase=Phase.RECHECK)
    assert phases(told(CHECKING, recheck)) == [("check", "recheck")]


def test_the_end_is_told_with_the_verdict() -> None:
    (notice,) = told(CHECKING, ENDED)
    assert notice.event == "phase"
    assert notice.fields == {
        "phase": "idle",
        "previousPhase": "check",
        "verdict": "failed",
        "reasons": ["It differs."],
        "error": None,
        "warning": None,
    }


def test_a_check_that_ended_between_two_looks_is_told() -> None:
    assert phases(told(CheckProgress(), ENDED)) == [("idle", "idle")]


def test_each_notice_has_the_time_of_its_event() -> None:
    assert [each.at for each in told(CHECKING, ENDED)] == [ENDED.ended]
    assert [each.at for each in told(CheckProgress(), CHECKING)] == [NOW]
    given_up = replace(ENDED, ended=None)
    assert [each.at for each in told(CHECKING, given_up)] == [NOW]


def test_a_new_process_tells_the_verdict_of_the_check_that_it_finds() -> None:
    (notice,) = told(CheckProgress(), ENDED)
    assert (notice.fields["verdict"], notice.at) == ("failed", ENDED.ended)
    assert told(ENDED, ENDED) == []


def test_a_long_wait_begins_and_ends_once() -> None:
    wait = LongWait("A call fails", "Look.", 15.0)
    before, began = news(Told(CHECKING), CHECKING, (wait,), NOW)
    assert [each.event for each in began] == ["warningBegan"]
    before, still = news(before, CHECKING, (replace(wait, seconds=30.0),), NOW)
    assert still == []
    _, ended = news(before, CHECKING, (), NOW)
    assert [each.event for each in ended] == ["warningEnded"]
    assert ended[0].fields["warning"] == began[0].fields["warning"]
