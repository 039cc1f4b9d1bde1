"""Queues the tasks of one generation (one pass of a check) between planner and workers, and counts their results."""

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
    """Return the numbers of tasks by status. None of the tasks may be running."""
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
    """A queue of tasks. Any thread may add tasks while tasks run, including a thread that runs a task.

    COUNT tasks are handed out last, after all other tasks are done.
    """

    def __init__(self, stop: StopToken) -> None:
        self._stop = stop
        self._changed = threading.Condition()  # guards everything below
        self._waiting: deque[Task] = deque()
        self._held: deque[Task] = deque()  # COUNT tasks, until all other tasks are done
        self._closed = False
        self._next_number = 0
        self._counts = TaskCounts()

    @property
    def counts(self) -> TaskCounts:
        return self._counts

    def number(self) -> int:
        """Return a number that no other task of the generation has."""
        with self._changed:
            self._next_number += 1
            return self._next_number - 1

    def add(self, *tasks: Task) -> None:
        """Add tasks. A task that an earlier process finished is counted, and not run again.

        After a restart, the unfinished tasks that an earlier process saved must be added last, in one call: a worker
        that runs one of them may request a new number, which must not equal the number of a saved task.
        """
        with self._changed:
            for task in tasks:
                self._next_number = max(self._next_number, task.number + 1)
                self._counts = _counted(self._counts, task)
                if task.status is Status.ADDED:
                    (self._held if task.work is Work.COUNT else self._waiting).append(task)
            self._changed.notify_all()

    def close(self) -> None:
        """Declare that the planner has added all tasks."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def take(self) -> Task | None:
        """Wait for the next task and return it; None when all tasks are done. Raises `Cancelled` when stopped."""
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
        """Count the result of a task that was taken from the queue and has been run."""
        with self._changed:
            waiting = replace(self._counts, processing=self._counts.processing - 1)
            self._counts = _counted(waiting, task)
            self._changed.notify_all()
