"""Processes forked from one that has imported all it takes, which is a second of work for each of many hundred.

The hashes of texts, and so the order of sets, are the same in all of them.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

# Runs a program of ours with its options, obeying the orders in a folder; its exit status.
Program = Callable[[Path, Sequence[str]], int]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["tests.support.observed", "tests.support.observed_verifier"])

# Held while a process is started or asked whether it runs: of two threads that learn of its end, one would be told a
# wrong status.
_asking = threading.Lock()


class Forked:
    """Runs a program in a process of its own, appending what it says to a file."""

    def __init__(
        self, program: Program, folder: Path, options: Sequence[str], output: Path
    ) -> None:
        arguments = (program, folder, tuple(options), output)
        # A daemon of this one in the sense of that module, too: where the tests end in order, it ends with them.
        self._process = _context.Process(target=_run, args=arguments, daemon=True)
        with _asking:
            self._process.start()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    def poll(self) -> int | None:
        """The exit status, a signal's number negative; None while it runs."""
        with _asking:
            return self._process.exitcode

    def signal(self, number: int) -> None:
        """Send a signal; harmless when it has ended."""
        if self.poll() is None:
            # It may end just now.
            with suppress(ProcessLookupError):
                os.kill(self.pid, number)


def _run(program: Program, folder: Path, options: Sequence[str], output: Path) -> None:
    with output.open("a") as file:
        for stream in (sys.stdout, sys.stderr):
            os.dup2(file.fileno(), stream.fileno())
    raise SystemExit(program(folder, options))
