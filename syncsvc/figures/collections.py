"""Counts the work of this process on each collection. The figures are kept only in memory: a restart sets them to 0."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic

# Minimum time span for a rate, in seconds: over a shorter span, a single batch would look like a very high rate.
_LEAST_SPAN = 1.0


@dataclass(frozen=True)
class CollectionFigures:
    """The work of this process on one collection: change events applied, documents copied, and index builds."""

    # How many change events of the collection were applied.
    events: int = 0
    # When this process began or resumed the copy, in seconds of the monotonic clock; None if it has not copied the
    # collection.
    began: float | None = None
    # The numbers of documents and bytes copied since then.
    documents: int = 0
    size: int = 0
    # Whether the indexes are being built.
    indexing: bool = False
    # Whether the indexes are built, or withheld for a time.
    indexed: bool = False

    def documents_per_second(self, now: float) -> float | None:
        """Return the average number of documents copied per second; None if this process has not copied the collection.

        The average is over the time from `began` to `now`, in seconds of the monotonic clock.
        """
        return self._rate(self.documents, now)

    def bytes_per_second(self, now: float) -> float | None:
        return self._rate(self.size, now)

    def _rate(self, amount: int, now: float) -> float | None:
        return None if self.began is None else amount / max(_LEAST_SPAN, now - self.began)


_NOTHING = CollectionFigures()


class Collections:
    """The figures of all collections by UUID. Thread-safe: `figures` returns a copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _figures
        self._figures: dict[bytes, CollectionFigures] = {}

    @property
    def figures(self) -> Mapping[bytes, CollectionFigures]:
        with self._lock:
            return dict(self._figures)

    def reading(self, uuid: bytes) -> None:
        """Record that this process begins or resumes the copy of a collection, and set the copied amounts to 0."""
        with self._lock:
            now = self._figures.get(uuid, _NOTHING)
            self._figures[uuid] = replace(now, began=monotonic(), documents=0, size=0)

    def copied(self, uuid: bytes, documents: int, size: int) -> None:
        """Add `documents` and `size`, in bytes, to the copied amounts of a collection."""
        with self._lock:
            now = self._figures.get(uuid, _NOTHING)
            self._figures[uuid] = replace(
                now, documents=now.documents + documents, size=now.size + size
            )

    def applied(self, events: Mapping[bytes, int]) -> None:
        """Add to the numbers of change events applied. `events` maps UUIDs of collections to the numbers to add."""
        with self._lock:
            for uuid, number in events.items():
                now = self._figures.get(uuid, _NOTHING)
                self._figures[uuid] = replace(now, events=now.events + number)

    def indexing(self, uuid: bytes) -> None:
        """Record that the indexes of a collection are being built."""
        self._set(uuid, indexing=True, indexed=False)

    def indexed(self, uuid: bytes) -> None:
        """Record that the indexes of a collection are built, or withheld because of a refused document or index."""
        self._set(uuid, indexing=False, indexed=True)

    def forget(self, uuid: bytes) -> None:
        """Remove the figures of a dropped collection."""
        with self._lock:
            self._figures.pop(uuid, None)

    def _set(self, uuid: bytes, **fields: bool) -> None:
        with self._lock:
            now = self._figures.get(uuid, _NOTHING)
            self._figures[uuid] = replace(now, **fields)
