"""Tests which documents are saved for the next generation (round of rechecks). A fake replaces the saved state."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any, cast

import bson
import pytest
from bson.timestamp import Timestamp

from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.rechecks import Rechecks
from verifier.compare.record import CheckRecord, Request, SideRecord
from verifier.compare.store import CheckStore
from verifier.compare.task import Recheck, recheck_of, whole_collection

NAMESPACE = Namespace("d", "c")
SIDE = SideRecord(Position({}, Timestamp(1, 1)))


@dataclass
class Store:
    record: CheckRecord = CheckRecord("", ("", ""), Request(), 0.0, SIDE, SIDE)
    saved: list[tuple[int, Recheck]] = field(default_factory=list)

    def add_rechecks(self, generation: int, rechecks: list[Recheck]) -> None:
        self.saved.extend((generation, each) for each in rechecks)

    def update(self, **changes: Any) -> None:
        self.record = replace(self.record, **changes)

    def has_rechecks(self, generation: int) -> bool:
        return any(each == generation for each, _ in self.saved)


def recheck(number: int, since: float | None = None) -> Recheck:
    return recheck_of(NAMESPACE, bson.encode({"_id": number}), since)


def rechecks_of(store: Store, most_remembered: int = 1000) -> Rechecks:
    return Rechecks(cast(CheckStore, store), most_remembered)


BUCKET = recheck_of(NAMESPACE.buckets, bson.encode({"_id": 1}))


@pytest.mark.parametrize(
    "before, added, saved",
    [
        ([recheck(1)], recheck(1), False),
        ([recheck(1)], recheck(2), True),
        ([recheck(1)], recheck(1, since=1.0), True),
        ([recheck(1, since=1.0)], recheck(1), True),
        ([whole_collection(NAMESPACE)], recheck(1), False),
        ([whole_collection(NAMESPACE)], BUCKET, False),
        ([whole_collection(NAMESPACE)], whole_collection(NAMESPACE), False),
        ([whole_collection(NAMESPACE)], recheck(1, since=1.0), True),
        ([recheck(1)], whole_collection(NAMESPACE), True),
    ],
)
def test_a_recheck_that_is_already_planned_is_not_saved_again(
    before: list[Recheck], added: Recheck, saved: bool
) -> None:
    rechecks = rechecks_of(store := Store())
    rechecks.add(before)
    rechecks.add([added])
    assert ((1, added) in store.saved[len(before) :]) is saved


def test_rechecks_are_remembered_for_one_generation_only() -> None:
    rechecks = rechecks_of(store := Store())
    rechecks.add([recheck(1)])
    rechecks.begin_next()
    rechecks.add([recheck(1)])
    assert store.saved == [(1, recheck(1)), (2, recheck(1))]


def test_a_recheck_that_is_not_remembered_is_saved_twice() -> None:
    rechecks = rechecks_of(store := Store(), most_remembered=1)
    for _ in range(2):
        rechecks.add([recheck(1)])
        rechecks.add([recheck(2)])
    assert len(store.saved) == 3


@pytest.mark.parametrize(
    "added, of_changes, of_collections",
    [
        ([], False, False),
        ([recheck(1, since=1.0)], False, False),
        ([recheck(1)], True, False),
        ([whole_collection(NAMESPACE)], True, True),
    ],
)
def test_the_kinds_of_the_added_rechecks_are_reported(
    added: list[Recheck], of_changes: bool, of_collections: bool
) -> None:
    rechecks = rechecks_of(Store())
    rechecks.add(added)
    assert rechecks.of_changes is of_changes
    assert rechecks.begin_next() is of_collections
    assert rechecks.of_changes is False


def test_rechecks_of_an_earlier_process_count() -> None:
    store = Store()
    rechecks_of(store).add([recheck(1)])
    rechecks = rechecks_of(store)
    rechecks.resume()
    assert rechecks.of_changes
