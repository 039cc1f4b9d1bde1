"""Writes what a batch of change events makes of the documents of a collection.

As one insert, one update and one delete command. No document is in two of them, so they do not depend on each other.
How events are grouped, not the language, decides the speed: bulks cut wherever update and delete alternate are eight
times slower. What the destination refuses, and what it lacks, is read again from the source.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import groupby
from operator import attrgetter
from typing import Any

from bson.timestamp import Timestamp
from pymongo.errors import PyMongoError

from syncsvc.engine.destination import Refused, refusal
from syncsvc.engine.parts import Parts
from syncsvc.engine.refetch import Refetch
from syncsvc.engine.translate import Outcome, delete_statement, insertable, update_statement
from syncsvc.engine.whole import write_whole
from syncsvc.errors import EVENT_NOT_APPLICABLE
from syncsvc.saved.registry import CollectionRecord
from verifier.cluster import failures
from verifier.cluster.keys import canonical, id_element, shown
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


# A statement that was refused, by its `index`, with the server's `code` and `errmsg` if it said so.
WriteError = dict[str, Any]


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
            found, errors = self._update(record.namespace, written, ordered=False)
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
            found, errors = self._update(record.namespace, outcomes, ordered=True)
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

    def _update(
        self, namespace: Namespace, outcomes: list[Outcome], ordered: bool
    ) -> tuple[int, list[WriteError]]:
        """Run the update statements of outcomes: how many found their document, and which were refused.

        A server of 6.0 ends when a pipeline changes a field whose name is in its document twice. So what has a pipeline
        is never sent again after the connection was lost, but counts as refused, and is read again.
        """
        destination = self._parts.destination
        statements = [update_statement(each) for each in outcomes]
        risky = [number for number, each in enumerate(outcomes) if each.stages and not each.sets]
        if not risky:
            return destination.update(namespace, statements, ordered)
        try:
            return destination.update(namespace, statements, ordered, repeat=False)
        except PyMongoError as error:
            if not failures.is_transient(error):
                raise
        sent = range(risky[0]) if ordered else sorted(set(range(len(outcomes))) - set(risky))
        found, errors = 0, list[WriteError]()
        if sent:
            found, errors = destination.update(namespace, [statements[n] for n in sent], ordered)
        refused = [{**error, "index": sent[error["index"]]} for error in errors]
        if ordered:
            return found, refused or [{"index": risky[0]}]
        return found, refused + [{"index": number} for number in risky]

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
            error = refused.errors[0]
            key = outcomes[error["index"]].key
            raise _not_applicable(namespace, key, refusal(error)) from refused

    def _write_again(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        if not keys:
            return
        with self._rereading.hold(_bytes_to_read(record, keys)):
            self._replace(record, list(dict.fromkeys(keys)), newest)

    def _replace(self, record: CollectionRecord, keys: list[bytes], newest: Timestamp) -> None:
        for outcomes in self._refetch.outcomes(record, keys, newest):
            self._delete(record.namespace, [each for each in outcomes if each.deleted], False)
            left = [each for each in outcomes if not each.deleted]
            left, error = write_whole(self._parts, record, left, False, self._stop)
            if left:
                raise _not_applicable(record.namespace, left[0].key, error)


def _bytes_to_read(record: CollectionRecord, keys: Sequence[bytes]) -> int:
    """About what documents of these keys take that are in memory at once, going by the average of the copy."""
    average = record.copied // record.documents if record.documents else _UNKNOWN_SIZE
    return min(len(keys) * average, _MOST_REREAD)


def _not_applicable(namespace: Namespace, key: bytes, error: str) -> OperationError:
    return OperationError(
        EVENT_NOT_APPLICABLE,
        f"A write of the document with _id {shown(key)} to {namespace} was refused: {error}.",
    )
