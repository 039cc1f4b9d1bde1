"""Makes Ctrl-C (SIGINT) and SIGTERM safe: only the first of these signals raises KeyboardInterrupt.

In a `held` block, the exception is raised at the end of the block. Start processes in such a block: Python's default
signal handler can raise after the start of a process, but before the line that records the process.
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
    """Turns the first SIGINT or SIGTERM into KeyboardInterrupt, and ignores later signals, to protect the clean-up."""

    def __init__(self) -> None:
        self._arrived = False
        self._held = False
        for number in SIGNALS:
            signal.signal(number, self._handle)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Delay interrupts until the end of the block; then raise KeyboardInterrupt if any has arrived by that time.

        That includes an interrupt that arrived before the block. If the block raises an error, only that error is
        raised.
        """
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
