"""Formats sizes, durations, times and untrusted text for people. The functions here have no side effects."""

from __future__ import annotations

import unicodedata
from datetime import UTC, datetime

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
# The Unicode categories of control and formatting characters, surrogates, private-use and unassigned characters, and
# separators of lines and paragraphs.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})


def size_text(size: float) -> str:
    """Return a number of bytes in decimal units, as in `1.2 GB`."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.0f} {_UNITS[0]}" if not unit else f"{size:,.1f} {_UNITS[unit]}"


def duration_text(seconds: float) -> str:
    """Return a duration in hours and minutes (`2 h 5 min`), in minutes and seconds, or in seconds with one decimal."""
    minutes, rest = divmod(max(seconds, 0.0), 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {int(rest)} s" if minutes else f"{rest:.1f} s"


def utc_text(at: float) -> str:
    """Return a time in UNIX seconds as text in UTC, in whole seconds, such as `2026-01-31T12:00:00Z`."""
    return f"{datetime.fromtimestamp(at, UTC):%Y-%m-%dT%H:%M:%SZ}"


def visible(text: str) -> str:
    """Return the text on one line, with escapes for line breaks, control and formatting characters.

    Otherwise, such characters could alter the display of a terminal, or make the text look different, for example by
    reversing a part of it.
    """
    if text.isprintable():
        return text
    return "".join(
        ascii(each)[1:-1] if unicodedata.category(each) in _UNSAFE else each for each in text
    )
