"""The tasks of a large check, of which there are hundreds of thousands, take little memory each."""

from __future__ import annotations

import tracemalloc

import bson

from verifier.cluster.namespace import Namespace
from verifier.compare.rows import read_task, task_row
from verifier.compare.scope import NamespacePair
from verifier.compare.task import Task, Work

_TASKS = 1_000
# A task and the bounds of its range take about 350 bytes; with its own copies of the names, it would take 800.
_MOST_BYTES = 500


def test_saved_tasks_take_little_memory() -> None:
    names = NamespacePair(Namespace("database", "orders"), Namespace("archive", "orders"))
    bound = bson.encode({"_id": bson.ObjectId()})
    rows = [
        bson.encode(task_row(Task(number, Work.RANGE, names, lower=bound, upper=bound)))
        for number in range(_TASKS)
    ]
    tracemalloc.start()
    try:
        tasks = [read_task(bson.decode(row)) for row in rows]
        used, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(tasks) == _TASKS
    assert used / _TASKS < _MOST_BYTES
