"""Tests the cluster time of each page of a ChangeReader: no event that the reader has returned may be later.

Also tests how the reader handles a lost position, large events, and timeouts of the server's filter.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Int64, Timestamp
from pymongo import MongoClient
from pymongo.errors import NetworkTimeout, OperationFailure

from verifier.cluster import changes
from verifier.cluster.changes import ChangeReader, ChangeStream, Form, StreamPage
from verifier.cluster.connect import connect
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.failures import (
    CLUSTER_UNREACHABLE,
    EVENT_TOO_LARGE,
    OPLOG_WINDOW_EXCEEDED,
)
from verifier.cluster.oplog_reach import Reach
from verifier.cluster.rawcursor import RawCursor
from verifier.cluster.times import Position
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken

LOST = OperationFailure("the resume point may no longer be in the oplog", 286)
FACTS = ClusterFacts(Topology.REPLICA_SET, "h:1", (6, 0, 5), "id", False, None, None)
# The reader begins at the time 10. Each page has a time, the time of its position, whether this position is that of an
# event (else, it is a high-water mark), and the expected time. All times are in the same second; the numbers are their
# increments.
PAGES = [
    pytest.param([(12, 11, False, 12), (13, 13, True, 13)], id="usual"),
    pytest.param([(12, 12, True, 12), (11, 12, True, 12), (14, 13, True, 14)], id="failover"),
    pytest.param([(9, 10, True, 10)], id="failover after a restart"),
    pytest.param([(11, 12, True, 12), (11, 15, False, 14)], id="event of another shard"),
    pytest.param([(10, 11, False, 10), (11, 12, False, 11)], id="position in the future"),
    pytest.param(
        [(None, 11, False, 10), (None, 12, True, 12), (None, 14, False, 13)], id="no time"
    ),
]


def reply(time: int | None, position: int, event: bool) -> bytes:
    token = {"_data": f"82{1:08X}{position:08X}2B02{'2C0100' if event else '29'}296E04"}
    batch = {"id": Int64(7), "ns": "admin.$cmd.aggregate", "postBatchResumeToken": token}
    known = {} if time is None else {"operationTime": Timestamp(1, time)}
    return bson.encode({"cursor": {**batch, "nextBatch": []}, "ok": 1.0, **known})


@pytest.mark.parametrize("pages", PAGES)
def test_the_time_is_never_before_an_event(pages: list[tuple[int | None, int, bool, int]]) -> None:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        cursor = RawCursor(client, "admin", {"aggregate": 1})
        stream = ChangeStream(client, FACTS)
        reader = ChangeReader(stream, Position({}, Timestamp(1, 10)), StopToken())
        for time, position, event, expected in pages:
            page = reader._stream_page(cursor._page(reply(time, position, event), b"nextBatch"))
            assert page.source_time == Timestamp(1, expected)
            assert page.position.time == Timestamp(1, position)


def test_a_lost_position_can_be_reported_at_once() -> None:
    """With `awaits_oplog=False`, a lost position must be a final error: no other member may be asked for it."""
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        position = Position({}, Timestamp(1, 10))
        reader = ChangeReader(
            ChangeStream(client, FACTS), position, StopToken(), awaits_oplog=False
        )
        assert reader._classify(LOST) is None
        sharded = ChangeStream(client, replace(FACTS, topology=Topology.SHARDED))
        assert ChangeReader(sharded, position, StopToken())._classify(LOST) is not None
        assert (
            ChangeReader(sharded, position, StopToken(), awaits_oplog=False)._classify(LOST) is None
        )


@pytest.mark.parametrize(
    ("found", "topology", "kind", "said"),
    [
        (
            Reach(("m2:1",), ()),
            Topology.REPLICA_SET,
            CLUSTER_UNREACHABLE,
            "Members whose oplog reaches back far enough: m2:1. Another member may still have",
        ),
        (
            Reach((), ("m2:1",)),
            Topology.REPLICA_SET,
            CLUSTER_UNREACHABLE,
            "reaches back far enough: unknown, because m2:1 did not answer",
        ),
        (
            Reach((), ()),
            Topology.REPLICA_SET,
            OPLOG_WINDOW_EXCEEDED,
            "The oplog of the primary of the cluster cluster0 no longer reaches back to "
            "1970-01-01T00:00:01+00:00, nor does the oplog of any other member",
        ),
        (
            Reach(("m2:1",), ()),
            Topology.SHARDED,
            OPLOG_WINDOW_EXCEEDED,
            "The oplog of a shard of the cluster cluster0 no longer reaches back to",
        ),
    ],
)
def test_a_command_does_not_call_changes_lost_that_another_member_may_have(
    found: Reach,
    topology: Topology,
    kind: ErrorKind,
    said: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Read in a command, which does not wait for another primary: the error must not say that all oplogs are short."""

    class Stream(ChangeStream):
        def open(self, position: Position | None, form: Form = Form()) -> RawCursor:
            raise LOST

    monkeypatch.setattr(changes, "reach", lambda *arguments: found)
    facts = replace(FACTS, topology=topology)
    with connect("mongodb://host/?connect=false", "test", "cluster0") as client:
        reader = ChangeReader(Stream(client, facts), Position({}, Timestamp(1, 10)), StopToken())
        with impatient(0.0), pytest.raises(OperationError) as raised:
            next(reader.pages())
    assert raised.value.kind is kind
    assert said in raised.value.description


