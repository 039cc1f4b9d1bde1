"""Tests sources whose change streams are limited: with events above 16 MB, or with servers before MongoDB 6.0.

Other tests read change streams with a filter that matches few events.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from threading import Timer
from typing import Any

import bson
import pytest

from syncsvc.sandbox import ReplicaSet
from tests.integration.test_filters import EXCLUDE, INCLUDE, fill
from tests.support import writes
from tests.support.behaviours import UPDATES
from tests.support.daemon import Daemon
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, across
from tests.support.phases import PHASES, When, writes_in
from tests.support.resuming import assert_final
from tests.support.selection import full
from tests.support.waiting import PATIENCE
from verifier.cluster.changes import ChangeReader, ChangeStream, Form, start_position
from verifier.cluster.cluster import open_cluster
from verifier.cluster.connect import connect
from verifier.cluster.facts import gather
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.times import Position
from verifier.runtime.retry import Temporary
from verifier.runtime.tasks import StopToken

MEGABYTE = 1 << 20


def large_keys(client: writes.AnyClient) -> None:
    """Make writes whose change events are larger than 16 MB.

    Each event contains the document, its `_id`, and the `_id` again in its resume token.
    """
    large = client.d.large
    for number in range(2):
        key = f"{number}" + "k" * (3 * MEGABYTE)
        large.insert_one({"_id": key, "n": number, "pad": "p" * (5 * MEGABYTE)})
    client.d.c.update_one({"_id": 1}, {"$set": {"between": 1}})
    large.update_one({"_id": key}, {"$set": {"pad": "q" * (8 * MEGABYTE)}})
    large.delete_one({"n": 0})
    client.d.c.insert_one({"_id": "after"})


@pytest.mark.in_turns
@pytest.mark.parametrize("when", [When.COPY, When.APPLY], ids=lambda when: when.name)
def test_events_that_are_too_large_to_be_sent(pair: Pair, daemon: Daemon, when: When) -> None:
    writes.fill(pair.source.client)
    with writes_in(when, daemon):
        large_keys(pair.source.client)
    daemon.commit()
    pair.assert_equal()


@across(REPLICA_SETS, full(SHARDED))
@pytest.mark.parametrize("keys_only", [False, True])
def test_pages_that_are_too_large_with_their_resume_token(pair: Pair, keys_only: bool) -> None:
    """Read a page of events that is within the limit of 16 MB, but not together with the resume token after it."""
    cluster = open_cluster("source", pair.source.uri, "test")
    with cluster.client:
        stream = ChangeStream(cluster.client, cluster.facts, keys_only=keys_only)
        position = start_position(stream)
        documents = [{"_id": f"{number:02}" + "k" * MEGABYTE} for number in range(12)]
        for document in documents:
            pair.source.client.d.c.insert_one(document)
        pair.source.client.d.c.delete_one({"_id": documents[0]["_id"]})
        found: list[Any] = []
        for page in ChangeReader(stream, position, StopToken()).pages():
            found += map(bson.decode, page.events)
            if found and found[-1]["operationType"] == "delete":
                break
    changes = [each["documentKey"] for each in found if each["operationType"] != "create"]
    assert changes == [*documents, documents[0]]


class _Slow(ChangeStream):
    """A change stream for each event of which the server takes 20 ms before it applies the filter."""

    def _pipeline(self, position: Position | None, form: Form) -> Iterator[dict[str, Any]]:
        first, *others = super()._pipeline(position, form)
        slow = {"body": "function() { sleep(20); return true; }", "args": [], "lang": "js"}
        yield first
        yield {"$_internalInhibitOptimization": {}}
        yield {"$match": {"$expr": {"$function": slow}}}
        yield {"$_internalInhibitOptimization": {}}
        yield from others


@pytest.mark.full
def test_a_filter_that_nothing_matches_for_longer_than_the_driver_waits(pair: Pair) -> None:
    """Let the server need 4 seconds to find the first event that matches the filter, and the driver wait for one.

    A mongos answers earlier, without events, while it waits for its shards.
    """
    client, stop = connect(pair.source.uri, "test", socket_ms=1000), StopToken()
    with client:
        only_d = NamespaceFilter(include=[{"database": "d"}])
        stream = _Slow(client, gather(client), namespaces=only_d, page_events=10)
        position = start_position(stream)
        pair.source.client.other.c.insert_many([{"_id": number} for number in range(200)])
        pair.source.client.d.c.insert_one({"_id": "last"})
        deadline = Timer(PATIENCE, stop.stop, ["the stream does not advance"])
        deadline.start()
        try:
            pages = ChangeReader(stream, position, stop).pages()
            events = (bson.decode(each) for page in pages for each in page.events)
            assert any(each.get("documentKey") == {"_id": "last"} for each in events)
        finally:
            deadline.cancel()


@pytest.mark.in_turns(2)
@across(REPLICA_SETS, full(SHARDED))
@pytest.mark.parametrize("keys_only", [False, True])
@pytest.mark.parametrize("step", [0, 6])
def test_a_window_of_the_filter_leaves_out_the_same_events(
    pair: Pair, keys_only: bool, step: int
) -> None:
    """Read the same changes with a filter that always applies, and with one that does not apply at first.

    If a caller got only some changes of an excluded collection, and the sync has copied the collection after a rename
    into the filter, the older changes would undo newer ones.
    """
    with connect(pair.source.uri, "test") as client:
        stream = ChangeStream(
            client,
            gather(client),
            keys_only=keys_only,
            namespaces=NamespaceFilter(INCLUDE, EXCLUDE),
            page_events=7,
        )
        position = start_position(stream)
        fill(pair.source.client)
        pair.source.client.other.create_collection("series", timeseries={"timeField": "t"})
        pair.source.client.other.series.insert_one({"t": datetime.now(UTC)})
        pair.source.client.hr.c.insert_one({"_id": "last"})

        def tokens(form: Form) -> Iterator[str]:
            reader = ChangeReader(stream, position, StopToken())
            reader._form = form
            for page in reader.pages():
                for event in map(bson.decode, page.events):
                    yield event["_id"]["_data"]
                    if event.get("documentKey") == {"_id": "last"}:
                        return

        assert [*tokens(Form(step, window=0))] == [*tokens(Form(step))]


def test_a_window_does_not_end_where_the_server_cannot_resume(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """MongoDB 6.0 cannot resume, with the filter, after an event of a transaction that does not match the filter."""
    errors = []
    classify = ChangeReader._classify

    def noted(reader: ChangeReader, error: BaseException) -> Temporary | None:
        errors.append(error)
        return classify(reader, error)

    monkeypatch.setattr(ChangeReader, "_classify", noted)
    source, stop = pair.source.client, StopToken()
    source.other.create_collection("c")
    with connect(pair.source.uri, "test") as client:
        only_d = NamespaceFilter(include=[{"database": "d"}])
        stream = ChangeStream(client, gather(client), namespaces=only_d, page_events=7)
        position = start_position(stream)
        end = position.time.time + 4
        while source.admin.command("ping")["operationTime"].time < end:
            with source.start_session() as session, session.start_transaction():
                source.other.c.insert_many([{} for _ in range(5)], session=session)
        source.d.c.insert_one({"_id": "last"})
        reader = ChangeReader(stream, position, stop)
        reader._form = Form(window=0)
        events = (bson.decode(each) for page in reader.pages() for each in page.events)
        assert any(each.get("documentKey") == {"_id": "last"} for each in events)
    assert errors == []


@pytest.mark.full
def test_an_id_too_large_for_any_event_fails_the_sync_by_name(pair: Pair, daemon: Daemon) -> None:
    """Each event contains the `_id` in the document key, and again in the resume token, where it is twice as long."""
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    pair.source.client.d.c.insert_one({"_id": "k" * (6 * MEGABYTE)})
    assert daemon.wait_for_state("FAILED")["error"] == "EventTooLarge"
    assert_final(daemon)


@pytest.fixture
def unknowing(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Run a daemon that treats the source, a MongoDB 6.0 server, like a MongoDB 5.0 server."""
    process = pair.daemon(tmp_path)
    process.believe_the_source_is_old()
    with process.running():
        yield process


