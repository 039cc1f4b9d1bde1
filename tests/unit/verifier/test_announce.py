"""Tests the log lines about the progress of a check and about its result."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest
from pymongo.errors import AutoReconnect

from tests.support.waiting import wait_for
from tests.unit.verifier.recorder import Recorder
from tests.unit.verifier.values import CHECKING, FAILED, INCOMPLETE, PASSED
from verifier.announce import announce_progress, announce_report, report_lines, wait_for_end
from verifier.compare.check_progress import CheckProgress
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup


def while_running(work: Callable[[StopToken], None], then: Callable[[], None]) -> None:
    stop = StopToken()
    with pytest.raises(Cancelled), TaskGroup("test", stop) as group:
        group.spawn("work", work, stop)
        then()
        stop.stop("done")


def verdicts(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return one verdict per report in the log. The first and the last line of a report both begin with the verdict."""
    words = [record.getMessage().partition(":")[0] for record in caplog.records]
    return [word for word in words if word in ("PASSED", "FAILED", "INCOMPLETE")][::2]


@pytest.mark.parametrize(
    "progress, reported",
    [(FAILED, ["FAILED"]), (PASSED, ["PASSED"]), (INCOMPLETE, ["INCOMPLETE"]), (CHECKING, [])],
)
def test_the_report_of_a_check_that_has_ended_is_logged(
    caplog: pytest.LogCaptureFixture, progress: CheckProgress, reported: list[str]
) -> None:
    caplog.set_level(logging.INFO)
    announce_report(Recorder(progress))
    assert verdicts(caplog) == reported
    assert all(record.getMessage() for record in caplog.records)


def test_progress_is_logged_while_a_check_runs(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    service = Recorder(CHECKING)

    def wait_for_line() -> None:
        wait_for(lambda: bool(caplog.records), "a line of progress")

    while_running(lambda stop: announce_progress(service, 0.001, stop), wait_for_line)
    assert vars(caplog.records[0])["documents"] == 500


def test_wait_for_end_returns_the_final_progress() -> None:
    service = Recorder(CHECKING)
    ends: list[CheckProgress] = []

    def wait(stop: StopToken) -> None:
        ends.append(wait_for_end(service, stop))

    def end() -> None:
        service.shown = PASSED
        wait_for(lambda: bool(ends), "the end")

    while_running(wait, end)
    assert ends == [PASSED]


def test_a_report_omits_mismatches_that_cannot_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    service = Recorder()
    assert "first 2 of 1,234" in "\n".join(report_lines(service))
    service.error = AutoReconnect("h:1: closed")
    lines = report_lines(service)
    assert lines[0].startswith("FAILED") and "first 0 of 1,234" in "\n".join(lines)
    assert "cannot be read" in caplog.text
