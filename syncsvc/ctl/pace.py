"""Rates of a sync or a check, computed from successive answers of its daemon."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

# Rates are averages over this many seconds.
_WINDOW = 30.0
# A shorter time says little about the rate.
_SHORTEST = 2.0


@dataclass
class Pace:
    """The samples of the last half minute: the time (monotonic, in seconds) and the counters at that time."""

    _samples: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)

    def add(self, now: float, counters: Mapping[str, int]) -> None:
        """Add a sample. Forget the earlier ones if a counter fell: the daemon was restarted."""
        if self._samples and any(self._samples[-1][1].get(k, 0) > v for k, v in counters.items()):
            self._samples.clear()
        self._samples.append((now, counters))
        while self._samples[0][0] < now - _WINDOW:
            self._samples.popleft()

    def rate(self, counter: str) -> float | None:
        """Return how much the counter grows per second; None while it is unknown or does not grow."""
        if not self._samples:
            return None
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        grown = last.get(counter, 0) - first.get(counter, 0)
        return grown / (ended - began) if ended - began >= _SHORTEST and grown > 0 else None

    def seconds_left(self, counter: str, total: int | None) -> float | None:
        """Return in how many seconds the counter reaches the total at its present rate; None if that is unknown."""
        rate = self.rate(counter)
        if rate is None or total is None:
            return None
        return max(0, total - self._samples[-1][1].get(counter, 0)) / rate
