"""Writes what a batch of change events makes of the documents of a sharded collection.

Where the destination has a document is looked up first, so that each update asks one shard, and it is known exactly
what is there: an update by `_id` alone runs, and counts, on every shard that has a document of that `_id`, and an
insert on another shard would be a second document.

Events of a sharded source name documents by shard key and `_id`. A document that changes shards there is one deletion
and one insert, and the stream may have the insert first: so it is the document of that key that is deleted, no other.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from bson.timestamp import Timestamp

from syncsvc.engine.documents.overwriting import clear, insert_missing
from syncsvc.engine.documents.rereading import Rereading
from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.statements import run_deletes, run_updates
from syncsvc.engine.documents.translate import Outcome
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical, id_element, id_only
from verifier.cluster.lookup import fetch
from verifier.runtime.tasks import StopToken


@dataclass
class Work:
    """What is to be done with the documents of one batch. Each is in one list."""

    again: list[Outcome] = field(default_factory=list)
    deletes: list[Outcome] = field(default_factory=list)
    documents: list[Outcome] = field(default_factory=list)
    updates: list[Outcome] = field(default_factory=list)


def sort(outcomes: Sequence[Outcome], key: ShardKey, collated: bool, whole_keys: bool) -> Work:
    """What is to be done for outcomes; `whole_keys` are document keys with the fields of the shard key. Pure.

    An update of the shard key is nothing that the destination takes. With a collation nobody knows which documents are
    the same.
    """
    work = Work()
    for outcome in outcomes:
        if collated or outcome.refetch or key.is_touched_by(outcome):
            work.again.append(outcome)
        elif outcome.document is not None:
            work.documents.append(outcome)
        elif not outcome.deleted:
            work.updates.append(outcome)
        elif not whole_keys:
            work.deletes.append(outcome)
        elif query := key.query_of_key(outcome.key):
            work.deletes.append(Outcome(query, deleted=True))
        else:
            work.again.append(outcome)
    return work


class ShardedWriter:
    """Writes for one lane."""

    def __init__(self, context: RunContext, rereading: Rereading, stop: StopToken) -> None:
        self._context = context
        self._rereading = rereading
        self._stop = stop

    def write(self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp) -> int:
        """Write outcomes of different documents; the number that was read again.

        `newest` is a time of the source that none of their events is after. Raises OperationError EventNotApplicable.
        """
        assert record.definition.shard_key
        key = ShardKey.of(record.definition.shard_key)
        whole_keys = self._context.source_facts.is_sharded
        work = sort(outcomes, key, record.definition.collated, whole_keys)
        there = self._locate(record, key, work)
        run_deletes(self._context.document_writer, record.namespace, work.deletes, ordered=False)
        again = work.again + self._overwrite(record, work.documents, there)
        again += self._update(record, key, work, there)
        keys = [id_only(each.key) for each in again]
        self._rereading.write(record, keys, newest)
        return len(again)

    def _locate(self, record: CollectionRecord, key: ShardKey, work: Work) -> dict[Hashable, bytes]:
        """What the destination has by now of the documents that are updated or should be new, by `_id`."""
        keys = [each.key for each in work.updates]
        keys += [each.key for each in work.documents if each.new]
        return fetch(
            self._context.destination_client, record.namespace, keys, self._stop, key.projection
        )

    def _overwrite(
        self, record: CollectionRecord, documents: list[Outcome], there: dict[Hashable, bytes]
    ) -> list[Outcome]:
        """Write documents over what is there: those that were refused."""
        old = [each for each in documents if not each.new or _identity(each) in there]
        clear(self._context, record.namespace, old)
        refused = insert_missing(self._context, record.namespace, documents, self._stop)
        return [outcome for outcome, _ in refused]

    def _update(
        self,
        record: CollectionRecord,
        key: ShardKey,
        work: Work,
        there: dict[Hashable, bytes],
    ) -> list[Outcome]:
        """Run the updates, also those of documents that were just written: those that did not succeed."""
        missing: list[Outcome] = []
        updates: list[Outcome] = []
        for each in work.documents + work.updates:
            document = each.document or there.get(_identity(each))
            if document is None:
                missing.append(each)
            elif each.stages:
                query = key.query_of(document)
                updates.append(Outcome(query, stages=each.stages, sets=each.sets))
        if not updates:
            return missing
        found, errors = run_updates(
            self._context.document_writer, record.namespace, updates, ordered=False
        )
        if found + len(errors) < len(updates):
            # Refused before, or moved since.
            return missing + updates
        return missing + [updates[error["index"]] for error in errors]


def _identity(outcome: Outcome) -> Hashable:
    return canonical(outcome.key, id_element(outcome.key))
