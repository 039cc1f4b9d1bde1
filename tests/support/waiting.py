"""Waiting for conditions with a deadline; never a fixed pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# More than any machine needs, however busy it is: a test that passes never waits for it. In seconds.
PATIENCE = 180.0

_pause = threading.Event()


def wait_for(condition: Callable[[], T | None], what: str, seconds: float = PATIENCE) -> T:
    """The first true value of `condition`; fails when the deadline passes."""
    deadline = time.monotonic() + seconds
    while not (value := condition()):
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds} seconds: {what}; last seen: {value!r}")
        _pause.wait(0.02)
    return value
