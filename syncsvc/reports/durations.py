"""Writes durations in words, as precisely as a person needs them. Pure."""

from __future__ import annotations

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def about(seconds: float) -> str:
    """Return a duration in its largest unit, rounded down, for example `45 seconds` or `3 hours`.

    A duration of less than two of a unit is given in the next smaller one.
    """
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}s"
    return "1 second" if seconds >= 1 else "0 seconds"
