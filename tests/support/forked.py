"""Forks test processes from a server process that has already imported everything.

Importing takes a second, and hundreds of tests would import everything again. All forked processes have the same hash
seed, and therefore iterate over sets in the same order.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

# Runs a service with the given options, obeying the orders in the folder; returns the exit status.
Program = Callable[[Path, Sequence[str]], int]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.observed", "tests.support.observed_verifier"])

# Held while a process is started or polled: if two threads noticed the end of a process, one of them would get a wrong
# exit status.
_asking = threading.Lock()


class Forked:
    """A program in a forked process; its output is appended to the file `output`."""

    def __init__(
        self, program: Program, folder: Path, options: Sequence[str], output: Path
    ) -> None:
        arguments = (program, folder, tuple(options), output)
        self._process = _context.Process(target=_run, args=arguments, daemon=True)
        with _asking:
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """Return the exit status of the process; None while it runs.

        If a signal has ended the process, the status is the negative signal number.
        """
        with _asking:
            return self._process.exitcode

    def signal(self, number: int) -> None:
        """Send the signal `number` to the process; a no-op if the process has ended."""
        if self.poll() is None:
            # The process may end between the check and the signal.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _run(program: Program, folder: Path, options: Sequence[str], output: Path) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with output.open("a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    raise SystemExit(program(folder, options))


def _end_with_parent() -> None:
    """Wait until the test process has ended, even by a kill; then end this forked process, too."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
