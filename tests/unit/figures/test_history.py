"""Tests the history for the charts: rates, three series with different steps, and the points that a client requests."""

from __future__ import annotations

import pytest

from syncsvc.figures.history import COLUMNS, History, Sample, merged, rates

NOTHING = (None, None, None)


def sample(at: float, copied: float | None = 0.0, lag: float | None = None) -> Sample:
    return Sample(1_000.0 + at, at, (copied, copied, *[0.0] * 5), (lag, None, None))


def recorded(seconds: int, step: float = 5.0) -> History:
    """Return a history of `seconds` seconds, with one sample per second.

    A hundred bytes are copied per second, and the lag grows by one second per second. `step` is the number of seconds
    between two points of the shortest series.
    """
    history = History(step)
    for at in range(seconds + 1):
        history.record(sample(at, 100.0 * at, float(at)))
    return history


def test_a_rate_is_the_growth_per_second() -> None:
    assert rates(sample(10, 500.0), sample(15, 1_500.0))[0] == 200.0


@pytest.mark.parametrize("before, after", [(500.0, 100.0), (None, 100.0), (100.0, None)])
def test_a_total_that_began_again_has_no_rate(before: float | None, after: float | None) -> None:
    assert rates(sample(10, before), sample(15, after))[0] is None


def test_merged_rows_hold_averages_and_peaks() -> None:
    still = [0.0] * 5
    rows = [(1.0, 10.0, None, *still, 3.0, None, 1.0), (2.0, 20.0, 6.0, *still, 1.0, None, 5.0)]
    assert merged(rows) == (2.0, 15.0, 6.0, *still, 3.0, None, 5.0)


def test_the_first_sample_is_no_point() -> None:
    history = History(5.0)
    history.record(sample(0))
    assert history.points("15m").rows == ()
    assert history.averages() == ((), ())


def test_the_short_series_has_a_point_every_few_seconds() -> None:
    points = recorded(61).points("15m")
    times = [row[0] for row in points.rows]
    assert times == [1_001.0 + 5 * n for n in range(13)]
    assert {row[1] for row in points.rows} == {100.0}
    # The highest lag since the previous point.
    assert points.rows[-1][COLUMNS.index("lagSeconds")] == 61.0
    assert points.step == 5.0


def test_each_series_is_bounded() -> None:
    history = History(5.0)
    for minute in range(3_000):
        history.record(sample(60.0 * minute))
    assert len(history.points("15m").rows) == 180
    assert len(history.points("6h").rows) == 360
    everything = history.points("all")
    assert len(everything.rows) <= 720
    assert everything.step == 480.0
    assert (everything.rows[0][0] or 0) < 1_000 + 2 * 480


def test_a_client_gets_only_what_it_lacks() -> None:
    history = recorded(21)
    first = history.points("15m")
    assert first.restart
    assert history.points("15m", first.cursor).rows == ()
    for at in range(22, 32):
        history.record(sample(at, 100.0 * at))
    following = history.points("15m", first.cursor)
    assert not following.restart
    assert (*first.rows, *following.rows) == history.points("15m").rows


def test_a_cursor_of_something_else_gets_everything() -> None:
    history, other = recorded(60), recorded(60)
    cursors = [other.points("15m").cursor, history.points("6h").cursor, "x", "", "9" * 99]
    prefix = history.points("15m").cursor.rpartition(".")[0]
    cursors += [f"{prefix}.{text}" for text in ("99999", "-1", "²", "9" * 20, "", "1.5")]
    for cursor in cursors:
        points = history.points("15m", cursor)
        assert points.restart and points.rows == history.points("15m").rows


def test_a_cursor_of_another_series_gets_everything() -> None:
    """In the first hours, the series "6h" and "all" have the same step, and as many points."""
    history = History(5.0)
    for minute in range(10):
        history.record(sample(60.0 * minute))
    points = history.points("all", history.points("6h").cursor)
    assert points.restart and points.rows == history.points("all").rows != ()


def test_a_cursor_that_is_too_old_gets_everything() -> None:
    history = recorded(10)
    cursor = history.points("15m").cursor
    for at in range(11, 1_200):
        history.record(sample(at))
    assert history.points("15m", cursor).restart


def test_a_thinned_series_restarts() -> None:
    history = History(5.0)
    for minute in range(700):
        history.record(sample(60.0 * minute))
    cursor = history.points("all").cursor
    for minute in range(700, 740):
        history.record(sample(60.0 * minute))
    assert history.points("all", cursor).restart


def test_the_averages_of_the_last_minute_and_of_all() -> None:
    history = recorded(200)
    for at in range(201, 300):
        history.record(sample(at, 20_000.0 + 400.0 * (at - 200)))
    last, lately = history.averages()
    assert last[1] == 400.0
    assert 100.0 < (lately[1] or 0) < 400.0


def test_a_clock_that_stands_still_adds_nothing() -> None:
    history = History(5.0)
    for _ in range(3):
        history.record(sample(7.0))
    assert history.points("15m").rows == ()
