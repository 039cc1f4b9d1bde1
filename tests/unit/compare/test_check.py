"""Tests how often a check compares mismatches again that stay the same."""

from __future__ import annotations

import pytest

from verifier.compare.check import next_pause
from verifier.compare.tuning import CheckTuning

TUNING = CheckTuning(least_pause=1.0, most_pause=30.0)


@pytest.mark.parametrize(
    "before, same, duration, pause",
    [
        (1, True, 0.1, 2),
        (20, True, 0.1, 30),
        (30, True, 3, 30),
        (30, True, 60, 60),
        (400, True, 60, 600),
        (600, True, 60, 600),
        (600, True, 0.1, 30),
        (600, False, 60, 1),
    ],
)
def test_the_pause_grows_while_the_mismatches_stay_the_same(
    before: float, same: bool, duration: float, pause: float
) -> None:
    assert next_pause(before, same, duration, TUNING) == pause
