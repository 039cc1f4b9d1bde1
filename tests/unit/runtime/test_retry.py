"""What is transient is repeated, with pauses that a stop ends, until the limit."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest
import tenacity

from verifier.runtime.retry import retry
from verifier.runtime.tasks import Cancelled, StopToken


class Transient(Exception):
    pass


def is_transient(error: BaseException) -> bool:
    return isinstance(error, Transient)


def fails(*errors: BaseException, then: str = "done") -> Callable[[], str]:
    """A call that raises these errors, one a call, and then returns."""
    left: Iterator[BaseException] = iter(errors)

    def call() -> str:
        for error in left:
            raise error
        return then

    return call


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    wait = tenacity.wait_fixed(0.005)
    monkeypatch.setattr(tenacity, "wait_exponential_jitter", lambda **_: wait)


def test_a_call_that_succeeds_is_made_once() -> None:
    calls: list[int] = []
    retry(lambda: calls.append(1), is_transient, StopToken())
    assert calls == [1]


@pytest.mark.usefixtures("short_pauses")
def test_transient_errors_are_repeated_until_success() -> None:
    assert retry(fails(Transient("a"), Transient("b")), is_transient, StopToken()) == "done"


@pytest.mark.parametrize("error", [ValueError("x"), Cancelled("x"), KeyboardInterrupt("x")])
def test_another_error_is_raised_at_once(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        retry(fails(error), is_transient, StopToken())
    assert raised.value is error


@pytest.mark.usefixtures("short_pauses")
def test_an_error_that_is_not_transient_ends_the_repeating() -> None:
    with pytest.raises(ValueError):
        retry(fails(Transient(), ValueError(), Transient()), is_transient, StopToken())


@pytest.mark.usefixtures("short_pauses")
def test_the_last_error_is_raised_at_the_limit() -> None:
    errors = [Transient(str(number)) for number in range(1000)]
    with pytest.raises(Transient) as raised:
        retry(fails(*errors), is_transient, StopToken(), limit=0.03)
    assert raised.value in errors[1:]


def test_a_stop_in_a_pause_raises_cancelled() -> None:
    stop = StopToken()
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        stop.stop("shutdown")
        raise Transient

    with pytest.raises(Cancelled, match="shutdown"):
        retry(call, is_transient, stop, limit=3.0)
    assert calls == [1]


class Unhurried(StopToken):
    """Notes for how long it is to sleep, and does not."""

    def __init__(self) -> None:
        super().__init__()
        self.slept: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)


def test_the_first_pause_is_between_a_tenth_of_a_second_and_little_more_than_one() -> None:
    stop = Unhurried()
    retry(fails(Transient()), is_transient, stop)
    (slept,) = stop.slept
    assert 0.1 <= slept < 1.2


@pytest.mark.usefixtures("short_pauses")
def test_every_repetition_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        retry(fails(Transient("first"), Transient("second")), is_transient, StopToken())
    fields = [(vars(each)["attempt"], vars(each)["error"]) for each in caplog.records]
    assert fields == [(1, "first"), (2, "second")]
