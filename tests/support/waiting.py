"""Waiting for conditions with a deadline; never a fixed pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# More than any machine needs, however busy it is: a test that passes never waits for it. In seconds.
PATIENCE = 300.0
# Between two looks at a condition, in seconds.
_LEAST_PAUSE, _LONGEST_PAUSE = 0.01, 0.1

_pause = threading.Event()


def wait_for(condition: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """The first true value of `condition`; fails when the deadline passes."""
    began = time.monotonic()
    while not (value := condition()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds} seconds: {what}; last seen: {value!r}")
        # In proportion: most looks are requests, and cost those who are waited for as much as the one who waits.
        _pause.wait(min(max(_LEAST_PAUSE, waited / 10), _LONGEST_PAUSE))
    return value
