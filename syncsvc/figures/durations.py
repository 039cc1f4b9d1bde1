"""How long calls to the clusters take, between two looks at them."""

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
    """What is timed; the values are the names that log tools for mongosync read."""

    COPY_READ = "CollectionCopySourceRead"
    COPY_WRITE = "CollectionCopyDestinationWrite"
    EVENTS_READ = "CEASourceRead"
    EVENTS_WRITE = "CEADestinationWrite"


@dataclass(frozen=True)
class Durations:
    """Of some calls: how many there were, how long they took together, and the longest, in seconds."""

    calls: int
    total: float
    longest: float

    @property
    def average(self) -> float:
        return self.total / self.calls


class Stopwatch:
    """Shared by all threads that call the clusters."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _noted
        self._noted: dict[Operation, Durations] = {}

    def note(self, operation: Operation, seconds: float) -> None:
        """One call has taken so long."""
        with self._lock:
            now = self._noted.get(operation, Durations(0, 0.0, 0.0))
            self._noted[operation] = Durations(
                now.calls + 1, now.total + seconds, max(now.longest, seconds)
            )

    @contextmanager
    def timing(self, operation: Operation) -> Iterator[None]:
        """The block is one call. One that fails is not noted."""
        began = perf_counter()
        yield
        self.note(operation, perf_counter() - began)

    def take(self) -> Mapping[Operation, Durations]:
        """What was noted since this was last asked."""
        with self._lock:
            noted, self._noted = self._noted, {}
            return noted


def timed(items: Iterable[T]) -> Iterator[tuple[T, float]]:
    """Each item with how long it took to come, in seconds."""
    began = perf_counter()
    for item in items:
        yield item, perf_counter() - began
        began = perf_counter()
