"""Writes documents as the source holds them now, where an event cannot be replayed: the way out of every such corner.

Always safe, since later events of the document replay over what was read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.engine.documents.overwriting import overwrite
from syncsvc.engine.documents.statements import not_applicable, run_deletes
from syncsvc.engine.documents.translate import Outcome
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical, id_element, id_only
from verifier.cluster.lookup import ONLY_IDS, fetch_pages, portions
from verifier.cluster.namespace import Namespace
from verifier.cluster.renamed import CollectionGone, follow_renames
from verifier.runtime.tasks import Budget, StopToken

# The size of a document where the copy tells none, in bytes.
_UNKNOWN_SIZE = 16 << 10


class Rereading:
    """For one lane. `budget` limits, in bytes, what all lanes read again at once."""

    def __init__(self, context: RunContext, budget: Budget, stop: StopToken) -> None:
        self._context = context
        self._source = _Source(context, stop)
        self._budget = budget
        self._stop = stop

    def write(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        """Make the documents of these keys what the source holds at `newest` or later.

        Raises OperationError EventNotApplicable.
        """
        if not keys:
            return
        with self._budget.hold(_bytes_to_read(record, keys, self._context.tuning.reread_bytes)):
            self._replace(record, list(dict.fromkeys(keys)), newest)

    def _replace(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        for outcomes in self._source.outcomes(record, keys, newest):
            gone = [each for each in outcomes if each.deleted]
            run_deletes(self._context.document_writer, record.namespace, gone, ordered=False)
            left = [each for each in outcomes if not each.deleted]
            left, error = overwrite(self._context, record, left, False, self._stop)
            if left:
                raise not_applicable(record.namespace, left[0].key, error)


class _Source:
    """Turns keys into outcomes that the source's present documents give. `not_before` is of the event."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop

    def outcomes(
        self, record: CollectionRecord, keys: Sequence[bytes], not_before: Timestamp
    ) -> Iterator[list[Outcome]]:
        """For each key, the document as the source holds it, or its deletion; a few megabytes at a time."""
        for portion in portions(keys):
            yield from self._read(record, portion, not_before)

    def _read(
        self, record: CollectionRecord, keys: Sequence[bytes], not_before: Timestamp
    ) -> Iterator[list[Outcome]]:
        missing: dict[Hashable, bytes] = {canonical(key, id_element(key)): key for key in keys}
        if record.definition.collated:
            yield self._make_way(record, missing, not_before)
        try:
            for page in self._pages(record, keys, not_before):
                others = [each for found, each in page.items() if missing.pop(found, None) is None]
                if record.definition.collated:
                    yield [Outcome(id_only(each), deleted=True) for each in others]
                yield [Outcome(id_only(each), document=each) for each in page.values()]
        except CollectionGone:
            # Its drop comes later, and takes these documents with it.
            pass
        if not record.definition.collated:
            yield [Outcome(key, deleted=True) for key in missing.values()]

    def _make_way(
        self, record: CollectionRecord, missing: dict[Hashable, bytes], not_before: Timestamp
    ) -> list[Outcome]:
        """The deletions of the keys that the source does not have to the letter; these are missing no more.

        Keys that differ here may be one for the server: what is gone goes first, and what has another key comes after.
        What goes after that is deleted by an event of its own.
        """
        there: set[Hashable] = set()
        with contextlib.suppress(CollectionGone):
            for page in self._pages(record, list(missing.values()), not_before, ONLY_IDS):
                there.update(page)
        return [Outcome(missing.pop(key), deleted=True) for key in missing.keys() - there]

    def _pages(
        self,
        record: CollectionRecord,
        keys: Sequence[bytes],
        not_before: Timestamp,
        projection: Mapping[str, Any] = MappingProxyType({}),
    ) -> Iterator[dict[Hashable, bytes]]:
        uuid = self._context.source_uuid(record)

        def read(namespace: Namespace) -> Iterator[dict[Hashable, bytes]]:
            return fetch_pages(
                self._context.source_client,
                namespace,
                list(keys),
                self._stop,
                uuid,
                not_before,
                projection,
            )

        return follow_renames(record.source_storage, read)


def _bytes_to_read(record: CollectionRecord, keys: Sequence[bytes], most: int) -> int:
    """About what documents of these keys take that are in memory at once, going by the average of the copy."""
    average = record.copied // record.documents if record.documents else _UNKNOWN_SIZE
    return min(len(keys) * average, most)
