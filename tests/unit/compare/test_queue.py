"""The task queue returns each task once, counts tasks, and makes threads wait while running tasks may add others."""

from __future__ import annotations

import threading
from dataclasses import replace

import pytest

from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import TaskCounts
from verifier.compare.queue import TaskQueue, counts_of
from verifier.compare.scope import NamespacePair
from verifier.compare.task import Status, Task, Work
from verifier.runtime.tasks import Cancelled, StopToken, TaskGroup

NAMES = NamespacePair(Namespace("d", "a"), Namespace("d", "b"))


def task(number: int, status: Status = Status.ADDED, differs: bool = False) -> Task:
    return Task(number, Work.RANGE, NAMES, status=status, definition_differs=differs)


def test_tasks_are_counted_by_status() -> None:
    queue = TaskQueue(StopToken())
    queue.add(task(0))
    queue.add(task(1))
    queue.close()
    first, second = queue.take(), queue.take()
    assert first is not None and second is not None
    assert queue.counts == TaskCounts(processing=2)
    queue.done(replace(first, status=Status.COMPLETED))
    queue.done(replace(second, status=Status.FAILED, definition_differs=True))
    assert queue.counts == TaskCounts(completed=1, failed=1, metadata_mismatch=1)
    assert queue.counts.total == 2
    assert queue.take() is None


def test_finished_tasks_are_counted_and_not_handed_out() -> None:
    queue = TaskQueue(StopToken())
    tasks = [task(3, Status.COMPLETED), task(7, Status.FAILED, differs=True)]
    queue.add(*tasks)
    queue.close()
    assert queue.take() is None
    assert queue.counts == counts_of(tasks)
    assert queue.number() == 8


def test_a_waiting_thread_gets_a_task_added_by_another() -> None:
    queue = TaskQueue(StopToken())
    queue.add(task(0))
    queue.close()
    first = queue.take()
    assert first is not None
    taken: list[Task | None] = []
    with TaskGroup("test", StopToken()) as group:
        group.spawn("waits", lambda: taken.append(queue.take()))
        queue.add(task(queue.number()))
        queue.done(replace(first, status=Status.COMPLETED))
    assert [each and each.number for each in taken] == [1]


def test_a_stop_ends_the_wait_for_a_task() -> None:
    stop = StopToken()
    queue = TaskQueue(stop)
    threading.Timer(0.05, stop.stop, ("test",)).start()
    with pytest.raises(Cancelled):
        queue.take()
