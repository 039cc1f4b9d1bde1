"""Reads documents of the source again, where an event cannot be replayed: the way out of every such corner.

Always safe, since later events of the document replay over what was read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.parts import Parts
from syncsvc.engine.translate import Outcome
from syncsvc.store import CollectionRecord
from verifier.cluster.keys import canonical, id_element, id_only
from verifier.cluster.lookup import fetch_pages
from verifier.cluster.namespace import Namespace
from verifier.cluster.renamed import CollectionGone, follow_renames
from verifier.runtime.tasks import StopToken

_KEYS_A_QUERY = 1_000


class Refetch:
    """Turns keys into outcomes that the source's present documents give. `not_before` is of the event."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._parts = parts
        self._stop = stop

    def outcomes(
        self, record: CollectionRecord, keys: Sequence[bytes], not_before: Timestamp
    ) -> Iterator[list[Outcome]]:
        """For each key, the document as the source holds it, or its deletion; a few megabytes at a time."""
        for start in range(0, len(keys), _KEYS_A_QUERY):
            yield from self._read(record, keys[start : start + _KEYS_A_QUERY], not_before)

    def _read(
        self, record: CollectionRecord, keys: Sequence[bytes], not_before: Timestamp
    ) -> Iterator[list[Outcome]]:
        uuid = self._parts.source_uuid(record)

        def read(namespace: Namespace) -> Iterator[dict[Hashable, bytes]]:
            return fetch_pages(
                self._parts.source, namespace, list(keys), self._stop, uuid, not_before
            )

        missing = {canonical(key, id_element(key)): key for key in keys}
        if record.definition.collated:
            # Keys that differ here may be one for the server: what is there goes first, and what is found comes after.
            yield [Outcome(key, deleted=True) for key in keys]
            missing.clear()
        try:
            for page in follow_renames(record.source_storage, read):
                for found in page:
                    missing.pop(found, None)
                yield [Outcome(id_only(each), document=each) for each in page.values()]
        except CollectionGone:
            # Its drop comes later, and takes these documents with it.
            pass
        yield [Outcome(key, deleted=True) for key in missing.values()]
