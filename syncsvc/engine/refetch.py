"""Reads documents of the source again, where an event cannot be replayed: the way out of every such corner.

Always safe, since later events of the document replay over what was read.
"""

from __future__ import annotations

from collections.abc import Iterable

from bson.timestamp import Timestamp
from pymongo.errors import OperationFailure

from syncsvc.engine.translate import Outcome
from syncsvc.store import CollectionRecord
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.keys import canonical, id_element, id_only
from verifier.cluster.lookup import fetch
from verifier.runtime.tasks import StopToken

_KEYS_A_QUERY = 1_000


class Refetch:
    """Turns keys into outcomes that the source's present documents give. `not_before` is of the event."""

    def __init__(self, source: Client, stop: StopToken) -> None:
        self._source = source
        self._stop = stop

    def outcomes(
        self, record: CollectionRecord, keys: Iterable[bytes], not_before: Timestamp
    ) -> list[Outcome]:
        """For each key, the document as the source holds it, or its deletion."""
        left = list(keys)
        outcomes = []
        while left:
            some, left = left[:_KEYS_A_QUERY], left[_KEYS_A_QUERY:]
            outcomes.extend(self._read(record, some, not_before))
        return outcomes

    def _read(
        self, record: CollectionRecord, keys: list[bytes], not_before: Timestamp
    ) -> list[Outcome]:
        try:
            found = fetch(self._source, record.namespace, keys, self._stop, record.uuid, not_before)
        except OperationFailure as error:
            if error.code != failures.COLLECTION_UUID_MISMATCH:
                raise
            # The collection is gone: its drop comes later, and takes these documents with it.
            found = {}
        outcomes = []
        for key in keys:
            document = found.get(canonical(key, id_element(key)))
            if document is None:
                outcomes.append(Outcome(key, deleted=True))
            else:
                outcomes.append(Outcome(id_only(document), document=document))
        return outcomes
