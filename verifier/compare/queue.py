"""The tasks of one generation, between who plans them and who carries them out. Counts what became of them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from functools import reduce

from verifier.compare.check_progress import TaskCounts
from verifier.compare.task import Status, Task, Work
from verifier.runtime.tasks import StopToken


def counts_of(tasks: Iterable[Task]) -> TaskCounts:
    """The counts of tasks of which none is being carried out."""
    return reduce(_counted, tasks, TaskCounts())


def _counted(counts: TaskCounts, task: Task) -> TaskCounts:
    if task.status is Status.ADDED:
        return replace(counts, added=counts.added + 1)
    if task.status is Status.COMPLETED:
        return replace(counts, completed=counts.completed + 1)
    return replace(
        counts,
        failed=counts.failed + 1,
        metadata_mismatch=counts.metadata_mismatch + task.definition_differs,
    )


class TaskQueue:
    """Tasks may be added while others are carried out, also by who carries one out."""

    def __init__(self, stop: StopToken) -> None:
        self._stop = stop
        self._changed = threading.Condition()  # guards everything below
        self._waiting: deque[Task] = deque()
        self._held: deque[Task] = deque()  # until all others are done
        self._closed = False
        self._next_number = 0
        self._counts = TaskCounts()

    @property
    def counts(self) -> TaskCounts:
        return self._counts

    def number(self) -> int:
        """A number that no other task of the generation has."""
        with self._changed:
            self._next_number += 1
            return self._next_number - 1

    def add(self, *tasks: Task) -> None:
        """Add tasks; those that are done already, by an earlier process, are only counted.

        Tasks that have their numbers from elsewhere come all at once, so that none of them is given out again.
        """
        with self._changed:
            for task in tasks:
                self._next_number = max(self._next_number, task.number + 1)
                self._counts = _counted(self._counts, task)
                if task.status is Status.ADDED:
                    (self._held if task.work is Work.COUNT else self._waiting).append(task)
            self._changed.notify_all()

    def close(self) -> None:
        """Whoever plans has added all."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> Task | None:
        """The next task, waiting for it; None when there will be none. Raises Cancelled."""
        with self._changed:
            while not self._waiting:
                if self._closed and not self._counts.processing:
                    if not self._held:
                        return None
                    self._waiting, self._held = self._held, deque()
                    break
                self._stop.wait(self._changed)
            self._stop.check()
            counts = self._counts
            self._counts = replace(counts, added=counts.added - 1, processing=counts.processing + 1)
            return self._waiting.popleft()

    def done(self, task: Task) -> None:
        """A taken task is carried out and saved."""
        with self._changed:
            waiting = replace(self._counts, processing=self._counts.processing - 1)
            self._counts = _counted(waiting, task)
            self._changed.notify_all()
