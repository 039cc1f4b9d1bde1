"""A Pace limits the rates of documents, bytes and change events, and the number of threads that work."""

from __future__ import annotations

from contextlib import ExitStack, suppress
from typing import Any

import bson
import pytest

from syncsvc.engine.run.pace import Bucket, Pace
from syncsvc.limits import Limit
from tests.support.waiting import wait_for
from verifier.cluster.block import Block
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup


class Clock(StopToken):
    """A StopToken with a simulated clock: `now`, in seconds, advances only when a thread sleeps on the token."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.check()
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def pace(clock: Clock) -> Pace:
    return Pace(lambda: clock.now)


def page_of(documents: int, size: int) -> Block:
    return Block(bson.encode({"d": b"d" * (size - 13)}) * documents, documents)


def copy(pace: Pace, clock: Clock, page: Block, seconds: float) -> tuple[int, int]:
    """Copy `page` again and again for `seconds` of simulated time; return the numbers of copied documents and bytes."""
    documents = size = 0
    while clock.now < seconds:
        for portion in pace.portions(page):
            pace.admit_copy(portion.count, len(portion.raw), clock)
            documents += portion.count
            size += len(portion.raw)
    return documents, size


@pytest.mark.parametrize("size", [1_000, 100_000])
def test_the_rate_is_met_over_a_minute(pace: Pace, clock: Clock, size: int) -> None:
    pace.set_rates({Limit.COPY_BYTES: 500_000})
    _, copied = copy(pace, clock, page_of(5_000_000 // size // 2, size), 60)
    assert 60 * 500_000 * 0.98 < copied < 60 * 500_000 * 1.12
    assert pace.waited[Limit.COPY_BYTES] > 50


def test_the_lower_of_two_rates_counts(pace: Pace, clock: Clock) -> None:
    pace.set_rates({Limit.COPY_BYTES: 1_000_000, Limit.COPY_DOCUMENTS: 100})
    documents, _ = copy(pace, clock, page_of(50_000, 20), 60)
    # The rate can be slightly higher, because the last page is copied to its end.
    assert documents / clock.now == pytest.approx(100, rel=0.03)


def test_without_limits_a_page_is_not_cut(pace: Pace, clock: Clock) -> None:
    page = page_of(50_000, 20)
    assert [each.count for each in pace.portions(page)] == [50_000]
    assert [each.count for each in pace.portions(Block.of([]))] == [0]
    pace.admit_copy(50_000, 1 << 40, clock)
    assert clock.now == 0
    assert pace.event_portion() == float("inf")


def test_portions_hold_each_document_once(pace: Pace) -> None:
    page = Block.of(bson.encode({"_id": n}) for n in range(200))
    pace.set_rates({Limit.COPY_BYTES: 70 * 14, Limit.COPY_DOCUMENTS: 50})
    cut = [*pace.portions(page)]
    assert max(each.count for each in cut) == 5
    assert Block.of(each for portion in cut for each in portion.documents()) == page
    assert [*pace.portions(Block.of([]))] == [Block.of([])]


def test_a_large_document_passes_and_is_paid_off(pace: Pace, clock: Clock) -> None:
    pace.set_rates({Limit.COPY_BYTES: 1_000})
    for _ in range(3):
        pace.admit_copy(1, 16_000, clock)
    assert clock.now == pytest.approx(32, abs=0.5)


def test_a_pause_does_not_allow_a_burst() -> None:
    bucket = Bucket()
    bucket.set_rate(10, at=0)
    assert bucket.take(5, at=1000) == 0
    # During a pause, the bucket collects only what the rate allows for one second.
    assert bucket.take(5, at=1000) == 0
    assert bucket.take(5, at=1000) == 0
    assert bucket.take(5, at=1000) == pytest.approx(0.5)


def test_a_lower_rate_does_not_prolong_a_wait_that_has_begun() -> None:
    bucket = Bucket()
    bucket.set_rate(1_000_000, at=0)
    assert bucket.take(1_000_000, at=0) == 0
    bucket.set_rate(1, at=0)
    assert bucket.take(1, at=0) == pytest.approx(1)
    bucket.set_rate(None, at=0)
    assert bucket.take(1 << 50, at=0) == 0


def test_a_raised_limit_ends_a_wait(clock: Clock) -> None:
    pace = Pace()
    pace.set_rates({Limit.EVENTS: 1})
    pace.admit_events(1_000_000, clock)
    stop = StopToken()
    with TaskGroup("test", stop) as group:
        group.spawn("waits", pace.admit_events, 1, group.stop)
        wait_for(lambda: pace.waited[Limit.EVENTS] > 0, "the wait")
        pace.set_rates({})
    assert pace.amounts[Limit.EVENTS] == 1_000_001


def test_a_stop_ends_a_wait(clock: Clock) -> None:
    pace = Pace()
    pace.set_rates({Limit.EVENTS: 1})
    pace.admit_events(1_000_000, clock)
    stop = StopToken()
    with suppress(Cancelled), TaskGroup("test", stop) as group:
        group.spawn("waits", pace.admit_events, 1, group.stop)
        wait_for(lambda: pace.waited[Limit.EVENTS] > 0, "the wait")
        stop.stop("test")
    assert pace.amounts[Limit.EVENTS] == 1_000_000


def test_only_so_many_threads_work_at_the_same_time() -> None:
    pace, stop = Pace(), StopToken()
    begun: list[Any] = []

    def work() -> None:
        with pace.working(stop):
            begun.append(None)

    pace.set_rates({Limit.THREADS: 2})
    with TaskGroup("test", stop) as group, ExitStack() as held:
        for _ in range(2):
            held.enter_context(pace.working(stop))
        group.spawn("third", work)
        wait_for(lambda: pace.waited[Limit.THREADS] > 0, "the wait")
        assert not begun
        pace.set_rates({Limit.THREADS: 3})
        wait_for(lambda: begun, "the third thread")
