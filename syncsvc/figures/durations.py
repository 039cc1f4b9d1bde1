"""Measures the calls to the clusters, by `Operation`: their number, and their total and longest duration.

A call is one page that is read, or one group of documents or outcomes that is written, perhaps with several commands.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")


class Operation(Enum):
    """The operations that are timed; the values are the names that log tools for mongosync expect."""

    COPY_READ = "CollectionCopySourceRead"
    COPY_WRITE = "CollectionCopyDestinationWrite"
    EVENTS_READ = "CEASourceRead"
    EVENTS_WRITE = "CEADestinationWrite"


@dataclass(frozen=True)
class Durations:
    """Statistics of calls: their number, and their total and longest duration in seconds."""

    calls: int
    total: float
    longest: float

    @property
    def average(self) -> float:
        return self.total / self.calls if self.calls else 0.0


NONE = Durations(0, 0.0, 0.0)


class Stopwatch:
    """Collects the durations of calls to the clusters. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _noted
        self._noted: dict[Operation, Durations] = {}

    def note(self, operation: Operation, seconds: float) -> None:
        """Add one call and its duration in seconds."""
        with self._lock:
            now = self._noted.get(operation, NONE)
            self._noted[operation] = Durations(
                now.calls + 1, now.total + seconds, max(now.longest, seconds)
            )

    @contextmanager
    def timing(self, operation: Operation) -> Iterator[None]:
        """Time the block as one call. If the block raises an exception, the call is not counted."""
        began = perf_counter()
        yield
        self.note(operation, perf_counter() - began)

    def take(self) -> Mapping[Operation, Durations]:
        """Return the statistics since the last call of this method, by operation, and reset them.

        An operation without calls since then is absent.
        """
        with self._lock:
            noted, self._noted = self._noted, {}
            return noted


def timed(items: Iterable[T]) -> Iterator[tuple[T, float]]:
    """Yield each item of `items`, with the seconds that the iterator took to return the item."""
    began = perf_counter()
    for item in items:
        yield item, perf_counter() - began
        began = perf_counter()
