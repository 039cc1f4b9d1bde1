"""All change events of one document must go to the same writer thread (lane), in order.

The position up to which all events count as applied (the frontier) must never pass an event that is not applied.
"""

from __future__ import annotations

from typing import Any

import bson
import pytest
from bson import Decimal128, Int64, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.engine.events.dispatch import Dispatcher, group_of, lane_of
from syncsvc.engine.events.event_share import Share
from syncsvc.engine.events.lanes import IN_ORDER, Lane, Portion, Room
from syncsvc.engine.run.frontier import Frontier
from syncsvc.engine.run.pace import Pace
from syncsvc.limits import Limit
from syncsvc.saved.registry import CollectionRecord
from syncsvc.tuning import Tuning
from tests.unit import documents
from tests.unit.engine.contexts import context_with
from tests.unit.syncsvc.records import START, collection_record
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.events import DataEvent, DataKind
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.runtime.tasks import StopToken

PLAIN = collection_record()
CAPPED = collection_record({"capped": True, "size": 4096})
COLLATED = collection_record({"collation": {"locale": "de", "strength": 1}})
SIMPLE = collection_record({"collation": {"locale": "simple"}})


def event(identity: Any, body: bytes = b"") -> DataEvent:
    return DataEvent(DataKind.DELETE, PLAIN.uuid, bson.encode({"_id": identity}), body)


ONE_KEY = [
    [1, 1.0, Int64(1), Decimal128("1.0")],
    [0, -0.0, Decimal128("-0")],
    [float("nan"), Decimal128("NaN")],
    [{"a": 1}, {"a": 1.0}],
    ["x", "x"],
]


@pytest.mark.parametrize("identities", ONE_KEY)
def test_equal_keys_of_different_types_have_one_group_and_one_lane(identities: list[Any]) -> None:
    groups = {group_of(PLAIN, event(each)) for each in identities}
    assert len(groups) == 1
    for lanes in (1, 3, 8):
        assert (
            len({lane_of(PLAIN, group_of(PLAIN, event(each)), lanes) for each in identities}) == 1
        )


@pytest.mark.parametrize("one, other", [(1, 2), (1, True), ("a", "A"), ({"a": 1}, {"a": 2})])
def test_different_keys_have_different_groups(one: Any, other: Any) -> None:
    assert group_of(PLAIN, event(one)) != group_of(PLAIN, event(other))


@pytest.mark.parametrize(
    "record, identity, in_order",
    [
        (PLAIN, "a", False),
        (SIMPLE, "a", False),
        (CAPPED, 1, True),
        (CAPPED, "a", True),
        (COLLATED, "a", True),
        (COLLATED, {"a": 1}, True),
        (COLLATED, 1, False),
        (COLLATED, bson.ObjectId(b"0" * 12), False),
    ],
)
def test_capped_and_collated_collections_are_kept_in_order(
    record: CollectionRecord, identity: Any, in_order: bool
) -> None:
    assert (group_of(record, event(identity)) is IN_ORDER) is in_order


@given(documents.values, st.integers(1, 16))
def test_every_key_has_a_lane(value: tuple[int, bytes], lanes: int) -> None:
    deleted = DataEvent(DataKind.DELETE, PLAIN.uuid, documents.key(*value), b"")
    for record in (PLAIN, CAPPED, COLLATED):
        assert 0 <= lane_of(record, group_of(record, deleted), lanes) < lanes


def test_documents_are_spread_over_all_lanes() -> None:
    used = {lane_of(PLAIN, group_of(PLAIN, event(number)), 4) for number in range(100)}
    assert used == {0, 1, 2, 3}


def test_an_ordered_collection_has_one_lane() -> None:
    used = {lane_of(CAPPED, group_of(CAPPED, event(number)), 4) for number in range(100)}
    assert len(used) == 1


CONTEXT = context_with(tuning=Tuning())
NOW = Timestamp(1800000000, 1)
AFTER = Position({"_data": "83"}, NOW)
LATER = Position({"_data": "84"}, NOW)


# Size of a small portion, in bytes.
SMALL = 1000


class Dispatch:
    """A Dispatcher with lanes that only collect portions of events, without applying them."""

    def __init__(
        self,
        lanes: int,
        portion_bytes: int = 1 << 20,
        filters: DocumentFilters = DocumentFilters(),
    ) -> None:
        self.frontier = Frontier(START)
        stop = StopToken()
        room = Room(Tuning(), stop)
        self.lanes = [Lane(CONTEXT, self.frontier, room, stop) for _ in range(lanes)]
        self.pace = Pace()
        self.dispatcher = Dispatcher(
            self.lanes, self.frontier, portion_bytes, self.pace, stop, Share(), filters
        )

    def add(self, *numbers: int, body: bytes = b"") -> None:
        for number in numbers:
            self.dispatcher.add(PLAIN, event(number, body), NOW)

    def handed_on(self) -> list[list[Portion]]:
        """Return the portions of events that were passed to each lane, and remove them from the lanes."""
        return [list(iter(lane._portions.take_ready, None)) for lane in self.lanes]

    def finish(self, portions: list[list[Portion]]) -> None:
        for portion in [each for lane in portions for each in lane]:
            self.frontier.finish(portion.entry)


