"""One generation, which is one pass of a check over the clusters: plans its tasks and runs them in several threads.

Generation 0 compares everything once, except the numbers of documents. Each later generation compares again: the
documents that changed on either cluster since the previous generation began, the collections that are new or were
replaced, and everything that differed in the previous generation. The first generation that begins after all changes
up to the end of user writes are read also compares all definitions and all numbers of documents.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Set
from time import monotonic

from bson.timestamp import Timestamp

from verifier.cluster.ranges import Range
from verifier.compare.amounts import Tally
from verifier.compare.context import CheckContext
from verifier.compare.planning import Planner
from verifier.compare.points import Point
from verifier.compare.queue import TaskQueue
from verifier.compare.scope import NamespacePair
from verifier.compare.task import Status, Task, Work
from verifier.compare.worker import Worker
from verifier.runtime.tasks import StopToken, TaskGroup

# How many tasks are saved at once.
_SAVED_AT_ONCE = 500


class Generation:
    """Runs the current generation of a check.

    The documents of each cluster are compared as they are at its cluster time in `not_before`, or later; None sets no
    limit. `pairs` are all collections and views of the check. `new` are the pairs that did not exist in the previous
    generation.
    """

    def __init__(
        self,
        context: CheckContext,
        pairs: Iterable[NamespacePair],
        new: Set[NamespacePair],
        not_before: tuple[Timestamp | None, Timestamp | None],
        stop: StopToken,
    ) -> None:
        self._threads = context.sides.workers
        self._changing = threading.Lock()  # guards the next three attributes
        self._unsaved: list[Task] = []
        self._unsaved_ranges: list[Task] = []
        self._saved_at = 0.0
        # Held while tasks are saved, to keep the order of the saves: a collection must never be saved as done before
        # its ranges.
        self._saving = threading.Lock()
        self._store = context.store
        self._observe = context.observe
        self._task_interval = context.sides.tuning.task_interval
        # The group is created here, so that an error in one thread ends the waits and retries of all threads.
        self._group = TaskGroup("generation", stop)
        self.queue = TaskQueue(self._group.stop)
        self.tally = Tally()
        self._planner = Planner(pairs, new, context.store, self.queue)
        self._worker = Worker(context, self.tally, not_before, self._add_ranges, self._group.stop)

    def run(self) -> None:
        """Plan the tasks, unless an earlier process planned them; run all unfinished tasks, and save the results.

        Raises the driver's errors, OperationError (for example Superseded) and `Cancelled`. If several threads fail,
        their errors are raised as a BaseExceptionGroup.
        """
        if self._planner.compares_all:
            self._worker.take_snapshots()
        with self._group as group:
            for number in range(self._threads):
                group.spawn(str(number), self._work)
            if self._store.record.planned:
                self._resume()
            else:
                self._plan()
            self.queue.close()
        self._save()

    def _work(self) -> None:
        while (task := self.queue.take()) is not None:
            done = self._worker.run_task(task)
            self._save(done)
            self._count_done(done)
            self._observe(Point.TASK_DONE, str(task.names.source))
            self.queue.done(done)

    def _save(self, *done: Task) -> None:
        """Note that the tasks `done` are finished. Save all unsaved tasks if there are many, or after an interval.

        If `done` is empty, save them in any case. The unsaved tasks include new tasks for ranges. If the process is
        killed, a restarted process runs finished but unsaved tasks again, and splits a collection again if the tasks
        for its ranges are not saved.
        """
        with self._changing:
            self._unsaved.extend(done)
            few = len(self._unsaved) + len(self._unsaved_ranges) < _SAVED_AT_ONCE
            if done and few and monotonic() - self._saved_at < self._task_interval:
                return
            self._saved_at = monotonic()
        with self._saving:
            with self._changing:
                ranges, self._unsaved_ranges = self._unsaved_ranges, []
                unsaved, self._unsaved = self._unsaved, []
            self._store.add_tasks(ranges)
            if unsaved:
                self._store.save_tasks(unsaved)

    def _plan(self) -> None:
        self._store.forget_plan()
        tasks: list[Task] = []
        for task in self._planner.tasks():
            tasks.append(task)
            if len(tasks) == _SAVED_AT_ONCE:
                self._add(tasks)
                tasks.clear()
        self._add(tasks)
        self._store.update(planned=True)

    def _resume(self) -> None:
        """Queue the tasks that an earlier process planned, and count the results of its finished tasks."""
        unfinished = []
        for task in self._planner.again():
            if task.status is Status.ADDED:
                unfinished.append(task)
            else:
                # Do not collect the finished tasks: a large check has hundreds of thousands of them.
                self._queue([task])
                self.tally.recall(task)
        # No task may run before all saved numbers are known, because a task that runs may add tasks with new numbers.
        self._queue(unfinished)

    def _add(self, tasks: list[Task]) -> None:
        self._store.add_tasks(tasks)
        self._queue(tasks)

    def _queue(self, tasks: list[Task]) -> None:
        for task in tasks:
            self.tally.plan(task)
        self.queue.add(*tasks)

    def _count_done(self, task: Task) -> None:
        if task.work.of_documents:
            self.tally.task_done(task.names.source.owner)

    def _add_ranges(
        self, stored: NamespacePair, ranges: list[Range], documents: int, size: int
    ) -> None:
        """Queue a task for each range of a collection.

        The new tasks are saved before the COLLECTION task is saved as done. `stored` names the namespaces that store
        the documents on both clusters. `documents` and `size` (bytes) are estimates for the whole collection.
        """
        # The tasks share these objects, which saves memory.
        documents, size = documents // len(ranges), size // len(ranges)
        tasks = [
            Task(
                number=self.queue.number(),
                work=Work.RANGE,
                names=stored,
                lower=each.lower,
                upper=each.upper,
                documents=documents,
                size=size,
            )
            for each in ranges
        ]
        with self._changing:
            self._unsaved_ranges.extend(tasks)
        self._queue(tasks)
