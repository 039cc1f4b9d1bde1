"""Temporary failures are retried until the time limit of the classifier or of the caller; a stop ends the pauses."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from time import monotonic

import pytest
import tenacity

from tests.support.waiting import wait_for
from verifier.cluster.bounds import PATIENCE
from verifier.runtime import retry as retry_module
from verifier.runtime import waits
from verifier.runtime.retry import FOREVER, Classifier, Temporary, impatient, patience_left, retry
from verifier.runtime.tasks import Cancelled, StopToken


class Outage(Exception):
    pass


def classifier(patience: float) -> Classifier:
    """Return a classifier that treats outages as temporary for `patience` seconds, and all other errors as final."""

    def temporary(error: BaseException) -> Temporary | None:
        is_outage = isinstance(error, Outage)
        return Temporary(f"outage {error}", "Wait.", patience) if is_outage else None

    return temporary


forever = classifier(FOREVER)


def fails(*errors: BaseException, then: str = "done") -> Callable[[], str]:
    """Return a function that raises one of these errors at each call, in order, and then returns `then`."""
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
    retry(lambda: calls.append(1), forever, StopToken())
    assert calls == [1]


@pytest.mark.usefixtures("short_pauses")
def test_temporary_errors_are_retried_until_success() -> None:
    assert retry(fails(Outage("a"), Outage("b")), forever, StopToken()) == "done"


@pytest.mark.parametrize("error", [ValueError("x"), Cancelled("x"), KeyboardInterrupt("x")])
def test_a_permanent_error_is_raised_immediately(error: BaseException) -> None:
    with pytest.raises(type(error)) as raised:
        retry(fails(error), forever, StopToken())
    assert raised.value is error


@pytest.mark.usefixtures("short_pauses")
def test_a_permanent_error_ends_the_retries() -> None:
    with pytest.raises(ValueError, match="final"):
        retry(fails(Outage("a"), ValueError("final")), forever, StopToken())


@pytest.mark.usefixtures("short_pauses")
def test_the_last_error_is_raised_when_the_patience_is_used_up() -> None:
    with pytest.raises(Outage, match="always"):
        retry(_always, classifier(0.05), StopToken())


@pytest.mark.usefixtures("short_pauses")
def test_an_impatient_caller_waits_no_longer_than_it_says() -> None:
    with impatient(0.05), pytest.raises(Outage, match="always"):
        retry(_always, forever, StopToken())


def test_all_calls_of_an_impatient_caller_end_at_the_same_time() -> None:
    attempts: list[float] = []

    def fail() -> None:
        attempts.append(monotonic())
        raise Outage("always")

    with impatient(60.0, in_total=0.5), pytest.raises(Outage, match="always"):
        began = monotonic()
        retry(fail, forever, StopToken())
    assert 1 < len(attempts) and attempts[-1] - began < 5.0
    attempts.clear()
    with impatient(60.0, in_total=0.0), pytest.raises(Outage, match="always"):
        assert patience_left() == 0.0
        retry(fail, forever, StopToken())
    assert len(attempts) == 1
    assert patience_left() == FOREVER


def test_a_nested_block_keeps_the_outer_limit() -> None:
    with impatient(0.5, in_total=1.0), impatient(60.0):
        assert patience_left() <= 0.5


def _always() -> None:
    raise Outage("always")


def test_a_stop_ends_a_pause() -> None:
    stop = StopToken()
    attempts: list[int] = []

    def call() -> None:
        attempts.append(1)
        if len(attempts) == 2:
            stop.stop("enough")
        raise Outage("again")

    with pytest.raises(Cancelled):
        retry(call, forever, stop)


class Watching(StopToken):
    """A stop token that notes the long waits of the process instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.shown: list[waits.LongWait] = []

    def sleep(self, seconds: float) -> None:
        self.shown.extend(waits.long_waits())


