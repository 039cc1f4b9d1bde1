"""What of a portion of the source is written while it is copied, and from where to go on after a restart."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from time import monotonic
from typing import Generic, TypeVar

from syncsvc.engine.run.frontier import Entry, Frontier
from syncsvc.saved.registry import CollectionRecord, CopyStatus

P = TypeVar("P")


class PortionCopy(ABC, Generic[P]):
    """One portion, of the collection of `record`: `resume_point` is up to where it is copied already.

    `copied` and `documents` are what that is, in bytes and in number. Pages are read by one thread and written by many.
    """

    def __init__(
        self,
        record: CollectionRecord,
        resume_point: P,
        copied: int,
        documents: int,
        save_interval: float,
    ) -> None:
        self.record = record
        self._save_interval = save_interval
        self._lock = threading.Lock()  # guards what follows; held while saving, to save in order
        self._copied = copied
        self._documents = documents
        self._saved_at = monotonic()
        self._frontier: Frontier[P] = Frontier(resume_point)
        self._all_read = False

    @abstractmethod
    def pages(self) -> Iterator[tuple[Sequence[memoryview], P]]:
        """The documents that are left, each page with the resume point after it.

        Raises CollectionGone, OperationError and the driver's errors.
        """

    @abstractmethod
    def keep(self, status: CopyStatus, resume_point: P, copied: int, documents: int) -> None:
        """Save how far it is."""

    def enter(self, resume_point: P) -> Entry[P]:
        """A page was read, after which that is the resume point."""
        return self._frontier.enter(resume_point, 1)

    def written(self, entry: Entry[P], documents: int, size: int) -> None:
        """A page was acknowledged."""
        with self._lock:
            # Inside the lock: whoever sees the frontier drained must see all that was counted, too.
            self._frontier.finish(entry)
            self._copied += size
            self._documents += documents
            self._save()

    def all_read(self) -> None:
        """No more pages will come."""
        with self._lock:
            self._all_read = True
            self._save()

    def _save(self) -> None:
        done = self._all_read and self._frontier.drained
        if not done and monotonic() - self._saved_at < self._save_interval:
            return
        status = CopyStatus.DONE if done else CopyStatus.COPYING
        self.keep(status, self._frontier.passed, self._copied, self._documents)
        self._saved_at = monotonic()
