"""Tests the end of a process: its exit status and its log, also if some of its threads do not end."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.support.waiting import PATIENCE
from tests.unit.deadlines import no_longer_than
from verifier.runtime import logs, process
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.tasks import StopToken, wait_until

ROOT = Path(__file__).parents[3]
STATUS, FAILED = 3, 4
PROGRAM = process.Program("program", "1.0", FAILED)
REFUSED = OperationError(ErrorKind("Refused", 409, "", "Do something else."), "It is refused.")


def work_with_a_thread_that_hangs(how: str) -> int:
    """Run as the main function of a process with a thread that never ends. `how` is the reason why the process ends."""
    stop = StopToken()
    with process.main_tasks(PROGRAM, stop, lambda: STATUS, grace=0.1) as tasks:
        tasks.spawn("hangs", _hang)
        if how == "the block fails":
            raise REFUSED
        if how == "a thread fails":
            tasks.spawn("fails", _fail)
            wait_until(lambda: tasks.stop.stopped, StopToken())
    raise AssertionError("the process ends in the block")


def _hang() -> None:
    threading.Event().wait()


def _fail() -> None:
    raise KeyError("unexpected")


def ended(how: str) -> tuple[int, list[dict[str, str]], str]:
    """Run `work_with_a_thread_that_hangs` in a process; return its exit status, its log and its standard error."""
    code = (
        f"from {__name__} import *; logs.set_up(None, '', 'INFO'); "
        f"process.run(PROGRAM, lambda: None, lambda: work_with_a_thread_that_hangs({how!r}))"
    )
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE)
    return done.returncode, [json.loads(line) for line in done.stdout.splitlines()], done.stderr


def test_a_process_that_is_stopped_ends_although_a_thread_hangs() -> None:
    status, log, errors = ended("a signal")
    assert (status, errors) == (STATUS, "")
    assert "without waiting for calls" in log[-1]["message"]


def test_the_error_of_a_thread_is_reported_although_another_thread_hangs() -> None:
    status, log, errors = ended("a thread fails")
    assert status == FAILED
    assert log[-2]["level"] == "CRITICAL" and "KeyError" in log[-2]["trace"]
    assert errors.startswith("program: InternalError: KeyError: 'unexpected'. ")


def test_the_error_of_the_main_thread_is_reported_although_another_thread_hangs() -> None:
    status, log, errors = ended("the block fails")
    assert (status, log[-2]["error"]) == (FAILED, f"Refused: {REFUSED}")
    assert errors == f"program: Refused: {REFUSED}\n"


def _fail_twice() -> int:
    both = threading.Barrier(2)

    def fail() -> None:
        both.wait(PATIENCE)
        _fail()

    with process.main_tasks(PROGRAM, StopToken()) as tasks:
        tasks.spawn("one", fail)
        tasks.spawn("other", fail)
    return 0


@pytest.mark.usefixtures("own_handlers")
def test_an_unexpected_error_is_in_the_log(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """Let two threads fail at the same moment: the log must have the error of one of them, with its traceback."""
    with no_longer_than(PATIENCE):
        assert (
            process.run(PROGRAM, lambda: logs.set_up(tmp_path, "log", "INFO"), _fail_twice)
            == FAILED
        )
    *_, last = map(json.loads, (tmp_path / "log").read_text().splitlines())
    assert last["level"] == "CRITICAL" and last["trace"].endswith("KeyError: 'unexpected'")
    assert capsys.readouterr().err.startswith("program: InternalError: KeyError")
