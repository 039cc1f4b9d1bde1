"""Retries idempotent calls after temporary failures. Code that retries a call to a cluster must use `retry`."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic
from typing import NamedTuple, TypeVar

import tenacity

from verifier.runtime import waits
from verifier.runtime.garbage import collect_recent
from verifier.runtime.tasks import StopToken

T = TypeVar("T")

_log = logging.getLogger(__name__)

FOREVER = math.inf
# The longest pause before the next attempt, in seconds. A call that is retried may hold a lock for which a command
# waits, and the command gives up after `bounds.PATIENCE`, so a pause must be much shorter than that.
_LONGEST_PAUSE = 2.0


class _Patience(NamedTuple):
    """The limits of retries in a block of `impatient`.

    Each call is retried for at most `of_call` seconds after its first failure, and never after `end`, a time of the
    monotonic clock.
    """

    of_call: float = FOREVER
    end: float = FOREVER


_patience: ContextVar[_Patience] = ContextVar("patience", default=_Patience())


class Temporary(NamedTuple):
    """A temporary failure. `what` describes it, and `remedy` says what the operator can do.

    Retries end `patience` seconds after the first failure of the call. The time before that failure does not count.

    An `expected` failure only means that the call takes a long time: `what` then describes the wait for its answer, and
    the next attempt continues this wait. For this wait, `patience` counts from the beginning of its first attempt.
    The first failure that is not expected then counts as the first failure of the call.

    If `at_once`, the next attempt is made without a pause, and even in a block of `impatient` whose time is used up,
    because its request differs from the one that failed.
    """

    what: str
    remedy: str
    patience: float = FOREVER
    expected: bool = False
    at_once: bool = False


# A function that returns why an error is temporary; None means that the same call would fail again.
Classifier = Callable[[BaseException], Temporary | None]


@contextmanager
def impatient(seconds: float, in_total: float = FOREVER) -> Iterator[None]:
    """Limit the retries in the block, because a caller waits for an answer.

    Each call is retried for at most `seconds` after its first failure, and never later than `in_total` seconds after
    the beginning of the block, unless a failure is to be retried at once (see `Temporary`). The limits of enclosing
    blocks apply as well. They also apply to threads that inherit the context variables, such as those of `for_each`.
    """
    outer = _patience.get()
    end = min(outer.end, monotonic() + in_total)
    token = _patience.set(_Patience(min(outer.of_call, seconds), end))
    try:
        yield
    finally:
        _patience.reset(token)


def patience_left() -> float:
    """Return for how many seconds this thread may still wait, for example for a lock; FOREVER outside `impatient`."""
    patience = _patience.get()
    return max(0.0, min(patience.of_call, patience.end - monotonic()))


def retry(call: Callable[[], T], classify: Classifier, stop: StopToken) -> T:
    """Return the result of `call`. Retry it with growing pauses while `classify` says that its error is temporary.

    During the retries, a wait is registered in `verifier.runtime.waits`. Raises the last error if it is not temporary
    or the time for retries is used up, and `Cancelled` if the token is stopped during a pause.
    """
    attempts = _Attempts(classify)
    growing = tenacity.wait_exponential_jitter(multiplier=0.1, max=_LONGEST_PAUSE)
    try:
        return tenacity.Retrying(
            retry=tenacity.retry_if_exception(attempts.is_retryable),
            # No pause is longer than the caller waits.
            wait=lambda state: 0.0 if attempts.is_at_once else min(growing(state), patience_left()),
            sleep=stop.sleep,
            before_sleep=attempts.report,
            reraise=True,
        )(call)
    finally:
        attempts.end()


class _Attempts:
    """The failures of one call so far, and the wait (`verifier.runtime.waits`) that warns of its retries."""

    def __init__(self, classify: Classifier) -> None:
        self._classify = classify
        self._attempted = monotonic()
        self._failed_at = 0.0
        self._since = 0.0
        self._reason: Temporary | None = None
        self._wait: waits.Wait | None = None

    def is_retryable(self, error: BaseException) -> bool:
        now = monotonic()
        self._failed_at = self._failed_at or now
        before, self._reason = self._reason, self._classify(error)
        if self._reason is None:
            return False
        if self._reason.at_once:
            # The next attempt is another request, not a wait for a better moment.
            self._since = now
            return True
        if before is None or before.at_once or before.expected is not self._reason.expected:
            # A slow answer has been awaited since its attempt began. A failure is new, however slow the call was.
            self._since = self._attempted if self._reason.expected else now
        patience = _patience.get()
        ends = self._since + self._reason.patience, self._failed_at + patience.of_call
        return now <= min(*ends, patience.end)

    @property
    def is_at_once(self) -> bool:
        return self._reason is not None and self._reason.at_once

    def report(self, state: tenacity.RetryCallState) -> None:
        reason = self._reason
        assert reason is not None
        collect_recent()
        failed = f"A call to a cluster is failing and is being retried: {reason.what}"
        what = reason.what if reason.expected else failed
        if self._wait is None:
            self._wait = waits.begin(what, reason.remedy)
        self._wait.what, self._wait.remedy = what, reason.remedy
        self._wait.expected, self._wait.since = reason.expected, self._since
        self._attempted = monotonic()
        # Log attempts 1, 2, 4, 8 and so on: an outage of an hour must not flood the log.
        if not reason.expected and state.attempt_number & (state.attempt_number - 1) == 0:
            _log.warning(
                "A call to a cluster failed and will be retried.",
                extra={"error": reason.what, "attempt": state.attempt_number},
            )

    def end(self) -> None:
        if self._wait is not None:
            waits.end(self._wait)
