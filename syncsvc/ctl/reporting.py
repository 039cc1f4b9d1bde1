"""Writes the report of a service to a file."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from syncsvc.ctl import archive
from syncsvc.ctl.client import Client
from syncsvc.ctl.tool import Tool


def write_report(tool: Tool, api: Client, output: Path | None, name: str) -> None:
    """Write the report of a service as HTML to `output`, or to a new file whose name begins with `name`.

    With --json, write the JSON to `output`, or print it.
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
    step = "open it in a browser; to send it as a PDF, print it there."
    tool.say(f"Wrote {target}.", tool.next(step))


def now() -> str:
    """Return the present time in UTC, for the name of a file."""
    return datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")


def _save(target: Path, text: str) -> None:
    with archive.new_file(target) as file:
        file.write(text.encode())
