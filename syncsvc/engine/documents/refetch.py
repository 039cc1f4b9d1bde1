"""Reads documents of the source again, where an event cannot be replayed: the way out of every such corner.

Always safe, since later events of the document replay over what was read.
"""

from __future__ import annotations

import contextlib
from collections.abc import Hashable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.engine.documents.translate import Outcome
from syncsvc.engine.parts import Parts
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical, id_element, id_only
from verifier.cluster.lookup import ONLY_IDS, fetch_pages, portions
from verifier.cluster.namespace import Namespace
from verifier.cluster.renamed import CollectionGone, follow_renames
from verifier.runtime.tasks import StopToken


class Refetch:
    """Turns keys into outcomes that the source's present documents give. `not_before` is of the event."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._parts = parts
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
        uuid = self._parts.source_uuid(record)

        def read(namespace: Namespace) -> Iterator[dict[Hashable, bytes]]:
            return fetch_pages(
                self._parts.source, namespace, list(keys), self._stop, uuid, not_before, projection
            )

        return follow_renames(record.source_storage, read)
