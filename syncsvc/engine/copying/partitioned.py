"""Divides a sharded source into partitions, claims them for this instance, and adds up what all instances have copied.

Several readers can read one large collection, and several instances share all collections. The router merges the
documents of all shards in `_id` order. Natural order is used for capped collections only, because routers offer no
resume point in it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from dataclasses import replace

from bson.timestamp import Timestamp

from syncsvc.engine.copying.portion import PortionCopy
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import DUPLICATE_IDS
from syncsvc.saved.partitions import Partition
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.source.equal_ids import EqualIds, refuse_equal
from syncsvc.source.natural_scan import NaturalScan
from syncsvc.source.range_scan import RangeScan
from verifier.cluster.keys import shown
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Range, split
from verifier.cluster.renamed import CollectionGone
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


def plan_copy(context: RunContext, stop: StopToken) -> None:
    """Divide each collection that is not copied yet into partitions, and save them; existing plans are kept.

    A small or capped collection becomes one partition. No-op if the source is a replica set, whose collections are
    copied as a whole.
    """
    if not context.source_facts.is_sharded:
        return
    planned = context.partitions.planned()
    left = [
        each
        for each in context.registry
        if each.status is not CopyStatus.DONE and each.uuid not in planned
    ]
    large = [
        each
        for each in left
        if each.total > context.tuning.partition_bytes and not each.definition.capped
    ]
    for record in large:
        context.partitions.plan(record.uuid, _ranges(context, record, stop), record.total)
    cut = {each.uuid for each in large}
    context.partitions.plan_whole({each.uuid: each.total for each in left if each.uuid not in cut})


def _ranges(context: RunContext, record: CollectionRecord, stop: StopToken) -> list[Range]:
    try:
        return split(
            context.source_client,
            record.source_storage,
            record.total_documents,
            record.total,
            context.tuning.partition_bytes,
            stop,
            context.source_uuid(record),
        )
    except CollectionGone:
        return [Range()]


def settle(context: RunContext) -> None:
    """Save the copied documents and bytes of each collection, and mark the collection done if it is copied completely.

    The figures are sums over all instances. No-op for collections that are already done or have no plan.
    """
    copied = context.partitions.copied()
    changed, done = [], []
    for record in context.registry:
        now = copied.get(record.uuid)
        if now is None or record.status is CopyStatus.DONE:
            continue
        if now.done:
            done.append(record)
        status = CopyStatus.DONE if now.done else record.status
        saved = {"status": status, "copied": now.bytes, "documents": now.documents}
        changed.append((record, saved))
    context.registry.change_all(changed)
    for record in done:
        context.observe(Point.COLLECTION_COPIED, str(record.namespace))


def settle_often(context: RunContext, stop: StopToken) -> None:
    """Run `settle` periodically until stopped. Only one instance may do so."""
    while True:
        settle(context)
        stop.sleep(context.tuning.settle_interval)


class ClaimedPartitions:
    """Claims the partitions that are left, one after the other, and yields a PartitionCopy of each.

    Several threads may iterate at once; each partition goes to one of them. A partition whose collection is no longer
    synced is marked as done. All reads see the source at the source time `not_before` or later.
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


class PartitionCopy(PortionCopy[bytes | None]):
    """The copy of one partition. Its resume point is a document with only an `_id`; None for a capped collection."""

    def __init__(
        self,
        context: RunContext,
        record: CollectionRecord,
        partition: Partition,
        not_before: Timestamp,
        stop: StopToken,
    ) -> None:
        if partition.resume_point is None:
            # Without a resume point, it is read from the beginning again.
            partition = replace(partition, copied=0, documents=0)
        super().__init__(
            record,
            partition.resume_point,
            partition.copied,
            partition.documents,
            context.tuning.copy_save_interval,
        )
        self._context = context
        self._partition = partition
        self._not_before = not_before
        self._stop = stop

    def pages(self) -> Iterator[tuple[Sequence[memoryview], bytes | None]]:
        """Return the remaining pages; see `PortionCopy.pages`. Also raises OperationError DuplicateIds."""
        return self._in_natural_order() if self.record.definition.capped else self._by_id()

    def _in_natural_order(self) -> Iterator[tuple[Sequence[memoryview], None]]:
        source, uuid = self._context.source_client, self._context.source_uuid(self.record)
        storage = self.record.source_storage
        size = self._context.tuning.page_bytes
        scan = NaturalScan(source, storage, uuid, self._not_before, None, self._stop, size)
        return ((page.documents(), None) for page, _ in scan.pages())

    def _by_id(self) -> Iterator[tuple[Sequence[memoryview], bytes | None]]:
        scan = RangeScan(
            self._context.source_client,
            self.record.source_storage,
            self._context.source_uuid(self.record),
            self._partition.range,
            self._not_before,
            self._partition.resume_point,
            self._stop,
            # Within one shard, the index on _id prevents duplicates.
            self._refuse_equal if self.record.definition.sharded else None,
            self._context.tuning.page_bytes,
        )
        return scan.pages()

    def _refuse_equal(self, namespace: Namespace, keys: Sequence[bytes]) -> None:
        definition = self.record.definition
        collation = definition.options["collation"] if definition.collated else None
        uuid = self._context.source_uuid(self.record)
        try:
            refuse_equal(self._context.source_client, namespace, uuid, collation, keys, self._stop)
        except EqualIds as error:
            raise OperationError(
                DUPLICATE_IDS,
                f"{namespace} holds several documents with _id {shown(error.key)}, "
                "each on a different shard.",
            ) from error

    def keep(
        self, status: CopyStatus, resume_point: bytes | None, copied: int, documents: int
    ) -> None:
        done = status is CopyStatus.DONE
        self._context.partitions.save(
            replace(
                self._partition,
                status=status,
                resume_point=None if done else resume_point,
                copied=copied,
                documents=documents,
            )
        )
        point = Point.PARTITION_COPIED if done else Point.COPY_SAVED
        self._context.observe(point, str(self.record.namespace))
