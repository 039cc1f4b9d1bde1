"""Tests how long a check pauses before it compares unchanged mismatches again."""

from __future__ import annotations

import pytest

from verifier.compare.check import next_pause, pause_after_changes
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


@pytest.mark.parametrize(
    "duration, mismatches, pause, in_sync",
    [(0.1, False, 1, 1), (60, False, 1, 1), (0.1, True, 1, 1), (3, True, 3, 3), (60, True, 30, 5)],
)
def test_changed_documents_wait_longer_if_many_mismatches_are_compared_with_them(
    duration: float, mismatches: bool, pause: float, in_sync: float
) -> None:
    assert pause_after_changes(duration, mismatches, False, TUNING) == pause
    assert pause_after_changes(duration, mismatches, True, TUNING) == in_sync