def ids(portions: list[Portion]) -> list[int]:
    events = [each for portion in portions for _, _, each in portion.events]
    return [bson.decode(each.key)["_id"] for each in events]


class TestDispatcher:
    def test_a_position_is_passed_once_all_events_before_it_are_applied(self) -> None:
        events = Dispatch(3)
        events.add(*range(30))
        assert events.handed_on() == [[], [], []]
        events.dispatcher.end(AFTER, NOW)
        portions = events.handed_on()
        assert sorted(sum(map(ids, portions), [])) == list(range(30))
        assert events.frontier.passed == START
        events.finish(portions)
        assert (events.frontier.passed, events.frontier.drained) == (AFTER, True)

    def test_lanes_begin_early_but_the_position_waits_for_the_end(self) -> None:
        events = Dispatch(1, SMALL)
        events.add(*range(10))
        portions = events.handed_on()
        events.finish(portions)
        assert ids(portions[0]) and events.frontier.passed == START
        assert not events.frontier.drained
        events.dispatcher.end(AFTER, NOW)
        events.finish(events.handed_on())
        assert (events.frontier.passed, events.frontier.drained) == (AFTER, True)

    @pytest.mark.parametrize("kind", DataKind)
    def test_the_source_judges_each_document_that_a_filter_may_select(self, kind: DataKind) -> None:
        given = DataEvent(kind, PLAIN.uuid, bson.encode({"_id": 1}), b"contents", True)
        for name, is_judged in ((PLAIN.source_name, True), (Namespace("d", "other"), False)):
            events = Dispatch(1, filters=DocumentFilters({name: bson.encode({"a": 1})}))
            events.dispatcher.add(PLAIN, given, NOW)
            events.dispatcher.end(AFTER, NOW)
            ((_, _, passed),) = events.handed_on()[0][0].events
            if is_judged and kind is not DataKind.REREAD:
                assert passed == given._replace(kind=DataKind.UNTOLD, body=b"", raw_diff=False)
            else:
                assert passed == given

    def test_portions_are_small_and_have_the_size_of_their_events(self) -> None:
        events = Dispatch(2, SMALL)
        events.add(*range(50), body=b"x" * 100)
        for portion in sum(events.handed_on(), []):
            assert (
                portion.size == len(portion.events) * (400 + len(portion.events[0][2].key))
                and 1000 < portion.size <= 1400
            )

    def test_a_limit_that_is_set_while_the_source_is_idle_applies_to_the_next_events(self) -> None:
        events = Dispatch(1)
        events.pace.set_rates({Limit.EVENTS: 100})
        events.dispatcher.end(AFTER, NOW)
        events.add(*range(10))
        assert [len(each.events) for each in events.handed_on()[0]] == [10]

    def test_a_position_without_events_is_passed_immediately(self) -> None:
        events = Dispatch(2)
        events.dispatcher.end(AFTER, NOW)
        assert (events.frontier.passed, events.frontier.drained) == (AFTER, True)

    def test_without_a_position_the_previous_one_stays(self) -> None:
        events = Dispatch(1)
        events.dispatcher.end(AFTER, NOW)
        events.add(1)
        events.dispatcher.end(None, NOW)
        assert not events.frontier.drained
        events.finish(events.handed_on())
        assert (events.frontier.passed, events.frontier.drained) == (AFTER, True)

    def test_portions_carry_the_time_of_the_source(self) -> None:
        events = Dispatch(1)
        events.dispatcher.add(PLAIN, event(1), Timestamp(5, 1))
        events.dispatcher.end(AFTER, Timestamp(6, 1))
        assert [each.source_time for each in events.handed_on()[0]] == [Timestamp(6, 1)]

    @given(st.lists(st.integers(0, 9), max_size=60), st.integers(1, 4), st.integers(0, 3000))
    def test_every_event_goes_through_the_lane_of_its_document_in_order(
        self, numbers: list[int], lanes: int, size: int
    ) -> None:
        events = Dispatch(lanes, size)
        events.add(*numbers)
        events.dispatcher.end(AFTER, NOW)
        for lane, portions in enumerate(events.handed_on()):
            mine = [n for n in numbers if lane_of(PLAIN, group_of(PLAIN, event(n)), lanes) == lane]
            assert ids(portions) == mine

    def test_pages_are_passed_in_order(self) -> None:
        events = Dispatch(1)
        events.add(1)
        events.dispatcher.end(AFTER, NOW)
        first = events.handed_on()
        events.add(2)
        events.dispatcher.end(LATER, NOW)
        events.finish(events.handed_on())
        assert events.frontier.passed == START
        events.finish(first)
        assert events.frontier.passed == LATER