class Recording(StopToken):
    """A stop token that notes the pauses instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.pauses: list[float] = []

    def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)


def test_pauses_grow_but_stay_short() -> None:
    stop = Recording()
    retry(fails(*(Outage(str(n)) for n in range(20))), forever, stop)
    assert stop.pauses[0] < 2 <= max(stop.pauses) <= PATIENCE / 4


def test_a_different_attempt_is_made_without_a_pause() -> None:
    def at_once(error: BaseException) -> Temporary:
        return Temporary("refused", "Wait.", at_once=str(error) == "a")

    stop = Recording()
    assert retry(fails(Outage("a"), Outage("b"), Outage("a")), at_once, stop) == "done"
    assert [bool(each) for each in stop.pauses] == [False, True, False]
    with impatient(0.0, in_total=0.0):
        assert retry(fails(Outage("a"), Outage("a")), at_once, stop) == "done"
        with pytest.raises(Outage):
            retry(fails(Outage("b")), at_once, stop)


@pytest.mark.usefixtures("short_pauses")
def test_the_patience_begins_after_the_attempts_made_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)

    def classified(error: BaseException) -> Temporary:
        return Temporary("failed", "Wait.", patience=5.0, at_once=str(error) == "a")

    stop = Watching()
    assert retry(fails(Outage("a"), Outage("b")), classified, stop) == "done"
    assert len(stop.shown) == 2 and all(each.seconds < 5 for each in stop.shown)


@pytest.mark.usefixtures("short_pauses")
def test_attempts_are_logged_less_and_less_often(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        retry(fails(*(Outage(str(n)) for n in range(1, 18))), forever, StopToken())
    logged = [(each.attempt, each.error) for each in caplog.records]  # type: ignore[attr-defined]
    assert logged == [(n, f"outage {n}") for n in (1, 2, 4, 8, 16)]


def test_an_expected_failure_is_shown_but_not_logged(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)

    def slow(error: BaseException) -> Temporary:
        return Temporary("The index is being built", "Wait.", expected=str(error) == "slow")

    stop = Watching()
    retry(fails(Outage("slow"), Outage("other")), slow, stop)
    assert [each.what for each in stop.shown] == [
        "The index is being built",
        "A call to a cluster is failing and is being retried: The index is being built",
    ]
    assert [each.expected for each in stop.shown] == [True, False]
    assert [each.attempt for each in caplog.records] == [2]  # type: ignore[attr-defined]


def test_the_wait_for_a_slow_call_begins_with_the_call(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure begins when the call fails: the time in which an index was built before must not count."""
    now = 1000.0
    errors = iter(("slow", "slow", "down", "down", "slow"))
    shown: list[tuple[bool, float]] = []

    class Watching(StopToken):
        def sleep(self, seconds: float) -> None:
            shown.extend((each.expected, each.seconds) for each in waits.long_waits())

    def call() -> None:
        nonlocal now
        now += 60.0
        if error := next(errors, None):
            raise Outage(error)

    def classify(error: BaseException) -> Temporary:
        return Temporary("The index is being built", "Wait.", expected=str(error) == "slow")

    for module in (waits, retry_module):
        monkeypatch.setattr(module, "monotonic", lambda: now)
    retry(call, classify, Watching())
    # The first failure is new, so the wait is not long yet.
    assert shown == [(True, 60.0), (True, 120.0), (False, 60.0), (True, 60.0)]


def test_a_slow_call_uses_up_no_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A failure after hours of an index build must be retried as long as one at the beginning."""
    now = 1000.0

    class Waiting(StopToken):
        def sleep(self, seconds: float) -> None:
            nonlocal now
            now += 60.0

    def classify(error: BaseException) -> Temporary:
        if str(error) == "slow":
            return Temporary("The index is being built", "Wait.", expected=True)
        return Temporary("unexpected", "Look.", 100.0)

    monkeypatch.setattr(retry_module, "monotonic", lambda: now)
    errors = [Outage(each) for each in ("slow", "slow", "slow", "down", "down")]
    retry(fails(*errors), classify, Waiting())
    with pytest.raises(Outage, match="third"):
        retry(fails(*errors, Outage("third")), classify, Waiting())


def test_retrying_is_registered_as_a_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "LONG", 0.0)
    stop = StopToken()

    def repeat() -> None:
        with pytest.raises(Cancelled):
            retry(_always, forever, stop)

    thread = threading.Thread(target=repeat)
    thread.start()
    try:
        (shown,) = wait_for(waits.long_waits, "the wait is shown")
    finally:
        stop.stop("enough")
        thread.join()
    assert shown.what == "A call to a cluster is failing and is being retried: outage always"
    assert shown.remedy == "Wait."
    assert waits.long_waits() == ()
