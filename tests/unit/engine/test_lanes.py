"""Tests how a batch combines events into outcomes, and how ordered outcomes are split into writes and deletes.

There is one outcome for each document. Where the order matters (in capped collections, and for keys that a collation
may treat as equal), there is one for each event.
"""

from __future__ import annotations

from typing import Any

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.engine.documents.translate import Outcome
from syncsvc.engine.documents.writing import runs
from syncsvc.engine.events.dispatch import group_of
from syncsvc.engine.events.lanes import _Batch
from syncsvc.saved.registry import CollectionRecord
from tests.unit.syncsvc.records import collection_record
from verifier.cluster.events import DataEvent, DataKind

PLAIN = collection_record()
CAPPED = collection_record({"capped": True, "size": 4096})
COLLATED = collection_record({"collation": {"locale": "de", "strength": 1}})


def event(identity: Any, kind: DataKind = DataKind.DELETE, body: bytes = b"") -> DataEvent:
    return DataEvent(kind, PLAIN.uuid, bson.encode({"_id": identity}), body)


def insert(identity: Any, n: int) -> DataEvent:
    return event(identity, DataKind.INSERT, bson.encode({"_id": identity, "n": n}))


def batched(record: CollectionRecord, *events: DataEvent) -> list[Outcome]:
    batch = _Batch()
    for each in events:
        batch.add(record, group_of(record, each), each)
    (part,) = batch.parts
    assert part.events == len(events)
    return list(part.outcomes.values())


class TestBatch:
    def test_events_of_one_document_are_folded(self) -> None:
        outcomes = batched(PLAIN, insert(1, 1), insert(2, 2), insert(1.0, 3), event(2))
        assert [each.deleted for each in outcomes] == [False, True]
        assert bson.decode(outcomes[0].document or b"")["n"] == 3

    @pytest.mark.parametrize("record", [CAPPED, COLLATED])
    def test_events_in_order_are_not_folded(self, record: CollectionRecord) -> None:
        outcomes = batched(record, insert("a", 1), event("a"), insert("A", 2))
        assert [each.deleted for each in outcomes] == [False, True, False]

    def test_collections_are_kept_apart(self) -> None:
        other = collection_record(uuid=b"o" * 16)
        batch = _Batch()
        batch.add(PLAIN, 1, insert(1, 1))
        batch.add(other, 1, insert(1, 2)._replace(collection=other.uuid))
        assert [(part.record.uuid, part.events) for part in batch.parts] == [
            (PLAIN.uuid, 1),
            (other.uuid, 1),
        ]


def write(identity: Any) -> Outcome:
    return Outcome(bson.encode({"_id": identity}), document=b"x")


def delete(identity: Any) -> Outcome:
    return Outcome(bson.encode({"_id": identity}), deleted=True)


def shown(outcomes: list[Outcome], collated: bool) -> list[str]:
    """Return the pairs (writes, deletes) into which `runs` splits the outcomes, each pair as a string.

    For example, "ab|c" stands for writes of the `_id`s a and b, and then a delete of c. `collated` says whether the
    collection has a collation.
    """
    pairs = runs(outcomes, collated)
    return ["|".join("".join(_id(each) for each in half) for half in pair) for pair in pairs]


def _id(outcome: Outcome) -> str:
    return str(bson.decode(outcome.key)["_id"])


A, B, NO_A, NO_B = write("a"), write("b"), delete("a"), delete("b")


@pytest.mark.parametrize(
    "outcomes, capped, collated",
    [
        ([], ["|"], ["|"]),
        ([A, B], ["ab|"], ["ab|"]),
        ([A, NO_A], ["a|a"], ["a|a"]),
        ([NO_A, B], ["b|a"], ["|a", "b|"]),
        ([NO_A, A], ["|a", "a|"], ["|a", "a|"]),
        ([A, NO_A, B, NO_B], ["ab|ab"], ["a|a", "b|b"]),
        ([A, NO_A, A, NO_A], ["a|a", "a|a"], ["a|a", "a|a"]),
        ([delete(1), write(1.0)], ["|1", "1.0|"], ["|1", "1.0|"]),
    ],
)
def test_ordered_outcomes_are_split_if_a_document_recurs(
    outcomes: list[Outcome], capped: list[str], collated: list[str]
) -> None:
    assert shown(outcomes, collated=False) == capped
    assert shown(outcomes, collated=True) == collated


steps = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=12)


def effect(present: list[str], identity: str, deleted: bool) -> list[str]:
    """Return the `_id`s in a capped collection, in the order of insertion, after one more insert or delete.

    An insert of an existing `_id` changes nothing.
    """
    if deleted:
        return [each for each in present if each != identity]
    return present if identity in present else [*present, identity]


@given(steps, st.booleans())
def test_pairs_have_the_same_effect_as_single_outcomes(
    outcomes: list[tuple[str, bool]], collated: bool
) -> None:
    one_by_one: list[str] = []
    for identity, deleted in outcomes:
        one_by_one = effect(one_by_one, identity, deleted)
    in_pairs: list[str] = []
    made = [delete(identity) if deleted else write(identity) for identity, deleted in outcomes]
    for written, gone in runs(made, collated):
        for each in [*written, *gone]:
            in_pairs = effect(in_pairs, _id(each), each.deleted)
    assert in_pairs == one_by_one
