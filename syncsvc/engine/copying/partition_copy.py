"""The copy of one partition: reads its pages, tracks how much of it is written, and saves where to resume."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from bson.timestamp import Timestamp
from pymongo.read_preferences import ReadPreference

from syncsvc.engine.definitions.source_lookup import reading_by_name
from syncsvc.engine.documents.duplicates import Duplicates
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.frontier import Entry, Frontier
from syncsvc.engine.run.points import Point
from syncsvc.saved.partitions import Partition, Resume
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.source.natural_scan import NaturalScan, ResumePoint
from syncsvc.source.range_scan import RangeScan
from syncsvc.source.read_preference import read_preference
from syncsvc.source.scanned import ScannedCollection
from verifier.cluster.block import Block
from verifier.cluster.document_filters import judging
from verifier.cluster.pinning import ServerMode
from verifier.cluster.rawcursor import first_page_size
from verifier.runtime.tasks import StopToken

Pages = Iterator[tuple[Block, Resume | None]]


class ReadPage(NamedTuple):
    """A page that was read and registered: its entry, and the number of the pass that read it."""

    entry: Entry[Resume | None]
    number: int


class PartitionCopy:
    """The copy of one partition of the collection of `record`.

    One thread reads the pages. Several threads may write them; the reading thread writes those of a capped collection
    itself. The progress is saved about every `copy_save_interval` seconds while pages are written, and when all are
    written. All reads see the source at the cluster time `not_before` or later.
    """

    def __init__(
        self,
        context: RunContext,
        record: CollectionRecord,
        partition: Partition,
        not_before: Timestamp,
        stop: StopToken,
    ) -> None:
        self.record = record
        self._context = context
        self._partition = partition
        self._not_before = not_before
        self._stop = stop
        self._duplicates = Duplicates(context, record, stop)
        self._lock = threading.Lock()  # guards the fields below
        # The number of the pass over the partition, and the amounts that this pass has copied. Passes are numbered,
        # because pages of a pass can still be written after the next pass has begun.
        self._pass = 0
        self._copied = partition.copied
        self._documents = partition.documents
        self._saved_at = monotonic()
        self._frontier: Frontier[Resume | None] = Frontier(partition.resume_point)
        self._all_read = False
        # Whether a thread is saving the progress, and whether there is progress that no save includes yet.
        self._saving = False
        self._unsaved = False

    def pages(self) -> Pages:
        """Yield the pages of the documents that are left to copy, each page with the resume point after it.

        The resume point is None if the scan has none yet; a scan in natural order through mongos never has one.
        Documents may be yielded again. Raises CollectionGone, OperationError DuplicateIds and DocumentFilterFailed, and
        the driver's errors.
        """
        with (
            judging(self._context.document_filters, self.record.source_name),
            reading_by_name(self._context, self.record, self._stop),
        ):
            if self._partition.resume_point is None:
                self._begin_pass()
            yield from self._pages()

    def _pages(self) -> Pages:
        natural = self._partition.is_whole and not self._context.source_facts.is_sharded
        # On a sharded source, a scan in natural order cannot be resumed, so it is used for capped collections only.
        return self._in_natural_order() if natural or self._capped else self._by_id()

    @property
    def _capped(self) -> bool:
        return self.record.definition.capped

    def _in_natural_order(self) -> Pages:
        resume_point = self._partition.resume_point
        scan = NaturalScan(
            self._scanned,
            resume_point if isinstance(resume_point, ResumePoint) else None,
            self._stop,
            self._begin_pass,
        )
        return ((page.block(), point) for page, point in scan.pages())

    def _by_id(self) -> Pages:
        resume_point = self._partition.resume_point
        return RangeScan(
            self._scanned,
            self._partition.range,
            resume_point if isinstance(resume_point, bytes) else None,
            self._stop,
            # On a replica set, no two documents of a collection have the same `_id`. On a sharded cluster, every
            # collection is checked, because it may have been sharded since it was listed.
            self._duplicates.refuse_neighbours if self._context.source_facts.is_sharded else None,
        ).pages()

    @property
    def _scanned(self) -> ScannedCollection:
        record, page_bytes = self.record, self._context.tuning.page_bytes
        return ScannedCollection(
            self._context.source_client,
            record.source_storage,
            self._context.source_uuid(record),
            self._not_before,
            self._read_preference,
            self._context.document_filters.of(record.source_name),
            page_bytes,
            first_page_size(record.total_documents, record.total, page_bytes),
        )

    @property
    def _read_preference(self) -> ServerMode:
        # Only the primary is sure to return the documents of a capped collection in the primary's order.
        if self._capped:
            return ReadPreference.PRIMARY
        run = self._context.run.record
        if run.is_reversed:
            # The option selects members of the former source, which is the destination now.
            return ReadPreference.PRIMARY
        options = run.options
        return read_preference(
            options.copy_read_preference.value, options.copy_read_preference_tags
        )

    def _begin_pass(self) -> None:
        """Begin to read the partition from its beginning: what earlier passes have copied no longer counts."""
        with self._lock:
            self._uncount(self._documents, self._copied)
            self._copied = self._documents = 0
            self._pass += 1

    def _uncount(self, documents: int, size: int) -> None:
        self._context.progress.add(copied_documents=-documents, copied_bytes=-size)

    def enter(self, resume_point: Resume | None) -> ReadPage:
        """Register a page that was read, and return the result to pass to `written` once the page is written.

        Pages must be registered in the order in which they are read. `resume_point` is the one that `pages`
        has yielded with the page.
        """
        return ReadPage(self._frontier.enter(resume_point, 1), self._pass)

    def written(self, page: ReadPage, documents: int, size: int) -> None:
        """Record that a page is written to the destination; save the progress if a save is due.

        The page contains `documents` documents, with a total of `size` bytes, which the progress already counts.
        """
        with self._lock:
            # Finish the entry under the lock: a thread that sees the frontier drained must also see all counts.
            self._frontier.finish(page.entry)
            if page.number == self._pass:
                self._copied += size
                self._documents += documents
            else:
                self._uncount(documents, size)
            self._unsaved = True
        self._save_if_due()

    def all_read(self) -> None:
        """Record that no page is left to read; save the progress if a save is due or all pages are written."""
        with self._lock:
            self._all_read = self._unsaved = True
        self._save_if_due()

    def _save_if_due(self) -> None:
        # Repeat this: while one thread saves, other threads may record newer progress, which they leave to this thread.
        while (progress := self._begin_save()) is not None:
            self._context.partitions.save(progress)
            with self._lock:
                self._saving = False
                self._saved_at = monotonic()
            done = progress.status is CopyStatus.DONE
            point = Point.PARTITION_COPIED if done else Point.COPY_SAVED
            self._context.observe(point, str(self.record.namespace))

    def _begin_save(self) -> Partition | None:
        """Return the progress that this thread must save now; None if no save is due, or another thread saves.

        Only one thread saves at a time, so that saves keep their order. Other threads do not wait for that save.
        """
        with self._lock:
            if self._saving or not self._unsaved:
                return None
            done = self._all_read and self._frontier.drained
            interval = self._context.tuning.copy_save_interval
            if not done and monotonic() - self._saved_at < interval:
                return None
            self._saving, self._unsaved = True, False
            return replace(
                self._partition,
                status=CopyStatus.DONE if done else CopyStatus.COPYING,
                resume_point=None if done else self._frontier.passed,
                copied=self._copied,
                documents=self._documents,
            )
