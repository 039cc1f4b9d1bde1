"""Errors and stops reach all threads of a group, budgets and channels are bounded, and channels lose no items.

Also tests the functions that run calls in several threads, and waits for a condition.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from time import monotonic

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.deadlines import no_longer_than
from verifier.runtime import tasks
from verifier.runtime.retry import impatient, patience_left
from verifier.runtime.tasks import Budget, Cancelled, Channel, StopToken, TaskGroup, together

# Longer than any test may take (see the fixture `deadline`), in seconds: a test fails if a wait of this length is not
# ended early.
LONG = 120.0
MOMENT = 0.05


def fail_with(error: BaseException) -> Callable[[], None]:
    def fail() -> None:
        raise error

    return fail


def pause() -> None:
    threading.Event().wait(MOMENT)


@pytest.fixture(autouse=True)
def deadline() -> Iterator[None]:
    began = monotonic()
    with no_longer_than(LONG / 2):
        yield
    # A test that expects an error may have ignored the one that the time limit raised.
    assert monotonic() - began < LONG / 2


@pytest.fixture
def stop() -> StopToken:
    return StopToken()


class TestStopToken:
    def test_nothing_is_raised_before_a_stop(self, stop: StopToken) -> None:
        stop.check()
        stop.sleep(0)
        assert not stop.stopped and stop.cause is None

    def test_check_and_sleep_raise_with_the_cause(self, stop: StopToken) -> None:
        stop.stop("shutdown")
        for wait in (stop.check, lambda: stop.sleep(LONG)):
            with pytest.raises(Cancelled, match="shutdown"):
                wait()

    def test_the_first_cause_stays(self, stop: StopToken) -> None:
        stop.stop("first")
        stop.stop("second")
        assert stop.cause == "first"

    def test_a_stop_reaches_all_descendants(self, stop: StopToken) -> None:
        child = StopToken(stop)
        grandchild = StopToken(child)
        error = ValueError("x")
        stop.stop(error)
        assert child.cause is error and grandchild.cause is error

    def test_a_stop_does_not_reach_the_parent(self, stop: StopToken) -> None:
        StopToken(stop).stop("mine")
        assert not stop.stopped

    def test_a_child_of_a_stopped_token_is_stopped(self, stop: StopToken) -> None:
        stop.stop("before")
        assert StopToken(stop).cause == "before"

    def test_a_child_keeps_its_own_cause(self, stop: StopToken) -> None:
        child = StopToken(stop)
        child.stop("mine")
        stop.stop("theirs")
        assert child.cause == "mine"

    def test_a_released_child_is_not_stopped(self, stop: StopToken) -> None:
        child = StopToken(stop)
        stop.release(child)
        stop.release(child)
        stop.stop("later")
        assert not child.stopped

    def test_sleep_ends_as_soon_as_a_stop_is_asked_for(self, stop: StopToken) -> None:
        begun = monotonic()
        with TaskGroup("test", StopToken()) as group:
            group.spawn("stopper", lambda: stop.stop("now"))
            with pytest.raises(Cancelled):
                stop.sleep(LONG)
        assert monotonic() - begun < LONG / 2

    def test_sleep_lasts_as_long_as_asked(self, stop: StopToken) -> None:
        begun = monotonic()
        stop.sleep(MOMENT)
        assert monotonic() - begun >= MOMENT * 0.9


class TestTaskGroup:
    def test_leaving_waits_for_every_thread(self, stop: StopToken) -> None:
        done: list[int] = []

        def work(number: int) -> None:
            pause()
            done.append(number)

        with TaskGroup("test", stop) as group:
            for number in range(3):
                group.spawn(str(number), work, number)
        assert sorted(done) == [0, 1, 2]

    def test_leaving_waits_for_threads_that_a_thread_spawned(self, stop: StopToken) -> None:
        done: list[str] = []

        def inner() -> None:
            pause()
            done.append("inner")

        with TaskGroup("test", stop) as group:
            group.spawn("outer", lambda: group.spawn("inner", inner))
        assert done == ["inner"]

    def test_threads_carry_the_names_of_group_and_task(self, stop: StopToken) -> None:
        names: list[str] = []
        with TaskGroup("copy", stop) as group:
            group.spawn("read-1", lambda: names.append(threading.current_thread().name))
        assert names == ["copy/read-1"]

    @pytest.mark.parametrize("kind", [ValueError, SystemExit, KeyboardInterrupt])
    def test_an_error_stops_the_others_and_is_raised(
        self, stop: StopToken, kind: type[BaseException]
    ) -> None:
        error = kind("x")
        with pytest.raises(kind) as raised, TaskGroup("test", stop) as group:
            group.spawn("waiting", group.stop.sleep, LONG)
            group.spawn("failing", fail_with(error))
        assert raised.value is error
        assert group.stop.cause is error
        assert not stop.stopped

    def test_an_error_ends_the_wait_of_the_body(self, stop: StopToken) -> None:
        with pytest.raises(ValueError, match="of the thread"), TaskGroup("test", stop) as group:
            group.spawn("failing", fail_with(ValueError("of the thread")))
            group.stop.sleep(LONG)

    def test_an_error_of_the_body_stops_the_threads_and_is_raised(self, stop: StopToken) -> None:
        error = ValueError("of the body")
        with pytest.raises(ValueError) as raised, TaskGroup("test", stop) as group:
            group.spawn("waiting", group.stop.sleep, LONG)
            raise error
        assert raised.value is error

    def test_several_errors_are_raised_together(self, stop: StopToken) -> None:
        barrier = threading.Barrier(2)

        def fail(error: Exception) -> None:
            barrier.wait(LONG)
            raise error

        errors = [ValueError("a"), TypeError("b")]
        with pytest.raises(BaseExceptionGroup) as raised, TaskGroup("test", stop) as group:
            for error in errors:
                group.spawn("failing", fail, error)
        assert set(raised.value.exceptions) == set(errors)

    def test_errors_of_body_and_thread_are_raised_together(self, stop: StopToken) -> None:
        with pytest.raises(BaseExceptionGroup) as raised, TaskGroup("test", stop) as group:
            group.spawn("failing", fail_with(ValueError("a")))
            while not group.stop.stopped:
                pause()
            raise TypeError("b")
        assert {type(each) for each in raised.value.exceptions} == {ValueError, TypeError}

    def test_a_stop_from_outside_raises_cancelled_after_the_block(self, stop: StopToken) -> None:
        reached = False
        with pytest.raises(Cancelled, match="shutdown"):
            with TaskGroup("test", stop) as group:
                group.spawn("waiting", group.stop.sleep, LONG)
                stop.stop("shutdown")
            reached = True
        assert not reached

    def test_a_group_may_stop_itself(self, stop: StopToken) -> None:
        with TaskGroup("test", stop) as group:
            group.spawn("waiting", group.stop.sleep, LONG)
            group.stop.stop("commit")
        assert not stop.stopped

    def test_an_error_counts_more_than_a_stop_from_outside(self, stop: StopToken) -> None:
        def fail_when_stopped() -> None:
            try:
                group.stop.sleep(LONG)
            finally:
                raise ValueError("while stopping")

        with pytest.raises(ValueError), TaskGroup("test", stop) as group:
            group.spawn("failing", fail_when_stopped)
            stop.stop("shutdown")

    def test_an_error_of_the_body_counts_more_than_a_stop_from_outside(
        self, stop: StopToken
    ) -> None:
        with pytest.raises(ValueError), TaskGroup("test", stop):
            stop.stop("shutdown")
            raise ValueError("while stopping")

    def test_cancelled_in_the_body_is_passed_on(self, stop: StopToken) -> None:
        with pytest.raises(Cancelled, match="mine"), TaskGroup("test", stop):
            raise Cancelled("mine")

    def test_an_inner_group_ends_with_the_outer_one(self, stop: StopToken) -> None:
        with pytest.raises(ValueError), TaskGroup("outer", stop) as outer:
            outer.spawn("failing", fail_with(ValueError("x")))
            with TaskGroup("inner", outer.stop) as inner:
                inner.spawn("waiting", inner.stop.sleep, LONG)

    def test_a_group_that_is_left_is_forgotten_by_its_parent(self, stop: StopToken) -> None:
        with TaskGroup("test", stop) as group:
            pass
        stop.stop("later")
        assert not group.stop.stopped


class TestBudget:
    @pytest.mark.parametrize(
        "taken, amount, waits",
        [
            ([], 10, False),
            ([4], 6, False),
            ([4], 7, True),
            ([], 1000, False),
            ([1000], 1, True),
            ([1], 1000, True),
            ([10], 0, False),
        ],
    )
    def test_the_taken_amount_is_bounded(self, taken: list[int], amount: int, waits: bool) -> None:
        stop = StopToken()
        budget = Budget(10, stop)
        for each in taken:
            budget.take(each)
        done = threading.Event()

        def take() -> None:
            with suppress(Cancelled):
                budget.take(amount)
                done.set()

        with TaskGroup("test", StopToken()) as group:
            group.spawn("take", take)
            assert done.wait(MOMENT if waits else LONG) is not waits
            stop.stop("end")
        assert done.is_set() is not waits

    def test_a_returned_amount_is_available_again(self, stop: StopToken) -> None:
        budget = Budget(10, stop)
        budget.take(10)
        with TaskGroup("test", stop) as group:
            group.spawn("take", budget.take, 10)
            budget.give_back(10)

    def test_a_failed_block_returns_its_amount(self, stop: StopToken) -> None:
        budget = Budget(10, stop)
        with pytest.raises(ValueError), budget.hold(10):
            raise ValueError
        with budget.hold(10):
            pass

    def test_a_large_request_is_not_overtaken_by_small_ones(self, stop: StopToken) -> None:
        budget = Budget(10, stop)
        budget.take(5)
        order: list[int] = []

        def take(amount: int) -> None:
            with budget.hold(amount):
                order.append(amount)

        with TaskGroup("test", stop) as group:
            group.spawn("much", take, 10)
            wait_until(lambda: len(budget._line) == 1)
            group.spawn("little", take, 1)
            wait_until(lambda: len(budget._line) == 2)
            budget.give_back(5)
        assert order == [10, 1]

    def test_a_stopped_request_does_not_block_others(self) -> None:
        stop = StopToken()
        budget = Budget(10, stop)
        budget.take(10)
        with pytest.raises(Cancelled), TaskGroup("test", stop) as group:
            group.spawn("take", budget.take, 10)
            wait_until(lambda: len(budget._line) == 1)
            stop.stop("end")
        assert not budget._line


def wait_until(condition: Callable[[], bool]) -> None:
    ends = monotonic() + LONG
    while not condition():
        assert monotonic() < ends
        threading.Event().wait(0.001)


class TestChannel:
    def test_items_come_in_order(self, stop: StopToken) -> None:
        channel: Channel[int] = Channel(10, stop)
        for number in range(3):
            channel.put(number, 1)
        channel.close()
        assert list(channel) == [0, 1, 2]

    def test_a_closed_channel_is_drained_and_then_ends(self, stop: StopToken) -> None:
        channel: Channel[str] = Channel(10, stop)
        channel.put("last", 1)
        channel.close()
        assert [channel.take(), channel.take(), channel.take()] == ["last", None, None]

    def test_take_ready_does_not_wait(self, stop: StopToken) -> None:
        channel: Channel[str] = Channel(10, stop)
        assert channel.take_ready() is None
        channel.put("x", 1)
        assert [channel.take_ready(), channel.take_ready()] == ["x", None]

    @pytest.mark.parametrize(
        "capacity, before, weight, waits",
        [
            (10, [], 10, False),
            (10, [4], 6, False),
            (10, [4], 7, True),
            (10, [], 1000, False),
            (10, [1000], 1, True),
            (10, [1], 1000, True),
            (10, [10], 0, False),
            (10, [0, 0], 10, False),
        ],
    )
    def test_the_weight_of_waiting_items_is_bounded(
        self, capacity: int, before: list[int], weight: int, waits: bool
    ) -> None:
        stop = StopToken()
        channel: Channel[str] = Channel(capacity, stop)
        for each in before:
            channel.put("before", each)

        done = threading.Event()

        def put() -> None:
            with suppress(Cancelled):
                channel.put("item", weight)
                done.set()

        with TaskGroup("test", StopToken()) as group:
            group.spawn("put", put)
            assert done.wait(MOMENT if waits else LONG) is not waits
            stop.stop("end")
        assert done.is_set() is not waits

    def test_taking_makes_room(self, stop: StopToken) -> None:
        channel: Channel[str] = Channel(10, stop)
        channel.put("first", 10)
        with TaskGroup("test", stop) as group:
            group.spawn("put", channel.put, "second", 10)
            assert [channel.take(), channel.take()] == ["first", "second"]

    @pytest.mark.parametrize("end", ["stop", "close"])
    def test_a_waiting_consumer_is_freed(self, stop: StopToken, end: str) -> None:
        channel: Channel[str] = Channel(10, stop)
        taken: list[object] = []

        def take() -> None:
            try:
                taken.append(channel.take())
            except Cancelled:
                taken.append(Cancelled)

        with TaskGroup("test", StopToken()) as group:
            group.spawn("take", take)
            pause()
            channel.close() if end == "close" else stop.stop("end")
        assert taken == [None if end == "close" else Cancelled]

    def test_a_producer_is_freed_when_its_consumer_fails(self, stop: StopToken) -> None:
        with pytest.raises(ValueError), TaskGroup("test", stop) as group:
            channel: Channel[str] = Channel(1, group.stop)
            channel.put("first", 1)
            group.spawn("consumer", fail_with(ValueError("x")))
            channel.put("second", 1)

    def test_nothing_is_put_after_a_stop(self, stop: StopToken) -> None:
        channel: Channel[str] = Channel(10, stop)
        stop.stop("end")
        with pytest.raises(Cancelled):
            channel.put("x", 1)
        assert channel.take_ready() is None

    @settings(max_examples=15)
    @given(
        producers=st.integers(1, 4),
        consumers=st.integers(1, 4),
        capacity=st.integers(1, 50),
        weights=st.lists(st.integers(0, 60), max_size=40),
    )
    def test_many_producers_and_consumers_lose_nothing(
        self, producers: int, consumers: int, capacity: int, weights: list[int]
    ) -> None:
        taken: list[tuple[int, int]] = []

        def consume() -> None:
            for item in channel:
                taken.append(item)

        def produce(producer: int) -> None:
            for number, weight in enumerate(weights):
                channel.put((producer, number), weight)

        with TaskGroup("consumers", StopToken()) as readers:
            channel: Channel[tuple[int, int]] = Channel(capacity, readers.stop)
            for _ in range(consumers):
                readers.spawn("consume", consume)
            with TaskGroup("producers", readers.stop) as writers:
                for producer in range(producers):
                    writers.spawn("produce", produce, producer)
            channel.close()
        expected = [(each, number) for each in range(producers) for number in range(len(weights))]
        assert Counter(taken) == Counter(expected)


def test_a_wait_ends_when_its_condition_holds() -> None:
    asked = iter([False, False, True])
    tasks.wait_until(lambda: next(asked), StopToken(), every=0.0)
    assert list(asked) == []


def test_a_wait_ends_when_it_is_stopped() -> None:
    stop = StopToken()
    stop.stop("enough")
    with pytest.raises(Cancelled):
        tasks.wait_until(lambda: False, stop)


class TestForEach:
    def test_every_item_is_worked_on_once(self, stop: StopToken) -> None:
        seen: list[int] = []
        tasks.for_each("numbers", range(100), lambda each, _: seen.append(each), 4, stop)
        assert sorted(seen) == list(range(100))

    def test_several_items_are_worked_on_at_once(self, stop: StopToken) -> None:
        together = threading.Barrier(3, timeout=LONG)

        def meet(number: int, _: StopToken) -> None:
            together.wait()

        tasks.for_each("numbers", range(3), meet, 3, stop)

    def test_an_error_stops_the_others(self, stop: StopToken) -> None:
        all_work = threading.Barrier(4, timeout=LONG)

        def work(number: int, stop: StopToken) -> None:
            all_work.wait()
            if number == 0:
                raise ValueError("zero")
            stop.sleep(LONG)

        with pytest.raises(ValueError, match="zero"):
            tasks.for_each("numbers", range(100), work, 4, stop)

    def test_a_stop_skips_the_remaining_items(self, stop: StopToken) -> None:
        seen: list[int] = []

        def work(number: int, _: StopToken) -> None:
            seen.append(number)
            stop.stop("pause")

        with pytest.raises(Cancelled, match="pause"):
            tasks.for_each("numbers", range(100), work, 1, stop)
        assert seen == [0]

    def test_the_threads_are_as_patient_as_the_caller(self, stop: StopToken) -> None:
        seen: list[float] = []
        with impatient(LONG):
            tasks.for_each("numbers", range(9), lambda *_: seen.append(patience_left()), 3, stop)
        assert len(seen) == 9 and max(seen) <= LONG

    def test_an_empty_list_of_items_runs_nothing(self, stop: StopToken) -> None:
        tasks.for_each("nothing", list[int](), lambda each, _: pytest.fail(str(each)), 4, stop)


def test_two_calls_are_made_at_the_same_time() -> None:
    both = threading.Barrier(2, timeout=10)
    assert together(lambda: both.wait() in (0, 1), lambda: both.wait() in (0, 1)) == (True, True)


@pytest.mark.parametrize("first, second", [(1, 0), (0, 1), (1, 1)])
def test_the_error_of_one_of_two_calls_is_raised(first: int, second: int) -> None:
    def fail(number: int, fails: int) -> None:
        if fails:
            raise ValueError(number)

    with pytest.raises(ValueError, match="1" if first else "2"):
        together(lambda: fail(1, first), lambda: fail(2, second))


def test_both_calls_are_as_patient_as_the_caller() -> None:
    with impatient(LONG):
        assert max(together(patience_left, patience_left)) <= LONG
