"""Plans the tasks of the current generation, which is one pass of a check over the clusters."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set

from verifier.cluster.namespace import Namespace
from verifier.compare.queue import TaskQueue
from verifier.compare.scope import NamespacePair
from verifier.compare.store import CheckStore
from verifier.compare.task import Status, Task, Work, key_groups


class Planner:
    """Plans the tasks of a generation. `pairs` are all collections and views of the check.

    `new` are the pairs that did not exist in the previous generation: all of their documents are compared.

    `queue` assigns the numbers of the tasks.
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

    @property
    def compares_all(self) -> bool:
        """Return whether this generation compares all definitions.

        Return True in generation 0, and in the first generation after all changes up to the end of user writes are
        read.
        """
        return self._store.record.generation == 0 or self._store.record.all_again

    def tasks(self) -> Iterator[Task]:
        """Yield all tasks except RANGE tasks, which are added later, when COLLECTION tasks run.

        Raises the driver's errors, and `Cancelled`.
        """
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
        """Yield the tasks that an earlier process saved for this generation, finished or not.

        If that process was killed while it split a collection into ranges, delete the RANGE tasks of this collection
        instead of yielding them: the collection is split again. Raises the driver's errors, and `Cancelled`.
        """
        # A collection that was being split into ranges is split again.
        unfinished = self._store.tasks(status=Status.ADDED)
        cut_short = {task.names for task in unfinished if task.work is Work.COLLECTION}
        for task in self._store.tasks():
            owners = NamespacePair(task.names.source.owner, task.names.destination.owner)
            if task.work is Work.RANGE and owners in cut_short:
                self._store.remove_task(task)
            else:
                yield task

    def _storages(self) -> dict[Namespace, NamespacePair]:
        """Return the pairs of namespaces that may store documents, by the name on the source.

        The result has two entries for each collection: the collection itself, and the buckets collection that it would
        have as a time-series collection. A collection whose documents are selected by a query has no second entry,
        because measurements are then not compared.
        """
        request = self._store.record.request
        found = {}
        for pair in self._pairs:
            found[pair.source] = pair
            if not request.selects_documents(pair.source):
                buckets = NamespacePair(pair.source.buckets, pair.destination.buckets)
                found[buckets.source] = buckets
        return found

    def _failed_before(self) -> list[Task]:
        """Return the tasks of the previous generation that found a difference."""
        generation = self._store.record.generation
        return [*self._store.tasks(generation - 1, Status.FAILED)] if generation else []

    def _counted(self, before: Iterable[Task]) -> Iterable[NamespacePair]:
        if self._store.record.all_again:
            return self._pairs
        return [task.names for task in before if task.work is Work.COUNT]

    def _collections(self, before: Iterable[Task]) -> dict[NamespacePair, bool]:
        """Return the collections and views whose definitions to compare; True means to compare all documents as well.

        `before` are the tasks of the previous generation that found a difference.
        """
        record = self._store.record
        if record.generation == 0:
            return dict.fromkeys(self._pairs, True)
        every = self._pairs if record.all_again else self._new
        chosen = {pair: pair in self._new for pair in every}
        for task in before:
            if task.work is Work.COLLECTION:
                chosen[task.names] = task.unscanned
        whole = self._store.whole_collections(pair.source for pair in self._pairs)
        for pair in self._pairs:
            if pair.source in whole:
                chosen[pair] = True
        return chosen
