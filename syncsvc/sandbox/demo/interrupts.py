"""Makes Ctrl-C safe at any moment: it is raised once, and never half-way through a start.

Python's own handler can raise between the birth of a process and the line that notes it.
"""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SIGNALS = (signal.SIGINT, signal.SIGTERM)
NOTICE = b"\nInterrupted: waiting for the processes that are being started or ended ...\n"


class Interrupts:
    """Turns the first SIGINT or SIGTERM into KeyboardInterrupt; the clean-up is not interrupted."""

    def __init__(self) -> None:
        self._arrived = False
        self._held = False
        for number in SIGNALS:
            signal.signal(number, self._handle)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay an interrupt that arrives within the block to its end."""
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
        if first:
            # Not print(), which may be in the middle of another line.
            os.write(sys.stderr.fileno(), NOTICE)
