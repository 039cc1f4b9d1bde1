"""Tracks the point up to which all work is done, while parts of the work finish out of order.

The frontier is the newest point before the oldest unfinished part. It is not the minimum of the positions of all
workers, so an idle worker does not hold the frontier back.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Generic, TypeVar

from verifier.runtime.tasks import StopToken

P = TypeVar("P")


class Entry(Generic[P]):
    """A point, and the number of unfinished parts of the work between the previous point and this one.

    Only a `Frontier` changes an entry.
    """

    def __init__(self, point: P, parts: int) -> None:
        self.point = point
        self.parts = parts


class Frontier(Generic[P]):
    """Tracks the progress of work whose parts finish in any order, such as change events that several lanes apply.

    `enter` adds points (for example, positions in a change stream) in their order. Each point comes with the number of
    parts of the work that must be finished before the point is passed. `passed` is the newest passed point; the
    argument `passed` is the point at which the work begins. While older work is unfinished, points that are added
    without parts take no memory. Thread-safe.
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
        """Add one unfinished part to the entry. The entry must still have another unfinished part."""
        with self._changed:
            entry.parts += 1

    def settle(self, entry: Entry[P], point: P) -> None:
        """Replace the provisional point of an entry with the real one, and finish one part of the entry.

        `enter` needs a point even if the real one is not known yet. Call this before the next point is added,
        because the entry may take that point over.
        """
        with self._changed:
            entry.point = point
        self.finish(entry)

    def finish(self, entry: Entry[P]) -> None:
        """Mark one part of the entry as finished."""
        with self._changed:
            entry.parts -= 1
            self._advance()

    def wait_drained(self, stop: StopToken) -> None:
        """Wait until all parts of all entries are finished. Raises `Cancelled` when stopped."""
        with self._changed:
            while self._entries:
                stop.wait(self._changed)

    def _advance(self) -> None:
        entries = self._entries
        while entries and entries[0].parts <= 0:
            self._passed = entries.popleft().point
        # While earlier work is stuck, an idle source adds many points per second. No work is left between the point of
        # a finished entry and the previous point, so both are passed at the same moment: keep only the newer.
        while entries and entries[-1].parts <= 0:
            finished = entries.pop()
            entries[-1].point = finished.point
        self._changed.notify_all()
