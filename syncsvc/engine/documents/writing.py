"""Writes outcomes, the combined effects of a batch of change events on each document, to a collection.

A batch usually needs one insert, one delete and one update command. They are independent, because each document is in
only one of them, except that a refused insert is repeated in the update command. Throughput depends mainly on how the
events are grouped: a new command at every change between update and delete would be eight times slower. Documents that
the destination refuses or lacks are read again from the source.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from bson.timestamp import Timestamp

from syncsvc.engine.documents.from_shards import prepared
from syncsvc.engine.documents.rereading import Rereading
from syncsvc.engine.documents.sharded import ShardedWriter
from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.statements import run_deletes, run_updates
from syncsvc.engine.documents.translate import Outcome, insertable
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical_id
from verifier.cluster.lookup import ONLY_IDS, fetch
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import Budget, StopToken

# An insert costs the destination a quarter of an upsert, but twice as much if the document already exists (a clash), as
# happens after a restart, or while events are applied to a copy that already includes their effects. After a batch with
# more than this share of clashes, `_UPSERTS_AFTER_CLASHES` documents are upserted before inserts are tried again.
_MANY_CLASHES = 0.1
_UPSERTS_AFTER_CLASHES = 5_000
# Fewer documents than this are upserted, too: an insert command for only a few documents saves nothing.
_FEW = 4


def runs(
    outcomes: Sequence[Outcome], collated: bool
) -> Iterator[tuple[list[Outcome], list[Outcome]]]:
    """Split outcomes into pairs of lists: the first list contains writes, the second one deletes.

    If the pairs are run in order, and the writes of each pair before its deletes, their effect is that of `outcomes`. A
    delete may wait for the writes after it if none of them concerns the same document. With a collation (`collated`),
    equal keys cannot be recognised, so the first write after a delete begins a new pair.
    """
    written: list[Outcome] = []
    deleted: list[Outcome] = []
    gone: set[Hashable] = set()
    for outcome in outcomes:
        key = canonical_id(outcome.key)
        if outcome.deleted:
            deleted.append(outcome)
            gone.add(key)
            continue
        if key in gone or (collated and gone):
            yield written, deleted
            written, deleted, gone = [], [], set()
        written.append(outcome)
    yield written, deleted


class OutcomeWriter:
    """Writes outcomes to collections, in one of the threads (lanes) that apply change events.

    `rereading` is the budget, in bytes, that all lanes share for documents that they read again at the same time.
    """

    def __init__(self, context: RunContext, rereading: Budget, stop: StopToken) -> None:
        self._context = context
        self._document_writer = context.document_writer
        self._rereading = Rereading(context, rereading, stop)
        self._sharded = ShardedWriter(context, self._rereading, stop)
        self._stop = stop
        self._upserts_left = 0

    def write(self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp) -> int:
        """Write outcomes, and return how many documents were read again from the source.

        Those documents are read at the cluster time `newest` of the source or later; no event of the outcomes may be
        after this time. The order of the outcomes is kept for capped collections, and for collections with a collation
        unless they are sharded. Raises OperationError EventNotApplicable, DuplicateIds and DocumentFilterFailed,
        DestinationNamespaceExists if the destination's collection proves to be foreign, and the driver's errors.
        """
        if record.definition.sharded:
            return self._sharded.write(record, outcomes, newest)
        if self._context.source_facts.is_sharded:
            key = _source_key(record)
            outcomes = [prepared(each, key, record.definition.collated) for each in outcomes]
        if record.definition.capped or record.definition.collated:
            return self._write_in_order(record, outcomes, newest)
        again = [each.key for each in outcomes if each.refetch]
        outcomes = self._insert(record.namespace, [each for each in outcomes if not each.refetch])
        deleted = [each for each in outcomes if each.deleted]
        run_deletes(self._document_writer, record.namespace, deleted, ordered=False)
        written = [each for each in outcomes if not each.deleted]
        if written:
            found, errors = run_updates(
                self._document_writer, record.namespace, written, ordered=False
            )
            again.extend(written[error["index"]].key for error in errors)
            if found + len(errors) < len(written):
                again.extend(self._missing(record, written))
        self._rereading.write(record, again, newest)
        return len(again)

    def _write_in_order(
        self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp
    ) -> int:
        """Write outcomes in order, and return how many documents were read again from the source."""
        number = 0
        for refetch, group in groupby(outcomes, attrgetter("refetch")):
            if refetch:
                again = [each.key for each in group]
                # A query for several documents does not return them in the order of the keys, so a capped collection
                # needs one query for each document.
                for keys in [[key] for key in again] if record.definition.capped else [again]:
                    self._rereading.write(record, keys, newest)
                number += len(again)
                continue
            for written, deleted in runs(list(group), record.definition.collated):
                number += self._update_in_order(record, written, newest)
                run_deletes(self._document_writer, record.namespace, deleted, ordered=True)
        return number

    def _update_in_order(
        self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp
    ) -> int:
        """Write documents and updates one after the other; return the number of documents that were read again."""
        number = 0
        missing: list[bytes] = []
        while outcomes:
            found, errors = run_updates(
                self._document_writer, record.namespace, outcomes, ordered=True
            )
            done = errors[0]["index"] if errors else len(outcomes)
            if found < done:
                missing.extend(self._missing(record, outcomes[:done]))
            if errors:
                # An ordered command ends at its first error. The document of the failed statement is read again, and
                # then the statements after it are run.
                self._rereading.write(record, [outcomes[done].key], newest)
                number += 1
            outcomes = outcomes[done + 1 :]
        self._rereading.write(record, missing, newest)
        return number + len(missing)

    def _insert(self, namespace: Namespace, outcomes: list[Outcome]) -> list[Outcome]:
        """Insert the documents that are expected to be new.

        Return the outcomes left to write, including inserts that the destination refused. If there are only few such
        documents, or the destination has refused many inserts recently, insert nothing, and return all outcomes.
        """
        new: list[Outcome] = []
        others: list[Outcome] = []
        for each in outcomes:
            (new if insertable(each) else others).append(each)
        if len(new) < _FEW or self._upserts_left > 0:
            self._upserts_left -= len(new)
            return outcomes
        documents = b"".join([each.document for each in new if each.document is not None])
        refused = self._document_writer.insert(namespace, documents)
        if len(refused) > len(new) * _MANY_CLASHES:
            self._upserts_left = _UPSERTS_AFTER_CLASHES
        return others + [new[error["index"]] for error in refused]

    def _missing(self, record: CollectionRecord, outcomes: list[Outcome]) -> list[bytes]:
        """Return the keys of updates whose document does not exist on the destination.

        If the collection is sharded on the source, only a document with the same shard key and `_id` counts as
        existing. So if an update has changed the shard key of a document, the key of this update is returned, too.
        """
        shard_key = _source_key(record)
        projection = shard_key.projection if shard_key else ONLY_IDS
        keys = [each.key for each in outcomes if each.document is None]
        there = fetch(
            self._context.destination_client, record.namespace, keys, self._stop, projection
        )

        def exists(key: bytes) -> bool:
            present = there.get(canonical_id(key))
            if present is None or shard_key is None:
                return present is not None
            return shard_key.query_of(present) == key

        return [key for key in keys if not exists(key)]


def _source_key(record: CollectionRecord) -> ShardKey | None:
    return ShardKey.of(record.source_key) if record.source_key else None
