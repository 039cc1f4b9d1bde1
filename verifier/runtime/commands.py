"""Commands of an API are carried out one at a time; one that comes meanwhile is refused, not queued."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from verifier.runtime.errors import ErrorKind, OperationError

COMMAND_IN_PROGRESS = ErrorKind(
    "CommandInProgress",
    409,
    "Another command is being carried out.",
    "Send the command again when the other one has been answered.",
)


class Commands:
    """Shared by all commands of one service."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # held by the command that is being carried out

    @contextmanager
    def one(self) -> Iterator[None]:
        """The block is the only command. Raises OperationError CommandInProgress."""
        if not self._lock.acquire(blocking=False):
            raise OperationError(COMMAND_IN_PROGRESS, "The command was not carried out.")
        try:
            yield
        finally:
            self._lock.release()
