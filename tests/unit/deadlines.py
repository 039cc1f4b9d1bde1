"""Time limits for code that might hang, so that a bug fails one test instead of blocking the whole run.

Code that waits gets a generous limit of wall-clock time. Code that computes gets a limit of its own CPU time, because a
busy machine may not schedule the code for a while.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


class Hanging(Exception):
    """Raised if a block has not ended in time."""


def no_longer_than(seconds: float) -> AbstractContextManager[None]:
    """Raise Hanging in the main thread if the block takes longer than `seconds` of wall-clock time."""
    return _limited(seconds, signal.ITIMER_REAL, signal.SIGALRM)


def no_more_work_than(seconds: float) -> AbstractContextManager[None]:
    """Raise Hanging in the main thread if the process uses more than `seconds` of CPU time in the block."""
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
