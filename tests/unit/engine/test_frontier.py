"""A Frontier passes points (such as positions) in order, each one only when all work up to it is finished."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from weakref import WeakSet

import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.engine.run.frontier import Entry, Frontier
from tests.unit.deadlines import no_longer_than
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

# Switch threads at almost every step, to expose missing locks.
EAGER = 1e-6


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    with no_longer_than(60):
        yield


@pytest.fixture
def eager_threads() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(EAGER)
    yield
    sys.setswitchinterval(before)


@pytest.fixture
def frontier() -> Frontier[int]:
    return Frontier(0)


def test_nothing_is_unfinished_at_first(frontier: Frontier[int]) -> None:
    assert (frontier.passed, frontier.drained) == (0, True)


def test_a_point_is_passed_when_all_its_parts_are_finished(frontier: Frontier[int]) -> None:
    entry = frontier.enter(1, 2)
    frontier.finish(entry)
    assert (frontier.passed, frontier.drained) == (0, False)
    frontier.finish(entry)
    assert (frontier.passed, frontier.drained) == (1, True)


def test_a_point_without_parts_is_passed_at_once(frontier: Frontier[int]) -> None:
    frontier.enter(1, 0)
    assert (frontier.passed, frontier.drained) == (1, True)


def test_a_point_waits_for_all_before_it(frontier: Frontier[int]) -> None:
    first, second = frontier.enter(1, 1), frontier.enter(2, 1)
    frontier.enter(3, 0)
    frontier.finish(second)
    assert frontier.passed == 0
    frontier.finish(first)
    assert (frontier.passed, frontier.drained) == (3, True)


@given(st.data(), st.lists(st.integers(0, 3), max_size=12))
def test_no_unfinished_part_is_passed_in_any_order(data: st.DataObject, parts: list[int]) -> None:
    frontier: Frontier[int] = Frontier(0)
    entered: list[tuple[Entry[int], int]] = []
    unfinished: list[int] = []
    waiting = list(parts)
    while waiting or any(unfinished):
        before = frontier.passed
        open_ones = [number for number, left in enumerate(unfinished) if left]
        if waiting and (not open_ones or data.draw(st.booleans())):
            entered.append((frontier.enter(len(entered) + 1, waiting[0]), waiting[0]))
            unfinished.append(waiting.pop(0))
        else:
            number = data.draw(st.sampled_from(open_ones))
            unfinished[number] -= 1
            frontier.finish(entered[number][0])
        done = next((n for n, left in enumerate(unfinished) if left), len(unfinished))
        assert frontier.passed == done >= before
        assert frontier.drained is (done == len(unfinished))


def test_the_point_of_an_open_entry_can_be_set_later(frontier: Frontier[int]) -> None:
    entry = frontier.enter(0, 1)
    frontier.extend(entry)
    frontier.finish(entry)
    assert (frontier.passed, frontier.drained) == (0, False)
    frontier.settle(entry, 5)
    assert (frontier.passed, frontier.drained) == (5, True)


def test_a_settled_point_waits_for_the_parts_that_were_added(frontier: Frontier[int]) -> None:
    entry = frontier.enter(0, 1)
    frontier.extend(entry)
    frontier.extend(entry)
    frontier.settle(entry, 5)
    frontier.finish(entry)
    assert frontier.passed == 0
    frontier.finish(entry)
    assert (frontier.passed, frontier.drained) == (5, True)


class Point:
    """A point without a value, to which weak references are possible."""


def test_points_that_wait_for_the_same_work_need_no_memory() -> None:
    """Add points as an idle source does while a lane is stuck: only the newest of them may be kept."""
    frontier = Frontier(Point())
    stuck = frontier.enter(Point(), 1)
    alive: WeakSet[Point] = WeakSet()
    for _ in range(100):
        point = Point()
        alive.add(point)
        frontier.settle(frontier.enter(Point(), 1), point)
    assert list(alive) == [point]
    frontier.finish(stuck)
    assert frontier.passed is point and frontier.drained


def test_waiting_ends_when_the_last_part_is_finished(frontier: Frontier[int]) -> None:
    entry = frontier.enter(1, 1)
    with TaskGroup("test", StopToken()) as group:
        group.spawn("finish", frontier.finish, entry)
        frontier.wait_drained(group.stop)
        assert frontier.drained


def test_waiting_for_nothing_ends_at_once(frontier: Frontier[int]) -> None:
    frontier.wait_drained(StopToken())


def test_waiting_ends_when_stopped(frontier: Frontier[int]) -> None:
    stop = StopToken()
    frontier.enter(1, 1)
    with TaskGroup("test", StopToken()) as group:
        group.spawn("stop", stop.stop, "shutdown")
        with pytest.raises(Cancelled, match="shutdown"):
            frontier.wait_drained(stop)


@pytest.mark.usefixtures("eager_threads")
def test_many_threads_finish_everything() -> None:
    frontier: Frontier[int] = Frontier(0)
    entries = [frontier.enter(number + 1, 4) for number in range(200)]
    barrier = threading.Barrier(4)

    def finish(worker: int) -> None:
        barrier.wait(60)
        for entry in entries if worker % 2 else reversed(entries):
            frontier.finish(entry)

    with TaskGroup("test", StopToken()) as group:
        for worker in range(4):
            group.spawn(str(worker), finish, worker)
    assert (frontier.passed, frontier.drained) == (200, True)
