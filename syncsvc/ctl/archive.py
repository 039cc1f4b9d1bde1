"""Collects the files that help to find the cause of a problem, without secrets, for `syncctl diagnose`."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time
from typing import BinaryIO

from syncsvc.ctl.client import Client, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.redaction import redacted

# The maximum number of bytes from the end of one log file, and from all log files together.
_LOG_BYTES, _ALL_LOGS_BYTES = 50_000_000, 200_000_000
# Matches the names of logs, including those that logrotate has renamed or compressed with gzip, such as syncsvc.log.1
# and syncsvc.log-20261127.gz.
_LOG_NAME = re.compile(r"\.log([.-]\d+)*(\.gz)?$")

# The name of each file, and the request whose answer it holds.
_ANSWERS = (
    ("progress.json", "progress"),
    ("limits.json", "limits"),
    ("report.json", "report"),
    ("openapi.json", "openapi.json"),
    ("readyz.json", "/readyz"),
)


@dataclass(frozen=True)
class Logs:
    """The logs for an archive.

    `texts` holds the redacted end of each log, by its name in the archive. `found` is the number of log files found,
    and `too_old` the number of old files left out because of the size limit. `damaged` are the paths of the found
    files that could not be read.
    """

    texts: Mapping[str, str]
    found: int
    too_old: int
    damaged: Sequence[Path]


def collected(api: Client, start: Document, logs: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yield the name and the redacted text of each file of the archive; if a request fails, its error is the text.

    The files are the daemon's answers and the files in `logs` (redacted texts by name). `start` is the body of the
    preflight request. Raises ClientError if there is no connection to the daemon, or an answer is not readable, and
    `logs` is empty.
    """
    requests: dict[str, Callable[[], str]] = {
        **{name: partial(_answer, api, path) for name, path in _ANSWERS},
        # Each line is one page of the list.
        "namespaces.json": lambda: "\n".join(page.text.strip() for page in api.namespaces()),
        "metrics.txt": lambda: api.text("/metrics"),
        "preflight.json": lambda: api.post("preflight", start).text,
    }
    for name, request in requests.items():
        try:
            text = request()
        except ClientError as error:
            is_there = error.status is not Exit.UNREACHABLE or error.error == "NoAnswer"
            if not is_there and not logs:
                raise
            text = error.answer
        yield name, redacted(text)
    yield from logs.items()


def _answer(api: Client, path: str) -> str:
    return api.get(path).text


def read_logs(paths: Sequence[Path]) -> Logs:
    """Read the given log files, and all logs below the given directories, also rotated ones.

    The newest logs are read first, until the size limit is reached. Raises ClientError if a given file, or the
    modification time of any file, cannot be read; a damaged log below a directory is left out, so that the other logs
    are still collected.
    """
    given = {path.resolve() for path in paths if not path.is_dir()}
    files = _log_files(paths)
    texts: dict[str, str] = {}
    damaged, left = [], _ALL_LOGS_BYTES
    for number, log in enumerate(files):
        try:
            content = _end_of(log)
        except ClientError:
            if log in given:
                raise
            damaged.append(log)
            continue
        left -= len(content)
        if left < 0:
            return Logs(texts, len(files), len(files) - number, damaged)
        # The whole path, because the logs of several instances have the same name, and x.log may exist beside x.log.gz.
        name = f"logs{log}.txt" if log.suffix == ".gz" else f"logs{log}"
        texts[name] = redacted(content.decode(errors="replace"))
    return Logs(texts, len(files), 0, damaged)


def _log_files(paths: Sequence[Path]) -> list[Path]:
    """Return the absolute paths of the given files and of all readable logs below the given directories, each once.

    The newest file is the first. Raises ClientError if the modification time of a file cannot be read.
    """
    found = {
        file.resolve()
        for path in paths
        for file in (filter(_is_readable_log, path.rglob("*.log*")) if path.is_dir() else [path])
    }
    return sorted(found, key=lambda log: (_status(log).st_mtime, log), reverse=True)


def write(files: Iterator[tuple[str, str]], target: Path) -> list[str]:
    """Write files, each given by name and text, to the archive `target`, and return their names.

    Only the owner can read the archive. Raises ClientError if `target` exists or cannot be written, and the errors of
    the iterator `files`. In both cases, no file is left.
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


@contextmanager
def new_file(target: Path) -> Iterator[BinaryIO]:
    """Create a file that only its owner can read, and write it in the block.

    Raises ClientError if the file exists, or if it cannot be created or written; an incomplete file is removed.
    """
    with _writable(target, "created"):
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    try:
        with _writable(target, "written"), os.fdopen(descriptor, "wb") as file:
            yield file
    except ClientError:
        target.unlink(missing_ok=True)
        raise


@contextmanager
def _writable(target: Path, done: str) -> Iterator[None]:
    """Raise ClientError for an OSError in the block; `done` is "created" or "written"."""
    try:
        yield
    except OSError as error:
        raise ClientError(
            Exit.USAGE,
            "FileNotWritten",
            f"{target} cannot be {done}: {error.strerror}. Name another file with --output.",
        ) from error


def _is_readable_log(file: Path) -> bool:
    return bool(_LOG_NAME.search(file.name)) and file.is_file() and os.access(file, os.R_OK)


def _status(log: Path) -> os.stat_result:
    with _readable(log):
        return log.stat()


def _end_of(log: Path) -> bytes:
    """Return the last 50 MB of a log, of the uncompressed content if it is compressed."""
    with _readable(log), gzip.open(log) if log.suffix == ".gz" else log.open("rb") as file:
        if log.suffix != ".gz":
            file.seek(max(0, _status(log).st_size - _LOG_BYTES))
        # A gzip file holds its size only modulo 4 GiB, and only that of its last part, so read it to its end.
        end = b""
        while block := file.read(_LOG_BYTES):
            end = (end + block)[-_LOG_BYTES:]
        return end


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
            f"the log {log} cannot be read: {reason}. Run the command as a user who may read it; if the file is "
            "damaged, name only the other logs with --log.",
        ) from error
