"""Tests the forecast, from recent lags, of when the lag will be zero, and durations in words."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.figures.trends import Lag, in_words, seconds_to_catch_up, with_newest


@pytest.mark.parametrize(
    "lags, seconds",
    [
        ((), None),
        (((100, 0),), None),
        (((100, 0), (50, 9)), None),
        (((100, 0), (50, 10)), 10),
        (((100, 0), (0, 10)), 0),
        (((100, 0), (100, 60)), None),
        (((100, 0), (101, 60)), None),
        (((100, 0), (200, 30), (99, 60)), 5940),
        (((3600, 0), (3540, 60)), 3540),
        (((0, 0), (0, 60)), None),
    ],
)
def test_the_forecast_of_a_zero_lag(
    lags: tuple[tuple[int, float], ...], seconds: int | None
) -> None:
    assert seconds_to_catch_up(tuple(Lag(*each) for each in lags)) == seconds


@given(st.lists(st.floats(0, 300), max_size=40))
def test_recent_lags_are_thinned_out_and_kept_in_order(moments: list[float]) -> None:
    lags: tuple[Lag, ...] = ()
    for at in sorted(moments):
        newest = Lag(round(at), at)
        lags = with_newest(lags, newest)
        assert lags[-1] == newest
        assert len(lags) <= 62
        assert newest.at - lags[0].at <= 120
        times = [lag.at for lag in lags]
        assert times == sorted(times)
        assert all(later - earlier >= 2 for earlier, later in zip(times[:-1], times[1:-1]))


@pytest.mark.parametrize(
    "seconds, words",
    [
        (0, "less than 15 minutes"),
        (899.9, "less than 15 minutes"),
        (900, "15 minutes"),
        (45 * 60 + 59, "45 minutes"),
        (3599, "59 minutes"),
        (3600, "1 hour"),
        (7199, "1 hour"),
        (12.5 * 3600, "12 hours"),
        (72 * 3600, "72 hours"),
        (72 * 3600 + 1, "more than 72 hours"),
        (float("inf"), "more than 72 hours"),
    ],
)
def test_a_duration_in_words(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
