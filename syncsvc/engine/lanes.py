"""Lanes apply data events. All events of one document go through one lane, in order; lanes work side by side.

A lane folds the events that wait for it into one outcome a document, and writes the outcomes of a collection as one
update command and one delete command. No document is in both, so the two do not depend on each other. How events are
grouped, not the language, decides the speed: bulks cut wherever update and delete alternate are eight times slower.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import NamedTuple

from bson.timestamp import Timestamp

from syncsvc.engine.destination import Refused
from syncsvc.engine.frontier import Entry, Frontier
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from syncsvc.engine.refetch import Refetch
from syncsvc.engine.translate import (
    Outcome,
    delete_statement,
    fold,
    insertable,
    update_statement,
)
from syncsvc.errors import EVENT_NOT_APPLICABLE
from syncsvc.store import CollectionRecord
from verifier.cluster.events import DataEvent
from verifier.cluster.keys import canonical, id_element
from verifier.cluster.lookup import fetch
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Budget, Channel, StopToken

# Events on their way over all lanes, from being handed on to being applied; and how much one lane applies at once. In
# bytes.
_BYTES_ON_THE_WAY = 24 << 20
_BATCH_BYTES = 4 << 20
# So many lanes read documents again at once, each up to 16 MB that no event tells of.
_REREADING = 1

# An insert costs the destination a quarter of an upsert, but twice as much when the document is there: while events are
# replayed over a copy that has them, or again after a restart. After a batch in which this share of the inserts met
# their document, so many are upserted before the next is tried. A command for fewer than a few saves nothing.
_MANY_CLASHES = 0.1
_UPSERTS_AFTER_CLASHES = 5_000
_FEW = 4

# The group of all documents of a collection together, whose events keep their order and are not folded.
IN_ORDER = object()


# An event with its collection and its group.
Item = tuple[CollectionRecord, Hashable, DataEvent]


class Portion(NamedTuple):
    """The part of a page of events that is for one lane.

    `source_time` is the source's time when the page came, which none of the events is after; `size` is in bytes.
    """

    events: list[Item]
    entry: Entry[Position]
    source_time: Timestamp
    size: int


def runs(
    outcomes: Sequence[Outcome], in_order: bool, collated: bool
) -> Iterator[tuple[list[Outcome], list[Outcome]]]:
    """Outcomes as pairs of writes and then deletes, to be carried out one pair after the other.

    One pair does where every document occurs once. Of outcomes in order, a delete may wait until the writes after it
    are done, as long as none of them is of the same document; with a collation nobody knows which keys are the same.
    """
    written: list[Outcome] = []
    deleted: list[Outcome] = []
    gone: set[Hashable] = set()
    for outcome in outcomes:
        if outcome.refetch:
            continue
        key = canonical(outcome.key, id_element(outcome.key)) if in_order else None
        if outcome.deleted:
            deleted.append(outcome)
            gone.add(key)
            continue
        if in_order and (key in gone or (collated and gone)):
            yield written, deleted
            written, deleted, gone = [], [], set()
        written.append(outcome)
    yield written, deleted


class Room:
    """What all lanes share, so that memory is bounded whatever waits for them."""

    def __init__(self, stop: StopToken) -> None:
        self.events = Budget(_BYTES_ON_THE_WAY, stop)
        self.rereading = Budget(_REREADING, stop)


class Lane:
    """One thread that applies portions."""

    def __init__(
        self, parts: Parts, frontier: Frontier[Position], room: Room, stop: StopToken
    ) -> None:
        self._parts = parts
        self._refetch = Refetch(parts, stop)
        self._frontier = frontier
        self._room = room
        self._stop = stop
        # Without a bound of its own: what waits here has its room.
        self._portions: Channel[Portion] = Channel(1 << 40, stop)
        self._upserts_left = 0

    def put(self, portion: Portion) -> None:
        """Hand on a portion; wait until there is room for it."""
        self._room.events.take(portion.size)
        self._portions.put(portion, portion.size)

    def run(self) -> None:
        """Apply portions until stopped."""
        while True:
            self._room.events.give_back(self._apply_waiting())

    def _apply_waiting(self) -> int:
        """Apply the portions that wait together; their size. They are gone, then, and may not be held any longer."""
        portions = self._waiting()
        self._apply(portions)
        for each in portions:
            self._frontier.finish(each.entry)
        return sum(each.size for each in portions)

    def _waiting(self) -> list[Portion]:
        first = self._portions.take()
        assert first is not None  # the channel is never closed
        portions, size = [first], first.size
        while size < _BATCH_BYTES and (more := self._portions.take_ready()):
            portions.append(more)
            size += more.size
        return portions

    def _apply(self, portions: Sequence[Portion]) -> None:
        batch = _Batch()
        for portion in portions:
            for record, group, event in portion.events:
                batch.add(record, group, event)
        newest = portions[-1].source_time
        refetched = 0
        for record, outcomes in batch.collections():
            refetched += self._write(record, outcomes, newest)
        events = sum(len(each.events) for each in portions)
        self._parts.progress.add(events_applied=events, documents_refetched=refetched)
        self._parts.observe(Point.EVENTS_APPLIED, str(newest))

    def _write(self, record: CollectionRecord, outcomes: list[Outcome], newest: Timestamp) -> int:
        """Write outcomes, in their order where the collection needs it; the number that was read again."""
        again = [each.key for each in outcomes if each.refetch]
        in_order = record.definition.capped or record.definition.collated
        if not in_order:
            outcomes = self._insert(record.namespace, outcomes)
        for written, deleted in runs(outcomes, in_order, record.definition.collated):
            again.extend(self._update(record.namespace, written, in_order))
            self._delete(record.namespace, deleted, in_order)
        if again:
            with self._room.rereading.hold(1):
                self._write_again(record, list(dict.fromkeys(again)), newest)
        return len(again)

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
        refused = self._parts.destination.try_insert(namespace, documents)
        if len(refused) > len(new) * _MANY_CLASHES:
            self._upserts_left = _UPSERTS_AFTER_CLASHES
        return others + [new[error["index"]] for error in refused]

    def _update(self, namespace: Namespace, outcomes: list[Outcome], ordered: bool) -> list[bytes]:
        """Write documents and updates; the keys for which that did not do."""
        if not outcomes:
            return []
        statements = [update_statement(each) for each in outcomes]
        found, errors = self._parts.destination.update(namespace, statements, ordered)
        refused = {error["index"] for error in errors}
        if ordered and refused:
            # An ordered command ends at its first error.
            refused.update(range(min(refused), len(outcomes)))
        keys = [outcomes[index].key for index in sorted(refused)]
        if found + len(refused) < len(outcomes):
            keys.extend(self._missing(namespace, outcomes))
        return keys

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


class _Batch:
    """Folds events into outcomes, by collection."""

    def __init__(self) -> None:
        self._records: dict[bytes, CollectionRecord] = {}
        self._folded: dict[bytes, dict[Hashable, Outcome]] = {}

    def add(self, record: CollectionRecord, group: Hashable, event: DataEvent) -> None:
        outcomes = self._folded.get(record.uuid)
        if outcomes is None:
            self._records[record.uuid] = record
            outcomes = self._folded[record.uuid] = {}
        if group is IN_ORDER:
            outcomes[len(outcomes), IN_ORDER] = fold(None, event)
        else:
            outcomes[group] = fold(outcomes.get(group), event)

    def collections(self) -> list[tuple[CollectionRecord, list[Outcome]]]:
        return [
            (self._records[uuid], list(outcomes.values()))
            for uuid, outcomes in self._folded.items()
        ]


def _not_applicable(namespace: Namespace, error: dict[str, object]) -> OperationError:
    return OperationError(
        EVENT_NOT_APPLICABLE,
        f"A write to {namespace} was refused with code {error['code']}: {error['errmsg']}",
    )
