"""Saves the partitions of the copy: the instance that has claimed each partition, and the progress of each.

A partition is a range of a collection's `_id` index, or a whole collection. If several instances run the sync, they
share its partitions. A claimed partition belongs to its instance until it is copied, even after a restart.

The saved partitions also have the fields that dashboards for mongosync read in the collection `partitions`. These
fields are never read here.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from bson.binary import Binary

from syncsvc.metadata import Metadata
from syncsvc.saved.registry import CopyStatus
from syncsvc.saved.rows import Rows
from syncsvc.source.natural_scan import ResumePoint
from verifier.cluster import rawbson
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Range
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The metadata collections of the two directions, by the number of reversals modulo 2.
_PARTITIONS = ("partitions", "partitionsReversed")
# The index for claims, which look for the largest unclaimed partition, and for the check whether any partition is left.
_INDEX = {"key": {"status": 1, "instance": 1, "total": -1, "_id": 1}, "name": "claims"}
# The maximum number of partitions that one call claims; and, if several instances run the sync, the maximum total size
# in bytes of several partitions claimed together. Claiming many at once saves round trips.
_MOST_CLAIMED = 20
_MOST_BYTES = 16 << 20

# A resume point in `_id` order is a document with only an `_id`; one in natural order is a ResumePoint.
Resume = bytes | ResumePoint

# The statuses of a partition under the names that dashboards for mongosync expect.
_SHOWN = {
    CopyStatus.WAITING: "not started",
    CopyStatus.COPYING: "in progress",
    CopyStatus.DONE: "done",
}


def partitions_of(reversals: int) -> str:
    """Return the name of the metadata collection for the partitions of a sync that was reversed `reversals` times."""
    return _PARTITIONS[reversals % len(_PARTITIONS)]


@dataclass(frozen=True)
class Partition:
    """A part of a collection: a range of its `_id` index, or the whole collection."""

    # The UUID of the collection, and the number of the partition in the collection, from 0.
    uuid: bytes
    number: int
    range: Range = Range()
    # The estimated size in bytes.
    total: int = 0
    status: CopyStatus = CopyStatus.WAITING
    # The numbers of bytes and documents copied.
    copied: int = 0
    documents: int = 0
    # The ID of the instance that has claimed the partition; None if it is free.
    instance: str | None = None
    # Everything up to this point is written to the destination; None before the first document.
    resume_point: Resume | None = None
    # The name of the collection on the destination, for dashboards; None in partitions that were loaded.
    namespace: Namespace | None = None

    @property
    def is_whole(self) -> bool:
        """Return whether the partition is the whole collection."""
        return self.range == Range()


@dataclass(frozen=True)
class Copied:
    """The progress of the copy of one collection: of all its partitions, or of those that one instance has claimed.

    `bytes` and `documents` are the copied amounts, and `done` is whether all of these partitions are copied.
    """

    bytes: int
    documents: int
    done: bool


def _identity(uuid: bytes, number: int) -> dict[str, Any]:
    return {"collection": Binary(uuid, 4), "number": number}


def _document(partition: Partition) -> dict[str, Any]:
    resume = partition.resume_point
    # Bounds and resume points are saved as bytes, because the driver changes or refuses some `_id`s when it decodes.
    return {
        **_for_dashboards(partition),
        "_id": _identity(partition.uuid, partition.number),
        "lower": partition.range.lower,
        "upper": partition.range.upper,
        "total": partition.total,
        "status": partition.status.value,
        "copied": partition.copied,
        "documents": partition.documents,
        "instance": partition.instance,
        "place": asdict(resume) if isinstance(resume, ResumePoint) else resume,
    }


def _for_dashboards(partition: Partition) -> dict[str, Any]:
    done = partition.status is CopyStatus.DONE
    total = partition.copied if done else max(partition.total, partition.copied)
    shown = {
        "partitionPhase": _SHOWN[partition.status],
        "copiedByteCount": partition.copied,
        "totalByteCount": total,
    }
    name = partition.namespace
    if name is None:
        return shown
    return {**shown, "namespace": {"db": name.database, "coll": name.collection}}


def _partition(document: dict[str, Any]) -> Partition:
    saved = document["place"]
    return Partition(
        uuid=bytes(document["_id"]["collection"]),
        number=document["_id"]["number"],
        range=Range(document["lower"], document["upper"]),
        total=document["total"],
        status=CopyStatus(document["status"]),
        copied=document["copied"],
        documents=document["documents"],
        instance=document["instance"],
        resume_point=ResumePoint(**saved) if isinstance(saved, dict) else saved,
    )


def _is_whole(document: dict[str, Any]) -> bool:
    return document["lower"] is None and document["upper"] is None


def _together(waiting: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the first partitions of `waiting` that an instance may claim at once, if several instances run the sync.

    The result is either a single range, or whole collections with a total size of at most `_MOST_BYTES`. The first
    collection may be larger than that; then the result contains only this collection.
    """
    chosen: list[dict[str, Any]] = []
    size = 0
    for each in waiting:
        size += each["total"]
        if chosen and not (_is_whole(each) and _is_whole(chosen[0]) and size <= _MOST_BYTES):
            break
        chosen.append(each)
    return chosen


