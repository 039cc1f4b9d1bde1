"""Collects what is needed to find the cause of a problem, without secrets: `syncctl diagnose`."""

from __future__ import annotations

import io
import os
import tarfile
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import time
from typing import BinaryIO

from syncsvc.ctl.client import Client, ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.redaction import redacted

# Of a longer log, only the end is included.
_LOG_BYTES = 50_000_000

# The name of each file, and the request whose answer it holds.
_ANSWERS = (
    ("progress.json", "progress"),
    ("namespaces.json", "namespaces"),
    ("limits.json", "limits"),
    ("report.json", "report"),
    ("openapi.json", "openapi.json"),
    ("readyz.json", "/readyz"),
)


def collected(api: Client, job: Document, logs: Sequence[Path]) -> Iterator[tuple[str, str]]:
    """Yield the name and the redacted text of each file. If a request fails, the text is its error.

    `job` is the body of the preflight. Raises ClientError if the daemon does not answer and there are no logs.
    """
    requests: dict[str, Callable[[], str]] = {
        **{name: partial(_answer, api, path) for name, path in _ANSWERS},
        "metrics.txt": lambda: api.text("/metrics"),
        "preflight.json": lambda: api.post("preflight", job).text,
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
        yield f"logs/{log.name}", redacted(_end_of(log))


def _answer(api: Client, path: str) -> str:
    return api.get(path).text


def log_files(paths: Sequence[Path]) -> list[Path]:
    """Return the log files that the paths name; of a directory, its *.log files."""
    return [
        file for path in paths for file in (sorted(path.glob("*.log")) if path.is_dir() else [path])
    ]


def write(files: Iterator[tuple[str, str]], target: Path) -> list[str]:
    """Write an archive that only its owner can read, and return the names in it.

    Raises ClientError if the file `target` exists or cannot be written.
    """
    # The first request is sent before the file is made, so that no empty archive is left if the daemon is down.
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
    """Create a file that only its owner can read, and open it. Raises ClientError, also if it exists."""
    try:
        descriptor = os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
    except OSError as error:
        raise ClientError(
            Exit.USAGE,
            "FileNotWritten",
            f"{target} cannot be created: {error.strerror}. Name another file with --output.",
        ) from error
    return os.fdopen(descriptor, "wb")


def _end_of(log: Path) -> str:
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _LOG_BYTES))
            return file.read().decode(errors="replace")
    except OSError as error:
        raise ClientError(
            Exit.USAGE,
            "FileNotRead",
            f"the log {log} cannot be read: {error.strerror}. Run the command as a user who may read it, or omit it.",
        ) from error
