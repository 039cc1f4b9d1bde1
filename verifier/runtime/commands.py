"""Runs the commands of an API one at a time, once the process is ready. A second command is refused, not queued."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from verifier.runtime.errors import ErrorKind, OperationError

# So many commands may wait, because each keeps a thread that answers requests.
MOST_WAITING = 10

COMMAND_IN_PROGRESS = ErrorKind(
    "CommandInProgress",
    409,
    "Another command is running.",
    "Send the command again after the other one was answered.",
)


class Commands:
    """Shared by all commands of one service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held by the command that is being carried out

    @contextmanager
    def one(self) -> Iterator[None]:
        """The block is the only command. Raises OperationError CommandInProgress."""
        if not self._lock.acquire(blocking=False):
            raise OperationError(COMMAND_IN_PROGRESS, "The command was not executed.")
        try:
            yield
        finally:
            self._lock.release()


class Startup:
    """Lets commands wait until the process is ready: scripts start a process and then call it.

    `step` says what it does until then, such as "connecting".
    """

    def __init__(self, longest_wait: float) -> None:
        self._longest_wait = longest_wait
        self.step = "starting"
        self._ended = threading.Event()
        self._slots = threading.BoundedSemaphore(MOST_WAITING)

    def wait(self) -> None:
        """Return when the startup has ended or the longest wait is over; at once if too many wait already."""
        if self._ended.is_set() or not self._slots.acquire(blocking=False):
            return
        try:
            self._ended.wait(self._longest_wait)
        finally:
            self._slots.release()

    def end(self) -> None:
        """Wake up all who wait, and let nobody wait again."""
        self._ended.set()
