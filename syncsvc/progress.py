"""What `GET /api/v1/progress` shows: counters that the engine moves, and the frozen snapshot of them."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from time import monotonic


@dataclass(frozen=True)
class ProgressSnapshot:
    """The engine's figures at one moment; None is unknown. Bytes, documents, seconds.

    `lag_at` is when the lag was last known, by the monotonic clock.
    """

    total_bytes: int | None = None
    copied_bytes: int = 0
    copied_documents: int = 0
    events_applied: int = 0
    documents_refetched: int = 0
    lag_seconds: int | None = None
    lag_at: float = 0.0
    caught_up: bool = False


class Progress:
    """Holds the newest snapshot. Reading it never waits for anything but another reader's or writer's assignment."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards the change of snapshot
        self._snapshot = ProgressSnapshot()

    @property
    def snapshot(self) -> ProgressSnapshot:
        return self._snapshot

    def set(self, **values: float | bool | None) -> None:
        with self._lock:
            self._snapshot = replace(self._snapshot, **values)  # type: ignore[arg-type] # checked by replace

    def set_lag(self, seconds: int) -> None:
        """The lag is known anew."""
        self.set(lag_seconds=seconds, lag_at=monotonic())

    def add(self, **amounts: int) -> None:
        """Raise counters."""
        with self._lock:
            now = self._snapshot
            sums = {name: getattr(now, name) + amount for name, amount in amounts.items()}
            self._snapshot = replace(now, **sums)
