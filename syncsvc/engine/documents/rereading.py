"""Reads documents again from the source, and writes them to the destination.

This is done for repairs, and if change events are not enough or are refused. It is always safe: a read document may be
newer than the event, but applying its later events to it leads to the same final state.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.source_lookup import reading_by_name
from syncsvc.engine.documents.duplicates import Duplicates
from syncsvc.engine.documents.overwriting import overwrite
from syncsvc.engine.documents.statements import not_applicable, run_deletes
from syncsvc.engine.documents.translate import Outcome, whole
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.document_filters import judging
from verifier.cluster.keys import canonical_id, id_only
from verifier.cluster.lookup import ONLY_IDS, fetch_pages, portions
from verifier.cluster.namespace import Namespace
from verifier.cluster.renamed import CollectionGone, follow_renames
from verifier.runtime.tasks import Budget, StopToken

# The assumed size of a document if no document of its collection was copied, in bytes.
_UNKNOWN_SIZE = 16 << 10


class Rereading:
    """Reads documents again from the source and writes them, in one of the threads that apply change events.

    `budget` limits the estimated size, in bytes, of the documents that all these threads read again at the same time.
    """

    def __init__(self, context: RunContext, budget: Budget, stop: StopToken) -> None:
        self._context = context
        self._source = _Source(context, stop)
        self._budget = budget
        self._stop = stop

    def write(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        """Make the destination's documents with these keys equal to the source's, as of the time `newest` or later.

        Documents that the source no longer has, or that the document filter does not select, are deleted. Each key is a
        document with an `_id`; its other fields are ignored. Keys may repeat. `newest` is a cluster time of the source.
        Raises OperationError EventNotApplicable, DuplicateIds, DocumentFilterFailed, DefinitionNotApplicable, and (if
        the destination's collection proves to be foreign) DestinationNamespaceExists. Also raises the driver's errors.
        """
        if not keys:
            return
        with self._budget.hold(_bytes_to_read(record, keys, self._context.tuning.reread_bytes)):
            self._replace(record, list(dict.fromkeys(map(id_only, keys))), newest)

    def _replace(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        for outcomes in self._source.outcomes(record, keys, newest):
            gone = [each for each in outcomes if each.deleted]
            run_deletes(self._context.document_writer, record.namespace, gone, ordered=False)
            left = [each for each in outcomes if not each.deleted]
            left, error = overwrite(self._context, record, left, False, self._stop)
            if left:
                raise not_applicable(record.namespace, left[0].key, error)


class _Source:
    """Reads documents of the source, and returns them as outcomes to write.

    All reads see the source at the cluster time `not_before` or later.
    """

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop

    def outcomes(
        self, record: CollectionRecord, keys: Sequence[bytes], not_before: Timestamp
    ) -> Iterator[list[Outcome]]:
        """Read the documents with these keys, and yield outcomes that give the destination the same documents.

        If the source has the document, and the document filter selects it, the outcome for its key writes the document;
        otherwise, the outcome deletes it. The yielded lists must be written in order. Each list holds at most a few
        megabytes.
        """
        for portion in portions(keys):
            yield from self._read(record, portion, not_before)

    def _read(
        self, record: CollectionRecord, keys: Sequence[bytes], not_before: Timestamp
    ) -> Iterator[list[Outcome]]:
        missing: dict[Hashable, bytes] = {canonical_id(key): key for key in keys}
        if record.definition.collated:
            yield self._make_way(record, missing, not_before)
        try:
            for page in self._pages(record, keys, not_before):
                others = [each for each in page if missing.pop(canonical_id(each), None) is None]
                if record.definition.collated:
                    yield [Outcome(id_only(each), deleted=True) for each in others]
                yield [*map(whole, page)]
        except CollectionGone:
            # The source has dropped the collection, or renamed it (before 6.0). The event about that comes later.
            pass
        if not record.definition.collated:
            yield [Outcome(key, deleted=True) for key in missing.values()]

    def _make_way(
        self, record: CollectionRecord, missing: dict[Hashable, bytes], not_before: Timestamp
    ) -> list[Outcome]:
        """Remove from `missing` each key whose canonical form no source document has; return deletions of these keys.

        Documents that the document filter does not select count as absent. `missing` maps canonical forms to the keys
        to read. Call this only for collections with a collation, where the server treats some other keys as equal, too.
        The deletions must be written before the documents: a deletion also deletes a document whose key is equal by the
        collation. If the source deletes a document after this read, the delete event comes later.
        """
        there: set[Hashable] = set()
        with contextlib.suppress(CollectionGone):
            for page in self._pages(record, list(missing.values()), not_before, ONLY_IDS):
                there.update(map(canonical_id, page))
        return [Outcome(missing.pop(key), deleted=True) for key in missing.keys() - there]

    def _pages(
        self,
        record: CollectionRecord,
        keys: Sequence[bytes],
        not_before: Timestamp,
        projection: Mapping[str, Any] = MappingProxyType({}),
    ) -> Iterator[list[bytes]]:
        """Yield, in pages, the documents of the source that have these keys and are selected by the document filter.

        The reads see the source at the cluster time `not_before` or later. Raises OperationError DuplicateIds and
        DocumentFilterFailed, and CollectionGone.
        """
        query = self._context.document_filters.of(record.source_name)
        uuid = self._context.source_uuid(record)

        def read(namespace: Namespace) -> Iterator[list[bytes]]:
            pages = fetch_pages(
                self._context.source_client,
                namespace,
                list(keys),
                self._stop,
                uuid,
                not_before,
                projection,
                *(() if query is None else (query, True)),
            )
            # A collection that is not sharded at this point of the change stream may be sharded now.
            sharded = self._context.source_facts.is_sharded
            return self._unique(record, namespace, keys, pages) if sharded else pages

        with (
            judging(self._context.document_filters, record.source_name),
            reading_by_name(self._context, record, self._stop),
        ):
            yield from follow_renames(record.source_storage, read)

    def _unique(
        self,
        record: CollectionRecord,
        namespace: Namespace,
        keys: Sequence[bytes],
        pages: Iterable[list[bytes]],
    ) -> Iterator[list[bytes]]:
        """Yield the given pages unchanged, but look up each document that is not the first one with one of `keys`.

        `pages` hold the documents that a read of `keys` has returned from a sharded source. Raises OperationError
        DuplicateIds, before the page is yielded, if the source holds several documents with the `_id` of a document
        that was looked up.
        """
        duplicates = Duplicates(self._context, record, self._stop)
        expected = set(map(canonical_id, keys))
        for page in pages:
            unexpected = []
            for each in page:
                form = canonical_id(each)
                if form in expected:
                    expected.remove(form)
                else:
                    unexpected.append(id_only(each))
            duplicates.refuse_repeated(namespace, unexpected)
            yield page


def _bytes_to_read(record: CollectionRecord, keys: Sequence[bytes], most: int) -> int:
    """Estimate the total size in bytes of the documents with these keys, at most `most`.

    The estimate multiplies the number of keys by the average size of the copied documents of this collection, or by a
    fixed size if there are none.
    """
    average = record.copied // record.documents if record.documents else _UNKNOWN_SIZE
    return min(len(keys) * average, most)
