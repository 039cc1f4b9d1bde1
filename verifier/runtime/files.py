"""Functions for private files: open log files, read secrets, and detect that a file has changed."""

from __future__ import annotations

import contextlib
import os
import stat
from pathlib import Path

_PRIVATE = 0o600
_GROUP_MAY_READ = 0o640


def open_private(path: str, flags: int) -> int:
    """Open a file with mode 0600, and return its descriptor. Pass this function to `open` as its `opener`.

    If an existing file has a wider mode, restrict its mode if the process may do so.
    """
    descriptor = os.open(path, flags, mode=_PRIVATE)
    if _mode(os.fstat(descriptor)) & ~_PRIVATE:
        # Only its owner and root can change the mode; another user can still write the log.
        with contextlib.suppress(PermissionError):
            os.fchmod(descriptor, _PRIVATE)
    return descriptor


def access_rule(file: str) -> str:
    """Return the sentence for operators about the access to a private file. `file` names the file, as in "the file"."""
    return (
        f"This process must be able to read {file}, and no other user may have access: use mode 0600 or, if root owns "
        f"{file}, mode 0640 with the group of this process."
    )


def why_not_private(status: os.stat_result) -> str | None:
    """Return why a file must not hold a secret, such as "the file is not a regular file"; None if the file is private.

    Only the owner of a private file may access it. If root owns the file, its group may read it as well, because
    deployment tools often write secrets as root for the group of a service.
    """
    if not stat.S_ISREG(status.st_mode):
        return "the file is not a regular file"
    allowed = _PRIVATE if status.st_uid else _GROUP_MAY_READ
    if _mode(status) & 0o077 & ~allowed:
        return f"the file can be accessed by other users (its mode is {_mode(status):04o})"
    return None


def read_private(path: Path) -> bytes:
    """Return the content of a file with secrets. Raise ValueError if the file is unreadable or not private."""
    try:
        with open(path, "rb", opener=_open_without_waiting) as file:
            reason = why_not_private(os.fstat(file.fileno()))
            if reason is not None:
                raise ValueError(reason)
            return file.read()
    except OSError as error:
        raise ValueError(f"the file cannot be read: {error.strerror}") from error


def _open_without_waiting(path: str, flags: int) -> int:
    # A FIFO without a writer must not block the process.
    return os.open(path, flags | os.O_NONBLOCK)


def version(path: Path) -> tuple[int, int] | None:
    """Return a value that changes when the file is written or replaced, or when a link gets a new target.

    The value also changes with the mode and the owner of the file: then a file may become usable. Return None if the
    status of the file cannot be read.
    """
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_ctime_ns


def _mode(status: os.stat_result) -> int:
    return stat.S_IMODE(status.st_mode)
