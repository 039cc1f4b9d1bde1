"""Time limits for code that might hang: a bug then fails one test instead of blocking the whole run.

Code that waits gets a generous limit of wall-clock time. Code that computes gets a limit of its own CPU time, because a
busy machine may not schedule the code for a while. Signals enforce the limits, so they work only in the main thread.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import FrameType


class Hanging(Exception):
    """Raised if a block exceeds its limit of wall-clock time or CPU time."""


def no_longer_than(seconds: float) -> AbstractContextManager[None]:
    """Return a context manager that raises Hanging in its block after `seconds` of wall-clock time."""
    return _limited(seconds, signal.ITIMER_REAL, signal.SIGALRM)


def no_more_work_than(seconds: float) -> AbstractContextManager[None]:
    """Return a context manager that raises Hanging in its block after `seconds` of CPU time of the process."""
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
