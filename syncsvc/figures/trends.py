"""Forecasts when the lag will be 0, from the lags of the last two minutes, and writes durations in words.

The functions here have no side effects.
"""

from __future__ import annotations

from dataclasses import dataclass

# The maximum age of a sample, the minimum interval between samples, and the minimum span for a forecast, in seconds.
_COUNTS_FOR = 120.0
_APART = 2.0
_LEAST_SPAN = 10.0

_MINUTE = 60
_HOUR = 60 * _MINUTE
# The shortest and the longest forecast, in seconds. Others are reported as "less than" and "more than" these.
SHORTEST_FORECAST = 15 * _MINUTE
_LONGEST_FORECAST = 72 * _HOUR


@dataclass(frozen=True)
class Lag:
    """A measured lag of the destination, in seconds. `at` is when it was measured (monotonic clock, in seconds)."""

    seconds: int
    at: float


def with_newest(lags: tuple[Lag, ...], newest: Lag) -> tuple[Lag, ...]:
    """Return the lags of the last two minutes, reduced to one every two seconds, with `newest` at the end."""
    kept = [lag for lag in lags if newest.at - lag.at <= _COUNTS_FOR]
    if len(kept) > 1 and kept[-1].at - kept[-2].at < _APART:
        kept.pop()
    return (*kept, newest)


def seconds_to_catch_up(lags: tuple[Lag, ...]) -> int | None:
    """Return the forecast seconds until the lag is 0; None if it does not fall, or was not observed for long enough."""
    if not lags:
        return None
    first, last = lags[0], lags[-1]
    elapsed, fall = last.at - first.at, first.seconds - last.seconds
    if elapsed < _LEAST_SPAN or fall <= 0:
        return None
    return round(last.seconds * elapsed / fall)


def in_words(seconds: float) -> str:
    """Return a duration in words, rounded down to minutes or hours, because a forecast is not more precise.

    The shortest result is "less than 15 minutes", the longest "more than 72 hours".
    """
    if seconds < SHORTEST_FORECAST:
        return "less than 15 minutes"
    if seconds > _LONGEST_FORECAST:
        return "more than 72 hours"
    if seconds < _HOUR:
        return f"{int(seconds // _MINUTE)} minutes"
    hours = int(seconds // _HOUR)
    return "1 hour" if hours == 1 else f"{hours} hours"
