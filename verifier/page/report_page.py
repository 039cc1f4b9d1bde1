"""Renders a report as one self-contained HTML file: no script, no other file, no network access.

Names and error texts are hostile input. The template escapes every value, control characters are shown as escapes, and
the Content-Security-Policy allows only the style sheet inside the file.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from enum import Enum
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from verifier.runtime.quantities import duration_text, size_text, utc_text, visible

# The folder with the layout, the macros and the style sheet that all reports share.
_FOLDER = Path(__file__).parent / "report"
_STYLE = (_FOLDER / "report.css").read_text()
_HASH = b64encode(sha256(_STYLE.encode()).digest()).decode()
_POLICY = (
    "default-src 'none'",
    f"style-src 'sha256-{_HASH}'",
    "base-uri 'none'",
    "form-action 'none'",
)
HEADERS = {
    "Content-Security-Policy": "; ".join((*_POLICY, "frame-ancestors 'none'")),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    # A report changes, and it names who has sent commands.
    "Cache-Control": "no-store",
}
_UNKNOWN = "–"
# Sentences in the reports of both programs.
COUNTED = (
    "The documents of each collection are counted on both clusters, and the numbers are compared, except for "
    "collections that are listed as not compared."
)
UNKNOWN_CALLERS = (
    "Some commands were sent without a token, so only the addresses of their senders are known."
)
PROXIES = "If a command came through a proxy or an SSH tunnel, its sender has the address of the proxy or tunnel."


class Level(Enum):
    """The severity of the headline of a report."""

    GOOD = "good"
    WARNING = "warning"
    BAD = "bad"
    INFO = "info"


_MARKS = {Level.GOOD: "✓", Level.WARNING: "!", Level.BAD: "✕", Level.INFO: "i"}


class ReportPage:
    """The HTML page of one kind of report. `template` is its Jinja template, which extends `report_layout.html`."""

    def __init__(self, template: Path) -> None:
        self._path = template

    def html(self, report: Mapping[str, Any]) -> str:
        """Return the page that shows a report. The report must contain `level` and `text` in its field `headline`."""
        level = Level(report["headline"]["level"])
        # The policy is in the file, too, because a saved file is opened without the headers of the answer.
        return self._template.render(
            report=report, style=_STYLE, policy="; ".join(_POLICY), mark=_MARKS[level]
        )

    @cached_property
    def _template(self) -> Template:
        environment = Environment(
            loader=FileSystemLoader((self._path.parent, _FOLDER)),
            autoescape=True,
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            finalize=_shown,
        )
        environment.filters.update(
            count=_count, size=_size, span=_span, time=_time, rate=_rate, json=_json
        )
        return environment.get_template(self._path.name)


def moment(at: float | None) -> str | None:
    """Return a time in UNIX seconds as text in UTC; None for None."""
    return None if at is None else utc_text(at)


def rate(amount: float, seconds: float | None) -> float | None:
    """Return the average amount per second, rounded to one decimal; None if the duration is unknown or zero."""
    return round(amount / seconds, 1) if seconds is not None and seconds > 0 else None


def _shown(value: Any) -> Any:
    """Return a value as the template shows it: None as a dash, and text with control characters escaped."""
    if value is None:
        return _UNKNOWN
    # Text of the type Markup is a part of the template, and must not be escaped.
    return visible(value) if type(value) is str else value


def _count(number: int | None) -> str | None:
    return None if number is None else f"{number:,}"


def _size(number: float | None) -> str | None:
    return None if number is None else size_text(number)


def _span(seconds: float | None) -> str | None:
    return None if seconds is None else duration_text(seconds)


def _rate(number: float | None) -> str | None:
    return None if number is None else f"{number:,.0f}"


def _time(text: str | None) -> str | None:
    """Return a time such as 2026-03-14T09:30:00Z in the form 2026-03-14 09:30:00; None for None."""
    return None if text is None else text.replace("T", " ").removesuffix("Z")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
