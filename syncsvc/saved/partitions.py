"""The partitions of the copy of a sharded source: what each instance has claimed, and how far it is.

A partition is a range of a collection's `_id` index, or the whole of a small one. Several instances share them: what
one has claimed is its own until it is copied, also after a restart.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bson.binary import Binary
from bson.timestamp import Timestamp

from syncsvc.saved.batches import batches
from syncsvc.saved.emptying import delete_rows
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.run import METADATA_DATABASE, partitions_of
from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.newest import newest_time, read_after
from verifier.cluster.ranges import Range
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# For claims, which look for the largest that waits, and for whether one is left.
_INDEX = {"key": {"status": 1, "instance": 1, "total": -1, "_id": 1}, "name": "claims"}
# So many whole collections are claimed at once, of so many bytes together: each call takes its time.
_MOST_CLAIMED = 20
_MOST_BYTES = 16 << 20


@dataclass(frozen=True)
class Partition:
    """A part of the collection with that UUID; of each collection, they are numbered from 0 on.

    `total` and `copied` are in bytes, the total is an estimate; `documents` counts. `instance` is whose it is, None
    while nobody has claimed it. `resume_point` is the `_id` of the last document before which all is written,
    as a document of an `_id` alone; None is the beginning.
    """

    uuid: bytes
    number: int
    range: Range = Range()
    total: int = 0
    status: CopyStatus = CopyStatus.WAITING
    copied: int = 0
    documents: int = 0
    instance: str | None = None
    resume_point: bytes | None = None


@dataclass(frozen=True)
class Copied:
    """What all instances have copied of a collection: bytes and documents, and whether that is all of it."""

    bytes: int
    documents: int
    done: bool


def _identity(uuid: bytes, number: int) -> dict[str, Any]:
    return {"collection": Binary(uuid, 4), "number": number}


def _document(partition: Partition) -> dict[str, Any]:
    # Keys as bytes, since a document of the driver's does not hold every one as it is.
    return {
        "_id": _identity(partition.uuid, partition.number),
        "lower": partition.range.lower,
        "upper": partition.range.upper,
        "total": partition.total,
        "status": partition.status.value,
        "copied": partition.copied,
        "documents": partition.documents,
        "instance": partition.instance,
        "place": partition.resume_point,
    }


def _partition(document: dict[str, Any]) -> Partition:
    return Partition(
        uuid=bytes(document["_id"]["collection"]),
        number=document["_id"]["number"],
        range=Range(document["lower"], document["upper"]),
        total=document["total"],
        status=CopyStatus(document["status"]),
        copied=document["copied"],
        documents=document["documents"],
        instance=document["instance"],
        resume_point=document["place"],
    )


def _is_whole(document: dict[str, Any]) -> bool:
    return document["lower"] is None and document["upper"] is None


def _together(waiting: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The first partitions, as many as are claimed at once: a range alone, of whole collections several."""
    chosen: list[dict[str, Any]] = []
    size = 0
    for each in waiting:
        size += each["total"]
        if chosen and not (_is_whole(each) and _is_whole(chosen[0]) and size <= _MOST_BYTES):
            break
        chosen.append(each)
    return chosen