@pytest.mark.full
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_documents_of_a_source_without_uuids_in_events_are_synced(
    pair: Pair, unknowing: Daemon, when: When
) -> None:
    client = pair.source.client
    some = UPDATES[::3]
    for each in some:
        each.fill(client[each.name])
    with writes_in(when, unknowing):
        for each in some:
            each.change(client[each.name])
    unknowing.commit()
    pair.assert_equal()


@pytest.fixture(scope="module")
def old_source() -> Iterator[ReplicaSet]:
    """Start a replica set with the mongod that the variable SYNCSVC_MONGOD_50 names; skip the test if it is not set."""
    binary = os.environ.get("SYNCSVC_MONGOD_50")
    if not binary:
        pytest.skip("SYNCSVC_MONGOD_50 names no mongod of version 5.0")
    with ReplicaSet(name="old", binary=Path(binary)) as source:
        yield source


def test_a_real_source_of_5_0(old_source: ReplicaSet, pair: Pair, daemon: Daemon) -> None:
    successor = Daemon(old_source.uri, pair.destination.uri, daemon.folder / "old")
    successor.folder.mkdir()
    with old_source.client() as client:
        writes.fill(client)
        with successor.running():
            with writes_in(When.APPLY, successor):
                writes.single_document_writes(client)
                writes.hot_document(client)
            successor.commit()
        assert client.d.c.count_documents({}) == pair.destination.client.d.c.count_documents({})
        assert list(client.d.c.find().sort("_id")) == list(
            pair.destination.client.d.c.find().sort("_id")
        )
