"""Prepares outcomes, the combined effects of change events, for a destination whose collection is not sharded.

Events of a collection that the source has sharded identify documents by shard key and `_id`. If a document moves to
another shard of the source, the stream has a delete and an insert event for it, in any order. And a sharded collection
can hold several documents with the same `_id`, each on its own shard; the destination cannot. So every outcome applies
only to the document with exactly that shard key and `_id`. If the destination holds another document with this `_id`:

- a deletion does nothing;
- an update finds no document, and a new document is refused, because the `_id` exists. In both cases, the document is
  read again, and `Rereading` refuses several documents with the same `_id`.
"""

from __future__ import annotations

from dataclasses import replace

from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.translate import Outcome
from verifier.cluster.keys import id_only, is_only_id


def prepared(outcome: Outcome, key: ShardKey | None, collated: bool) -> Outcome:
    """Return an outcome with the same effect, whose `Outcome.key` finds only the affected document on the destination.

    If no query finds exactly that document, return an outcome that reads the document again. `key` is the source's
    shard key; None if the record of the collection has no shard key: then, an outcome whose key contains only `_id` is
    returned unchanged. If a sharded collection has a collation (`collated`), the server may treat different shard keys
    as equal, so all documents are read again.
    """
    if key is None and is_only_id(outcome.key):
        return outcome
    if key is None or collated or outcome.refetch:
        return _again(outcome)
    query = key.query_of_key(outcome.key)
    return _again(outcome) if query is None else replace(outcome, key=query)


def _again(outcome: Outcome) -> Outcome:
    return Outcome(id_only(outcome.key), refetch=True)
