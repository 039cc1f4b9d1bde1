"""Collects the files that help to find the cause of a problem, without secrets, for `syncctl diagnose`."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import accumulate
from pathlib import Path
from time import time
from typing import BinaryIO

from syncsvc.ctl.client import Client, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.redaction import redacted

# The maximum number of bytes from the end of one log file, and from all log files together.
_LOG_BYTES, _ALL_LOGS_BYTES = 50_000_000, 200_000_000
# Matches the name of a log, also of one that logrotate has renamed or compressed, such as syncsvc.log.1 and
# syncsvc.log-20261127.gz.
_LOG_NAME = re.compile(r"\.log([.-]\d+)*(\.gz)?$")

# The name of each file, and the request whose answer it holds.
_ANSWERS = (
    ("progress.json", "progress"),
    ("namespaces.json", "namespaces"),
    ("limits.json", "limits"),
    ("report.json", "report"),
    ("openapi.json", "openapi.json"),
    ("readyz.json", "/readyz"),
)


def collected(api: Client, start: Document, logs: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield the name and the redacted text of each file of the archive; if a request fails, the text is its error.

    The files are answers of the daemon, and the end of each log file of `logs`, which are absolute paths. `start` is
    the body of the preflight request. Raises ClientError if a log cannot be read, or if the daemon does not answer and
    `logs` is empty.
    """
    requests: dict[str, Callable[[], str]] = {
        **{name: partial(_answer, api, path) for name, path in _ANSWERS},
        "metrics.txt": lambda: api.text("/metrics"),
        "preflight.json": lambda: api.post("preflight", start).text,
    }
    for name, request in requests.items():
        try:
            text = request()
        except ClientError as error:
            if error.status is Exit.UNREACHABLE and not logs:
                raise
            text = error.answer
        yield name, redacted(text)
    for log in logs:
        # The whole path, because the logs of several instances have the same name.
        yield f"logs{log}".removesuffix(".gz"), redacted(_end_of(log))


def _answer(api: Client, path: str) -> str:
    return api.get(path).text


def log_files(paths: Sequence[Path]) -> list[Path]:
    """Return the given files and all readable logs below the given directories, each once, the newest first.

    This includes rotated logs. The returned paths are absolute. Raises ClientError if a given file cannot be read.
    """
    found = {
        file.resolve()
        for path in paths
        for file in (filter(_is_readable_log, path.rglob("*.log*")) if path.is_dir() else [path])
    }
    return sorted(found, key=lambda log: (_status(log).st_mtime, log), reverse=True)


def newest(logs: Sequence[Path]) -> Sequence[Path]:
    """Return as many of `logs`, from the first one on, as fit into an archive. `logs` must be sorted, newest first.

    Raises ClientError if the size of a log cannot be read.
    """
    used = accumulate(min(_size(log), _LOG_BYTES) for log in logs)
    return logs[: sum(each <= _ALL_LOGS_BYTES for each in used)]


def write(files: Iterator[tuple[str, str]], target: Path) -> list[str]:
    """Write files, each given by name and text, to the archive `target`, and return their names.

    Only the owner can read the archive. Raises ClientError if `target` exists or cannot be created, and the errors of
    the iterator `files`; then, nothing is written.
    """
    # All texts are collected before the file is made, so that no incomplete archive is left if the daemon is down.
    held = [*files]
    top = target.name.removesuffix(".tar.gz")
    with new_file(target) as raw, tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in held:
            data = text.encode()
            entry = tarfile.TarInfo(f"{top}/{name}")
            entry.size, entry.mode, entry.mtime = len(data), 0o600, int(time())
            archive.addfile(entry, io.BytesIO(data))
    return [name for name, _ in held]


def new_file(target: Path) -> BinaryIO:
    """Create and open a file that only its owner can read. Raises ClientError if it exists or cannot be created."""
    try:
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise ClientError(
            Exit.USAGE,
            "FileNotWritten",
            f"{target} cannot be created: {error.strerror}. Name another file with --output.",
        ) from error
    return os.fdopen(descriptor, "wb")


def _is_readable_log(file: Path) -> bool:
    return bool(_LOG_NAME.search(file.name)) and file.is_file() and os.access(file, os.R_OK)


def _status(log: Path) -> os.stat_result:
    with _readable(log):
        return log.stat()


def _size(log: Path) -> int:
    """Return the size of a log in bytes; of a compressed one, the size of its content."""
    if log.suffix != ".gz":
        return _status(log).st_size
    with _readable(log), log.open("rb") as file:
        file.seek(-4, os.SEEK_END)  # where gzip stores it
        return int.from_bytes(file.read(), "little")


def _end_of(log: Path) -> str:
    with _readable(log), gzip.open(log) if log.suffix == ".gz" else log.open("rb") as file:
        file.seek(max(0, _size(log) - _LOG_BYTES))
        return file.read(_LOG_BYTES).decode(errors="replace")


@contextmanager
def _readable(log: Path) -> Iterator[None]:
    """Raise ClientError if the block cannot read the log."""
    try:
        yield
    except (OSError, EOFError, zlib.error) as error:
        reason = getattr(error, "strerror", None) or error
        raise ClientError(
            Exit.USAGE,
            "FileNotRead",
            f"the log {log} cannot be read: {reason}. Run the command as a user who may read the log, or omit "
            "--log.",
        ) from error
