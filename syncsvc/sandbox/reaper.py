"""Ends server processes and removes their folders, even if the process that started them is killed with SIGKILL.

A process that imports this module starts and tracks servers with `keeper`. The same module, run as a script, is the
reaper: a subprocess that reads from a pipe, and cleans up once the pipe closes. The module imports nothing outside the
standard library, because the script runs alone and must start in milliseconds.
"""

import os
import secrets
import select
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Collection, Iterable, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import IO

# A new process reports its pid to the reaper before it becomes the server. If its parent reported the pid, a SIGKILL of
# the parent just after the fork would leave an unknown server behind. The shell's stdin is the pipe.
_ANNOUNCE = 'echo "+pid $$" >&0; exec "$@" </dev/null'
_DEATH_DEADLINE_MS = 60_000


class Keeper:
    """Owns the folders and server processes that this process has created.

    While there is a folder, the reaper runs: a subprocess that cleans up if this process is killed.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._reaper: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def make_folder(self, parent: Path) -> Path:
        """Make a new folder in `parent`, and return it.

        The name is sent to the reaper before the folder exists, so that the reaper can remove it after any crash.
        Raises OSError if the folder cannot be made.
        """
        folder = parent.absolute() / f"syncsvc-sandbox-{secrets.token_hex(6)}"
        with self._lock:
            self._start_reaper()
            self._folders.add(folder)
            self._send(f"+folder {folder}")
        with ExitStack() as undo:
            undo.callback(self.remove_folder, folder)
            folder.mkdir(mode=0o700)
            undo.pop_all()
        return folder

    def remove_folder(self, folder: Path) -> None:
        """Remove a folder that `make_folder` has made; a no-op for other folders.

        Removing the last folder ends the reaper. Raises OSError if the folder cannot be removed.
        """
        if folder not in self._folders:
            return
        if folder.exists():
            shutil.rmtree(folder)
        with self._lock:
            self._folders.discard(folder)
            self._send(f"-folder {folder}")
            if not self._folders:
                self._end_reaper()

    def spawn(self, command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process whose output goes to `output`.

        The caller must have made a folder and not removed it yet, because the reaper runs only while there is a folder.
        """
        return subprocess.Popen(
            ["/bin/sh", "-c", _ANNOUNCE, "sh", *command],
            stdin=self._pipe,
            stdout=output,
            stderr=output,
            env=os.environ | {"LC_ALL": "C"},
            # Ctrl-C in the terminal must reach this process only, not the servers it depends on.
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """Send SIGKILL to the process, wait for its end, and tell the reaper to forget the process."""
        process.kill()
        process.wait()
        with self._lock:
            self._send(f"-pid {process.pid}")

    def leave_to_parent(self) -> None:
        """Forget all processes and folders, in a forked child, because they belong to its parent.

        The child closes its copy of the pipe, so that the reaper sees the end of the parent.
        """
        self._lock = threading.Lock()
        if self._pipe >= 0:
            os.close(self._pipe)
        self._folders, self._reaper, self._pipe = set(), None, -1

    def _start_reaper(self) -> None:
        if self._reaper is not None and self._reaper.poll() is None:
            return
        if self._pipe >= 0:
            os.close(self._pipe)
        reading_end, self._pipe = os.pipe()
        self._reaper = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=reading_end,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd="/",
            start_new_session=True,
        )
        os.close(reading_end)

    def _end_reaper(self) -> None:
        reaper, pipe = self._reaper, self._pipe
        # Reset first: after an interrupt below, the same pipe must not be closed twice.
        self._reaper, self._pipe = None, -1
        if reaper is not None:
            os.close(pipe)
            reaper.wait()

    def _send(self, line: str) -> None:
        # Even if the reaper was killed, this process can still stop its servers.
        if self._reaper is not None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, os.fsencode(line + "\n"))


keeper = Keeper()
os.register_at_fork(after_in_child=keeper.leave_to_parent)


def reap(lines: Iterable[bytes]) -> None:
    """Track the processes and folders that `lines` adds and removes, and clean up at the end of `lines`.

    A line is a message of a Keeper, such as `+pid 123` or `-folder /tmp/x`. The clean-up kills the remaining processes
    and deletes the remaining folders.
    """
    processes: dict[str, int] = {}
    folders: set[str] = set()
    for line in lines:
        verb, _, value = os.fsdecode(line).rstrip("\n").partition(" ")
        if verb == "+pid":
            # The kernel can reuse a pid; a pidfd always refers to this process.
            with suppress(ProcessLookupError):
                processes[value] = os.pidfd_open(int(value))
        elif verb == "-pid" and value in processes:
            os.close(processes.pop(value))
        elif verb == "+folder":
            folders.add(value)
        elif verb == "-folder":
            folders.discard(value)
    _kill(processes.values())
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


def _kill(pidfds: Collection[int]) -> None:
    for pidfd in pidfds:
        with suppress(ProcessLookupError):
            signal.pidfd_send_signal(pidfd, signal.SIGKILL)
    for pidfd in pidfds:
        # A dying server still writes; its folder can only be removed after it is gone.
        gone = select.poll()
        gone.register(pidfd, select.POLLIN)
        gone.poll(_DEATH_DEADLINE_MS)


if __name__ == "__main__":
    reap(sys.stdin.buffer)
