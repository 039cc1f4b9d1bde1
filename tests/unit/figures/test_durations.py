"""A Stopwatch collects the durations of calls to the clusters. Taking the durations empties the Stopwatch.

`timed` measures how long an iterator takes for each of its items.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from syncsvc.figures import durations
from syncsvc.figures.durations import Durations, Operation, Stopwatch, timed


def test_take_returns_the_calls_since_the_last_take() -> None:
    stopwatch = Stopwatch()
    for seconds in (0.5, 2.0, 0.5):
        stopwatch.note(Operation.COPY_READ, seconds)
    stopwatch.note(Operation.EVENTS_READ, 0.25)
    taken = stopwatch.take()
    assert taken == {
        Operation.COPY_READ: Durations(3, 3.0, 2.0),
        Operation.EVENTS_READ: Durations(1, 0.25, 0.25),
    }
    assert taken[Operation.COPY_READ].average == 1.0
    assert stopwatch.take() == {}


def test_a_block_is_one_call_unless_it_fails() -> None:
    stopwatch = Stopwatch()
    with stopwatch.timing(Operation.COPY_WRITE):
        pass
    with pytest.raises(ValueError), stopwatch.timing(Operation.COPY_WRITE):
        raise ValueError
    assert stopwatch.take()[Operation.COPY_WRITE].calls == 1


def test_items_come_with_the_times_of_their_iterator(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr(durations, "perf_counter", lambda: now)

    def items() -> Iterator[str]:
        nonlocal now
        for item, seconds in (("a", 2.0), ("b", 3.0)):
            now += seconds
            yield item

    found = []
    for each in timed(items()):
        found.append(each)
        now += 100.0  # the work of the caller with the item
    assert found == [("a", 2.0), ("b", 3.0)]
