"""Reads the body of a request from a file that the operator names."""

from __future__ import annotations

from pathlib import Path
from shlex import quote
from typing import Any

from syncsvc import request_file
from syncsvc.ctl.client import ClientError
from syncsvc.ctl.exits import Exit


def start_request(file: Path | None) -> dict[str, Any]:
    """Return the body of a start request from a file; if `file` is None, the body with default options.

    Raises ClientError if the file cannot be used.
    """
    return request_file.DEFAULT_START if file is None else read_request(file)


def file_option(file: Path | None) -> str:
    """Return the part of a `syncctl` command that names this file, with a leading space; "" if `file` is None."""
    return "" if file is None else f" -f {quote(str(file))}"


def read_request(file: Path) -> dict[str, Any]:
    """Return the object in a YAML or JSON file. Raises ClientError if the file cannot be read, or is invalid."""
    try:
        return request_file.read_request(file)
    except ValueError as error:
        raise ClientError(Exit.USAGE, "InvalidFile", str(error)) from error
