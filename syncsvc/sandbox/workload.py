"""Makes random writes to a cluster, as an application would while a sync runs.

All values except the `_id`s of new documents come from a seeded generator. One thread, owned by the `Workload`, writes.
"""

import string
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from os import urandom
from random import Random
from threading import Event
from types import TracebackType
from typing import Any, Self

from bson import ObjectId
from pymongo.collection import Collection

Document = dict[str, Any]
AnyCollection = Collection[Any]
Update = Document | list[Document]

IDS_KNOWN_AT_START = 500
OPERATIONS_A_BURST = 20
PAUSE_SECONDS = 0.02
KINDS, WEIGHTS = ("insert", "update", "delete"), (4, 5, 1)


@dataclass(frozen=True)
class Written:
    """The numbers of documents inserted, updated and deleted so far."""

    inserted: int
    updated: int
    deleted: int

    def __str__(self) -> str:
        return f"{self.inserted} inserted, {self.updated} updated, {self.deleted} deleted"


class Workload:
    """Writes random inserts, updates and deletes to `collections` from `start` until `stop`, or during a `with` block.

    A thread makes 20 writes, pauses for `pause_seconds`, and repeats this. `seed` determines the random values, but
    neither the `_id`s of new documents nor which existing documents are changed. An error ends the writing; then
    `check`, `stop` and the end of the block raise this error, unless the block already raises another one.
    """

    def __init__(
        self,
        collections: Sequence[AnyCollection],
        seed: int = 0,
        pause_seconds: float = PAUSE_SECONDS,
    ) -> None:
        self._targets = [_Target(collection) for collection in collections]
        self._random = Random(seed)
        self._pause_seconds = pause_seconds
        self._counts: Counter[str] = Counter()
        self._stopping = Event()
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="workload")
        self._running: Future[None] | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end()
        if error is None:
            self.check()

    @property
    def written(self) -> Written:
        counts = self._counts
        return Written(counts["insert"], counts["update"], counts["delete"])

    def start(self) -> None:
        self._running = self._executor.submit(self._run)

    def stop(self) -> Written:
        """Stop writing, and return the numbers of changed documents. Raises the error of a failed write."""
        self._end()
        self.check()
        return self.written

    def check(self) -> None:
        """Raise the error that ended the writing, if there was one."""
        if self._running is not None and self._running.done():
            self._running.result()

    def _end(self) -> None:
        self._stopping.set()
        self._executor.shutdown()

    def _run(self) -> None:
        for target in self._targets:
            target.learn_ids()
        while not self._stopping.wait(self._pause_seconds):
            self._burst()

    def _burst(self) -> None:
        for _ in range(OPERATIONS_A_BURST):
            target = self._random.choice(self._targets)
            kind = target.choose(self._random)
            self._counts[kind] += target.write(kind, self._random)


class _Target:
    """A collection, and the `_id`s of some of its documents, from which updates and deletes choose."""

    def __init__(self, collection: AnyCollection) -> None:
        self._collection = collection
        self._ids: list[Any] = []

    def learn_ids(self) -> None:
        sample: Document = {"$sample": {"size": IDS_KNOWN_AT_START}}
        ids = self._collection.aggregate([sample, {"$project": {"_id": True}}])
        self._ids += [document["_id"] for document in ids]

    def choose(self, random: Random) -> str:
        """Return a random kind for the next write; "insert" if no `_id` is known, because other kinds need an `_id`."""
        return random.choices(KINDS, WEIGHTS)[0] if self._ids else "insert"

    def write(self, kind: str, random: Random) -> int:
        """Run a random write of this kind, and return the number of documents that it changed (0 or 1).

        The result is 0 if the document no longer exists, or if the update changes nothing.
        """
        if kind == "insert":
            document = random_document(random)
            self._collection.insert_one(document)
            self._ids.append(document["_id"])
            return 1
        place = random.randrange(len(self._ids))
        if kind == "update":
            update = random.choice(UPDATES)(random)
            return self._collection.update_one({"_id": self._ids[place]}, update).modified_count
        self._ids[place], self._ids[-1] = self._ids[-1], self._ids[place]
        return self._collection.delete_one({"_id": self._ids.pop()}).deleted_count


def random_document(random: Random) -> Document:
    """Return a document with a subdocument and an array that the updates can change.

    The `_id` does not come from `random`. It differs between runs, and its place in the order of `_id` is random.
    """
    return {
        "_id": ObjectId(urandom(12)),
        "name": _text(random),
        "count": random.randrange(1000),
        "nested": {"score": random.random(), "deep": {"text": _text(random)}},
        "events": [_event(random) for _ in range(random.randrange(8))],
    }


def _text(random: Random) -> str:
    return "".join(random.choices(string.ascii_lowercase, k=random.randrange(1, 30)))


def _event(random: Random) -> Document:
    return {"at": random.randrange(10**9), "text": _text(random)}


def _count(random: Random) -> Update:
    return {"$inc": {"count": random.randrange(1, 9)}}


def _set_nested(random: Random) -> Update:
    return {"$set": {"nested.deep.text": _text(random), "nested.score": random.random()}}


def _set_new_field(random: Random) -> Update:
    return {"$set": {f"extra_{random.randrange(5)}": _text(random)}}


def _unset_field(random: Random) -> Update:
    return {"$unset": {f"extra_{random.randrange(5)}": ""}}


def _push(random: Random) -> Update:
    return {"$push": {"events": _event(random)}}


def _push_and_keep_first(random: Random) -> Update:
    return {"$push": {"events": {"$each": [_event(random)], "$slice": random.randrange(5)}}}


def _push_and_keep_last(random: Random) -> Update:
    return {"$push": {"events": {"$each": [_event(random)], "$slice": -random.randrange(1, 5)}}}


def _truncate_and_set(random: Random) -> Update:
    kept = {"$slice": [{"$ifNull": ["$events", []]}, random.randrange(1, 5)]}
    return [{"$set": {"events": kept, "nested.score": random.random()}}]


def _pop(random: Random) -> Update:
    return {"$pop": {"events": random.choice((1, -1))}}


def _rename(random: Random) -> Update:
    number = random.randrange(5)
    return {"$rename": {f"extra_{number}": f"extra_{(number + 1) % 5}"}}


UPDATES: tuple[Callable[[Random], Update], ...] = (
    _count,
    _set_nested,
    _set_new_field,
    _unset_field,
    _push,
    _push_and_keep_first,
    _push_and_keep_last,
    _truncate_and_set,
    _pop,
    _rename,
)
