"""What the current generation has to do."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from verifier.cluster.namespace import Namespace
from verifier.compare.queue import TaskQueue
from verifier.compare.scope import NamespacePair
from verifier.compare.store import CheckStore
from verifier.compare.task import Status, Task, Work, key_groups


class Planner:
    """Plans for `pairs`, which are all that there is to compare; `new` are those that were not there before.

    The numbers of the tasks come from the queue.
    """

    def __init__(
        self,
        pairs: Iterable[NamespacePair],
        new: Set[NamespacePair],
        store: CheckStore,
        queue: TaskQueue,
    ) -> None:
        self._pairs = sorted(pairs)
        self._new = new
        self._store = store
        self._queue = queue

    def tasks(self) -> Iterator[Task]:
        """All tasks that are known before the first is carried out. Raises the driver's errors."""
        before = self._failed_before()
        for names, scan in self._collections(before).items():
            yield Task(self._queue.number(), Work.COLLECTION, names, scan)
        for names in self._counted(before):
            yield Task(self._queue.number(), Work.COUNT, names)
        storages = self._storages()
        for group in key_groups(self._store.rechecks()):
            stored = storages.get(group.namespace)
            if stored is not None:
                yield Task(
                    number=self._queue.number(),
                    work=Work.RECHECK,
                    names=stored,
                    first=group.first,
                    last=group.last,
                    documents=group.documents,
                )

    def again(self) -> Iterator[Task]:
        """The tasks that an earlier process planned, done or not."""
        tasks = self._store.tasks()
        # A collection that was being cut into ranges is cut again.
        cut_short = {
            task.names
            for task in tasks
            if task.work is Work.COLLECTION and task.status is Status.ADDED
        }
        for task in tasks:
            owners = NamespacePair(task.names.source.owner, task.names.destination.owner)
            if task.work is Work.RANGE and owners in cut_short:
                self._store.remove_task(task)
            else:
                yield task

    def _storages(self) -> dict[Namespace, NamespacePair]:
        """Where documents may be, by the name on the source: in a collection itself, or in its buckets."""
        found = {}
        for pair in self._pairs:
            found[pair.source] = pair
            found[pair.source.buckets] = NamespacePair(
                pair.source.buckets, pair.destination.buckets
            )
        return found

    def _failed_before(self) -> list[Task]:
        """The tasks of the generation before that found something."""
        generation = self._store.record.generation
        tasks = self._store.tasks(generation - 1) if generation else []
        return [task for task in tasks if task.status is Status.FAILED]

    def _all_again(self) -> bool:
        """Whether this generation is the first that can be the last."""
        return self._store.record.generation == self._store.record.last_from

    def _counted(self, before: Iterable[Task]) -> Iterable[NamespacePair]:
        if self._all_again():
            return self._pairs
        return [task.names for task in before if task.work is Work.COUNT]

    def _collections(self, before: Iterable[Task]) -> dict[NamespacePair, bool]:
        """The collections and views to look at, and whether their documents are to be compared as a whole."""
        if self._store.record.generation == 0:
            return dict.fromkeys(self._pairs, True)
        every = self._pairs if self._all_again() else self._new
        chosen = {pair: pair in self._new for pair in every}
        for task in before:
            if task.work is Work.COLLECTION:
                chosen[task.names] = task.unscanned
        whole = self._store.whole_collections(pair.source for pair in self._pairs)
        for pair in self._pairs:
            if pair.source in whole:
                chosen[pair] = True
        return chosen
