"""Prepares outcomes, the combined effects of change events, for a destination whose collection is not sharded.

Events of a collection that the source has sharded identify documents by shard key and `_id`. The destination finds each
document by its `_id`. If a document moves to another shard of the source, the stream has a delete and an insert event
for it, in any order. So a deletion deletes only the document with exactly that shard key and `_id`.

A sharded collection can hold several documents with the same `_id`, each on its own shard; the destination cannot. So
before a new document replaces one with another shard key, its `_id` is read again on the source, and `Rereading` raises
DuplicateIds if the source has several documents with it.
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import replace

from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.translate import Outcome
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical, id_element, id_only, is_only_id
from verifier.cluster.lookup import fetch
from verifier.runtime.tasks import StopToken


def prepared(outcome: Outcome, key: ShardKey | None, collated: bool) -> Outcome:
    """Return the outcome with a key that is a query for its document on the destination. Pure.

    Without such a query, return an outcome that reads the document again. `key` is the source's shard key, or None if
    the collection is not known to be sharded: an event that comes later may shard it. With a collation, the server may
    treat different shard keys as equal, so all documents are read again.
    """
    if key is None and is_only_id(outcome.key):
        return outcome
    if key is None or collated or outcome.refetch:
        return _again(outcome)
    if not outcome.deleted:
        return replace(outcome, key=id_only(outcome.key))
    query = key.query_of_key(outcome.key)
    return _again(outcome) if query is None else Outcome(query, deleted=True)


def _again(outcome: Outcome) -> Outcome:
    return Outcome(id_only(outcome.key), refetch=True)


class FromShards:
    """Prepares outcomes for one lane."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._context = context
        self._stop = stop

    def prepare(self, record: CollectionRecord, outcomes: list[Outcome]) -> list[Outcome]:
        """Return the outcomes with keys for the destination, see `prepared`. Looks up documents that may be replaced.

        Returns the same outcomes if the source is a replica set.
        """
        if not self._context.source_facts.is_sharded:
            return outcomes
        key = ShardKey.of(record.source_key) if record.source_key else None
        ready = [prepared(each, key, record.definition.collated) for each in outcomes]
        if key is None or key.is_id:
            return ready
        return self._without_clashes(record, key, ready)

    def _without_clashes(
        self, record: CollectionRecord, key: ShardKey, outcomes: list[Outcome]
    ) -> list[Outcome]:
        """Replace the outcome of each new document that `_clashes` by one that reads the document again."""
        new = [each.key for each in outcomes if each.new and each.document is not None]
        there = fetch(
            self._context.destination_client, record.namespace, new, self._stop, key.projection
        )
        return [_again(each) if _clashes(each, key, there) else each for each in outcomes]


def _clashes(outcome: Outcome, key: ShardKey, there: dict[Hashable, bytes]) -> bool:
    """Return whether the outcome is a new document whose `_id` belongs to a document in `there` with another shard key.

    `there` are the documents of the destination.
    """
    if not outcome.new or outcome.document is None:
        return False
    present = there.get(canonical(outcome.key, id_element(outcome.key)))
    return present is not None and key.query_of(present) != key.query_of(outcome.document)
