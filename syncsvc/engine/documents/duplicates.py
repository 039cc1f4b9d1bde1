"""Refuses documents of the source with the same `_id`, which a sharded collection can hold, each on its own shard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from syncsvc.engine.run.context import RunContext
from syncsvc.errors import DUPLICATE_IDS
from syncsvc.saved.registry import CollectionRecord
from syncsvc.source.equal_ids import EqualIds, refuse_equal, refuse_repeated
from verifier.cluster.keys import shown
from verifier.cluster.namespace import Namespace
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken


class Duplicates:
    """The checks that raise OperationError DuplicateIds for documents of one collection that have the same `_id`.

    Such documents are on different shards. Values of `_id` are the same if the collection's collation treats them as
    equal. Both methods take the collection's current name on the source, and also raise the driver's errors.
    """

    def __init__(self, context: RunContext, record: CollectionRecord, stop: StopToken) -> None:
        self._client = context.source_client
        self._uuid = context.source_uuid(record)
        options = record.definition.options
        self._collation = options["collation"] if record.definition.collated else None
        self._stop = stop

    def refuse_neighbours(self, namespace: Namespace, keys: Sequence[bytes]) -> None:
        """Raise OperationError DuplicateIds if a repeated key belongs to several documents of the collection.

        `keys` are BSON documents with only an `_id`, in the order of `_id`. Only keys that equal the next one are
        looked up in the collection.
        """
        with _named(namespace):
            refuse_equal(self._client, namespace, self._uuid, self._collation, keys, self._stop)

    def refuse_repeated(self, namespace: Namespace, keys: Sequence[bytes]) -> None:
        """Look up each key in the collection; raise OperationError DuplicateIds if several documents have this `_id`.

        `keys` are BSON documents with only an `_id`: keys that a read has returned twice, or that are equal by the
        collection's collation.
        """
        with _named(namespace):
            refuse_repeated(self._client, namespace, self._uuid, keys, self._stop)


@contextmanager
def _named(namespace: Namespace) -> Iterator[None]:
    try:
        yield
    except EqualIds as error:
        raise OperationError(
            DUPLICATE_IDS,
            f"On the source, {namespace} holds several documents with _id {shown(error.key)}, each on a different "
            "shard.",
        ) from error
