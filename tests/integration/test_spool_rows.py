"""Tests that the event spool saves, reads and deletes its rows in order; a row holds one or more change events.

A process that replaces a killed one must find the rows.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID, uuid4

import bson
import pytest
from bson.timestamp import Timestamp

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.fence import Fence, FencedWriter
from syncsvc.saved.spool import Spool
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from tests.support.spools import SPOOL
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

pytestmark = across(REPLICA_SETS, SHARDED)

RUN = UUID(int=7)


def at(time: int) -> Position:
    return Position({"_data": f"82{time:016x}"}, Timestamp(time, 1))


def spool_of(pair: Pair, run: UUID = RUN, reversals: int = 0, fence: Fence | None = None) -> Spool:
    client, stop = pair.destination.client, StopToken()
    sharded = bool(pair.destination.shards)
    writer = FencedWriter(
        client, False, stop, fence or Fence.of_process(), METADATA_DATABASE, sharded
    )
    writer.settle()
    return Spool(client[METADATA_DATABASE], writer, run, reversals, stop)


def loaded(pair: Pair, position: Position) -> Spool:
    spool = spool_of(pair)
    spool.load(position)
    return spool


def event(number: int, size: int = 10) -> bytes:
    return bson.encode({"_id": number, "pad": random.Random(number).randbytes(size)})


def filled(pair: Pair, rows: int = 3) -> Spool:
    """Return a spool with `rows` rows of two events each.

    The first row covers the times 10 to 20, the second one 20 to 30, and so on.
    """
    spool = loaded(pair, at(10))
    for number in range(1, rows + 1):
        events = [event(10 * number), event(10 * number + 5)]
        spool.append(at(10 * number), at(10 * number + 10), events)
    return spool


def contents(spool: Spool, position: Position) -> list[bytes]:
    """Return the events of all rows of the spool that end after `position`, in order."""
    found: list[bytes] = []
    while row := spool.after(position):
        found += map(bytes, spool.read(row))
        position = row.end
    return found


def assert_damaged(error: pytest.ExceptionInfo[OperationError]) -> None:
    assert error.value.kind.name == "EventSpoolDamaged"


def test_a_successor_reads_what_was_saved(pair: Pair) -> None:
    spool = filled(pair)
    spool.append(at(40), at(50), [event(1, 15_900_000)])
    expected = contents(spool, at(10))
    assert len(expected) == 7 and len(expected[-1]) > 15_900_000
    successor = loaded(pair, at(10))
    assert contents(successor, at(10)) == expected
    assert (successor.begin, successor.end, successor.size) == (
        Timestamp(10, 1),
        at(50),
        spool.size,
    )
    assert contents(successor, at(25)) == expected[2:]
    successor.append(at(50), at(60), [event(60)])
    assert contents(loaded(pair, at(10)), at(50)) == [event(60)]


def test_applied_rows_are_deleted(pair: Pair) -> None:
    spool = filled(pair)
    rows = pair.destination.client[METADATA_DATABASE][SPOOL]
    assert rows.count_documents({}) == 6
    spool.forget(at(29))
    assert rows.count_documents({}) == 4 and spool.begin == Timestamp(20, 1)
    assert contents(spool, at(29)) == contents(loaded(pair, at(29)), at(29))
    assert loaded(pair, at(40)).end is None
    assert rows.count_documents({}) == 0


def test_a_stream_without_events_needs_one_row(pair: Pair) -> None:
    spool = filled(pair, 1)
    for time in range(20, 50, 10):
        spool.append(at(time), at(time + 10), [])
    assert pair.destination.client[METADATA_DATABASE][SPOOL].count_documents({}) == 3
    spool.append(at(50), at(60), [event(55)])
    successor = loaded(pair, at(10))
    assert successor.end == at(60)
    assert contents(successor, at(20)) == [event(55)]


def test_a_row_whose_header_was_not_saved_does_not_exist(pair: Pair) -> None:
    """Remove the header of a row, as if a process had been killed while it saved or deleted the row.

    The next process must ignore the row.
    """
    filled(pair)
    rows = pair.destination.client[METADATA_DATABASE][SPOOL]
    rows.delete_one({"_id.number": 2, "_id.part": 0})
    successor = loaded(pair, at(10))
    assert successor.end == at(30)
    successor.append(at(30), at(35), [event(3)])
    assert contents(loaded(pair, at(10)), at(30)) == [event(3)]
    rows.delete_one({"_id.number": 0, "_id.part": 0})
    assert contents(loaded(pair, at(20)), at(30)) == [event(3)]


def test_missing_rows_are_found(pair: Pair) -> None:
    filled(pair)
    rows = pair.destination.client[METADATA_DATABASE][SPOOL]
    rows.delete_one({"_id.number": 1, "_id.part": 0})
    with pytest.raises(OperationError) as error:
        loaded(pair, at(10))
    assert_damaged(error)
    # From this position on, the missing row is not needed.
    assert loaded(pair, at(30)).end == at(40)
    rows.delete_one({"_id.number": 2, "_id.part": 1})
    spool = loaded(pair, at(30))
    with pytest.raises(OperationError) as error:
        contents(spool, at(30))
    assert_damaged(error)
    with pytest.raises(OperationError) as error:
        loaded(pair, at(20))
    assert_damaged(error)


def test_a_former_engine_changes_no_rows(pair: Pair) -> None:
    run = uuid4()
    former = spool_of(pair, fence=Fence(run, 1))
    former.load(at(10))
    former.append(at(10), at(20), [event(10)])
    successor = spool_of(pair, fence=Fence(run, 2))
    successor.load(at(10))
    changes: tuple[Callable[[], object], ...] = (
        lambda: former.append(at(20), at(30), [event(99)]),
        lambda: former.forget(at(20)),
        former.clear,
    )
    for change in changes:
        with pytest.raises(OperationError) as refused:
            change()
        assert refused.value.kind.name == "Superseded"
    successor.append(at(20), at(40), [event(20)])
    assert contents(loaded(pair, at(10)), at(10)) == [event(10), event(20)]


def test_runs_and_directions_do_not_see_each_other(pair: Pair) -> None:
    spool = filled(pair)
    others = [spool_of(pair, UUID(int=8)), spool_of(pair, reversals=1), spool_of(pair, reversals=2)]
    for each in others:
        assert not each.is_saved(StopToken())
        each.load(at(10))
        assert each.end is None
        each.append(at(10), at(99), [event(99)])
    assert spool_of(pair).is_saved(StopToken())
    assert loaded(pair, at(10)).end == at(40)
    spool.clear()
    assert loaded(pair, at(10)).end is None and not spool_of(pair).is_saved(StopToken())
    for each in others:
        assert contents(each, at(10)) == [event(99)]