class _Opened(Exception):
    pass


@pytest.mark.parametrize("code", [10334, 7182500])
def test_a_stream_is_reopened_with_smaller_pages_at_a_large_event(code: int) -> None:
    """A server that divides large events fails with the second code at an event that it cannot divide."""
    forms: list[Form] = []

    class Stream(ChangeStream):
        def open(self, position: Position | None, form: Form = Form()) -> RawCursor:
            forms.append(form)
            raise _Opened if form.page.bare else OperationFailure("the event is too large", code)

    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        reader = ChangeReader(Stream(client, FACTS), Position({}, Timestamp(1, 10)), StopToken())
        with pytest.raises(_Opened):
            next(reader.pages())
    pages = [(each.page.events, each.page.bare) for each in forms]
    assert pages == [(5000, False), (500, False), (50, False), (5, False), (1, False), (1, True)]


def test_an_event_that_is_too_large_without_contents_has_an_error_name() -> None:
    class Stream(ChangeStream):
        def open(self, position: Position | None, form: Form = Form()) -> RawCursor:
            raise OperationFailure("the event is too large", 10334)

    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        reader = ChangeReader(Stream(client, FACTS), Position({}, Timestamp(1, 10)), StopToken())
        with pytest.raises(OperationError, match="too large") as raised:
            next(reader.pages())
    assert raised.value.kind is EVENT_TOO_LARGE


def test_a_window_of_the_filter_shrinks_after_each_timeout() -> None:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        reader = ChangeReader(
            ChangeStream(client, FACTS), Position({}, Timestamp(1, 0)), StopToken()
        )
        windows = []
        for _ in range(5):
            assert reader._classify(NetworkTimeout("timed out")) is not None
            windows.append(reader._form.window)
    assert windows == [60, 15, 3, 0, 0]


MATCHING = {"_id": 1, "operationType": "insert", "txnNumber": 1}
EMPTIED = {"_id": 1}
OF_TRANSACTION = {"_id": 1, "txnNumber": 1}


@pytest.mark.parametrize(
    ("window", "reached", "event", "following"),
    [
        pytest.param(None, Timestamp(500, 1), MATCHING, None, id="no window"),
        pytest.param(60, Timestamp(160, 9), MATCHING, 60, id="in the window"),
        pytest.param(60, Timestamp(161, 1), MATCHING, 120, id="after the window"),
        pytest.param(60, Timestamp(161, 1), EMPTIED, 120, id="after the window, emptied"),
        pytest.param(60, Timestamp(161, 1), OF_TRANSACTION, 60, id="no resume point"),
        pytest.param(60, Timestamp(120, 1), None, None, id="caught up"),
        pytest.param(60, Timestamp(100, 5), None, 60, id="a router that waits for a shard"),
        pytest.param(0, Timestamp(100, 6), MATCHING, 0, id="in a second with many events"),
        pytest.param(0, Timestamp(101, 1), MATCHING, 1, id="after this second"),
    ],
)
def test_a_window_of_the_filter_grows_until_the_reader_has_caught_up(
    window: int | None, reached: Timestamp, event: dict[str, Any] | None, following: int | None
) -> None:
    with MongoClient[dict[str, Any]]("mongodb://host", connect=False) as client:
        reader = ChangeReader(
            ChangeStream(client, FACTS), Position({}, Timestamp(100, 5)), StopToken()
        )
        reader._form = Form(window=window)
        reader._position = Position({}, reached)
        events = [] if event is None else [memoryview(bson.encode(event))]
        page = StreamPage(events, reader._position, Timestamp(600, 1))
        assert reader._next_form(page) == Form(window=following)
