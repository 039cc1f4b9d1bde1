"""Runs the main function of a process: sets up the log, reports the error that ends the process, stops its threads."""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass

from verifier.runtime import logs
from verifier.runtime.errors import OperationError, describe
from verifier.runtime.quantities import visible
from verifier.runtime.tasks import Alarm, Cancelled, StopToken, TaskGroup, single_error

_log = logging.getLogger(__name__)

# How long threads may take to end after the process was asked to stop, in seconds.
_GRACE = 6.0


@dataclass(frozen=True)
class Program:
    """The program that a process runs. `failed` is its exit status after an error."""

    name: str
    version: str
    failed: int = 1


def run(program: Program, set_up_log: Callable[[], None], work: Callable[[], int]) -> int:
    """Run the process: set up the log, let SIGUSR1 rotate the log file, run `work`, and return its exit status.

    If an error is raised, report it (see `_report`), and return `program.failed`.
    """
    try:
        set_up_log()
        # Handle the signal even without a log file: by default, SIGUSR1 would end the process.
        signal.signal(signal.SIGUSR1, logs.rotate)
        _log.info("Version info", extra={"version": program.version, **_platform()})
        return work()
    except Exception as error:
        return _report(program, error)


@contextmanager
def main_tasks(
    program: Program,
    stop: StopToken,
    status: Callable[[], int] = lambda: 0,
    grace: float = _GRACE,
) -> Iterator[TaskGroup]:
    """Yield the TaskGroup for the threads of a process. After the block, stop the threads, and wait until they end.

    Raises the error of the block or of the first thread that failed. If the threads have not ended after `grace`
    seconds, because calls to a cluster do not return, report an error if there is one, and end the process at once. Its
    exit status is then `program.failed` after an error, otherwise `status()`. Nothing is lost: all acknowledged
    progress is saved, and a restart continues from it.
    """

    def leave() -> None:
        _leave(program, tasks.stop.cause, status())

    with Alarm(grace, leave) as alarm, suppress(Cancelled), single_error(), TaskGroup(
        "main", stop
    ) as tasks:
        try:
            yield tasks
        finally:
            alarm.set()
            # Stop the work in any case: otherwise, its threads would never end, and could not be joined.
            stop.stop(sys.exception() or "shutdown")


def _leave(program: Program, cause: str | BaseException | None, status: int) -> None:
    """End the process at once.

    `cause` is the exception that ended the process; any other value means a normal end, for example after a signal.
    """
    try:
        if isinstance(cause, Exception):
            # The error cannot reach `run` before all threads have ended.
            status = program.failed
            _report(program, cause)
        _log.warning(
            "The process stopped without waiting for calls to a cluster that have not returned. Nothing is lost: a "
            "restart continues from the saved state."
        )
        logging.shutdown()
    finally:
        # End the process even if the report fails, for example because standard error is closed.
        os._exit(status)


def _report(program: Program, error: Exception) -> int:
    """Report the error that ends the process on standard error and in the log; return the exit status.

    If the log goes to a terminal, only unexpected errors are logged: the operator reads the others on standard error.
    """
    kind, description = describe(error)
    text = str(error) if isinstance(error, OSError) else f"{kind.name}: {description}"
    text = logs.redact(text)
    if not isinstance(error, OperationError | OSError):
        _log.critical(
            "The process ends because of a bug in this program. Report it with this line of the log.",
            exc_info=error,
        )
    elif not logs.is_at_terminal():
        _log.critical(
            "The process ends because of the error in the field `error`.", extra={"error": text}
        )
    print(f"{program.name}: {visible(text)}", file=sys.stderr, flush=True)
    return program.failed


def _platform() -> dict[str, str]:
    return {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "python": platform.python_version(),
    }
