"""Ends server processes and removes their folders even when this process dies by SIGKILL.

The module is both sides of one pipe: imported, it starts processes and keeps count of them; run
as a script, it is the reaper, a subprocess that cleans up once the pipe closes. It must not
import anything outside the standard library: the script runs alone and starts in milliseconds.
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

# A new process tells the reaper its pid before it becomes the server: were we to tell it, a
# SIGKILL just after the fork would leave a server nobody knows of. The shell's stdin is the pipe.
_ANNOUNCE = 'echo "+pid $$" >&0; exec "$@" </dev/null'
_DEATH_DEADLINE_MS = 60_000


class Keeper:
    """Owns this process's server processes and folders, and its reaper while there are any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._folders: set[Path] = set()
        self._reaper: subprocess.Popen[bytes] | None = None
        self._pipe = -1

    def make_folder(self, parent: Path) -> Path:
        """Make a new folder in `parent`; the reaper knows of it before it exists."""
        folder = parent.absolute() / f"syncsvc-sandbox-{secrets.token_hex(6)}"
        with self._lock:
            self._start_reaper()
            self._folders.add(folder)
            self._tell(f"+folder {folder}")
        with ExitStack() as undo:
            undo.callback(self.remove_folder, folder)
            folder.mkdir(mode=0o700)
            undo.pop_all()
        return folder

    def remove_folder(self, folder: Path) -> None:
        """Remove what make_folder made; the reaper ends with the last folder."""
        if folder not in self._folders:
            return
        if folder.exists():
            shutil.rmtree(folder)
        with self._lock:
            self._folders.discard(folder)
            self._tell(f"-folder {folder}")
            if not self._folders:
                self._end_reaper()

    def spawn(self, command: Sequence[str], output: IO[bytes]) -> subprocess.Popen[bytes]:
        """Start a process; the caller must hold a folder, which keeps the reaper running."""
        return subprocess.Popen(
            ["/bin/sh", "-c", _ANNOUNCE, "sh", *command],
            stdin=self._pipe,
            stdout=output,
            stderr=output,
            env=os.environ | {"LC_ALL": "C"},
            # Ctrl-C in the terminal must reach us, not the servers under our feet.
            start_new_session=True,
        )

    def kill(self, process: subprocess.Popen[bytes]) -> None:
        """SIGKILL the process and see it gone, before the reaper forgets about it."""
        process.kill()
        process.wait()
        with self._lock:
            self._tell(f"-pid {process.pid}")

    def leave_to_parent(self) -> None:
        """After a fork, in the child: nothing here is ours, and the pipe must close with it."""
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
        # Forgotten first: an interrupt below must not have the same pipe closed twice.
        self._reaper, self._pipe = None, -1
        if reaper is not None:
            os.close(pipe)
            reaper.wait()

    def _tell(self, line: str) -> None:
        # Whoever killed the reaper took the safety net, not our ability to stop what we started.
        if self._reaper is not None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, os.fsencode(line + "\n"))


keeper = Keeper()
os.register_at_fork(after_in_child=keeper.leave_to_parent)


def reap(lines: Iterable[bytes]) -> None:
    """The reaper: note what there is until the pipe closes, then end and remove the rest."""
    processes: dict[str, int] = {}
    folders: set[str] = set()
    for line in lines:
        verb, _, value = os.fsdecode(line).rstrip("\n").partition(" ")
        if verb == "+pid":
            # A pid can be given to another process later; its pidfd stays bound to this one.
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
        # A dying server still writes; its folder can only be removed once it is gone.
        gone = select.poll()
        gone.register(pidfd, select.POLLIN)
        gone.poll(_DEATH_DEADLINE_MS)


if __name__ == "__main__":
    reap(sys.stdin.buffer)
