"""Changes definitions during a check of the verifier.

A change on the source must end the check; a definition changed on the destination must be compared again. Other tests
compare time-series collections, documents that can expire, and options that only one server knows or sets.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from datetime import datetime, timedelta
from typing import Any

import bson
import pytest
from bson.timestamp import Timestamp
from pymongo import MongoClient, monitoring

from tests.support.checks import Checker
from tests.support.pair import Pair
from tests.support.waiting import wait_for
from verifier.cluster.cluster import Cluster
from verifier.cluster.connect import Client
from verifier.cluster.facts import gather
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.compare import worker
from verifier.compare.check_progress import Outcome
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.points import Point
from verifier.compare.record import Request
from verifier.compare.scope import Scope
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken

Change = Callable[[Any], object]

CHANGES: dict[str, Change] = {
    "create": lambda d: d.create_collection("new"),
    "drop": lambda d: d.c.drop(),
    "rename": lambda d: d.c.rename("renamed"),
    "dropDatabase": lambda d: d.client.drop_database("d"),
    "createIndexes": lambda d: d.c.create_index("a"),
    "dropIndexes": lambda d: d.c.drop_index("n_1"),
    "modify": lambda d: d.command({"collMod": "c", "validator": {"n": {"$gte": 0}}}),
    "view": lambda d: d.create_collection("view", viewOn="c"),
    "time-series": lambda d: d.create_collection("ts", timeseries={"timeField": "t"}),
}


def _fill(pair: Pair) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.c.insert_many({"_id": number, "n": number} for number in range(100))
        side.client.d.c.create_index("n")
        side.client.e.c.insert_one({"_id": 1})


@pytest.mark.in_turns(3)
@pytest.mark.parametrize("name", CHANGES)
def test_a_change_on_the_source_ends_the_check(pair: Pair, checker: Checker, name: str) -> None:
    _fill(pair)
    with checker.running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        CHANGES[name](pair.source.client.d)
        verdict = check.wait_for_verdict()
    assert (verdict.outcome, verdict.error) == (Outcome.INCOMPLETE, "DefinitionChanged")
    assert "d." in verdict.reasons[0]


def test_changes_outside_of_the_scope_are_ignored(pair: Pair, checker: Checker) -> None:
    _fill(pair)
    only = Request(Scope(NamespaceFilter(({"database": "e"},))))
    last = ("drop", "rename", "dropDatabase")
    with checker.running(only) as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        for name in (*(each for each in CHANGES if each not in last), "rename", "dropDatabase"):
            CHANGES[name](pair.source.client.d)
        check.end()
    check.assert_passed()
    assert check.check.figures.progress().source.seen == {}


def test_a_collection_created_during_the_check_is_compared(pair: Pair, checker: Checker) -> None:
    _fill(pair)
    pair.destination.client.d.c.drop()
    with checker.running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        assert check.definitions() == {("d.c", "missingOnDst", "exist", "")}
        late = pair.destination.client.d.c
        late.create_index("n")
        late.insert_many({"_id": number, "n": number} for number in range(1, 100))
        verdict = check.end()
    assert verdict.outcome is Outcome.FAILED
    assert [name for name, _ in check.documents()] == ["d.c"]
    assert check.definitions() == set()


def test_another_collation_is_a_mismatch_of_the_definition_only(
    pair: Pair, checker: Checker
) -> None:
    fill_with_two_collations(pair)
    check = checker.verdict()
    assert check.verdict is not None and check.verdict.outcome is Outcome.FAILED, check.verdict
    assert check.definitions() == {
        ("d.c", "extraOnDst", "spec", "collation"),
        ("d.c", "content", "spec", "idIndex"),
    }
    assert check.documents() == set()


def test_an_option_that_the_destination_does_not_know_is_not_missing(
    pair: Pair, checker: Checker
) -> None:
    pair.source.client.d.create_collection("c", recordPreImages=True, validationLevel="off")
    pair.destination.client.d.create_collection("c")
    level = ("d.c", "missingOnDst", "spec", "validationLevel")
    option = ("d.c", "missingOnDst", "spec", "recordPreImages")
    assert checker.verdict().definitions() == {level, option}
    assert checker.of_newer_destination().verdict().definitions() == {level}


def test_a_flag_that_the_server_has_set_is_not_extra(pair: Pair, checker: Checker) -> None:
    """Compare two time-series collections, one with the mixed-schema flag of patched servers: they are equal."""
    flag = "app_metadata=(timeseriesBucketsMayHaveMixedSchemaData=true)"
    series: dict[str, Any] = {"create": "ts", "timeseries": {"timeField": "t"}}
    pair.source.client.d.command(series)
    marked = {"storageEngine": {"wiredTiger": {"configString": flag}}}
    pair.destination.client.d.command({**series, **marked})
    checker.verdict().assert_passed()


def fill_with_two_collations(pair: Pair) -> None:
    """Fill `d.c` on both clusters with 5 MB of documents, which the two collations of `d.c` sort differently."""
    documents = [
        {"_id": f"{letter}{number:04}", "text": "x" * 1000}
        for number in range(2500)
        for letter in "aB"
    ]
    pair.destination.client.d.create_collection("c", collation={"locale": "en"})
    for side in (pair.source, pair.destination):
        side.client.d.c.insert_many(documents)


def test_a_collection_renamed_onto_another_is_compared_again(pair: Pair, checker: Checker) -> None:
    _fill(pair)
    there = pair.destination.client.d
    there.other.insert_many({"_id": number, "n": number} for number in range(99))
    there.other.insert_one({"_id": 1000, "n": 99})
    there.other.create_index("n")
    with checker.running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        there.other.rename("c", dropTarget=True)
        check.wait_until(Point.GENERATION_DONE, 1)
        verdict = check.end()
    assert verdict.outcome is Outcome.FAILED
    # One document is missing and another is extra, so the counts are equal.
    assert len(check.documents()) == 2
    assert check.definitions() == set()


def test_indexes_that_a_sync_tool_builds_at_the_end_are_found(pair: Pair, checker: Checker) -> None:
    _fill(pair)
    there = pair.destination.client.d
    there.c.drop_index("n_1")
    there.create_collection("leftover")
    with checker.running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        assert len(check.definitions()) == 2
        there.c.create_index("n")
        there.leftover.drop()
        wait_for(
            lambda: check.check.figures.progress().destination.seen.get("drop"), "the drop is seen"
        )
        check.end()
    check.assert_passed()


def test_renamed_namespaces_are_compared(pair: Pair, checker: Checker) -> None:
    _fill(pair)
    here, there = pair.source.client, pair.destination.client
    there.admin.command({"renameCollection": "d.c", "to": "x.moved"})
    there.admin.command({"renameCollection": "e.c", "to": "y.c"})
    here.d.create_collection("view", viewOn="c")
    there.x.create_collection("view", viewOn="moved")
    renamed = {
        Namespace("d", "c"): Namespace("x", "moved"),
        Namespace("d", "view"): Namespace("x", "view"),
        Namespace("e", ""): Namespace("y", ""),
    }
    named = ({"database": "d", "collections": ["c", "view"]}, {"database": "e"})
    with checker.running(Request(Scope(NamespaceFilter(named), renamed))) as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        here.d.c.update_one({"_id": 3}, {"$set": {"a": 1}})
        there.x.moved.update_one({"_id": 3}, {"$set": {"a": 1}})
        there.y.c.update_one({"_id": 1}, {"$set": {"a": 1}})
        verdict = check.end()
    assert verdict.outcome is Outcome.FAILED
    assert [name for name, _ in check.documents()] == ["e.c"]
    assert check.definitions() == set()


def test_a_document_filter_leaves_out_measurements_with_a_note(
    pair: Pair, checker: Checker
) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("ts", timeseries={"timeField": "t"})
    pair.source.client.d.ts.insert_one({"t": datetime(2026, 1, 1), "a": 5})
    with checker.running(Request(document_filter=bson.encode({"a": 5}))) as check:
        check.end()
    check.assert_passed()
    first, note = check.check.figures.progress().notes
    assert first == "Only documents that match the filter {'a': 5} were compared."
    assert note.startswith(
        "d.ts: the measurements of this time-series collection were not compared"
    )


def test_a_document_filter_also_leaves_out_changed_measurements(
    pair: Pair, checker: Checker
) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("ts", timeseries={"timeField": "t"})
    # All buckets match this filter, but they are not compared.
    with checker.running(Request(document_filter=bson.encode({"deleted": None}))) as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        pair.source.client.d.ts.insert_one({"t": datetime(2026, 1, 1), "a": 5})
        check.end()
    check.assert_passed()


def test_measurements_are_compared_by_their_buckets(pair: Pair, checker: Checker) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("ts", timeseries={"timeField": "t"})
    pair.source.client.d.ts.insert_one({"t": datetime(2026, 1, 1), "a": 5})
    with checker.running() as check:
        verdict = check.end()
    assert verdict.outcome is Outcome.FAILED
    assert {name for name, _ in check.documents()} == {"d.system.buckets.ts"}


def test_measurements_without_change_events_are_compared_again(
    pair: Pair, checker: Checker
) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("ts", timeseries={"timeField": "t"})
    pair.source.client.d.ts.insert_one({"t": datetime(2026, 1, 1), "a": 5})
    buckets = "system.buckets.ts"
    pair.destination.client.d[buckets].insert_many(pair.source.client.d[buckets].find())
    with checker.of_source(compatibility=(5, 0)).running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        # The new measurement goes into the same bucket, so the counts stay equal.
        pair.source.client.d.ts.insert_one({"t": datetime(2026, 1, 1), "a": 6})
        assert check.end().outcome is Outcome.FAILED


def test_measurements_that_an_old_source_cannot_sort_are_refused_by_name(
    pair: Pair, checker: Checker
) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.create_collection("ts", timeseries={"timeField": "t"})
        side.client.d.c.insert_one({"_id": 1})
    old = checker.of_source(version=(5, 0, 9))
    with old.running() as check:
        verdict = check.wait_for_verdict()
    assert (verdict.outcome, verdict.error) == (Outcome.INCOMPLETE, "TimeSeriesNotComparable")
    (reason,) = verdict.reasons
    assert reason.startswith(
        "d.ts is a time-series collection, and the source runs MongoDB 5.0.9, which"
    )
    without = NamespaceFilter(exclude=({"database": "d", "collections": ["ts"]},))
    old.verdict(Request(Scope(without))).assert_passed()


def test_documents_expired_on_one_cluster_only_are_no_mismatch(
    pair: Pair, checker: Checker
) -> None:
    for side in (pair.source, pair.destination):
        side.client.d.c.create_index(
            "t", expireAfterSeconds=60, partialFilterExpression={"goes": True}
        )
        # The server ignores the option on this index: its documents do not expire.
        side.client.d.hashed.create_index([("t", "hashed")], expireAfterSeconds=60)
        timed = {"timeField": "t"}
        side.client.d.create_collection("ts", timeseries=timed, expireAfterSeconds=60)
    old, young = datetime(2001, 1, 1), datetime(2201, 1, 1)
    pair.source.client.d.c.insert_many(
        {"_id": number, "t": time, "goes": goes}
        for number, (time, goes) in enumerate([(old, True), (old, False), (young, True)])
    )
    pair.destination.client.d.c.insert_one({"_id": 3, "t": old, "goes": True})
    pair.destination.client.d.ts.insert_one({"t": old})
    pair.source.client.d.hashed.insert_one({"_id": 4, "t": old})
    assert checker.verdict().documents() == {
        *(("d.c", bson.encode({"_id": number})) for number in (1, 2)),
        ("d.hashed", bson.encode({"_id": 4})),
    }


class _SecondReads(monitoring.CommandListener):
    """Records the `afterClusterTime` (None if missing) of each find that reads only `_id`."""

    def __init__(self) -> None:
        self.times: list[Timestamp | None] = []

    def started(self, event: monitoring.CommandStartedEvent) -> None:
        if event.command_name == "find" and event.command.get("projection") == {"_id": 1}:
            self.times.append(event.command["readConcern"].get("afterClusterTime"))

    def succeeded(self, event: monitoring.CommandSucceededEvent) -> None: ...

    def failed(self, event: monitoring.CommandFailedEvent) -> None: ...


def test_the_second_read_of_a_lost_document_waits_for_a_cluster_time(pair: Pair) -> None:
    """Check lost documents of a TTL collection, which the check reads twice.

    The second read must not see an older state than the first: a document that is missing in the older state would
    count as deleted, and be left out of the verdict.
    """
    young = {"t": datetime(2201, 1, 1)}
    for side in (pair.source, pair.destination):
        side.client.d.c.create_index("t", expireAfterSeconds=0)
    pair.source.client.d.c.insert_one({"_id": 1, **young})
    pair.destination.client.d.c.insert_one({"_id": 2, **young})
    reads = _SecondReads(), _SecondReads()
    with ExitStack() as stack:
        clients = (
            stack.enter_context(MongoClient[dict[str, Any]](side.uri, event_listeners=[listener]))
            for side, listener in zip((pair.source, pair.destination), reads, strict=True)
        )
        source, destination = (
            Cluster(name, client, gather(client))
            for name, client in zip(("source", "destination"), clients, strict=True)
        )
        found = Checker((source, destination)).verdict().documents()
    assert found == {("d.c", bson.encode({"_id": number})) for number in (1, 2)}
    for each in reads:
        assert each.times and None not in each.times


def test_a_fast_clock_of_the_destination_hides_no_lost_document(
    pair: Pair, checker: Checker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Check a document with a TTL date that is missing on the destination, whose clock seems to be far ahead.

    The check must report the document, although it has expired by the destination's clock. A test cannot set a server's
    clock, so it changes the time that the check reads from the destination.
    """
    for side in (pair.source, pair.destination):
        side.client.d.c.create_index("t", expireAfterSeconds=0)
    asked = worker.clock_of
    ahead_of_time = pair.destination.client.nodes

    def clock_of(client: Client, stop: StopToken) -> datetime:
        ahead = timedelta(days=90_000 if client.nodes == ahead_of_time else 0)
        return asked(client, stop) + ahead

    monkeypatch.setattr(worker, "clock_of", clock_of)
    pair.source.client.d.c.insert_one({"_id": 1, "t": datetime(2201, 1, 1)})
    check = checker.verdict()
    assert check.documents() == {("d.c", bson.encode({"_id": 1}))}
    (note,) = [each for each in check.store.record.notes if "clock" in each]
    assert "more than 5 seconds ahead of the clock of the source" in note


def test_reading_replaced_mismatches_raises_an_error(pair: Pair, checker: Checker) -> None:
    _fill(pair)
    pair.destination.client.d.c.delete_many({"_id": {"$lt": 3}})
    with checker.running() as check:
        check.wait_until(Point.GENERATION_DONE, 0)
        reading = check.store.document_mismatches(None, None, 0)
        generation = next(reading).generation
        check.wait_until(Point.GENERATION_DONE, generation + 2)
        with pytest.raises(OperationError) as raised:
            list(reading)
        check.end()
    assert raised.value.kind is MISMATCHES_REPLACED
