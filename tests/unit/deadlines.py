"""Ends whatever runs for too long, so that a fault which makes the code hang fails a test and not the run."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


class Hanging(Exception):
    """What ran did not end in time."""


@contextmanager
def no_longer_than(seconds: float) -> Iterator[None]:
    """Raise Hanging in the middle of whatever the main thread does after so long."""

    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Hanging

    before = signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
