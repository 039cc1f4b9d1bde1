"""Tracks up to which point all work is done when its parts finish out of order.

The frontier is the newest point before the oldest unfinished part. It is not the minimum over all workers, so an idle
worker does not hold it back.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from verifier.runtime.tasks import StopToken

P = TypeVar("P")


class Entry(Generic[P]):
    """A point, and the number of unfinished parts that lead up to it. Only the frontier may change an entry."""

    def __init__(self, point: P, parts: int) -> None:
        self.point = point
        self.parts = parts


class Frontier(Generic[P]):
    """Tracks the progress of work whose parts finish in any order, such as change events that several lanes apply.

    `enter` adds points (for example, positions in a change stream) in their order, each with the number of parts of the
    work that lead up to it. `passed` is the newest point up to which all parts are finished. Thread-safe.
    """

    def __init__(self, passed: P) -> None:
        self._changed = threading.Condition()  # guards everything below
        self._entries: deque[Entry[P]] = deque()
        self._passed = passed

    @property
    def passed(self) -> P:
        return self._passed

    @property
    def drained(self) -> bool:
        return not self._entries

    def enter(self, point: P, parts: int) -> Entry[P]:
        """Add a point with `parts` unfinished parts, and return its entry.

        The point is passed once its parts and those of all points before it are finished.
        """
        entry = Entry(point, parts)
        with self._changed:
            self._entries.append(entry)
            self._advance()
        return entry

    def extend(self, entry: Entry[P]) -> None:
        """Add one part to the entry, which must still have an unfinished part."""
        with self._changed:
            entry.parts += 1

    def settle(self, entry: Entry[P], point: P) -> None:
        """Set the point that the entry leads up to, and finish the part that kept the entry open until then."""
        with self._changed:
            entry.point = point
        self.finish(entry)

    def finish(self, entry: Entry[P]) -> None:
        """Finish one part of the entry."""
        with self._changed:
            entry.parts -= 1
            self._advance()

    def wait_drained(self, stop: StopToken) -> None:
        """Wait until no part is unfinished; raise `Cancelled` when stopped."""
        with self._changed:
            while self._entries:
                stop.wait(self._changed)

    def _advance(self) -> None:
        while self._entries and self._entries[0].parts <= 0:
            self._passed = self._entries.popleft().point
        self._changed.notify_all()
