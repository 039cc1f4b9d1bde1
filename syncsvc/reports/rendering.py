"""Renders the report of a sync as one HTML file, which needs nothing else: no script, no other file, no network.

Names and error texts are hostile input. The template escapes every value, control characters are shown as escapes, and
the Content-Security-Policy allows nothing but the style sheet of the file itself.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined, Template

from verifier.runtime.quantities import duration_text, size_text, visible

_FOLDER = Path(__file__).parent
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
    # The report of a running sync changes, and it names who has sent commands.
    "Cache-Control": "no-store",
}
_UNKNOWN = "–"
_LEVELS = {"good": "✓", "warning": "!", "bad": "✕", "info": "i"}


def page(report: Mapping[str, Any]) -> str:
    """Return the HTML of a report, as `reports.report` makes it."""
    # In the file, too: it is opened without the headers of the answer.
    return _template().render(
        report=report, style=_STYLE, policy="; ".join(_POLICY), mark=_LEVELS[_level(report)]
    )


def _level(report: Mapping[str, Any]) -> str:
    return str(report["headline"]["level"])


@cache
def _template() -> Template:
    environment = Environment(
        loader=FileSystemLoader(_FOLDER),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_shown,
    )
    environment.filters.update(
        count=_count, size=_size, span=_span, time=_time, rate=_rate, json=_json
    )
    return environment.get_template("report.html")


def _shown(value: Any) -> Any:
    """Return what the template shows for a value: a dash for None, and visible text."""
    if value is None:
        return _UNKNOWN
    # Not for text that is safe already: it is a part of the template.
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
    """Return a time of the report, such as 2026-03-14T09:30:00Z, for people."""
    return None if text is None else text.replace("T", " ").removesuffix("Z")


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)
