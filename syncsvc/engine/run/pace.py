"""Limits the speed of the work: the threads that read, write and apply ask here before they continue.

Each rate is limited by a token bucket, which admits an amount as soon as the earlier amounts are paid off. So an amount
of any size is admitted, and the amounts after it wait longer. On average, the rate is not exceeded.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from time import monotonic

from syncsvc.limits import Limit, Rates
from verifier.cluster.block import Block
from verifier.runtime.tasks import SLOW_POLL, StopToken

# A bucket collects unused tokens for at most this many seconds, so work that was held up for this long can catch up.
_BURST = 1.0
# A portion of a page takes about this many seconds at the rate limit, so that limited work flows evenly.
_PORTION = 0.1
# No wait is shorter than this, in seconds, because the amount that is not paid off yet can be arbitrarily small.
_SHORTEST = 0.001


class Bucket:
    """A token bucket, which limits a rate. `rate` is in tokens per second; None means unlimited.

    Times are in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self.rate: float | None = None
        self._tokens = 0.0  # negative while an admitted amount is not paid off
        self._at = 0.0

    def set_rate(self, rate: float | None, at: float) -> None:
        """Change the rate at the time `at`. The rate is in tokens per second; None means unlimited.

        A lower rate does not lengthen the current wait, which the amounts admitted so far have caused.
        """
        if rate == self.rate:
            return
        self._refill(at)
        if rate is not None:
            scale = 1.0 if self.rate is None else min(1.0, rate / self.rate)
            self._tokens = self._tokens * scale if self._tokens < 0 else 0.0
        self.rate = rate

    def take(self, amount: float, at: float) -> float:
        """Take `amount` tokens and return 0.

        If earlier amounts are not paid off yet, take nothing, and return the seconds to wait.
        """
        if self.rate is None:
            return 0.0
        self._refill(at)
        if self._tokens < 0:
            return max(_SHORTEST, -self._tokens / self.rate)
        self._tokens -= amount
        return 0.0

    def _refill(self, at: float) -> None:
        if self.rate is None:
            self._tokens = 0.0
        else:
            earned = self.rate * max(0.0, at - self._at)
            self._tokens = min(self.rate * _BURST, self._tokens + earned)
        self._at = at


class Pace:
    """Enforces the rate and thread limits of a process: `admit_copy`, `admit_events` and `working` wait if necessary.

    Thread-safe.
    """

    def __init__(self, clock: Callable[[], float] = monotonic) -> None:
        self._clock = clock
        # Guards everything below. Only the rate of a bucket is also read without it.
        self._changed = threading.Condition()
        self._buckets: dict[Limit, Bucket] = {
            each: Bucket() for each in Limit if each is not Limit.THREADS
        }
        self._most_threads: int | None = None
        self._working = 0
        self._amounts = dict.fromkeys(Limit, 0)
        self._waited = dict.fromkeys(Limit, 0.0)

    def set_rates(self, rates: Rates) -> None:
        """Replace all limits; the new limits also apply to threads that are already waiting."""
        with self._changed:
            for limit, bucket in self._buckets.items():
                bucket.set_rate(rates.get(limit), self._clock())
            self._most_threads = rates.get(Limit.THREADS)
            self._changed.notify_all()

    @property
    def amounts(self) -> Mapping[Limit, int]:
        """Return the amounts that were admitted since the start of the process, by limit."""
        with self._changed:
            return dict(self._amounts)

    @property
    def waited(self) -> Mapping[Limit, float]:
        """Return the total seconds for which each limit has delayed threads since the start of the process."""
        with self._changed:
            return dict(self._waited)

    def portions(self, block: Block) -> Iterator[Block]:
        """Divide a page of documents into portions that take about a tenth of a second each at the copy's rate limit.

        A portion has at least one document. Yield the whole page if the copy has no rate limit. `block` is the page.
        """
        limits = (Limit.COPY_DOCUMENTS, Limit.COPY_BYTES)
        if all(self._buckets[limit].rate is None for limit in limits):
            yield block
            return
        documents = block.documents()
        begin = 0
        while begin < len(documents) or not begin:
            end = self._portion_end(documents, begin)
            yield Block.of(documents[begin:end])
            begin = max(end, 1)

    def event_portion(self) -> float:
        """Return how many change events may be passed to a lane at once; infinity if their rate is not limited."""
        rate = self._buckets[Limit.EVENTS].rate
        return float("inf") if rate is None else max(1.0, rate * _PORTION)

    def admit_copy(self, documents: int, size: int, stop: StopToken) -> None:
        """Wait until this number of documents, of `size` bytes in total, may be copied.

        Raises `Cancelled` when stopped.
        """
        self._admit(Limit.COPY_DOCUMENTS, documents, stop)
        self._admit(Limit.COPY_BYTES, size, stop)

    def admit_events(self, number: int, stop: StopToken) -> None:
        """Wait until this number of change events may be applied. Raises `Cancelled` when stopped."""
        self._admit(Limit.EVENTS, number, stop)

    @contextmanager
    def working(self, stop: StopToken) -> Iterator[None]:
        """Wait while the limit of working threads is reached; then count this thread as working during the block.

        Raises `Cancelled` when stopped.
        """
        with self._changed:
            while self._most_threads is not None and self._working >= self._most_threads:
                began = self._clock()
                stop.wait(self._changed)
                self._waited[Limit.THREADS] += self._clock() - began
            self._working += 1
        try:
            yield
        finally:
            with self._changed:
                self._working -= 1
                self._changed.notify()

    def _admit(self, limit: Limit, amount: int, stop: StopToken) -> None:
        while seconds := self._take(limit, amount):
            began = self._clock()
            stop.sleep(min(seconds, SLOW_POLL))
            with self._changed:
                self._waited[limit] += self._clock() - began

    def _take(self, limit: Limit, amount: int) -> float:
        with self._changed:
            seconds = self._buckets[limit].take(amount, self._clock())
            if not seconds:
                self._amounts[limit] += amount
            return seconds

    def _portion_end(self, documents: Sequence[memoryview], begin: int) -> int:
        """Return the index after the last document of the portion that begins at the index `begin` (see `portions`).

        A portion has at least one document, even if this document alone exceeds the limit.
        """
        by_number = self._buckets[Limit.COPY_DOCUMENTS].rate
        by_size = self._buckets[Limit.COPY_BYTES].rate
        end = len(documents)
        if by_number is not None:
            end = min(end, begin + max(1, int(by_number * _PORTION)))
        if by_size is None:
            return end
        size = 0
        for index in range(begin, end):
            size += len(documents[index])
            if size > by_size * _PORTION and index > begin:
                return index
        return end
