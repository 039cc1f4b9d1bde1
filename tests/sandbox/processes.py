"""Finds the processes that a sandbox has started, and those that it has left behind, through /proc."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.support.waiting import wait_for


def is_running(pid: int) -> bool:
    """Return whether the process runs.

    A zombie, which has ended but whose exit status its parent has not collected yet, does not count as running.
    """
    return _state_and_parent(pid)[0] not in "ZX"


def children(parent: int) -> set[int]:
    return {pid for pid in _all() if _state_and_parent(pid)[1] == parent and is_running(pid)}


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def wait_until_gone(pids: set[int], folder: Path) -> None:
    """Wait until these processes have ended, the folder is empty, and no running command names the folder."""
    wait_for(lambda: not any(map(is_running, pids)), "the processes are gone")
    wait_for(lambda: not any(folder.iterdir()), f"{folder} is empty")
    wait_for(
        lambda: not any(str(folder) in command_of(p) for p in _all()), "no process uses the folder"
    )


@contextmanager
def python(arguments: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Run Python in a new process group, with `folder` as the folder for temporary files; kill it after the block."""
    process = subprocess.Popen(
        [sys.executable, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(folder)},
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            process.send_signal(signal.SIGKILL)


def read_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().rstrip("\n")


def _all() -> set[int]:
    return {int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()}


def _state_and_parent(pid: int) -> tuple[str, int]:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return "X", 0
    state, parent = stat.rpartition(")")[2].split()[:2]
    return state, int(parent)
