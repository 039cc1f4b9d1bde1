"""Writes outcomes, the combined effects of a batch of change events on each document, to a sharded collection.

The shard keys of the documents on the destination are looked up before an update, so that each update can go to
one shard. An update by `_id` alone would run on every shard, so its counts would be unreliable. Before a whole
document is inserted, existing documents with the same `_id` are deleted on every shard, because an insert on another
shard would create a second document.

Events of a sharded source identify documents by shard key and `_id`. If a document moves to another shard of the
source, the stream has a delete and an insert event for it, in any order. So a deletion deletes only the document with
exactly that shard key and `_id`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from bson.timestamp import Timestamp

from syncsvc.engine.documents.overwriting import clear, insert_missing
from syncsvc.engine.documents.rereading import Rereading
from syncsvc.engine.documents.shardkey import ShardKey
from syncsvc.engine.documents.statements import run_deletes, run_updates
from syncsvc.engine.documents.translate import Outcome
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical_id, id_only
from verifier.cluster.lookup import fetch
from verifier.runtime.tasks import StopToken


@dataclass
class Work:
    """The outcomes of one batch, divided by the way in which they are written.

    - `again`: the documents are read again from the source.
    - `deletes`: the documents are deleted. The `key` of such an outcome is the query that finds the document.
    - `documents`: the whole documents are written, and then updated if the outcome has stages.
    - `updates`: existing documents of the destination are updated.
    """

    again: list[Outcome] = field(default_factory=list)
    deletes: list[Outcome] = field(default_factory=list)
    documents: list[Outcome] = field(default_factory=list)
    updates: list[Outcome] = field(default_factory=list)


def sort(outcomes: Sequence[Outcome], key: ShardKey, collated: bool, whole_keys: bool) -> Work:
    """Divide outcomes by the way in which they must be written. Has no side effects.

    `whole_keys` is True if the source is sharded, so that document keys usually contain the fields of the shard key.

    Besides outcomes with `refetch`, these are read again: updates of the shard key, because the destination refuses
    them; with `whole_keys`, deletions without a query that finds only their document (see `ShardKey.query_of_key`); and
    everything in a collection with a collation (`collated`), because equal keys cannot be recognised.
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


def without_moved(work: Work, key: ShardKey, there: Mapping[Hashable, bytes]) -> Work:
    """Return `work`, but with documents whose shard key is different on the destination in `again`, not in `documents`.

    `there` contains the documents on the destination, by `_id`. Has no side effects.

    If one transaction inserts a document and moves it to another shard, the events of these operations may come in any
    order: the event with the newer shard key may be the first one. Only the source knows which one is newer.
    """
    moved: list[Outcome] = []
    staying: list[Outcome] = []
    for each in work.documents:
        found = there.get(_identity(each))
        assert each.document is not None
        same = found is None or key.query_of(found) == key.query_of(each.document)
        (staying if same else moved).append(each)
    return replace(work, again=work.again + moved, documents=staying)


class ShardedWriter:
    """Writes outcomes to sharded collections, in one of the threads that apply change events."""

    def __init__(self, context: RunContext, rereading: Rereading, stop: StopToken) -> None:
        self._context = context
        self._rereading = rereading
        self._stop = stop

    def write(self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp) -> int:
        """Write outcomes to a sharded collection; return how many documents were read again from the source.

        An outcome is the combined effect of the change events of one document. Each document has at most one outcome.
        Documents are read again at the cluster time `newest` or later, so `newest` must not be earlier than any event
        of the outcomes. Raises OperationError EventNotApplicable, DuplicateIds and DocumentFilterFailed, and
        DestinationNamespaceExists if the destination's collection proves to be foreign.
        """
        assert record.definition.shard_key
        key = ShardKey.of(record.definition.shard_key)
        whole_keys = self._context.source_facts.is_sharded
        work = sort(outcomes, key, record.definition.collated, whole_keys)
        there = self._locate(record, key, work, whole_keys)
        if whole_keys:
            work = without_moved(work, key, there)
        run_deletes(self._context.document_writer, record.namespace, work.deletes, ordered=False)
        again = work.again + self._overwrite(record, work.documents, there)
        again += self._update(record, key, work, there)
        keys = [id_only(each.key) for each in again]
        self._rereading.write(record, keys, newest)
        return len(again)

    def _locate(
        self, record: CollectionRecord, key: ShardKey, work: Work, whole_keys: bool
    ) -> dict[Hashable, bytes]:
        """Look up documents on the destination: those of `work.updates`, and some or all of `work.documents`.

        All of `work.documents` are looked up with `whole_keys` (see `sort`), otherwise only those whose events begin
        with an insert (`Outcome.new`). Return the documents that exist on the destination, by the canonical form of
        their `_id`, with only `_id` and the shard key fields.
        """
        keys = [each.key for each in work.updates]
        keys += [each.key for each in work.documents if each.new or whole_keys]
        return fetch(
            self._context.destination_client, record.namespace, keys, self._stop, key.projection
        )

    def _overwrite(
        self, record: CollectionRecord, documents: list[Outcome], there: dict[Hashable, bytes]
    ) -> list[Outcome]:
        """Write whole documents, and return the outcomes whose document the destination refused.

        First, existing documents with the same `_id` are deleted on every shard. This is skipped for a document whose
        events begin with an insert, if `there`, which contains the destination's documents by `_id`, lacks it.
        """
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
        """Run the update stages of `work.updates` and of `work.documents`, whose documents were just written.

        `there` contains the documents on the destination, by `_id`. Return the outcomes to read again: those whose
        document is missing, and those whose update failed; if it is unknown which updates failed, all updates.
        """
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
            # Some documents were refused before, or have moved since.
            return missing + updates
        return missing + [updates[error["index"]] for error in errors]


def _identity(outcome: Outcome) -> Hashable:
    return canonical_id(outcome.key)
