"""Copies the documents of all collections.

Reader threads scan the source, and pass pages (the documents of one reply) through a queue of limited size to writer
threads, which insert them on the destination.

Documents are never decoded, and pages are rarely split: a page is usually sent on as raw bytes in one insert command. A
document that is copied again after a restart already exists on the destination, and usually stays unchanged. The change
events of a collection are applied only after its copy, so the copy never meets a newer document.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from bson.timestamp import Timestamp

from syncsvc.engine.copying.partition_copy import PartitionCopy, ReadPage
from syncsvc.engine.copying.partitioned import ClaimedPartitions, settle, settle_often
from syncsvc.engine.documents.overwriting import overwrite
from syncsvc.engine.documents.translate import not_insertable, whole
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.document_writer import already_exists
from syncsvc.engine.run.points import Point
from syncsvc.errors import DOCUMENT_NOT_COPIED
from syncsvc.figures.durations import Operation, timed
from syncsvc.saved.partitions import Resume
from syncsvc.saved.registry import CollectionRecord
from syncsvc.tuning import Tuning
from verifier.cluster.block import Block
from verifier.cluster.keys import shown
from verifier.cluster.note import append_note
from verifier.cluster.renamed import CollectionGone
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import SLOW_POLL, Budget, Channel, StopToken, TaskGroup, wait_until

# The documents of a page, and the resume point after it; None if the scan has none yet.
Page = tuple[Block, Resume | None]


class Batch(NamedTuple):
    """A page of documents of one collection, passed from a reader to a writer."""

    copy: PartitionCopy
    # The page as registered by `PartitionCopy.enter`, to pass to `PartitionCopy.written`.
    page: ReadPage
    documents: Block


class _Pages:
    """The queue of pages from readers to writers, and the budgets for the memory that pages take, in bytes.

    `reading` is for pages that are being read, and `unwritten` for those that were passed to the writer threads.
    """

    def __init__(self, tuning: Tuning, stop: StopToken) -> None:
        self.reading = Budget(tuning.reading_bytes, stop)
        self.unwritten = Budget(tuning.pages_bytes, stop)
        # Practically unlimited, because the budget `unwritten` limits the waiting pages.
        self.batches: Channel[Batch] = Channel(1 << 40, stop)


class Copier:
    """Copies the partitions that this instance can claim."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop

    def run(self, not_before: Timestamp) -> None:
        """Copy the documents of partitions until no partition is left to claim, and save the progress.

        All reads see the source at the cluster time `not_before` or later. Raises OperationError DocumentNotCopied,
        DuplicateIds, DocumentFilterFailed and DestinationNamespaceExists, EventNotApplicable if a sharded collection
        refuses a deletion, and the driver's errors.
        """
        threads = self._context.threads
        with TaskGroup("copy", self._stop) as group:
            pages = _Pages(self._context.tuning, group.stop)
            for number in range(threads.writers):
                group.spawn(f"write-{number}", self._write_all, pages, group.stop)
            with TaskGroup("copy", group.stop) as readers:
                left = ClaimedPartitions(self._context, not_before, readers.stop)
                for number in range(threads.readers):
                    readers.spawn(f"read-{number}", self._read_all, left, pages, readers.stop)
            pages.batches.close()

    def _read_all(self, left: ClaimedPartitions, pages: _Pages, stop: StopToken) -> None:
        for copy in left:
            try:
                self._read(copy, pages, stop)
            except CollectionGone:
                # The collection was dropped; or it was renamed, and the source is older than 6.0. The DDL event comes
                # later, and removes the copied documents.
                pass
            copy.all_read()

    def _read(self, copy: PartitionCopy, pages: _Pages, stop: StopToken) -> None:
        unread = timed(copy.pages())
        size: int | None = 0
        while size is not None:
            with pages.reading.hold(max(size, self._context.tuning.page_bytes)):
                size = self._read_next(copy, unread, pages, stop)

    def _read_next(
        self,
        copy: PartitionCopy,
        unread: Iterator[tuple[Page, float]],
        pages: _Pages,
        stop: StopToken,
    ) -> int | None:
        """Read the next page of `unread` and pass it to the writers; return its size in bytes, None if no page is left.

        A page of a capped collection is written by this thread itself, because the order of inserts must be kept.
        `unread` yields each page with the seconds that its read took. This thread keeps no reference to the page, so
        that the memory of the page is freed when the page is written.
        """
        with self._context.pace.working(stop):
            page = next(unread, None)
        if page is None:
            return None
        (block, resume_point), seconds = page
        self._context.progress.stopwatch.note(Operation.COPY_READ, seconds)
        batch = Batch(copy, copy.enter(resume_point), block)
        size = len(block.raw)
        if copy.record.definition.capped:
            self._write(batch, stop)
        else:
            pages.unwritten.take(size)
            pages.batches.put(batch, size)
        return size

    def _write_all(self, pages: _Pages, stop: StopToken) -> None:
        while (size := self._write_next(pages.batches, stop)) is not None:
            pages.unwritten.give_back(size)

    def _write_next(self, batches: Channel[Batch], stop: StopToken) -> int | None:
        """Write a page, drop all references to it, and return its size in bytes; None if no page is left."""
        batch = batches.take()
        if batch is None:
            return None
        self._write(batch, stop)
        return len(batch.documents.raw)

    def _write(self, batch: Batch, stop: StopToken) -> None:
        for portion in self._context.pace.portions(batch.documents):
            self._write_portion(batch.copy.record, portion, stop)
        batch.copy.written(batch.page, batch.documents.count, len(batch.documents.raw))

    def _write_portion(self, record: CollectionRecord, block: Block, stop: StopToken) -> None:
        progress, pace = self._context.progress, self._context.pace
        size = len(block.raw)
        pace.admit_copy(block.count, size, stop)
        if block.count:
            with pace.working(stop), progress.stopwatch.timing(Operation.COPY_WRITE):
                self._insert(record, block)
        self._context.observe(Point.BATCH_WRITTEN, str(record.namespace))
        progress.add(copied_documents=block.count, copied_bytes=size, documents_copied=block.count)
        progress.collections.copied(record.uuid, block.count, size)

    def _insert(self, record: CollectionRecord, block: Block) -> None:
        """Insert the documents of `block`; upsert the refused ones, except those that certainly are copied already.

        Documents that an insert would alter or could not write (see `not_insertable`) are upserted, too. An insert
        leaves a document that was copied before unchanged. An upsert may replace such a document, which is correct,
        because no change event of the collection was applied yet. Raises OperationError, such as DocumentNotCopied, and
        the driver's errors.
        """
        special = not_insertable(block)
        if special and record.definition.capped:
            # Upsert all of them, or they would lose their order.
            self._upsert(record, block.documents())
            return
        if special:
            documents = block.documents()
            self._upsert(record, [documents[n] for n in sorted(special)])
            block = Block.of(each for n, each in enumerate(documents) if n not in special)
        if block.count:
            errors = self._context.document_writer.insert(record.namespace, block.raw)
            refused = [each["index"] for each in errors if not _is_copied(record, each)]
            self._context.progress.add(documents_copied_again=len(errors) - len(refused))
            if refused:
                documents = block.documents()
                self._upsert(record, [documents[n] for n in refused])

    def _upsert(self, record: CollectionRecord, documents: Sequence[memoryview]) -> None:
        outcomes = [*map(whole, documents)]
        left, error = overwrite(self._context, record, outcomes, True, self._stop)
        if left:
            raise OperationError(
                DOCUMENT_NOT_COPIED,
                f"The destination refused the document with _id {shown(left[0].key)} of {record.namespace}: {error}.",
            )


