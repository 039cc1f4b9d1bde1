"""Tests when change events are spooled, and when the size of the event spool causes a warning."""

from __future__ import annotations

import math

import pytest

from syncsvc.figures.spooling import assumed_left, is_needed, warning

MINUTE, HOUR = 60.0, 3600.0


@pytest.mark.parametrize(
    "left, rest, needed",
    [
        (math.inf, None, False),
        (math.inf, 100 * HOUR, False),
        (31 * MINUTE, None, False),
        (29 * MINUTE, None, True),
        (0.0, None, True),
        (-HOUR, None, True),
        # A copy that is nearly done does not need the spool, however short the oplog is.
        (5 * MINUTE, 3 * MINUTE, False),
        (5 * MINUTE, 4 * MINUTE, True),
        (16 * HOUR, 10 * HOUR, False),
        (14 * HOUR, 10 * HOUR, True),
        # Events that are applied without delay need no spool, even with an oplog of seconds.
        (3.0, 0.0, False),
        (3.0, 1.0, False),
        (3.0, 3.0, True),
    ],
)
def test_events_are_spooled_if_the_oplog_may_be_too_short(
    left: float, rest: float | None, needed: bool
) -> None:
    assert is_needed(left, rest) is needed


def test_the_longer_the_oplog_lasts_the_less_is_spooled() -> None:
    lefts = [60.0 * each for each in range(200)]
    for rest in (None, 0.0, 10.0, 1000.0, 5000.0):
        decisions = [is_needed(left, rest) for left in lefts]
        assert decisions == sorted(decisions, reverse=True)


def test_an_oplog_that_cannot_be_read_is_trusted_for_an_hour() -> None:
    assert not is_needed(assumed_left(0.0), None)
    assert not is_needed(assumed_left(HOUR), None)
    assert is_needed(assumed_left(2 * HOUR), None)


@pytest.mark.parametrize(
    "size, warned, text",
    [
        (0, False, None),
        (79, False, None),
        (79, True, "little room"),
        (69, True, None),
        (80, False, "little room"),
        (80, True, "little room"),
        (100, False, "is full"),
        (120, True, "is full"),
    ],
)
def test_a_spool_that_fills_up_is_reported_early(size: int, warned: bool, text: str | None) -> None:
    million = 1_000_000
    found = warning(size * million, 100 * million, 0.0, warned)
    assert found is None if text is None else text in str(found)
    assert found is None or f"{size} MB of 100 MB" in found


def test_the_warning_says_when_it_will_be_full() -> None:
    found = warning(80_000_000, 100_000_000, 20_000_000 / 7300, False)
    assert found is not None and "The spool will be full in 2 hours." in found
