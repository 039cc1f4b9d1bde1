"""Makes Ctrl-C safe at any moment: it is raised once, and never half-way through a start.

Python's own handler can raise between the birth of a process and the line that notes it.
"""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Interrupts:
    """Turns the first SIGINT or SIGTERM into KeyboardInterrupt; the clean-up is not interrupted."""

    def __init__(self) -> None:
        self._arrived = False
        self._held = False
        for number in SIGNALS:
            signal.signal(number, self._handle)

    @contextmanager
    def held(self) -> Iterator[None]:
        """A stretch of code that must not be cut in two: an interrupt is raised at its end."""
        self._held = True
        try:
            yield
        finally:
            self._held = False
        if self._arrived:
            raise KeyboardInterrupt

    def _handle(self, number: int, frame: FrameType | None) -> None:
        first, self._arrived = not self._arrived, True
        if first and not self._held:
            raise KeyboardInterrupt
