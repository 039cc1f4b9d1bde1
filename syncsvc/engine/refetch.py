"""Reads documents of the source again, where an event cannot be replayed: the way out of every such corner.

Always safe, since later events of the document replay over what was read.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.engine.parts import Parts
from syncsvc.engine.translate import Outcome
from syncsvc.store import CollectionRecord
from verifier.cluster import failures
from verifier.cluster.keys import canonical, id_element, id_only
from verifier.cluster.lookup import fetch_pages
from verifier.cluster.namespace import Namespace
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
        missing = {canonical(key, id_element(key)): key for key in keys}
        if record.definition.collated:
            # Keys that differ here may be one for the server: what is there goes first, and what is found comes after.
            yield [Outcome(key, deleted=True) for key in keys]
            missing.clear()
        for page in self._pages(record, list(keys), not_before):
            for found in page:
                missing.pop(found, None)
            yield [Outcome(id_only(each), document=each) for each in page.values()]
        yield [Outcome(key, deleted=True) for key in missing.values()]

    def _pages(
        self, record: CollectionRecord, keys: list[bytes], not_before: Timestamp
    ) -> Iterator[dict[Hashable, bytes]]:
        """The documents with these keys, whatever name the collection has on the source by now."""
        namespace, uuid = record.source_name, self._parts.source_uuid(record)
        while True:
            try:
                yield from fetch_pages(
                    self._parts.source, namespace, keys, self._stop, uuid, not_before
                )
                return
            except OperationFailure as error:
                if error.code != failures.COLLECTION_UUID_MISMATCH:
                    raise
                renamed = failures.actual_collection(error)
            if renamed is None:
                # The collection is gone: its drop comes later, and takes these documents with it.
                return
            namespace = Namespace(namespace.database, renamed)
