"""Up to which point all is done, when parts are finished out of order.

The frontier is the newest point before the oldest unfinished part. It is not the minimum over workers: a worker with
nothing to do holds nothing back.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from verifier.runtime.tasks import StopToken

P = TypeVar("P")


class Entry(Generic[P]):
    """A point, and how many of the parts that lead up to it are unfinished. Owned by its frontier."""

    def __init__(self, point: P, parts: int) -> None:
        self.point = point
        self.parts = parts


class Frontier(Generic[P]):
    """Points enter in order; `passed` is the newest one before which nothing is unfinished."""

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
        """A point that is reached when `parts` parts are finished, and all points before it are."""
        entry = Entry(point, parts)
        with self._changed:
            self._entries.append(entry)
            self._advance()
        return entry

    def extend(self, entry: Entry[P]) -> None:
        """The entry has one more part; it must have an unfinished one still."""
        with self._changed:
            entry.parts += 1

    def settle(self, entry: Entry[P], point: P) -> None:
        """Say late which point the entry leads up to, and finish the part that kept it open for that."""
        with self._changed:
            entry.point = point
        self.finish(entry)

    def finish(self, entry: Entry[P]) -> None:
        """One part of the entry is finished."""
        with self._changed:
            entry.parts -= 1
            self._advance()

    def wait_drained(self, stop: StopToken) -> None:
        """Wait until nothing is unfinished; raise `Cancelled` when stopped."""
        with self._changed:
            while self._entries:
                stop.wait(self._changed)

    def _advance(self) -> None:
        while self._entries and self._entries[0].parts <= 0:
            self._passed = self._entries.popleft().point
        self._changed.notify_all()
