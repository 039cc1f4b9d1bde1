"""Writes documents as the source holds them now, where their events cannot be replayed."""

from __future__ import annotations

from collections.abc import Sequence

from bson.timestamp import Timestamp

from syncsvc.engine.documents.refetch import Refetch
from syncsvc.engine.documents.statements import not_applicable, run_deletes
from syncsvc.engine.documents.whole import write_whole
from syncsvc.engine.parts import Parts
from syncsvc.saved.registry import CollectionRecord
from verifier.runtime.tasks import Budget, StopToken

# What is in memory at once of documents that are read again, at most; and the size of a document where the copy tells
# none. In bytes.
_MOST_REREAD = 16 << 20
_UNKNOWN_SIZE = 16 << 10


class Rereading:
    """For one lane. `budget` limits, in bytes, what all lanes read again at once."""

    def __init__(self, parts: Parts, budget: Budget, stop: StopToken) -> None:
        self._parts = parts
        self._refetch = Refetch(parts, stop)
        self._budget = budget
        self._stop = stop

    def write(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        """Make the documents of these keys what the source holds at `newest` or later.

        Raises OperationError EventNotApplicable.
        """
        if not keys:
            return
        with self._budget.hold(_bytes_to_read(record, keys)):
            self._replace(record, list(dict.fromkeys(keys)), newest)

    def _replace(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        for outcomes in self._refetch.outcomes(record, keys, newest):
            gone = [each for each in outcomes if each.deleted]
            run_deletes(self._parts.destination, record.namespace, gone, ordered=False)
            left = [each for each in outcomes if not each.deleted]
            left, error = write_whole(self._parts, record, left, False, self._stop)
            if left:
                raise not_applicable(record.namespace, left[0].key, error)


def _bytes_to_read(record: CollectionRecord, keys: Sequence[bytes]) -> int:
    """About what documents of these keys take that are in memory at once, going by the average of the copy."""
    average = record.copied // record.documents if record.documents else _UNKNOWN_SIZE
    return min(len(keys) * average, _MOST_REREAD)
