"""Writes what a batch of change events makes of the documents of a collection.

As one insert, one update and one delete command. No document is in two of them, so they do not depend on each other.
How events are grouped, not the language, decides the speed: bulks cut wherever update and delete alternate are eight
times slower. What the destination refuses, and what it lacks, is read again from the source.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter

from bson.timestamp import Timestamp

from syncsvc.engine.documents.rereading import Rereading
from syncsvc.engine.documents.sharded import ShardedWriter
from syncsvc.engine.documents.statements import run_deletes, run_updates
from syncsvc.engine.documents.translate import Outcome, insertable
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.lookup import ONLY_IDS, fetch
from verifier.cluster.namespace import Namespace
from verifier.runtime.tasks import Budget, StopToken

# An insert costs the destination a quarter of an upsert, but twice as much when the document is there: while events are
# replayed over a copy that has them, or again after a restart. After a batch in which this share of the inserts met
# their document, so many are upserted before the next is tried. A command for fewer than a few saves nothing.
_MANY_CLASHES = 0.1
_UPSERTS_AFTER_CLASHES = 5_000
_FEW = 4


def runs(
    outcomes: Sequence[Outcome], collated: bool
) -> Iterator[tuple[list[Outcome], list[Outcome]]]:
    """Outcomes in order as pairs of writes and then deletes, to be carried out one pair after the other.

    A delete may wait until the writes after it are done, as long as none of them is of the same document; with a
    collation nobody knows which keys are the same.
    """
    written: list[Outcome] = []
    deleted: list[Outcome] = []
    gone: set[Hashable] = set()
    for outcome in outcomes:
        key = canonical(outcome.key, id_element(outcome.key))
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
    """Writes for one lane. `rereading` limits, in bytes, what all lanes read again at once."""

    def __init__(self, context: RunContext, rereading: Budget, stop: StopToken) -> None:
        self._context = context
        self._document_writer = context.document_writer
        self._rereading = Rereading(context, rereading, stop)
        self._sharded = ShardedWriter(context, self._rereading, stop)
        self._stop = stop
        self._upserts_left = 0

    def write(self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp) -> int:
        """Write outcomes, in their order where the collection needs it; the number that was read again.

        `newest` is a time of the source that none of their events is after. Raises OperationError EventNotApplicable.
        """
        if record.definition.sharded:
            return self._sharded.write(record, outcomes, newest)
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
                again.extend(self._missing(record.namespace, written))
        self._rereading.write(record, again, newest)
        return len(again)

    def _write_in_order(
        self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp
    ) -> int:
        """What is read again has its place in the order, too."""
        number = 0
        for refetch, group in groupby(outcomes, attrgetter("refetch")):
            if refetch:
                again = [each.key for each in group]
                # What one query finds comes in its own order.
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
        """Write documents and updates one after the other; the number that was read again."""
        number = 0
        missing: list[bytes] = []
        while outcomes:
            found, errors = run_updates(
                self._document_writer, record.namespace, outcomes, ordered=True
            )
            done = errors[0]["index"] if errors else len(outcomes)
            if found < done:
                missing.extend(self._missing(record.namespace, outcomes[:done]))
            if errors:
                # The command ended there. The others come after what is read again instead.
                self._rereading.write(record, [outcomes[done].key], newest)
                number += 1
            outcomes = outcomes[done + 1 :]
        self._rereading.write(record, missing, newest)
        return number + len(missing)

    def _insert(self, namespace: Namespace, outcomes: list[Outcome]) -> list[Outcome]:
        """Insert the documents that should be new; what is left to do, with those that were there."""
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

    def _missing(self, namespace: Namespace, outcomes: list[Outcome]) -> list[bytes]:
        """The keys of updates whose document is not there."""
        keys = [each.key for each in outcomes if each.document is None]
        there = fetch(self._context.destination_client, namespace, keys, self._stop, ONLY_IDS)
        return [key for key in keys if canonical(key, id_element(key)) not in there]
