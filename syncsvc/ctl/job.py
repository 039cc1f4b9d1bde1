"""Reads the body of a request from a file that the operator names."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from syncsvc import job
from syncsvc.ctl.client import ClientError
from syncsvc.ctl.exits import Exit


def start_job(file: Path | None) -> dict[str, Any]:
    """Return the body of a start request from a file; if `file` is None, the body with default options.

    Raises ClientError if the file cannot be used.
    """
    return job.DEFAULT_JOB if file is None else read_job(file)


def file_option(file: Path | None) -> str:
    """Return the part of a `syncctl` command that names the job file, with a leading space; "" if `file` is None."""
    return "" if file is None else f" -f {quote(str(file))}"


def read_job(file: Path) -> dict[str, Any]:
    """Return the object in a YAML or JSON file. Raises ClientError, which names the wrong line or field."""
    try:
        return job.read_job(file)
    except ValueError as error:
        raise ClientError(Exit.USAGE, "InvalidFile", str(error)) from error
