"""Tracks how much of a portion of the source is copied, and where to resume after a restart.

A portion is a whole collection or a partition of one.
"""

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
    """The copy of one portion of the collection of `record`, which is already copied up to `resume_point`.

    `copied` and `documents` are what was copied before, in bytes and as a count. One thread reads the pages, many write
    them. The progress is saved every `save_interval` seconds while pages are written.
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
        self._lock = threading.Lock()  # guards the fields below; held while saving, for the order
        self._copied = copied
        self._documents = documents
        self._saved_at = monotonic()
        self._frontier: Frontier[P] = Frontier(resume_point)
        self._all_read = False

    @abstractmethod
    def pages(self) -> Iterator[tuple[Sequence[memoryview], P]]:
        """Return the remaining documents: pages, each with the resume point after it.

        Raises CollectionGone, OperationError and the driver's errors.
        """

    @abstractmethod
    def keep(self, status: CopyStatus, resume_point: P, copied: int, documents: int) -> None:
        """Save the progress of the portion: every page up to `resume_point` is written, `copied` is in bytes."""

    def enter(self, resume_point: P) -> Entry[P]:
        """Register a page that was read, in reading order; return the entry to pass to `written`.

        `resume_point` is the resume point after the page.
        """
        return self._frontier.enter(resume_point, 1)

    def written(self, entry: Entry[P], documents: int, size: int) -> None:
        """Record that the destination acknowledged a page of `size` bytes; save the progress if that is due."""
        with self._lock:
            # Under the lock: a thread that sees the frontier drained must also see all counts.
            self._frontier.finish(entry)
            self._copied += size
            self._documents += documents
            self._save()

    def all_read(self) -> None:
        """Record that no more pages will come; save the progress if that is due or everything is written."""
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
