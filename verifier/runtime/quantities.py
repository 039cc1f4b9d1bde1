"""Formats sizes, durations and untrusted text for people. The functions here have no side effects."""

from __future__ import annotations

import unicodedata

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
# Control and formatting characters, surrogates, private and unassigned characters.
_UNSAFE = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})


def size_text(size: float) -> str:
    """Return a number of bytes in decimal units, as in `1.2 GB`."""
    unit = 0
    while size >= 1000 and unit < len(_UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:,.0f} {_UNITS[0]}" if not unit else f"{size:,.1f} {_UNITS[unit]}"


def duration_text(seconds: float) -> str:
    """Return a duration in its two largest units, such as `2 h 5 min`; below a minute, seconds with one decimal."""
    minutes, rest = divmod(max(seconds, 0.0), 60)
    hours, minutes = divmod(int(minutes), 60)
    if hours:
        return f"{hours:,} h {minutes} min"
    return f"{minutes} min {int(rest)} s" if minutes else f"{rest:.1f} s"


def visible(text: str) -> str:
    """Return the text with control and formatting characters escaped.

    Otherwise, such characters could make the text look different, for example by reversing a part of it.
    """
    if text.isprintable():
        return text
    return "".join(_escaped(each) if _is_unsafe(each) else each for each in text)


def _is_unsafe(character: str) -> bool:
    return unicodedata.category(character) in _UNSAFE


def _escaped(character: str) -> str:
    return character.encode("unicode_escape", "backslashreplace").decode()
