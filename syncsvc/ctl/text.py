"""Formats sizes and durations for people, and escapes names that come from a cluster.

The functions here have no side effects.
"""

from __future__ import annotations

import json
import unicodedata
from collections.abc import Callable

_UNITS = ("bytes", "kB", "MB", "GB", "TB", "PB")
_FACTORS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
UNKNOWN = "unknown"


# The Unicode categories of control and formatting characters, surrogates, private-use and unassigned characters, and
# separators of lines and paragraphs.
_UNSAFE = ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


class _Escapes(dict[int, str]):
    """A table for `str.translate`: unsafe characters are replaced by the result of `escape`, all others are kept."""

    def __init__(self, escape: Callable[[str], str]) -> None:
        super().__init__()
        self._escape = escape

    def __missing__(self, code: int) -> str:
        character = chr(code)
        is_safe = unicodedata.category(character) not in _UNSAFE
        self[code] = character if is_safe else self._escape(character)
        return self[code]


_ESCAPES = _Escapes(
    lambda character: character.encode("unicode_escape", "backslashreplace").decode()
)
# In JSON, unescaped line breaks and tabs can only be between values, because strings hold them escaped.
_JSON_ESCAPES = _Escapes(
    lambda character: {"\n": "\n", "\r": " ", "\t": " "}.get(character, json.dumps(character)[1:-1])
)


def printable(text: str) -> str:
    """Return the text on one line, with escapes for line breaks, control and formatting characters.

    Thus the name of a collection can neither control the terminal nor look like another line of the output.
    """
    return text.translate(_ESCAPES)


def printable_lines(text: str) -> str:
    """Return the text with control characters escaped, but keep its lines; all except the first one are indented."""
    return "\n  ".join(map(printable, text.split("\n")))


def printable_json(text: str) -> str:
    """Return the JSON `text` with the same values, but with terminal control characters escaped."""
    return text.translate(_JSON_ESCAPES)


def count(number: float | None) -> str:
    return UNKNOWN if number is None else f"{number:,.0f}"


def size(number: float | None) -> str:
    """Return a number of bytes in decimal units, such as `1.2 GB`; `unknown` for None."""
    if number is None:
        return UNKNOWN
    for unit in _UNITS:
        if abs(number) < 1000 or unit == _UNITS[-1]:
            break
        number /= 1000
    return f"{number:,.0f} {unit}" if unit == "bytes" else f"{number:,.1f} {unit}"


def bytes_from(text: str) -> int:
    """Return the number of bytes that a text such as `20MB` means. Raises ValueError for an invalid text."""
    number = text.strip().rstrip("BKMGTbkmgt ")
    unit = text.strip()[len(number) :].strip().upper()
    try:
        return round(float(number) * _FACTORS[unit])
    except (KeyError, ValueError, OverflowError) as error:
        raise ValueError(f"{text} is not a size such as 500000, 20MB or 1.5GB") from error


def duration(seconds: float | None) -> str:
    """Return a duration in its two largest units that are not 0, such as `2 h 5 min`; `unknown` for None."""
    if seconds is None:
        return UNKNOWN
    left = max(0, round(seconds))
    parts: list[str] = []
    for unit, length in (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1)):
        amount, left = divmod(left, length)
        if amount or (unit == "s" and not parts):
            parts.append(f"{amount} {unit}")
    return " ".join(parts[:2])


def share(part: float, whole: float | None) -> float | None:
    """Return `part` divided by `whole`, at most 1; None if `whole` is unknown, and 1 if it is 0."""
    if whole is None:
        return None
    return min(1.0, part / whole) if whole else 1.0


def percent(fraction: float | None) -> str:
    """Return a fraction between 0 and 1 as a percentage, rounded down; `unknown` for None."""
    return UNKNOWN if fraction is None else f"{int(100 * fraction)} %"