class Partitions:
    """The saved partitions of a sync. Several threads may plan, claim and save partitions at the same time.

    `reversals` is the number of reversals so far: each direction has its own partitions. `instance` is the ID of this
    instance, and `alone` is whether no other instance takes part. `writer` writes to the cluster of `metadata`. The
    constructor loads the unfinished claims of the instance. The constructor and every method raise the errors of
    `Rows`.
    """

    def __init__(
        self,
        metadata: Metadata,
        writer: ClusterWriter,
        reversals: int,
        instance: str,
        alone: bool,
        stop: StopToken,
    ) -> None:
        self._rows = Rows(metadata, writer, partitions_of(reversals), stop)
        self._instance = instance
        self._alone = alone
        self._lock = threading.Lock()  # one claim at a time; guards the claims
        self._none_free = False
        # `_find` reads the partitions at this cluster time or later: after all saves from before this process took
        # over, and after the partitions that it has inserted or claimed. Right after an election, an older state could
        # show no free partitions, and the copy would end without them.
        self._since = self._rows.newest_time()
        unfinished = {"instance": instance, "status": {"$ne": CopyStatus.DONE.value}}
        self._claimed = deque(map(_partition, self._find(unfinished)))

    def planned(self) -> set[bytes]:
        """Return the UUIDs of the collections for which all partitions have been saved."""
        return {bytes(each["_id"]["collection"]) for each in self._find({"_id.number": 0})}

    def plan(
        self,
        uuid: bytes,
        ranges: Sequence[Range],
        total: int = 0,
        namespace: Namespace | None = None,
    ) -> None:
        """Save one partition for each range of a collection; a no-op if all its partitions are saved.

        `uuid` identifies the collection, `total` is its approximate size in bytes, and `namespace` is its name on the
        destination, for dashboards.
        """
        if self._find({"_id": _identity(uuid, 0)}):
            return
        # Remove the partitions that an interrupted call has saved: mixing the ranges of two calls would leave gaps.
        self.forget(uuid)
        self._create_index()
        size = total // len(ranges)
        planned = [
            Partition(uuid, number, each, size, namespace=namespace)
            for number, each in enumerate(ranges)
        ]
        # The first partition is inserted last: if it exists, the plan is complete.
        self._insert([*planned[1:]])
        self._insert(planned[:1])

    def plan_whole(self, partitions: Sequence[Partition]) -> None:
        """Save these partitions, each of which is a whole collection. Partitions already saved are left as they are."""
        if partitions:
            self._create_index()
            self._insert(partitions)

    def forget(self, uuid: bytes) -> None:
        """Delete all partitions of a collection, so that the collection can be planned again.

        This instance also forgets the partitions of the collection that it has claimed.
        """
        # The first partition marks the plan as complete. Delete it first, so that an interrupted deletion leaves no
        # plan that counts as complete.
        self._rows.delete([_identity(uuid, 0)])
        self._rows.delete_all({"_id.collection": Binary(uuid, 4)})
        # Claims from before a restart have resume points, and perhaps other bounds than the new plan.
        with self._lock:
            self._claimed = deque(each for each in self._claimed if each.uuid != uuid)

    def claim(self) -> Partition | None:
        """Claim a free partition for this instance, and return it; None if none is left.

        Partitions that this instance has already claimed, before a restart or in advance, are returned first. Free
        partitions are claimed in the order of their size, the largest first.
        """
        with self._lock:
            self._claim_some()
            return self._claimed.popleft() if self._claimed else None

    def claim_ahead(self) -> None:
        """Claim free partitions for this instance in advance, for later calls of `claim`.

        This is a no-op if partitions that were claimed in advance are left.
        """
        with self._lock:
            self._claim_some()

    def save(self, partition: Partition) -> None:
        document = _document(partition)
        # A finished partition stays finished, even if a superseded process saves it later.
        unfinished = {"_id": document["_id"], "status": {"$ne": CopyStatus.DONE.value}}
        # Do not replace the saved document, because that would remove the namespace.
        statement = {"q": unfinished, "u": {"$set": document}}
        self._rows.run({"update": self._rows.name, "updates": [statement]})

    def all_done(self) -> bool:
        """Return whether all planned partitions are copied, by any instance."""
        left = {"$in": [each.value for each in CopyStatus if each is not CopyStatus.DONE]}
        return not self._find({"status": left}, 1)

    def copied(self, instance: str | None = None) -> dict[bytes, Copied]:
        """Return the copied amounts of the collections that have partitions, by UUID.

        If `instance` is not None, count only the partitions that this instance has claimed, and leave out collections
        without such a partition.
        """
        # The server adds up the amounts: the partitions of tens of terabytes would take more than a gigabyte of memory.
        match = {} if instance is None else {"instance": instance}
        group = {
            "_id": "$_id.collection",
            "copied": {"$sum": "$copied"},
            "documents": {"$sum": "$documents"},
            "left": {"$sum": {"$toInt": {"$ne": ["$status", CopyStatus.DONE.value]}}},
        }
        # Read the newest state, not that at `_since`: other instances have saved their progress since then.
        found = self._rows.aggregate([{"$match": match}, {"$group": group}])
        return {
            bytes(each["_id"]): Copied(each["copied"], each["documents"], not each["left"])
            for each in map(rawbson.decode, found)
        }

    def _claim_some(self) -> None:
        if self._claimed or self._none_free:
            return
        self._claimed.extend(self._newly_claimed())
        # Only `plan` and `plan_whole` add free partitions.
        self._none_free = not self._claimed

    def _newly_claimed(self) -> list[Partition]:
        free = {"status": CopyStatus.WAITING.value, "instance": None}
        while waiting := self._share(self._find(free, _MOST_CLAIMED)):
            ids = [each["_id"] for each in waiting]
            ours = {"$set": {"instance": self._instance}}
            statements = [{"q": {"_id": each, **free}, "u": ours} for each in ids]
            command = {"update": self._rows.name, "updates": statements}
            reply, time = self._rows.run_timed(command)
            self._since = max(self._since, time)
            if reply["n"] == len(ids):
                return [_partition({**each, "instance": self._instance}) for each in waiting]
            # Another instance has claimed some, or this was a retry after a lost reply, which changes nothing.
            query = {"_id": {"$in": ids}, "instance": self._instance}
            claimed = self._find(query)
            if claimed:
                return [_partition(each) for each in claimed]
        return []

    def _share(self, waiting: Sequence[dict[str, Any]]) -> Sequence[dict[str, Any]]:
        return waiting if self._alone else _together(waiting)

    def _find(self, query: dict[str, Any], limit: int = 0) -> list[dict[str, Any]]:
        """Return at most `limit` saved partitions that match the query, the largest first; all if `limit` is 0."""
        find = {"filter": query, "sort": {"total": -1, "_id": 1}, "limit": limit}
        return [*map(rawbson.decode, self._rows.at(self._since, **find))]

    def _create_index(self) -> None:
        self._rows.run({"createIndexes": self._rows.name, "indexes": [_INDEX]})

    def _insert(self, partitions: Sequence[Partition]) -> None:
        # The upserts must not change an existing row, because a command may be retried after a lost reply.
        statements = (
            {"q": {"_id": each["_id"]}, "u": {"$setOnInsert": each}, "upsert": True}
            for each in map(_document, partitions)
        )
        time = self._rows.save(statements)
        with self._lock:
            self._since = max(self._since, time or self._since)
            # A claim that began before the insert may have found no free partition.
            self._none_free = False
