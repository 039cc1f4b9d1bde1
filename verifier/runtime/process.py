"""Runs the main function of a process: sets up its log, reports why it cannot run, and ends it after a signal."""

from __future__ import annotations

import logging
import os
import platform
import signal
import sys
from collections.abc import Callable

from verifier.runtime import logs
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Alarm

_log = logging.getLogger(__name__)

# How long threads may take to end after the process was asked to stop, in seconds.
_GRACE = 6.0


def run(
    program: str,
    version: str,
    set_up_log: Callable[[], None],
    work: Callable[[], int],
    failed: int = 1,
) -> int:
    """Run the process: set up the log, let SIGUSR1 rotate the log file, run `work`, and return its exit status.

    If an OperationError or OSError is raised, print it to standard error and return `failed`.
    """
    try:
        set_up_log()
        # Handle the signal even without a log file: by default, SIGUSR1 would end the process.
        signal.signal(signal.SIGUSR1, logs.rotate)
        _log.info("Version info", extra={"version": version, **_platform()})
        return work()
    except (OperationError, OSError) as error:
        name = f"{error.kind.name}: " if isinstance(error, OperationError) else ""
        text = logs.redact(f"{name}{error}")
        if not logs.is_at_terminal():
            _log.critical("The process cannot run.", extra={"error": text})
        print(f"{program}: {logs.visible(text)}", file=sys.stderr)
        return failed


def exit_alarm(status: Callable[[], int] = lambda: 0) -> Alarm:
    """Return an alarm that ends this process six seconds after its `set` is called, with the exit status `status()`.

    The caller sets the alarm when the process is asked to stop, so that the process ends even if calls to a cluster do
    not return. Nothing is lost: all acknowledged progress is saved, and a restart continues from it.
    """
    return Alarm(_GRACE, lambda: _leave(status()))


def _leave(status: int) -> None:
    _log.warning(
        "The process stopped without waiting for calls to a cluster that have not returned."
    )
    logging.shutdown()
    os._exit(status)


def _platform() -> dict[str, str]:
    return {
        "os": platform.system().lower(),
        "arch": platform.machine(),
        "python": platform.python_version(),
    }