class Partitions:
    """The saved partitions of one direction of a sync. `instance` is the id of this process; many threads may claim.

    `writer` writes to the cluster that `client` reads. Raises the driver's errors.
    """

    def __init__(
        self, client: Client, writer: ClusterWriter, reversals: int, instance: str, stop: StopToken
    ) -> None:
        self._name = partitions_of(reversals)
        self._client = client
        self._collection = client[METADATA_DATABASE][self._name]
        self._writer = writer
        self._instance = instance
        self._stop = stop
        self._lock = threading.Lock()  # one claim at a time; guards _claimed
        self._client = client
        # All reads include what was saved before this process took over.
        self._since = newest_time(self._run, self._name)
        unfinished = {"instance": instance, "status": {"$ne": CopyStatus.DONE.value}}
        self._claimed = deque(map(_partition, self._find(unfinished)))

    def __iter__(self) -> Iterator[Partition]:
        """All, of every instance, as they are saved."""
        return map(_partition, self._find({}))

    def planned(self) -> set[bytes]:
        """The UUIDs of the collections that are planned."""
        return {bytes(each["_id"]["collection"]) for each in self._find({"_id.number": 0})}

    def plan(self, uuid: bytes, ranges: Sequence[Range], total: int = 0) -> None:
        """Let the collection, of about `total` bytes, be copied by these ranges; what is planned stays as it is."""
        if self._find({"_id": _identity(uuid, 0)}):
            return
        # Of another plan that was cut short; ranges of two plans would leave gaps.
        self.forget(uuid)
        self._create_index()
        size = total // len(ranges)
        planned = [Partition(uuid, number, each, size) for number, each in enumerate(ranges)]
        # The first one goes last: where it is, the plan is whole.
        self._insert([*planned[1:]])
        self._insert(planned[:1])

    def plan_whole(self, totals: Mapping[bytes, int]) -> None:
        """The same for many collections of about so many bytes, each in one range."""
        if totals:
            self._create_index()
            self._insert([Partition(uuid, 0, total=total) for uuid, total in totals.items()])

    def forget(self, uuid: bytes) -> None:
        """Let the collection be planned anew."""
        query = {"_id.collection": Binary(uuid, 4)}
        delete_rows(self._client, self._writer, self._name, query, self._stop)

    def claim(self) -> Partition | None:
        """One to copy, which nobody else will copy, the largest first; None where none is left.

        Those that this instance had claimed before it was started again come first.
        """
        with self._lock:
            if not self._claimed:
                self._claimed.extend(self._newly_claimed())
            return self._claimed.popleft() if self._claimed else None

    def save(self, partition: Partition) -> None:
        document = _document(partition)
        # What is done stays done, whatever a process saves that was superseded meanwhile.
        unfinished = {"_id": document["_id"], "status": {"$ne": CopyStatus.DONE.value}}
        statement = {"q": unfinished, "u": document}
        self._run({"update": self._name, "updates": [statement]})

    def all_done(self) -> bool:
        """Whether what is planned is copied, by whomever."""
        left = {"$in": [each.value for each in CopyStatus if each is not CopyStatus.DONE]}
        return not self._find({"status": left}, 1)

    def copied(self) -> dict[bytes, Copied]:
        """What is copied of each collection that is planned."""
        group = {
            "_id": "$_id.collection",
            "copied": {"$sum": "$copied"},
            "documents": {"$sum": "$documents"},
            "left": {"$sum": {"$toInt": {"$ne": ["$status", CopyStatus.DONE.value]}}},
        }
        rows = read(
            lambda: list(self._collection.aggregate([{"$group": group}])),
            self._stop,
        )
        return {
            bytes(each["_id"]): Copied(each["copied"], each["documents"], not each["left"])
            for each in rows
        }

    def _newly_claimed(self) -> list[Partition]:
        free = {"status": CopyStatus.WAITING.value, "instance": None}
        while waiting := _together(self._find(free, _MOST_CLAIMED)):
            ids = [each["_id"] for each in waiting]
            ours = {"$set": {"instance": self._instance}}
            # Repeated after a lost answer, they change nothing: whose they are is read after them.
            statements = [{"q": {"_id": each, **free}, "u": ours} for each in ids]
            time = self._run({"update": self._name, "updates": statements})["operationTime"]
            # An older state would hide these claims, and no other process would copy them.
            query = {"_id": {"$in": ids}, "instance": self._instance}
            claimed = self._find(query, since=time)
            if claimed:
                return [_partition(each) for each in claimed]
        return []

    def _find(
        self, query: dict[str, Any], limit: int = 0, since: Timestamp | None = None
    ) -> list[dict[str, Any]]:
        """Return saved partitions, the largest first, with all writes up to `since`."""
        find = {"filter": query, "sort": {"total": -1, "_id": 1}, "limit": limit}
        time = since or self._since

        documents = read(
            lambda: read_after(time, self._client, METADATA_DATABASE, self._name, **find),
            self._stop,
        )
        return [*map(rawbson.decode, documents)]

    def _create_index(self) -> None:
        self._run({"createIndexes": self._name, "indexes": [_INDEX]})

    def _insert(self, partitions: Sequence[Partition]) -> None:
        for documents in batches(map(_document, partitions)):
            # As upserts that change nothing of what is there: a command may be repeated after a lost answer.
            statements = [
                {"q": {"_id": each["_id"]}, "u": {"$setOnInsert": each}, "upsert": True}
                for each in documents
            ]
            self._run({"update": self._name, "updates": statements})

    def _run(self, command: dict[str, Any]) -> dict[str, Any]:
        reply = self._writer.run(METADATA_DATABASE, command)
        if reply.get("writeErrors"):
            raise RuntimeError(f"the partitions cannot be saved: {reply['writeErrors']}")
        return reply
