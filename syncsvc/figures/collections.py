"""What this process did with each collection. In memory only, so a restarted process counts from 0 again."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from time import monotonic

# Of less time than this, no rate is told, in seconds: one batch alone would look like a flood.
_LEAST_SPAN = 1.0


@dataclass(frozen=True)
class CollectionFigures:
    """One collection at one moment. `began` is when this process began to copy it, by the monotonic clock.

    `documents` and `size`, in bytes, are what it has copied since.
    """

    events: int = 0
    began: float | None = None
    documents: int = 0
    size: int = 0
    indexing: bool = False
    indexed: bool = False

    def documents_per_second(self, now: float) -> float | None:
        """How many documents this process copied a second; None where it copied none."""
        return self._rate(self.documents, now)

    def bytes_per_second(self, now: float) -> float | None:
        return self._rate(self.size, now)

    def _rate(self, amount: int, now: float) -> float | None:
        return None if self.began is None else amount / max(_LEAST_SPAN, now - self.began)


_NOTHING = CollectionFigures()


class Collections:
    """The figures of all collections by UUID. Several threads move them; who reads them gets a copy."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _figures
        self._figures: dict[bytes, CollectionFigures] = {}

    @property
    def figures(self) -> Mapping[bytes, CollectionFigures]:
        with self._lock:
            return dict(self._figures)

    def reading(self, uuid: bytes) -> None:
        """Its copy begins, or goes on, now."""
        with self._lock:
            now = self._figures.get(uuid, _NOTHING)
            self._figures[uuid] = replace(now, began=monotonic(), documents=0, size=0)

    def copied(self, uuid: bytes, documents: int, size: int) -> None:
        """So many more documents are written, of so many bytes."""
        with self._lock:
            now = self._figures.get(uuid, _NOTHING)
            self._figures[uuid] = replace(
                now, documents=now.documents + documents, size=now.size + size
            )

    def applied(self, events: Mapping[bytes, int]) -> None:
        """So many more change events of each are applied."""
        with self._lock:
            for uuid, number in events.items():
                now = self._figures.get(uuid, _NOTHING)
                self._figures[uuid] = replace(now, events=now.events + number)

    def indexing(self, uuid: bytes) -> None:
        """Its indexes are being built now."""
        self._set(uuid, indexing=True, indexed=False)

    def indexed(self, uuid: bytes) -> None:
        """Its indexes are built, or withheld."""
        self._set(uuid, indexing=False, indexed=True)

    def _set(self, uuid: bytes, **fields: bool) -> None:
        with self._lock:
            now = self._figures.get(uuid, _NOTHING)
            self._figures[uuid] = replace(now, **fields)
