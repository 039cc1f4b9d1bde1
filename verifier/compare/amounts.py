"""Counts the documents, bytes and mismatches of one generation of a check, and computes rates and lags.

A generation is one pass of a check: generation 0 compares all documents, later ones those that differed or changed.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Mapping
from dataclasses import replace
from time import monotonic

from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import Amounts, MismatchCounts, NamespaceProgress
from verifier.compare.mismatch import DefinitionMismatch, Difference, Mismatch
from verifier.compare.task import Status, Task, Work

# The period over which a rate is averaged, in seconds.
_RATE_SPAN = 60.0
# How long a lag remains valid, in seconds. A page arrives several times a second, also from an idle cluster.
_LAG_HOLDS = 15.0


class Rate:
    """A rate per second, averaged over the last minute at most. Only one thread at a time may call `add`."""

    def __init__(self) -> None:
        self._started = monotonic()
        self._recent: deque[tuple[float, int]] = deque()

    def add(self, amount: int) -> None:
        now = monotonic()
        self._recent.append((now, amount))
        while now - self._recent[0][0] > _RATE_SPAN:
            self._recent.popleft()

    @property
    def per_second(self) -> float:
        now = monotonic()
        amount = sum(amount for at, amount in list(self._recent) if now - at <= _RATE_SPAN)
        return amount / max(1.0, min(_RATE_SPAN, now - self._started))


class Lag:
    """The lag of the reader of a change stream.

    The lag is unknown if no page of change events has arrived for `holds` seconds.
    """

    def __init__(self, holds: float = _LAG_HOLDS) -> None:
        self._holds = holds
        self._seconds: int | None = None
        self._at = 0.0

    def set(self, seconds: int) -> None:
        """Set the lag of the reader, in seconds. The reader calls this after each page of change events."""
        self._seconds, self._at = seconds, monotonic()

    def seconds(self, ended: bool = False) -> int | None:
        """Return the lag in whole seconds; None before the first page of change events.

        Also return None if no page has arrived for `holds` seconds: the connection may be lost, or the reader may be
        waiting. If `ended` is true (the stream was read to its end), return the last lag nevertheless.
        """
        return self._seconds if ended or monotonic() - self._at <= self._holds else None


class Tally:
    """Counts the compared documents and bytes, the finished tasks and the mismatches of a generation. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards everything below, except reads of the two rates
        self._amounts = Amounts()
        self._namespaces: dict[Namespace, NamespaceProgress] = {}
        self._documents = Rate()
        self._size = Rate()
        self._kinds: Counter[Difference] = Counter()
        self._found_in: Counter[Namespace] = Counter()
        self._definitions = 0

    @property
    def amounts(self) -> Amounts:
        with self._lock:
            return replace(self._amounts, namespaces=len(self._namespaces))

    @property
    def namespaces(self) -> Mapping[Namespace, NamespaceProgress]:
        with self._lock:
            return dict(self._namespaces)

    @property
    def mismatches(self) -> MismatchCounts:
        with self._lock:
            return MismatchCounts(dict(self._kinds), dict(self._found_in), self._definitions)

    @property
    def documents_per_second(self) -> float:
        return self._documents.per_second

    @property
    def size_per_second(self) -> float:
        return self._size.per_second

    def plan(self, task: Task) -> None:
        """Count a task as planned, and add its estimates to the totals; a no-op if the task reads no documents."""
        if task.work.of_documents:
            # The sizes of rechecked documents are unknown.
            size = task.size if task.work is Work.RANGE else None
            self.expect(task.names.source.owner, task.documents, size)

    def recall(self, task: Task) -> None:
        """Count a planned task as done, with its documents and bytes, but not its mismatches.

        A no-op if no earlier process finished the task, or if the task reads no documents.
        """
        if task.work.of_documents and task.status is not Status.ADDED:
            owner = task.names.source.owner
            self.compared(owner, task.documents, task.size, live=False)
            self.task_done(owner)

    def expect(self, namespace: Namespace, documents: int, size: int | None) -> None:
        """Count a task of a namespace as planned, and add its estimated numbers of documents and bytes to the totals.

        `size` is None if unknown.
        """
        with self._lock:
            now = self._namespaces.get(namespace, NamespaceProgress())
            self._namespaces[namespace] = replace(
                now,
                total_documents=(now.total_documents or 0) + documents,
                total_size=_sum(now.total_size, size),
                tasks=now.tasks + 1,
            )
            self._amounts = replace(
                self._amounts,
                total_documents=(self._amounts.total_documents or 0) + documents,
                total_size=_sum(self._amounts.total_size, size),
            )

    def compared(self, namespace: Namespace, documents: int, size: int, live: bool = True) -> None:
        """Add to the numbers of documents and bytes that were compared in a namespace.

        Pass `live=False` for the work of an earlier process, so that rates ignore it.
        """
        with self._lock:
            now = self._namespaces.get(namespace, NamespaceProgress())
            self._namespaces[namespace] = replace(
                now, documents=now.documents + documents, size=now.size + size
            )
            self._amounts = replace(
                self._amounts,
                documents=self._amounts.documents + documents,
                size=self._amounts.size + size,
            )
            if live:
                self._documents.add(documents)
                self._size.add(size)

    def task_done(self, namespace: Namespace) -> None:
        with self._lock:
            now = self._namespaces.get(namespace, NamespaceProgress())
            self._namespaces[namespace] = replace(now, tasks_done=now.tasks_done + 1)

    def found(self, mismatch: Mismatch) -> None:
        with self._lock:
            if isinstance(mismatch, DefinitionMismatch):
                self._definitions += 1
            else:
                self._kinds[mismatch.difference] += 1
                self._found_in[mismatch.namespace] += 1


def _sum(known: int | None, more: int | None) -> int | None:
    return known if more is None else (known or 0) + more
