"""Ends whatever runs for too long, so that a fault which makes the code hang fails a test and not the run.

What waits is measured by the clock, generously. What computes is measured by its own processor time: a busy machine may
give it none for a while.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


class Hanging(Exception):
    """What ran did not end in time."""


def no_longer_than(seconds: float) -> AbstractContextManager[None]:
    """Raise Hanging in the middle of whatever the main thread does after so long."""
    return _limited(seconds, signal.ITIMER_REAL, signal.SIGALRM)


def no_more_work_than(seconds: float) -> AbstractContextManager[None]:
    """Raise Hanging when the process has computed for so long."""
    return _limited(seconds, signal.ITIMER_PROF, signal.SIGPROF)


@contextmanager
def _limited(seconds: float, timer: int, sent: signal.Signals) -> Iterator[None]:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Hanging

    before = signal.signal(sent, interrupt)
    signal.setitimer(timer, seconds)
    try:
        yield
    finally:
        signal.setitimer(timer, 0)
        signal.signal(sent, before)
