"""Runs the commands of an API one at a time, after the startup. While a command runs, other commands are refused."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from verifier.runtime.errors import ErrorKind, OperationError

# The maximum number of commands that may wait for the startup at once: each of them occupies an HTTP request thread.
MOST_WAITING = 10

COMMAND_IN_PROGRESS = ErrorKind(
    "CommandInProgress",
    409,
    "Another command is running.",
    "Wait until the other command has been answered, then send your command again.",
)


class Commands:
    """A lock for commands: of all commands that use the same object, only one runs at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held by the running command

    @property
    def busy(self) -> bool:
        """Return whether a command is running."""
        return self._lock.locked()

    def wait(self) -> None:
        """Wait until the running command has ended."""
        with self._lock:
            pass

    @contextmanager
    def one(self) -> Iterator[None]:
        """Run the block as the only command. Raise OperationError CommandInProgress if another command is running."""
        if not self._lock.acquire(blocking=False):
            raise OperationError(
                COMMAND_IN_PROGRESS,
                "Another command is still running, so this one was not executed.",
            )
        try:
            yield
        finally:
            self._lock.release()


class Startup:
    """The startup of a process. Commands wait for its end, because scripts send them right after starting a process.

    During the startup, `step` describes what the process is doing, for example "connecting".
    """

    def __init__(self, longest_wait: float) -> None:
        self._longest_wait = longest_wait
        self.step = "starting"
        self._ended = threading.Event()
        self._slots = threading.BoundedSemaphore(MOST_WAITING)

    def wait(self) -> None:
        """Wait up to `longest_wait` seconds for the end of the startup.

        Return at once if `MOST_WAITING` calls are already waiting. A timeout raises no error: the caller must check
        whether the process is ready.
        """
        if self._ended.is_set() or not self._slots.acquire(blocking=False):
            return
        try:
            self._ended.wait(self._longest_wait)
        finally:
            self._slots.release()

    def end(self) -> None:
        """End the startup: wake up all waiting commands, and make later calls of `wait` return immediately."""
        self._ended.set()
