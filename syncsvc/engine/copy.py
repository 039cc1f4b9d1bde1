"""Copies the documents of all collections: readers scan, writers insert, in between a channel bounded in bytes.

A document travels as the bytes that it is: replies of the source are cut into documents and sent on as they came, a
whole page in one insert command. Whatever is copied twice, after a restart, is there already and stays. Events are
applied only when all copies are done, so the copy never meets a newer document.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import replace
from time import monotonic
from typing import NamedTuple

from bson.timestamp import Timestamp

from syncsvc.engine.destination import is_there_already
from syncsvc.engine.frontier import Entry, Frontier
from syncsvc.engine.observe import Observer, Point
from syncsvc.engine.parts import Parts
from syncsvc.engine.translate import Outcome, zero_timestamp_documents
from syncsvc.engine.whole import write_whole
from syncsvc.errors import DOCUMENT_NOT_COPIED
from syncsvc.figures.durations import Operation, timed
from syncsvc.saved.registry import CollectionRecord, CopyStatus, Registry
from verifier.cluster.keys import id_only, shown
from verifier.cluster.renamed import CollectionGone
from verifier.cluster.scan import ResumePoint, Scan
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Channel, StopToken, TaskGroup

# Pages that wait for a writer, in bytes.
_WAITING_BYTES = 16 << 20
# How often the resume point of a collection is saved, in seconds.
_SAVE_INTERVAL = 1.0


class CollectionCopy:
    """The copy of one collection: what of it is written, and from where to go on after a restart."""

    def __init__(self, record: CollectionRecord, registry: Registry, observe: Observer) -> None:
        self._registry = registry
        self._observe = observe
        self._lock = (
            threading.Lock()
        )  # guards _record and _saved_at; held while saving, to save in order
        self._record = replace(record, status=CopyStatus.COPYING)
        self._saved_at = monotonic()
        self._frontier: Frontier[ResumePoint | None] = Frontier(record.resume)
        self._all_read = False

    @property
    def record(self) -> CollectionRecord:
        return self._record

    def enter(self, point: ResumePoint | None) -> Entry[ResumePoint | None]:
        return self._frontier.enter(point, 1)

    def written(self, entry: Entry[ResumePoint | None], documents: int, size: int) -> None:
        """A page was acknowledged."""
        with self._lock:
            # Inside the lock: whoever sees the frontier drained must see all that was counted, too.
            self._frontier.finish(entry)
            self._record = replace(
                self._record,
                copied=self._record.copied + size,
                documents=self._record.documents + documents,
            )
            self._save()

    def all_read(self) -> None:
        """No more pages will come."""
        with self._lock:
            self._all_read = True
            self._save()

    def _save(self) -> None:
        done = self._all_read and self._frontier.drained
        if done:
            self._record = replace(self._record, status=CopyStatus.DONE, resume=None)
        elif monotonic() - self._saved_at < _SAVE_INTERVAL:
            return
        else:
            self._record = replace(self._record, resume=self._frontier.passed)
        saved = self._record
        # The rest of the record may be changed meanwhile, by others.
        self._registry.change(
            saved,
            status=saved.status,
            copied=saved.copied,
            documents=saved.documents,
            resume=saved.resume,
        )
        self._saved_at = monotonic()
        point = Point.COLLECTION_COPIED if done else Point.COPY_SAVED
        self._observe(point, str(self._record.namespace))


class Batch(NamedTuple):
    """Some documents of one collection on their way."""

    copy: CollectionCopy
    entry: Entry[ResumePoint | None]
    documents: Sequence[memoryview]
    size: int


class Copier:
    """Copies what the registry says is not copied yet."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._parts = parts
        self._stop = stop

    def run(self, not_before: Timestamp) -> None:
        """Return when every collection is copied. Reads what the source held at `not_before` or later."""
        with TaskGroup("copy", self._stop) as group:
            waiting: Channel[CollectionRecord] = Channel(1 << 40, group.stop)
            batches: Channel[Batch] = Channel(_WAITING_BYTES, group.stop)
            for record in self._unfinished():
                waiting.put(record, 1)
            waiting.close()
            for number in range(self._parts.load.writers):
                group.spawn(f"write-{number}", self._write_all, batches)
            with TaskGroup("copy", group.stop) as readers:
                for number in range(self._parts.load.readers):
                    readers.spawn(
                        f"read-{number}", self._read_all, waiting, batches, not_before, readers.stop
                    )
            batches.close()

    def _unfinished(self) -> list[CollectionRecord]:
        """Large collections first, so that none of them is left alone at the end."""
        records = [
            record for record in self._parts.registry if record.status is not CopyStatus.DONE
        ]
        return sorted(records, key=lambda record: record.total, reverse=True)

    def _read_all(
        self,
        waiting: Channel[CollectionRecord],
        batches: Channel[Batch],
        not_before: Timestamp,
        stop: StopToken,
    ) -> None:
        for record in waiting:
            copy = CollectionCopy(record, self._parts.registry, self._parts.observe)
            progress = self._parts.progress
            progress.collections.reading(record.uuid)
            scan = Scan(
                self._parts.source,
                record.source_storage,
                self._parts.source_uuid(record),
                not_before,
                record.resume,
                stop,
            )
            try:
                for (page, point), seconds in timed(scan.pages()):
                    progress.stopwatch.note(Operation.COPY_READ, seconds)
                    documents = page.documents()
                    batch = Batch(copy, copy.enter(point), documents, sum(map(len, documents)))
                    if record.definition.capped:
                        # Only one thread can keep the order in which documents are inserted.
                        self._write(batch)
                    else:
                        batches.put(batch, len(page.raw))
            except CollectionGone:
                # Its drop is a change event that comes later, and takes what was copied away.
                pass
            copy.all_read()

    def _write_all(self, batches: Channel[Batch]) -> None:
        for batch in batches:
            self._write(batch)

    def _write(self, batch: Batch) -> None:
        progress = self._parts.progress
        if batch.documents:
            with progress.stopwatch.timing(Operation.COPY_WRITE):
                self._insert(batch)
        self._parts.observe(Point.BATCH_WRITTEN, str(batch.copy.record.namespace))
        batch.copy.written(batch.entry, len(batch.documents), batch.size)
        progress.add(copied_documents=len(batch.documents), copied_bytes=batch.size)
        progress.collections.copied(batch.copy.record.uuid, len(batch.documents), batch.size)

    def _insert(self, batch: Batch) -> None:
        """Insert the documents; those for which that is not right are upserted, in the exact form.

        That replaces what is there, which is right, too: an earlier copy of the document, for no event came yet.
        """
        namespace = batch.copy.record.namespace
        block = b"".join(batch.documents)
        special = zero_timestamp_documents(block, batch.documents)
        if special and batch.copy.record.definition.capped:
            # All of them, or they would not be in their order.
            self._upsert(batch.copy.record, batch.documents)
            return
        if special:
            plain = [each for n, each in enumerate(batch.documents) if n not in special]
            self._upsert(batch.copy.record, [batch.documents[n] for n in sorted(special)])
            block = b"".join(plain)
        else:
            plain = list(batch.documents)
        if plain:
            # Servers have other codes than that of a duplicate for some keys of clustered collections.
            errors = self._parts.destination.insert(namespace, block)
            refused = [plain[each["index"]] for each in errors if not is_there_already(each)]
            self._upsert(batch.copy.record, refused)

    def _upsert(self, record: CollectionRecord, documents: Sequence[memoryview]) -> None:
        whole = [Outcome(id_only(bytes(each)), bytes(each)) for each in documents]
        left, error = write_whole(self._parts, record, whole, True, self._stop)
        if left:
            raise OperationError(
                DOCUMENT_NOT_COPIED,
                f"The document with _id {shown(left[0].key)} of {record.namespace} was refused: {error}.",
            )
