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

from syncsvc.engine.destination import Refused
from syncsvc.engine.parts import Parts
from syncsvc.engine.refetch import Refetch
from syncsvc.engine.translate import Outcome, delete_statement, insertable, update_statement
from syncsvc.errors import EVENT_NOT_APPLICABLE
from syncsvc.store import CollectionRecord
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.lookup import fetch
from verifier.cluster.namespace import Namespace
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Budget, StopToken

# An insert costs the destination a quarter of an upsert, but twice as much when the document is there: while events are
# replayed over a copy that has them, or again after a restart. After a batch in which this share of the inserts met
# their document, so many are upserted before the next is tried. A command for fewer than a few saves nothing.
_MANY_CLASHES = 0.1
_UPSERTS_AFTER_CLASHES = 5_000
_FEW = 4

# What is in memory at once of documents that are read again, at most; and the size of a document where the copy tells
# none. In bytes.
_MOST_REREAD = 16 << 20
_UNKNOWN_SIZE = 16 << 10


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

    def __init__(self, parts: Parts, rereading: Budget, stop: StopToken) -> None:
        self._parts = parts
        self._refetch = Refetch(parts, stop)
        self._rereading = rereading
        self._stop = stop
        self._upserts_left = 0

    def write(self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp) -> int:
        """Write outcomes, in their order where the collection needs it; the number that was read again.

        `newest` is a time of the source that none of their events is after. Raises OperationError EventNotApplicable.
        """
        if record.definition.capped or record.definition.collated:
            return self._write_in_order(record, outcomes, newest)
        again = [each.key for each in outcomes if each.refetch]
        outcomes = self._insert(record.namespace, [each for each in outcomes if not each.refetch])
        self._delete(record.namespace, [each for each in outcomes if each.deleted], ordered=False)
        written = [each for each in outcomes if not each.deleted]
        if written:
            statements = [update_statement(each) for each in written]
            found, errors = self._parts.destination.update(record.namespace, statements, False)
            again.extend(written[error["index"]].key for error in errors)
            if found + len(errors) < len(written):
                again.extend(self._missing(record.namespace, written))
        self._write_again(record, again, newest)
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
                    self._write_again(record, keys, newest)
                number += len(again)
                continue
            for written, deleted in runs(list(group), record.definition.collated):
                number += self._update_in_order(record, written, newest)
                self._delete(record.namespace, deleted, ordered=True)
        return number

    def _update_in_order(
        self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp
    ) -> int:
        """Write documents and updates one after the other; the number that was read again."""
        number = 0
        missing: list[bytes] = []
        while outcomes:
            statements = [update_statement(each) for each in outcomes]
            found, errors = self._parts.destination.update(record.namespace, statements, True)
            done = errors[0]["index"] if errors else len(outcomes)
            if found < done:
                missing.extend(self._missing(record.namespace, outcomes[:done]))
            if errors:
                # The command ended there. The others come after what is read again instead.
                self._write_again(record, [outcomes[done].key], newest)
                number += 1
            outcomes = outcomes[done + 1 :]
        self._write_again(record, missing, newest)
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
        refused = self._parts.destination.insert(namespace, documents)
        if len(refused) > len(new) * _MANY_CLASHES:
            self._upserts_left = _UPSERTS_AFTER_CLASHES
        return others + [new[error["index"]] for error in refused]

    def _missing(self, namespace: Namespace, outcomes: list[Outcome]) -> list[bytes]:
        """The keys of updates whose document is not there."""
        keys = [each.key for each in outcomes if each.document is None]
        there = fetch(self._parts.client, namespace, keys, self._stop, only_ids=True)
        return [key for key in keys if canonical(key, id_element(key)) not in there]

    def _delete(self, namespace: Namespace, outcomes: list[Outcome], ordered: bool) -> None:
        if not outcomes:
            return
        try:
            self._parts.destination.delete(
                namespace, [delete_statement(e) for e in outcomes], ordered
            )
        except Refused as refused:
            raise _not_applicable(namespace, refused.errors[0]) from refused

    def _write_again(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        if not keys:
            return
        with self._rereading.hold(_bytes_to_read(record, keys)):
            self._replace(record, list(dict.fromkeys(keys)), newest)

    def _replace(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        for outcomes in self._refetch.outcomes(record, keys, newest):
            self._delete(record.namespace, [each for each in outcomes if each.deleted], False)
            written = [each for each in outcomes if not each.deleted]
            for literal in (False, True):
                # A pipeline only where it must be: servers abort in one that changes a field whose name is there twice.
                if written:
                    statements = [update_statement(each, literal) for each in written]
                    _, errors = self._parts.destination.update(record.namespace, statements, False)
                    written = [written[error["index"]] for error in errors]
            if written:
                raise _not_applicable(record.namespace, errors[0])


def _bytes_to_read(record: CollectionRecord, keys: Sequence[bytes]) -> int:
    """About what documents of these keys take that are in memory at once, going by the average of the copy."""
    average = record.copied // record.documents if record.documents else _UNKNOWN_SIZE
    return min(len(keys) * average, _MOST_REREAD)


def _not_applicable(namespace: Namespace, error: dict[str, object]) -> OperationError:
    return OperationError(
        EVENT_NOT_APPLICABLE,
        f"A write to {namespace} was refused with code {error['code']}: {error['errmsg']}",
    )
