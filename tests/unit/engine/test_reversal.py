"""A reversed sync begins where the commit ended, with the collections that the commit left on the destination."""

from __future__ import annotations

from dataclasses import replace

import pytest
from bson import Timestamp

from syncsvc.engine.reversal import coordinator_reversal, follower_reversal, mirrored
from syncsvc.options import StartOptions
from syncsvc.saved.registry import CopyStatus
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import START, collection_record, run_record
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position

REVERSE_START = Position({"_data": "8266"}, Timestamp(1700009999, 3))
THERE = bytes(range(16, 32))
ENTRIES = ({"from": {"database": "d"}, "to": {"database": "e"}},)


def test_a_reversal_resets_the_progress_of_the_run() -> None:
    committed = run_record(
        state=State.COMMITTED,
        phase=Phase.DONE,
        start=START,
        position=START,
        copy_end=START.time,
        commit_time=START.time,
        steps=("definitions prepared",),
        can_write=True,
        reverse_start=REVERSE_START,
        found_blocked={"cluster0": False},
        repair=2,
        repaired=2,
        repair_done=2,
        commit_repairs=2,
        repair_requests=1,
        repair_requests_met=1,
        repaired_documents=50,
        repaired_definitions=3,
    )
    record = replace(committed, **coordinator_reversal(committed, REVERSE_START, []))
    assert (record.source, record.destination) == (committed.destination, committed.source)
    assert record == run_record(
        state=State.COMMITTED,
        phase=Phase.REVERSING,
        start=REVERSE_START,
        position=REVERSE_START,
        copy_end=REVERSE_START.time,
        reversals=1,
        committed=START,
        found_blocked={"cluster0": False},
        repair=2,
        repaired=2,
        repair_done=2,
    )
    again = replace(record, **coordinator_reversal(record, START, []))
    assert (again.source, again.destination) == (committed.source, committed.destination)


@pytest.mark.parametrize(
    "others, attempt",
    [
        ([], 0),
        ([{"reversals": 0, "attempt": 3}], 0),
        ([{"reversals": 1}], 0),
        ([{"reversals": 1, "attempt": 1}, {"reversals": 0, "attempt": 3}], 1),
    ],
)
def test_a_reversal_joins_the_attempt_of_the_instances_that_began_it(
    others: list[dict[str, int]], attempt: int
) -> None:
    """An instance may have failed in the reversal and been resumed before this one gets the command."""
    committed = run_record(instance="b", instances=("a", "b"), state=State.COMMITTED, attempt=2)
    records = [run_record(instance="a", instances=("a", "b"), **each) for each in others]
    for changes in (
        coordinator_reversal(committed, REVERSE_START, records),
        follower_reversal(committed, records),
    ):
        assert changes["attempt"] == attempt


def test_a_reversed_record_has_the_uuid_of_the_destination() -> None:
    index = {"v": 2, "key": {"a": 1}, "name": "a"}
    unique = {"v": 2, "key": {"b": 1}, "name": "b", "unique": True}
    record = collection_record({}, index, unique, status=CopyStatus.DONE, copied=7, documents=2)
    (found,) = mirrored([record], {Namespace("shop", "orders.old"): THERE})
    assert found.uuid == THERE
    assert (found.status, found.copied, found.documents) == (CopyStatus.DONE, 7, 2)
    assert found.source_name == record.source_name
    # A repair recognizes the collection on the new destination, which was the source.
    assert found.destination_uuid == record.uuid
    # The index is not unique yet: a change event reports when it becomes unique.
    prepared = {"v": 2, "key": {"b": 1}, "name": "b", "prepareUnique": True}
    assert found.definition.indexes == {"a": index, "b": prepared}


def test_the_names_of_a_renamed_collection_change_places() -> None:
    here, there = Namespace("shop", "orders"), Namespace("store", "sales")
    record = collection_record(namespace=there, source_name=here)
    (found,) = mirrored([record], {there: THERE, here: bytes(16)})
    assert (found.uuid, found.source_name, found.definition.namespace) == (THERE, there, here)


def test_a_reversal_inverts_the_map_of_names() -> None:
    options = StartOptions(
        "cluster0", "cluster1", namespace_remap=ENTRIES, copy_in_natural_order=({"database": "d"},)
    )
    record = run_record(options=options)
    back = replace(record, reversals=1)
    assert record.names.to_destination(Namespace("d", "a")) == Namespace("e", "a")
    assert back.names.to_destination(Namespace("e", "a")) == Namespace("d", "a")
    assert replace(record, reversals=2).names == record.names
    # Options such as `copyInNaturalOrder` always contain names of the first source.
    assert record.in_natural_order(Namespace("d", "a"))
    assert back.in_natural_order(Namespace("e", "a"))
    assert not back.in_natural_order(Namespace("x", "a"))


def test_a_missing_collection_is_left_out_of_a_reversal() -> None:
    assert list(mirrored([collection_record()], {Namespace("shop", "other"): THERE})) == []
