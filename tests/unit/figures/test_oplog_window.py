"""Tests the estimates of how long the oplog lasts and the copy takes, and the warnings about a short oplog."""

from __future__ import annotations

import math
import re

import pytest
from bson.timestamp import Timestamp

from syncsvc.figures.oplog_window import Look, copy_seconds_left, is_lost, seconds_left, warning
from syncsvc.source.oplog import Oplog

HOUR = 3600
MB = 10**6


def time(seconds: int, increment: int = 1) -> Timestamp:
    return Timestamp(1_700_000_000 + seconds, increment)


def look(at: float, oldest: int, newest: int, size: int, limit: int = 1000 * MB) -> Look:
    return Look(at, Oplog(time(oldest), time(newest), size, limit))


@pytest.mark.parametrize(
    "oldest, needed, lost",
    [
        (time(10), time(11), False),
        (time(10), time(10), False),
        (time(10, 5), time(10, 4), True),
        (time(10), time(9, 99), True),
    ],
)
def test_a_point_is_lost_once_the_oldest_entry_is_newer(
    oldest: Timestamp, needed: Timestamp, lost: bool
) -> None:
    assert is_lost(Oplog(oldest, time(20), 0, 0), needed) is lost


# Observations as (at, oldest, newest, size in MB), the needed time, and the expected seconds left.
LASTING = [
    pytest.param([(0, 0, 0, 0)], 0, None, id="new and seen once"),
    pytest.param([(0, 0, 5, 1), (10, 0, 15, 1)], 5, math.inf, id="nothing is written"),
    pytest.param([(0, 0, 5, 500), (10, 0, 15, 510)], 0, 490, id="new and filling"),
    pytest.param([(0, 0, 5, 890), (10, 0, 15, 890)], 0, math.inf, id="new, loaded and quiet"),
    pytest.param([(0, 0, 89, 890), (10, 0, 89, 891)], 89, 10_000, id="earlier entries count"),
    pytest.param(
        [(0, 0, 24 * HOUR, 1000)], 12 * HOUR, 12 * HOUR, id="full and seen once: the window"
    ),
    pytest.param(
        [(0, 0, 1000, 1000), (10, 0, 1010, 1010)], 1010, 1010, id="full and at its usual pace"
    ),
    pytest.param(
        [(0, 0, 100_000, 1000), (10, 0, 100_000, 1010)],
        50_000,
        505,
        id="full and written faster than before",
    ),
    pytest.param(
        [(0, 0, 1000, 1000), (10, 0, 1000, 1000)], 500, 500, id="full and quiet for a while"
    ),
    pytest.param(
        [(0, 0, 1000, 1000), (10, 100, 1010, 910), (20, 100, 1010, 920)],
        555,
        (80 + 460) / (920 / 910),
        id="entries were dropped",
    ),
    pytest.param([(0, 0, 10, 2000), (1, 5, 11, 2000)], 5, 0, id="the needed entry is the oldest"),
    pytest.param([(0, 0, 10, 2000), (1, 5, 11, 2000)], 2, 0, id="the needed entry is gone"),
    pytest.param([(0, 7, 7, 2000)], 7, 0, id="all within a second"),
]


@pytest.mark.parametrize("looks, needed, left", LASTING)
def test_the_remaining_seconds_of_the_oplog(
    looks: list[tuple[int, int, int, int]], needed: int, left: float | None
) -> None:
    seen = [look(at, oldest, newest, size * MB) for at, oldest, newest, size in looks]
    found = seconds_left(seen, time(needed))
    assert found == (left if left is None else pytest.approx(left))


@pytest.mark.parametrize(
    "copied, total, left",
    [
        ([(0, 10), (60, 20)], 100, 480),
        ([(0, 10), (59, 20)], 100, None),
        ([(0, 10), (60, 10)], 100, None),
        ([(0, 10), (60, 20)], None, None),
        ([(0, 10), (60, 200)], 100, 0),
        ([(0, None), (300, 10), (360, 20)], 100, 480),
        ([(0, 10), (60, None)], 100, None),
        ([(0, None)], 100, None),
    ],
)
def test_the_remaining_seconds_of_the_copy(
    copied: list[tuple[float, int | None]], total: int | None, left: float | None
) -> None:
    oplog = Oplog(time(0), time(1), 0, MB)
    assert copy_seconds_left([Look(at, oplog, each) for at, each in copied], total) == left


@pytest.mark.parametrize(
    "left, copy_left, warned, said",
    [
        (900, None, False, None),
        (899, None, False, "less than 15 minutes"),
        (0, None, False, "less than 15 minutes"),
        (1199, None, False, None),
        (1199, None, True, "19 minutes"),
        (1200, None, True, None),
        (math.inf, 10**9, True, None),
        (4 * HOUR, 3 * HOUR, False, None),
        (
            4 * HOUR,
            9 * HOUR,
            False,
            "in 4 hours the oplog begins to drop .*, but the copy ends in 9 hours.",
        ),
        (7200, 7201, False, "the copy ends in 2 hours"),
        (7201, 7200, False, None),
        (7201, 7200, True, "the copy ends in 2 hours"),
        (9599, 7200, True, "the copy ends in 2 hours"),
        (9600, 7200, True, None),
        (600, 9 * HOUR, False, "in less than 15 minutes the oplog begins to drop entries"),
    ],
)
def test_the_text_of_the_warning(
    left: float, copy_left: float | None, warned: bool, said: str | None
) -> None:
    text = warning(left, copy_left, warned)
    if said is None:
        assert text is None
    else:
        assert text is not None
        assert re.search(said, text)
