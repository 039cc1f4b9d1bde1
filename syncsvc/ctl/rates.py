"""Computes rates of a sync or a check, such as bytes per second, from successive answers of its process."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

# The time over which rates are averaged, in seconds.
_WINDOW = 30.0
# The minimum time span for a rate, in seconds.
_SHORTEST = 2.0


@dataclass
class Rates:
    """Computes rates from samples of counters, taken during the last 30 seconds."""

    _samples: deque[tuple[float, Mapping[str, int]]] = field(default_factory=deque)

    def add(self, now: float, counters: Mapping[str, int]) -> None:
        """Add a sample: the values of the counters at the time `now` (monotonic clock, in seconds).

        If a counter has fallen, for example because the daemon was restarted, all earlier samples are dropped.
        """
        if self._samples and any(self._samples[-1][1].get(k, 0) > v for k, v in counters.items()):
            self._samples.clear()
        self._samples.append((now, counters))
        while self._samples[0][0] < now - _WINDOW:
            self._samples.popleft()

    def per_second(self, counter: str) -> float | None:
        """Return a counter's growth per second; None if it does not grow, or the samples span less than two seconds."""
        if not self._samples:
            return None
        (began, first), (ended, last) = self._samples[0], self._samples[-1]
        grown = last.get(counter, 0) - first.get(counter, 0)
        return grown / (ended - began) if ended - began >= _SHORTEST and grown > 0 else None

    def seconds_left(self, counter: str, total: int | None) -> float | None:
        """Return the seconds until a counter reaches `total` at its current rate.

        Return None if `total` is None, or if `per_second` returns None for the counter.
        """
        rate = self.per_second(counter)
        if rate is None or total is None:
            return None
        return max(0, total - self._samples[-1][1].get(counter, 0)) / rate
