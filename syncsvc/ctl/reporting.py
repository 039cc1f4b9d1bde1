"""Writes the report of a sync or a check to a file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from syncsvc.ctl import archive
from syncsvc.ctl.client import Client
from syncsvc.ctl.tool import Tool


def write_report(tool: Tool, api: Client, output: Path | None, name: str) -> None:
    """Request the report from the daemon of `api`, and write it as HTML to the new file `output`.

    If `output` is None, the file gets a name that begins with `name`. With --json, write the JSON to `output` instead,
    or print it if `output` is None. Raises ClientError.
    """
    if tool.json:
        answer = api.get("report").text
        if output is None:
            tool.write(answer)
        else:
            _save(output, answer)
        return
    html = api.text("report", format="html")
    target = output or Path(f"{name}-{now()}.html")
    _save(target, html)
    step = "open the report in a browser; to get a PDF, print the report in the browser."
    tool.say(f"Wrote {target}.", tool.next(step))


def now() -> str:
    """Return the current time in UTC as a part of a file name, such as `20260131T235959Z`."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _save(target: Path, text: str) -> None:
    with archive.new_file(target) as file:
        file.write(text.encode())
