"""Writes durations in words, as precisely as a person needs them."""

from __future__ import annotations

_UNITS = (("day", 86_400), ("hour", 3_600), ("minute", 60), ("second", 1))


def about(seconds: float) -> str:
    """Return a duration in one unit, rounded down, for example "45 seconds" or "3 hours".

    The unit is the largest one that the duration contains at least twice (90 minutes are "90 minutes"); below two
    seconds, it is the second.
    """
    for unit, size in _UNITS:
        if seconds >= 2 * size:
            return f"{int(seconds // size)} {unit}s"
    return "1 second" if seconds >= 1 else "0 seconds"
