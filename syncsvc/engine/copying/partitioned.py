"""Divides collections into partitions, claims partitions for this instance, and sums up the progress of all instances.

Several readers can read one divided collection. After a failover or the loss of a resume point, each of them reads at
most one range again, not the whole collection. If several instances run the sync, they share all partitions.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace
from time import monotonic
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.engine.copying.partition_copy import PartitionCopy
from syncsvc.engine.definitions.source_lookup import reading_by_name
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import CopiedAmount
from syncsvc.saved.partitions import Copied, Partition
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.saved.run import RunRecord
from verifier.cluster.inventory import Size, extent
from verifier.cluster.ranges import Range, range_bytes, split
from verifier.cluster.reading import read
from verifier.cluster.renamed import CollectionGone
from verifier.runtime.tasks import StopToken, for_each

# The pause between two calls of `settle`, as a multiple of the duration of the first call; and the longest pause that
# results from this, in seconds.
_PAUSES = 20
_LONGEST_PAUSE = 60.0


def plan_copy(context: RunContext, stop: StopToken) -> None:
    """Divide each collection that is not copied yet into partitions, and save the partitions.

    Large collections are divided into ranges of `_id`. Small and capped collections, and a few others, become one
    partition (see `_is_divided`). Collections whose partitions are already saved are left unchanged.
    """
    planned = context.partitions.planned()
    left = [
        each
        for each in context.registry
        if each.status is not CopyStatus.DONE and each.uuid not in planned
    ]
    scanned = {each.uuid: _to_scan(context, each, stop) for each in left}
    divided = [each for each in left if _is_divided(context, each, scanned[each.uuid])]

    def plan(record: CollectionRecord, stop: StopToken) -> None:
        ranges = _ranges(context, record, scanned[record.uuid], stop)
        context.partitions.plan(record.uuid, ranges, record.total, record.definition.namespace)

    for_each("plan", divided, plan, context.load.readers, stop)
    uuids = {each.uuid for each in divided}
    context.partitions.plan_whole([_whole(each) for each in left if each.uuid not in uuids])


def _to_scan(context: RunContext, record: CollectionRecord, stop: StopToken) -> Size:
    """Return how many documents and bytes must be read to copy a collection.

    With a document filter, this can be more than the amount to copy.
    """
    if record.source_name not in context.document_filters:
        return Size(record.total_documents, record.total)
    return read(lambda: extent(context.source_client, record.source_storage), stop)


def _is_divided(context: RunContext, record: CollectionRecord, scanned: Size) -> bool:
    """Return whether a collection is copied in ranges of `_id`; if not, it is one partition.

    `scanned` is the amount to read, which can exceed the amount to copy if the collection has a document filter. Ranges
    then also limit how long the source searches for the next matching document in a single call.

    Small collections (up to `partition_bytes`) and capped collections are one partition. Two other kinds of collections
    of a replica set are one partition, too: those that the option `copyInNaturalOrder` names, and those whose copy an
    earlier version of syncsvc began in natural order.
    """
    if scanned.bytes <= context.tuning.partition_bytes or record.definition.capped:
        return False
    if context.source_facts.is_sharded:
        return True
    named = context.run.record.in_natural_order(record.source_name)
    return record.status is CopyStatus.WAITING and not named


def _whole(record: CollectionRecord) -> Partition:
    """Return a single partition for a collection that is not divided.

    If an earlier version of syncsvc has begun to copy the collection, the partition continues that copy: it has the
    copy's resume point, and its numbers of bytes and documents.
    """
    return Partition(
        record.uuid,
        0,
        total=record.total,
        copied=record.copied,
        documents=record.documents,
        resume_point=record.resume_point,
        namespace=record.definition.namespace,
    )


def _ranges(
    context: RunContext, record: CollectionRecord, scanned: Size, stop: StopToken
) -> list[Range]:
    try:
        with reading_by_name(context, record, stop):
            return split(
                context.source_client,
                record.source_storage,
                scanned.documents,
                scanned.bytes,
                _bytes_a_range(context, scanned.bytes),
                stop,
                context.source_uuid(record),
                max(1, len(context.source_facts.shards)),
            )
    except CollectionGone:
        return [Range()]


def _bytes_a_range(context: RunContext, total: int) -> int:
    """Return the size in bytes of the ranges of a collection of `total` bytes; at most half of `total`."""
    # On a replica set, a single range would be read in natural order.
    most = min(context.tuning.partition_bytes, total // 2)
    return range_bytes(total, context.threads.readers, most)


def settle(context: RunContext) -> None:
    """Save how many documents and bytes of each collection all instances have copied, and which collections are done.

    Collections that are already done, or whose partitions are not planned yet, are skipped. If several instances share
    the sync, the total amount that they have copied is also published in the progress.
    """
    copied = context.partitions.copied()
    changes = []
    for record in context.registry:
        if record.status is CopyStatus.DONE or record.uuid not in copied:
            continue
        new = _progress(copied[record.uuid])
        # Save only what has changed: thousands of collections may still wait to be copied.
        if any(getattr(record, name) != value for name, value in new.items()):
            changes.append((record, new))
    context.registry.change_all(changes)
    context.progress.set(copied_in_all=copied_in_all(context.run.record, [*context.registry]))
    for record, new in changes:
        if new["status"] is CopyStatus.DONE:
            context.observe(Point.COLLECTION_COPIED, str(record.namespace))


def copied_in_all(run: RunRecord, records: Sequence[CollectionRecord]) -> CopiedAmount | None:
    """Return the amount that all instances together have copied, according to `records`; None if it is unknown.

    `run` is the run record of this instance. Only the coordinator updates the records of the collections during the
    copy, so the other instances know the amount only afterwards. Also return None if the instance runs alone or the
    sync was reversed, because the instance's own amount is then the whole amount.
    """
    if not run.instances or run.reversals or not (run.coordinates or run.all_copied):
        return None
    return amount_of(records)


def amount_of(records: Sequence[CollectionRecord]) -> CopiedAmount:
    """Return the sums of the copied bytes and documents in `records`."""
    return CopiedAmount(
        sum(each.copied for each in records), sum(each.documents for each in records)
    )


def _progress(copied: Copied) -> dict[str, Any]:
    """Return the new values of the fields of a CollectionRecord that show the progress of its copy."""
    begun = CopyStatus.COPYING if copied.bytes else CopyStatus.WAITING
    status = CopyStatus.DONE if copied.done else begun
    return {"status": status, "copied": copied.bytes, "documents": copied.documents}


def settle_often(context: RunContext, stop: StopToken) -> None:
    """Save the progress that all instances have made in the copy (see `settle`), periodically until stopped.

    The more partitions there are, the longer the server takes to add up their progress. The pauses grow with this
    time, so that the destination spends little of its time on it. Only one instance may call this function.
    """
    while True:
        begun = monotonic()
        settle(context)
        pause = min(_LONGEST_PAUSE, _PAUSES * (monotonic() - begun))
        stop.sleep(max(context.tuning.settle_interval, pause))


class ClaimedPartitions:
    """An iterable that claims the partitions that are left, one by one, and yields a PartitionCopy for each of them.

    Several threads may iterate at once; each partition goes to one thread. A partition whose collection is no longer
    synced is marked as done. All reads see the source at the cluster time `not_before` or later.
    """

    def __init__(self, context: RunContext, not_before: Timestamp, stop: StopToken) -> None:
        self._context = context
        self._not_before = not_before
        self._stop = stop
        self._lock = threading.Lock()  # guards _begun
        self._begun: set[bytes] = set()

    def __iter__(self) -> Iterator[PartitionCopy]:
        while (partition := self._context.partitions.claim()) is not None:
            record = self._context.registry.get(partition.uuid)
            if record is None:
                # The collection is no longer synced.
                self._context.partitions.save(replace(partition, status=CopyStatus.DONE))
                continue
            with self._lock:
                first = partition.uuid not in self._begun
                self._begun.add(partition.uuid)
            if first:
                self._context.progress.collections.reading(partition.uuid)
            yield PartitionCopy(self._context, record, partition, self._not_before, self._stop)
