"""Compares documents of two clusters: each document that differs must be reported, and no other.

Also tests the counts of documents.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from threading import Timer
from typing import Any

import bson
import pytest
from bson import Binary, Int64, MaxKey, MinKey, ObjectId
from bson.raw_bson import RawBSONDocument

from tests.support.documents import IDS as ODD_IDS
from tests.support.documents import insert_odd_documents
from tests.support.pair import Pair
from tests.support.waiting import PATIENCE
from verifier.cluster.connect import Client, connect
from verifier.cluster.document_filters import DOCUMENT_FILTER_FAILED, DocumentFilters
from verifier.cluster.lookup import _command, fetch
from verifier.cluster.namespace import Namespace
from verifier.cluster.ranges import Keys, Portion, Range
from verifier.cluster.rawcursor import RawCursor
from verifier.compare.comparison import Comparison
from verifier.compare.documents import Mode
from verifier.compare.mismatch import DocumentMismatch
from verifier.compare.scope import NamespacePair
from verifier.compare.tuning import CheckTuning
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import Cancelled, StopToken

NAME = Namespace("d", "c")
BOTH = NamespacePair(NAME, NAME)
KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "collated": {"collation": {"locale": "en", "strength": 2}},
    "capped": {"capped": True, "size": 1 << 24},
    "clustered": {"clusteredIndex": {"key": {"_id": 1}, "unique": True}},
}


def comparison(
    pair: Pair,
    mode: Mode = Mode.BINARY,
    query: Any = None,
    stop: StopToken | None = None,
    tuning: CheckTuning = CheckTuning(),
) -> Comparison:
    raw = None if query is None else RawBSONDocument(bson.encode(query))
    return Comparison(
        pair.source.client, pair.destination.client, mode, raw, stop or StopToken(), tuning
    )


SMALL_PAGES = CheckTuning(first_page=50, most_page=50)


def ignore_progress(documents: int, size: int) -> None:
    """Ignore the numbers of compared documents and bytes. A comparison calls this function to report its progress."""


def mismatches(
    pair: Pair,
    portion: Portion = Range(),
    names: NamespacePair = BOTH,
    compared: Comparison | None = None,
) -> list[DocumentMismatch]:
    compared = compared or comparison(pair)
    return list(compared.documents(names, portion, (None, None), ignore_progress))


def told(found: list[DocumentMismatch]) -> dict[Any, str]:
    """Map the `_id` of each mismatch to the names of the different fields, or else to the kind of mismatch."""
    return {
        bson.decode(each.key)["_id"]: str(each).partition(" is ")[2] if not each.fields else
        ", ".join(field.path or "order" for field in each.fields)
        for each in found
    }  # fmt: skip


def fill(pair: Pair, documents: list[dict[str, Any]], **options: Any) -> None:
    for side in (pair.source, pair.destination):
        side.client[NAME.database].create_collection(NAME.collection, **options)
        if documents:
            side.client[NAME.database][NAME.collection].insert_many(documents)


LETTERS: list[dict[str, Any]] = [
    {"_id": f"{letter}{number:03}", "n": number} for number in range(700) for letter in "aB"
]
IDS = [{"_id": number, "n": number} for number in range(1500)]


@pytest.mark.parametrize("kind", KINDS)
def test_changed_documents_are_found(pair: Pair, kind: str) -> None:
    fill(pair, [*IDS, *LETTERS], **KINDS[kind])
    assert mismatches(pair) == []
    source, destination = pair.source.client.d.c, pair.destination.client.d.c
    destination.insert_many([{"_id": 750.5}, {"_id": "a350x"}, {"_id": MinKey()}])
    destination.update_many({"_id": {"$in": [3, "B699"]}}, {"$set": {"n": -1}})
    destination.update_one({"_id": 1499}, [{"$set": {"n": {"$toLong": "$n"}}}])
    expected = dict.fromkeys([750.5, "a350x", MinKey()], "extra on the destination")
    expected.update(dict.fromkeys([3, "B699", 1499], "n"))
    if kind != "capped":
        destination.delete_many({"_id": {"$in": [0, 1000, "B123"]}})
        expected.update(dict.fromkeys([0, 1000, "B123"], "missing on the destination"))
    source.insert_one({"_id": MaxKey()})
    expected[MaxKey()] = "missing on the destination"
    assert told(mismatches(pair)) == expected


def test_ranges_of_a_collection_with_two_collations_are_compared_as_a_whole(pair: Pair) -> None:
    documents: list[dict[str, Any]] = [*LETTERS, {"_id": MaxKey()}]
    pair.source.client.d.c.insert_many(documents)
    destination = pair.destination.client.d.create_collection("c", collation={"locale": "en"})
    destination.insert_many(documents)
    destination.delete_one({"_id": "B350"})
    # With the collation of the destination, the last of these bounds comes first.
    bounds = [None, *(bson.encode({"_id": each}) for each in ("B100", "B600", "a100")), None]
    ranges = [Range(*each) for each in zip(bounds, bounds[1:])]
    found = [each for portion in ranges for each in mismatches(pair, portion)]
    assert told(found) == {"B350": "missing on the destination"}


def test_a_range_of_a_collection_that_the_destination_lacks_is_compared(pair: Pair) -> None:
    source = pair.source.client.d.create_collection("c", collation={"locale": "en"})
    source.insert_many(LETTERS)
    found = mismatches(pair, Range(bson.encode({"_id": "B650"}), None))
    assert told(found) == {f"B{number}": "missing on the destination" for number in range(650, 700)}


def test_equal_documents_of_all_types_are_equal(pair: Pair) -> None:
    for side in (pair.source, pair.destination):
        insert_odd_documents(side.client.d.c)
    assert mismatches(pair) == []


def test_ids_of_different_types_are_different_documents(pair: Pair) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    pair.destination.client.d.c.insert_one({"_id": Int64(1)})
    found = [
        (type(bson.decode(each.key)["_id"]), each.difference.value) for each in mismatches(pair)
    ]
    assert found == [(int, "missingOnDst"), (Int64, "extraOnDst")]


def test_the_order_of_fields_can_be_ignored(pair: Pair) -> None:
    pair.source.client.d.c.insert_many([{"_id": 1, "a": 1, "b": 2}, {"_id": 2, "a": 1}])
    pair.destination.client.d.c.insert_many([{"_id": 1, "b": 2, "a": 1}, {"_id": 2, "a": 2}])
    assert told(mismatches(pair)) == {1: "order", 2: "a"}
    ignoring = comparison(pair, Mode.IGNORE_FIELD_ORDER)
    assert told(mismatches(pair, compared=ignoring)) == {2: "a"}


def test_only_filtered_documents_are_compared_and_counted(pair: Pair) -> None:
    fill(pair, IDS)
    pair.destination.client.d.c.delete_many({"_id": {"$in": [10, 1000]}})
    filtered = comparison(pair, query={"n": {"$lt": 500}})
    assert told(mismatches(pair, compared=filtered)) == {10: "missing on the destination"}
    keys = Keys(tuple(bson.encode({"_id": each}) for each in (10, 11, 1000)))
    assert told(mismatches(pair, keys, compared=filtered)) == {10: "missing on the destination"}
    assert filtered.counts(BOTH) == (500, 499)
    assert comparison(pair).counts(BOTH) == (1500, 1498)


def test_a_lookup_does_not_read_a_clustered_collection_as_a_whole(pair: Pair) -> None:
    client = pair.source.client
    client.d.create_collection("c", **KINDS["clustered"])
    client.d.c.insert_many({"_id": number} for number in range(1000))
    keys = [bson.encode({"_id": number}) for number in (500, 505)]
    assert len(fetch(client, NAME, keys, StopToken())) == 2
    planned = {"explain": _command(NAME, keys, None, None), "verbosity": "executionStats"}
    assert client.d.command(planned)["executionStats"]["totalDocsExamined"] < 10


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_compared_by_their_keys(pair: Pair, kind: str) -> None:
    fill(pair, [*IDS, *LETTERS], **KINDS[kind])
    pair.destination.client.d.c.update_many({"_id": {"$in": [3, 4, "a007"]}}, {"$set": {"n": -1}})
    pair.source.client.d.c.insert_one({"_id": "zzz"})
    keys = [3, 5, 1499, "a007", "B008", "zzz", "nobody", {"x": 1}]
    portion = Keys(tuple(bson.encode({"_id": each}) for each in keys))
    expected = {3: "n", "a007": "n", "zzz": "missing on the destination"}
    assert told(mismatches(pair, portion)) == expected
    numbers = Keys(tuple(bson.encode({"_id": each}) for each in (1200, 4, 3, 7)))
    assert told(mismatches(pair, numbers)) == {3: "n", 4: "n"}


@pytest.mark.parametrize("kind", KINDS)
def test_documents_are_found_by_keys_of_all_types(pair: Pair, kind: str) -> None:
    pair.source.client.d.create_collection("c", **KINDS[kind])
    pair.source.client.d.c.insert_many({"_id": each} for each in ODD_IDS)
    keys = [bson.encode({"_id": each}) for each in ODD_IDS]
    for portion in (keys, *zip(keys, keys[1:])):
        assert {each.key for each in mismatches(pair, Keys(tuple(portion)))} == {*portion}


def test_namespaces_with_different_names_are_compared(pair: Pair) -> None:
    pair.source.client.d.c.insert_many([{"_id": 1}, {"_id": 2}])
    pair.destination.client["other"]["c2"].insert_one({"_id": 1})
    renamed = NamespacePair(NAME, Namespace("other", "c2"))
    (found,) = mismatches(pair, names=renamed)
    assert (found.namespace, bson.decode(found.key)) == (NAME, {"_id": 2})
    assert comparison(pair).counts(renamed) == (2, 1)


@pytest.mark.parametrize("portion", [Range(), Range(bson.encode({"_id": 1}), None)])
@pytest.mark.parametrize("other", ["nothing", "view", "time series"])
def test_a_missing_collection_or_view_has_no_documents(
    pair: Pair, other: str, portion: Portion
) -> None:
    pair.source.client.d.c.insert_many([{"_id": 1}, {"_id": 2}])
    if other == "view":
        pair.destination.client.d.create_collection("c", viewOn="x", pipeline=[])
    elif other == "time series":
        pair.destination.client.d.create_collection("c", timeseries={"timeField": "t"})
    assert told(mismatches(pair, portion)) == dict.fromkeys([1, 2], "missing on the destination")
    assert comparison(pair).counts(BOTH) == (2, 0)


def test_a_collection_that_is_replaced_by_a_view_is_listed_again(pair: Pair) -> None:
    fill(pair, IDS[:10])
    compared = comparison(pair)
    assert told(mismatches(pair, compared=compared)) == {}
    pair.destination.client.d.c.drop()
    pair.destination.client.d.create_collection("c", viewOn="x", pipeline=[])
    portion = Range(bson.encode({"_id": MinKey()}), None)
    found = told(mismatches(pair, portion, compared=compared))
    assert found == dict.fromkeys(range(10), "missing on the destination")


def test_missing_large_documents_need_little_memory(pair: Pair) -> None:
    documents = [{"_id": number, "x": Binary(bytes(8 << 20))} for number in range(8)]
    for each in documents:
        pair.source.client.d.c.insert_one(each)
    pair.destination.client.d.c.insert_many([documents[0], documents[7]])
    assert [*told(mismatches(pair))] == [1, 2, 3, 4, 5, 6]


@pytest.mark.in_turns(4)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("missing_on", ["source", "destination"])
def test_a_long_range_of_missing_documents_needs_little_memory(
    pair: Pair, kind: str, missing_on: str
) -> None:
    fill(pair, LETTERS, **KINDS[kind])
    # If the memory limit were exceeded, equal documents would be reported, too.
    compared = comparison(pair, tuning=replace(SMALL_PAGES, unmatched_bytes=5000))
    side = pair.source if missing_on == "source" else pair.destination
    missing = [each["_id"] for each in LETTERS if "2" in str(each["_id"])]
    if kind == "capped":
        # Documents of a capped collection cannot be deleted here.
        side.client.d.drop_collection("c")
        side.client.d.create_collection("c", **KINDS[kind])
        side.client.d.c.insert_many(each for each in LETTERS if each["_id"] not in missing)
    side.client.d.c.delete_many({"_id": {"$in": missing}})
    assert sorted(told(mismatches(pair, compared=compared))) == sorted(missing)


def test_reads_wait_for_the_given_cluster_times(pair: Pair) -> None:
    fill(pair, IDS[:10])
    times = tuple(
        side.client.admin.command("hello")["operationTime"]
        for side in (pair.source, pair.destination)
    )
    found = comparison(pair).documents(BOTH, Range(), (times[0], times[1]), ignore_progress)
    assert list(found) == []


def test_a_stop_ends_the_comparison(pair: Pair) -> None:
    fill(pair, IDS)
    stop = StopToken()
    compared = comparison(pair, stop=stop, tuning=CheckTuning(first_page=10))
    with pytest.raises(Cancelled):
        list(compared.documents(BOTH, Range(), (None, None), lambda *_: stop.stop("enough")))


@pytest.fixture
def interrupted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], int]]:
    """Kill the server's cursor before every 25th getMore of a RawCursor.

    Yields a function that returns the number of killed cursors.
    """
    original = RawCursor._get_more
    reads = 0

    def get_more(self: RawCursor) -> dict[str, Any]:
        nonlocal reads
        reads += 1
        if not reads % 25:
            kill = {"killCursors": self._collection, "cursors": [self._cursor_id]}
            self._client[self._database.name].command(kill, session=self._session)
        return original(self)

    monkeypatch.setattr(RawCursor, "_get_more", get_more)
    yield lambda: reads // 25


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_lost_cursor_is_reopened_at_its_position(
    pair: Pair, kind: str, interrupted: Callable[[], int]
) -> None:
    fill(pair, [*IDS, *LETTERS, {"_id": ObjectId()}], **KINDS[kind])
    pair.source.client.d.c.insert_many([{"_id": MaxKey()}, {"_id": 749.5}])
    pair.destination.client.d.c.update_many({"_id": {"$in": [3, "B650"]}}, {"$set": {"n": -1}})
    done = 0

    def count(documents: int, size: int) -> None:
        nonlocal done
        done += documents

    compared = comparison(pair, tuning=SMALL_PAGES)
    found = list(compared.documents(BOTH, Range(), (None, None), count))
    missing = dict.fromkeys([749.5, MaxKey()], "missing on the destination")
    assert told(found) == {3: "n", "B650": "n", **missing}
    assert interrupted() >= 2
    stored = pair.source.client.d.c.estimated_document_count()
    assert stored <= done <= stored + 2 * interrupted()


def test_counts_equal_the_numbers_of_documents(pair: Pair) -> None:
    assert comparison(pair).counts(BOTH) == (0, 0)
    fill(pair, IDS[:10], **KINDS["clustered"])
    pair.source.client.d.c.insert_one({"_id": -1})
    assert comparison(pair).counts(BOTH) == (11, 10)


@pytest.mark.parametrize("query", [None, {"n": {"$lt": 500}}])
def test_a_count_that_takes_too_long_is_left_out(pair: Pair, query: dict[str, Any] | None) -> None:
    fill(pair, IDS[:10])
    pair.source.client.d.c.insert_one({"_id": -1, "n": -1})
    with time_running_out(pair.destination.client):
        assert comparison(pair, query=query).counts(BOTH) is None


@pytest.mark.full
def test_a_range_without_matches_for_longer_than_the_driver_waits(pair: Pair) -> None:
    """Let each server need at least 2 seconds to find the second match, while the driver waits for one second."""
    matches = [0, 399, MaxKey()]
    documents = [{"_id": each, "n": each in matches} for each in [*range(400), MaxKey()]]
    fill(pair, documents)
    pair.destination.client.d.c.delete_one({"_id": MaxKey()})
    pair.destination.client.d.c.insert_one({"_id": 200.5, "n": True})
    pair.destination.client.d.c.update_one({"_id": 399}, {"$set": {"n": 1}})
    with slow_comparison(pair) as compared:
        assert told(mismatches(pair, compared=compared)) == {
            200.5: "extra on the destination",
            399: "n",
            MaxKey(): "missing on the destination",
        }


@pytest.mark.full
@pytest.mark.parametrize("extra", [[], [399.5]])
def test_a_long_range_without_matches_on_the_destination_alone(
    pair: Pair, extra: list[float]
) -> None:
    """Compare a range with at most one document on the source, which takes 4 seconds to search on the destination.

    Each query may search only a short part of the range, so that it ends before the driver gives up.
    """
    fill(pair, [{"_id": each, "n": each in (0, 399)} for each in range(400)])
    pair.source.client.d.c.drop()
    for each in extra:
        pair.source.client.d.c.insert_one({"_id": each, "n": True})
    with slow_comparison(pair) as compared:
        assert told(mismatches(pair, compared=compared)) == {
            0: "extra on the destination",
            399: "extra on the destination",
            **dict.fromkeys(extra, "missing on the destination"),
        }


@contextmanager
def slow_comparison(pair: Pair) -> Iterator[Comparison]:
    """Yield a comparison of documents with a true `n`, which is stopped if it does not end.

    The servers search 100 documents in a second, and the driver waits for one second.
    """
    query = RawBSONDocument(bson.encode({"$where": "sleep(10) || this.n"}))
    stop = StopToken()
    deadline = Timer(PATIENCE, stop.stop, ["the comparison does not advance"])
    deadline.start()
    with ExitStack() as opened:
        opened.callback(deadline.cancel)
        clients = [
            opened.enter_context(connect(each.uri, "test", socket_ms=1000))
            for each in (pair.source, pair.destination)
        ]
        yield Comparison(clients[0], clients[1], Mode.BINARY, query, stop, SMALL_PAGES)


@contextmanager
def time_running_out(client: Client) -> Iterator[None]:
    """Let the server stop each command with a time limit during the block."""
    point = {"configureFailPoint": "maxTimeAlwaysTimeOut"}
    client.admin.command({**point, "mode": "alwaysOn"})
    try:
        yield
    finally:
        client.admin.command({**point, "mode": "off"})


@pytest.mark.parametrize(
    ("faulty", "own", "named"),
    [
        ("source", False, "The query of documentFilter for d.c failed"),
        ("source", True, "The filter of the check or the query of documentFilter for d.c failed"),
        ("destination", True, "The filter of the check failed"),
    ],
)
def test_a_failed_query_is_named(pair: Pair, faulty: str, own: bool, named: str) -> None:
    inverted = {"$expr": {"$gt": [{"$divide": [1, "$n"]}, 0]}}
    for each in (pair.source, pair.destination):
        each.client.d.c.insert_one({"_id": 1, "n": 1})
    side = pair.source if faulty == "source" else pair.destination
    side.client.d.c.update_one({"_id": 1}, {"$set": {"n": 0}})
    compared = Comparison(
        pair.source.client,
        pair.destination.client,
        Mode.BINARY,
        RawBSONDocument(bson.encode(inverted)) if own else None,
        StopToken(),
        source_filters=DocumentFilters({NAME: bson.encode(inverted)}),
    )
    calls = (partial(mismatches, pair, compared=compared), partial(compared.counts, BOTH))
    for call in calls:
        with pytest.raises(OperationError, match=named) as raised:
            call()
        assert raised.value.kind is DOCUMENT_FILTER_FAILED