def copy_all(context: RunContext, stop: StopToken) -> None:
    """Copy all collections that are not copied yet, and return when all instances have copied their partitions.

    Only the coordinator may call this function, after `plan_copy`. The coordinator copies the partitions that it
    claims, and periodically saves the totals of all instances. The other instances call `copy_claimed`.
    """
    with TaskGroup("copy", stop) as group:
        group.spawn("settle", settle_often, context, group.stop)
        copy_claimed(context, group.stop)
        group.stop.stop("all collections are copied")


def copy_claimed(context: RunContext, stop: StopToken) -> None:
    """Copy the partitions that this instance can claim, and return when all instances have copied their partitions."""
    with TaskGroup("begin", stop) as group:
        group.spawn("claim", context.partitions.claim_ahead)
        # The copy must not miss any write before the start of the change stream. This time is after all these writes.
        not_before = append_note(context.source_client, group.stop)
    Copier(context, stop).run(not_before)
    # Wait even if there are no other instances: a copy must never end while a partition is left.
    wait_until(context.partitions.all_done, stop, SLOW_POLL)


def end_copy(context: RunContext, stop: StopToken) -> Timestamp:
    """Save the totals of the finished copy, and return a cluster time of the source after the last read."""
    with TaskGroup("end", stop) as group:
        group.spawn("settle", settle, context)
        return append_note(context.source_client, group.stop)


def _is_copied(record: CollectionRecord, error: dict[str, Any]) -> bool:
    """Return whether an insert was refused because the document had been copied before; False if that is uncertain.

    It is uncertain in a sharded collection, where the document with that `_id` may be an orphaned document or have
    another shard key. It is also uncertain for some keys of clustered collections, for which servers use other error
    codes than the one for a duplicate key.
    """
    return already_exists(error) and not record.definition.sharded
