"""Files that only their owner may access: log files that are written here, secrets that are read."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_PRIVATE = 0o600
_GROUP_MAY_READ = 0o640


def open_private(path: str, flags: int) -> int:
    """Open a file with mode 0600, as the `opener` of `open`. Also narrow the mode of an existing file."""
    descriptor = os.open(path, flags, mode=_PRIVATE)
    if _mode(os.fstat(descriptor)) & ~_PRIVATE:
        # Only its owner and root can change the mode; another user can still write the log.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, _PRIVATE)
    return descriptor


def why_not_private(status: os.stat_result) -> str | None:
    """Return why a file must not hold a secret, as the end of a sentence; None if it is private.

    Its owner may have access. If root owns the file, its group may read it, because deployment tools often write
    secrets as root for the group of a service.
    """
    if not stat.S_ISREG(status.st_mode):
        return "is not a regular file"
    allowed = _PRIVATE if status.st_uid else _GROUP_MAY_READ
    if _mode(status) & 0o077 & ~allowed:
        return f"can be accessed by other users (its mode is {_mode(status):04o})"
    return None


def read_private(path: Path) -> bytes:
    """Return the content of a file with secrets. Raise ValueError with the end of a sentence if it cannot be used."""
    try:
        # A FIFO without a writer must not block the process.
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK), "rb") as file:
            reason = why_not_private(os.fstat(file.fileno()))
            if reason is not None:
                raise ValueError(reason)
            return file.read()
    except OSError as error:
        raise ValueError(f"cannot be read: {error.strerror}") from error


def _mode(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)
