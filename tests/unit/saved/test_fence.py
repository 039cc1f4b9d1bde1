"""Tests a Fence, a pool of sessions for writes: the IDs of the sessions, their transaction numbers and their order.

Also tests how long a command of a FencedWriter waits for another thread that shards the marks (the documents that are
updated to settle sessions), and how many writes follow without a transaction after one has failed.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import MagicMock
from uuid import UUID, uuid4

import pytest
from pymongo.client_session import ClientSession
from pymongo.errors import AutoReconnect

from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.fence import Fence, FencedWriter, Slot
from verifier.cluster.failures import CLUSTER_UNREACHABLE
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import Cancelled, StopToken

RUN = UUID(int=5)


def slots_of(fence: Fence) -> list[Slot]:
    with ExitStack() as stack:
        found: list[Slot] = []
        while not found or fence._free:
            found.append(stack.enter_context(fence.slot(StopToken())))
        return found


def test_every_engine_of_a_run_has_the_same_sessions() -> None:
    first, second = (
        {each.lsid for each in slots_of(Fence(RUN, epoch, slots=3))} for epoch in (1, 2)
    )
    assert first == second
    assert len(first) == 3


def test_another_run_has_other_sessions() -> None:
    first, second = ({each.lsid for each in slots_of(Fence(uuid4(), 1))} for _ in range(2))
    assert first.isdisjoint(second)


def test_the_sessions_of_definitions_are_no_slots() -> None:
    fence = Fence(RUN, 1)
    assert fence.definitions not in {each.lsid for each in slots_of(fence)}


def test_numbers_increase_from_one_epoch_to_the_next() -> None:
    (old,), (new,) = (slots_of(Fence(RUN, epoch, slots=1)) for epoch in (1, 2))
    first = [old.next_number() for _ in range(1000)]
    assert first == sorted({*first})
    assert first[-1] < new.next_number()


def test_numbers_are_of_64_bits_also_in_late_epochs() -> None:
    (slot,) = slots_of(Fence(RUN, 2**31 - 1, slots=1))
    assert 0 < slot.next_number() < 2**63


@pytest.mark.parametrize(("epoch", "settled"), [(1, True), (2, False), (7, False)])
def test_a_later_engine_begins_with_unsettled_slots(epoch: int, settled: bool) -> None:
    assert (Fence(RUN, epoch).unsettled == 0) is settled


def test_an_unsettled_slot_is_checked_out_first() -> None:
    fence = Fence(RUN, 1, slots=3)
    with fence.slot(StopToken()), fence.slot(StopToken()) as left:
        left.settled = False
    assert fence.unsettled
    with fence.slot(StopToken()) as slot:
        assert slot is left
        assert not fence.unsettled  # slots in use are ignored


def test_only_collections_whose_transaction_failed_are_remembered() -> None:
    writer = FencedWriter(MagicMock(), False, StopToken(), Fence(RUN, 1), METADATA_DATABASE, False)
    assert writer._takes_transaction("d", "c") and not writer._without
    writer._without["d", "c"] = 2
    assert [writer._takes_transaction("d", "c") for _ in range(3)] == [False, False, True]
    assert not writer._without


def test_a_slot_is_used_by_one_write_at_a_time() -> None:
    fence, stop = Fence(RUN, 1, slots=1), StopToken()
    stop.stop("enough")
    # A free slot is available even after a stop, so that an ending process can make a last save.
    with fence.slot(stop), pytest.raises(Cancelled), fence.slot(stop):
        raise AssertionError("the slot was given twice")


class _Unanswered(FencedWriter):
    """A writer to a sharded cluster that does not answer."""

    def __init__(self, epoch: int) -> None:
        fence = Fence(RUN, epoch, slots=1)
        super().__init__(MagicMock(), False, StopToken(), fence, METADATA_DATABASE, True)

    def _once(
        self, database: str, command: dict[str, Any], session: ClientSession | None = None
    ) -> dict[str, Any]:
        raise AutoReconnect("connection closed")


def test_a_command_waits_only_for_its_time_while_another_thread_shards_the_marks() -> None:
    writer = _Unanswered(epoch=2)
    with writer._spreading, impatient(0.05):
        with pytest.raises(OperationError, match="still saving the collection fences,") as raised:
            writer.settle()
    assert raised.value.kind is CLUSTER_UNREACHABLE


def test_a_failed_write_is_reported_although_another_thread_shards_the_marks() -> None:
    writer = _Unanswered(epoch=1)
    with writer._spreading, impatient(0.05), pytest.raises(AutoReconnect):
        writer.run("d", {"update": "c", "updates": []}, retried=False)
