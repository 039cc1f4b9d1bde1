"""Waits for conditions with a deadline; there is never a pause of fixed length."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# The default timeout, in seconds: longer than even a busy machine needs. A passing test never waits that long.
PATIENCE = 300.0
# The shortest and the longest poll interval, in seconds.
_LEAST_PAUSE, _LONGEST_PAUSE = 0.01, 0.2

# Functions that are called at each poll, and raise an error if no condition can become true any more.
refusals: list[Callable[[], None]] = []

_pause = threading.Event()


class DeadlinePassed(Exception):
    """Raised if a condition has not become true in time.

    This is not an AssertionError: a busy machine can cause it, so a test that fails with this error may be retried (see
    the module `retries`).
    """

    def __init__(self, what: str, seconds: float, last_seen: object) -> None:
        super().__init__(f"not within {seconds:g} seconds: {what}; last seen: {last_seen!r}")


def wait_for(condition: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """Call `condition` until its value is true, and return that value.

    Raises DeadlinePassed after `seconds`, with a text that contains `what`, the description of the condition. Each
    function in the module's list `refusals` is called at every poll, and can raise an error to end the wait.
    """
    began = time.monotonic()
    while not (value := condition()):
        for refuse in refusals:
            refuse()
        waited = time.monotonic() - began
        if waited > seconds:
            raise DeadlinePassed(what, seconds, value)
        # The interval grows with the wait: most polls are requests, and take as much CPU from the service as from the
        # test.
        _pause.wait(min(max(_LEAST_PAUSE, waited / 10), _LONGEST_PAUSE))
    return value
