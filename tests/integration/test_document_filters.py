"""Runs syncs with document filters: the destination must have exactly the selected documents of the source.

Also tests filters that must be refused, and how the copy scans a collection and estimates the selected size.

`make test` leaves out most kills and combinations with other options: the model test runs random kills with filters.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import bson
import pytest
from bson import MaxKey, MinKey, json_util
from bson.raw_bson import RawBSONDocument
from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateMany, UpdateOne
from pymongo.client_session import ClientSession

from syncsvc.engine.run.points import Point
from syncsvc.source import selected_size
from syncsvc.source.natural_scan import NaturalScan
from syncsvc.source.range_scan import RangeScan
from syncsvc.source.scanned import ScannedCollection
from tests.integration.test_bad_input import assert_refused
from tests.integration.test_embedded_verifier import listed
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import APPLICATION, failing
from tests.support.filtered import assert_selected
from tests.support.fleet import Fleet
from tests.support.pair import FROM_SHARDED, REPLICA_SETS, SHARDED, TO_SHARDED, Pair, across
from tests.support.phases import When, writes_in
from tests.support.spools import wait_until_spooled
from tests.support.verifier import Verifier
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient
from verifier.cluster.cluster import open_cluster
from verifier.cluster.inventory import extent
from verifier.cluster.namespace import Namespace
from verifier.cluster.note import append_note
from verifier.cluster.ranges import Range
from verifier.runtime.tasks import StopToken

QUERY: dict[str, Any] = {"region": "eu", "date": {"$gte": datetime(2024, 1, 1)}}
QUERIES = {
    "shop.orders": QUERY,
    "shop.names": {"name": "Ann"},
    "shop.people": {"$expr": {"$gt": [{"$size": "$tags"}, {"$toInt": "$least"}]}},
    "shop.late": {"region": "eu"},
    "shop.clustered": {"region": {"$regex": "^E", "$options": "i"}},
}
NEW, OLD = datetime(2025, 5, 5), datetime(2023, 5, 5)


def elements(*names: str) -> list[dict[str, Any]]:
    """Return the start option `documentFilter` for the collections `names` (default: all collections in QUERIES)."""
    return [
        {
            "database": each.partition(".")[0],
            "collection": each.partition(".")[2],
            "filter": json.loads(json_util.dumps(QUERIES[each])),
        }
        for each in names or QUERIES
    ]


def order(n: int) -> dict[str, Any]:
    return {
        "_id": n,
        "region": ("eu", "us", "asia")[n % 3],
        "date": NEW if n % 2 else OLD,
        "n": n,
        "pad": "p" * 200,
    }


def fill(client: AnyClient, documents: int = 600, unique: bool = True) -> None:
    shop = client.shop
    shop.orders.create_index("region")
    shop.orders.create_index([("n", 1)], unique=unique)
    shop.orders.insert_many(map(order, range(documents)))
    # Insert the lowest and the highest possible `_id`.
    shop.orders.insert_one({"_id": MinKey(), "region": "us", "date": NEW, "n": -5000001})
    shop.orders.insert_one({"_id": MaxKey(), "region": "eu", "date": NEW, "n": -5000002})
    shop.create_collection("clustered", clusteredIndex={"key": {"_id": 1}, "unique": True})
    shop.clustered.insert_many(map(order, range(60)))
    collation = {"locale": "en", "strength": 2}
    shop.create_collection("names", collation=collation)
    # The collation treats the first three as equal, and the source selects them all.
    shop.names.insert_many(
        {"_id": n, "name": each} for n, each in enumerate(["Ann", "ANN", "ann", "Bob"])
    )
    shop.names.insert_many({"_id": each, "name": "aNN"} for each in ("x", "y"))
    shop.people.insert_many({"_id": n, "tags": ["t"] * (n % 5), "least": "2"} for n in range(50))
    shop.create_collection("late")
    shop.complete.insert_many(map(order, range(50)))
    client.other.orders.insert_many(map(order, range(20)))


def is_mongos(client: AnyClient) -> bool:
    return client.admin.command("hello").get("msg") == "isdbgrid"


def _change_together(session: ClientSession) -> None:
    shop = session.client.shop
    for n in range(420, 440):
        shop.orders.update_one({"_id": n}, {"$set": {"region": "eu"}}, session=session)
    document = {**order(1003001), "_id": "tx", "region": "eu"}
    shop.orders.insert_one(document, session=session)
    shop.orders.delete_one({"_id": 441}, session=session)
    shop.complete.update_one({"_id": 1}, {"$set": {"n": -1}}, session=session)


def change(client: AnyClient) -> None:
    """Write to the source so that documents begin, cease and continue to match the filters, in each possible way."""
    orders = client.shop.orders
    # At first, documents match QUERY if `n` is an odd multiple of 3: their region is eu, and their date is NEW.
    orders.update_one({"_id": 3}, {"$set": {"region": "us"}})
    orders.update_one({"_id": 2}, {"$set": {"region": "eu", "date": NEW}})
    orders.update_one({"_id": 9}, {"$set": {"n": -9}})
    orders.update_one({"_id": 4}, {"$set": {"n": -4}})
    orders.replace_one({"_id": 15}, {"region": "us", "n": -15})
    orders.replace_one({"_id": 5}, {"region": "eu", "date": NEW, "n": -5})
    orders.delete_one({"_id": 21})
    orders.delete_one({"_id": 8})
    orders.delete_one({"_id": 27})
    orders.insert_one({**order(27), "_id": 27, "region": "us"})
    orders.insert_one({**order(1001001), "_id": "new", "region": "eu"})
    orders.insert_one({**order(1002001), "_id": "other", "region": "us"})
    orders.update_many({"n": {"$gte": 100, "$lt": 160}}, {"$set": {"region": "eu"}})
    orders.update_many({"n": {"$gte": 200, "$lt": 260}}, {"$set": {"region": "us"}})
    orders.update_many({"n": {"$gte": 300, "$lt": 340}}, [{"$set": {"date": NEW, "pad": "q"}}])
    # Change each document so that its region matches and ceases to match, or the other way round.
    for n, regions in ((331, ("eu", "us")), (333, ("us", "eu"))):
        for each in regions:
            orders.update_one({"_id": n}, {"$set": {"region": each}})
    # In a unique index, pass a value from a document that matches to one that does not.
    orders.update_one({"_id": 39}, {"$set": {"n": -39}})
    orders.update_one({"_id": 40}, {"$set": {"n": 39}})
    orders.bulk_write(
        [
            InsertOne({"_id": "bulk", "region": "eu", "date": NEW, "n": -1000}),
            UpdateOne({"_id": "bulk"}, {"$set": {"region": "us"}}),
            ReplaceOne({"_id": 45}, {"region": "eu", "date": OLD, "n": -45}),
            DeleteOne({"_id": 51}),
            UpdateMany({"n": {"$gte": 400, "$lt": 420}}, {"$set": {"date": NEW, "region": "eu"}}),
        ]
    )
    if not is_mongos(client):  # the stand-in for mongos has no transactions
        with client.start_session() as session:
            # The driver repeats the transaction if a concurrent write conflicts with it.
            session.with_transaction(_change_together)
    names = client.shop.names
    names.update_one({"_id": 0}, {"$set": {"name": "Bob"}})
    names.update_one({"_id": 3}, {"$set": {"name": "aNn"}})
    names.delete_one({"_id": "X"})
    names.insert_one({"_id": "X", "name": "ann"})
    names.insert_one({"_id": "Z", "name": "Bob"})
    client.shop.people.update_many({"_id": {"$lt": 20}}, {"$set": {"least": "3"}})
    client.shop.people.update_many({"_id": {"$gte": 40}}, {"$push": {"tags": "u"}})
    client.shop.late.insert_many({**order(n), "region": "eu" if n % 2 else "us"} for n in range(10))
    client.shop.clustered.update_many({"_id": {"$lt": 20}}, {"$set": {"region": "Eu"}})
    client.shop.clustered.update_many({"_id": {"$gt": 40}}, {"$set": {"region": "ua"}})
    client.shop.complete.delete_one({"_id": 2})
    client.shop.complete.update_many({}, {"$set": {"x": 1}})


def redefine(client: AnyClient) -> None:
    """Drop, create, rename and replace collections; some renames go to or from a name that has a filter."""
    shop = client.shop
    # Drop a collection, and create it again under the same name.
    shop.people.drop()
    shop.people.insert_many({"_id": n, "tags": ["t"] * (n % 4), "least": "1"} for n in range(30))
    # Rename a collection from a name with a filter to one without, and then to a name with another filter.
    shop.orders.rename("archive")
    shop.archive.insert_one({"_id": "in the archive", "region": "us", "n": -7001})
    shop.complete.rename("orders")
    shop.orders.update_one({"_id": 7}, {"$set": {"region": "us"}})
    shop.orders.insert_one({**order(1004001), "_id": "after the rename", "region": "eu"})
    shop.late.drop()
    shop.archive.rename("late")
    shop.late.update_one({"_id": 12}, {"$set": {"region": "us"}})
    # $out replaces a collection with a filter, and fills a temporary collection without one.
    client.other.orders.aggregate([{"$out": {"db": "shop", "coll": "names"}}])
    shop.names.insert_one({"_id": "n", "name": "Ann"})
    client.other.orders.aggregate(
        [{"$set": {"region": "eu"}}, {"$merge": {"into": {"db": "shop", "coll": "orders"}}}]
    )
    shop.orders.create_index("date")


@contextmanager
def repeating(write: Callable[[], None], pause: float = 0.0) -> Iterator[None]:
    """Call `write` again and again in another thread until the end of the block, with pauses of `pause` seconds.

    Fail if a call has failed.
    """
    stop, errors = threading.Event(), list[BaseException]()

    def run() -> None:
        try:
            while not stop.wait(pause):
                write()
        except BaseException as error:  # reported by the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not errors, errors


def busy(client: AnyClient, seed: int) -> AbstractContextManager[None]:
    """Update, replace and delete random documents in another thread during the block.

    Documents begin and cease to match the filter. Fail if a write has failed.
    """
    chance = random.Random(seed)

    def write() -> None:
        n = chance.randrange(600)
        region, date = chance.choice(["eu", "us"]), chance.choice([NEW, OLD])
        values = {"region": region, "date": date}
        match chance.randrange(5):
            case 0:
                client.shop.orders.delete_one({"_id": n})
            case 1:
                client.shop.orders.replace_one({"_id": n}, {**values, "n": n}, upsert=True)
            case 2:
                query = {"_id": {"$gte": n, "$lt": n + 20}}
                client.shop.orders.update_many(query, {"$set": values})
            case _:
                client.shop.orders.update_one({"_id": n}, {"$set": values})

    return repeating(write)


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_only_selected_documents_are_synced(pair: Pair, daemon: Daemon, when: When) -> None:
    fill(pair.source.client)
    with writes_in(when, daemon, documentFilter=elements()):
        change(pair.source.client)
    daemon.commit()
    assert_selected(pair, QUERIES)
    assert pair.destination.client.shop.orders.count_documents({}) > 50


@pytest.mark.in_turns
@across(TO_SHARDED, SHARDED, FROM_SHARDED)
def test_only_selected_documents_are_synced_with_shards(pair: Pair, daemon: Daemon) -> None:
    pair.source.client.shop.create_collection("orders")
    pair.shard("shop.orders")
    # A unique index would have to begin with the shard key.
    fill(pair.source.client, unique=False)
    with busy(pair.source.client, seed=2):
        daemon.start(documentFilter=elements())
        daemon.wait_until_committable()
        change(pair.source.client)
    daemon.commit()
    assert_selected(pair, QUERIES)


@pytest.mark.in_turns
@pytest.mark.parametrize("when", When, ids=lambda when: when.name)
def test_collections_are_renamed_and_replaced(pair: Pair, daemon: Daemon, when: When) -> None:
    fill(pair.source.client)
    with writes_in(when, daemon, documentFilter=elements()):
        change(pair.source.client)
        redefine(pair.source.client)
    daemon.commit()
    assert_selected(pair, QUERIES)


@pytest.mark.full
@prepared(Daemon.believe_the_source_is_old)
def test_only_selected_documents_of_an_old_source_are_synced(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    with writes_in(When.APPLY, daemon, documentFilter=elements()):
        change(pair.source.client)
    daemon.commit()
    assert_selected(pair, QUERIES)


@pytest.mark.full
@prepared(Daemon.spool_often)
def test_spooled_events_are_judged_by_the_source(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(documentFilter=elements(), eventSpool="always")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        change(pair.source.client)
        redefine(pair.source.client)
        wait_until_spooled(pair.source.client, pair.destination.client)
    daemon.commit()
    assert_selected(pair, QUERIES)


def test_documents_enter_and_leave_until_the_commit(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    with busy(pair.source.client, seed=1):
        daemon.start(documentFilter=elements())
        daemon.wait_until_committable()
        applied = daemon.progress()["totalEventsApplied"]
        wait_for(lambda: daemon.progress()["totalEventsApplied"] > applied + 200, "more events")
        # Writes during the cut-over can withdraw the commit, which is then repeated.
        daemon.ask_for_commit()
    daemon.wait_for_state("COMMITTED")
    assert_selected(pair, QUERIES)


@pytest.mark.full
@prepared(Daemon.small_partitions, Daemon.save_every_page)
@pytest.mark.parametrize(
    "point", [Point.BATCH_WRITTEN, Point.COPY_SAVED, Point.PARTITION_COPIED], ids=lambda p: p.name
)
def test_the_copy_of_ranges_continues_after_a_kill(
    pair: Pair, daemon: Daemon, point: Point
) -> None:
    fill(pair.source.client, 5000)
    daemon.kill_at(point, "shop.orders", 5)
    daemon.start(documentFilter=elements("shop.orders"))
    daemon.wait_until_killed()
    change(pair.source.client)
    daemon.run()
    daemon.commit()
    assert_selected(pair, {"shop.orders": QUERY})


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [Point.EVENTS_APPLIED, Point.DEFINITION_APPLIED, Point.POSITION_SAVED],
    ids=lambda p: p.name,
)
def test_events_continue_after_a_kill(pair: Pair, daemon: Daemon, point: Point) -> None:
    fill(pair.source.client)
    daemon.start(documentFilter=elements())
    daemon.wait_until_committable()
    with daemon.held_at(Point.BARRIER_REACHED):
        change(pair.source.client)
        redefine(pair.source.client)
        daemon.wait_until_reached(Point.BARRIER_REACHED)
        daemon.kill()
    daemon.kill_at(point)
    daemon.launch()
    daemon.wait_until_killed()
    daemon.run()
    daemon.commit()
    assert_selected(pair, QUERIES)


@pytest.mark.full
def test_a_rename_that_changes_the_filter_survives_a_kill(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(documentFilter=elements())
    daemon.wait_until_committable()
    daemon.kill_at(Point.BATCH_WRITTEN, "shop.archive")
    pair.source.client.shop.orders.rename("archive")
    daemon.wait_until_killed()
    pair.source.client.shop.archive.insert_one({"_id": "later", "region": "us", "n": -1})
    daemon.run()
    daemon.commit()
    assert_selected(pair, QUERIES)


def change_behind_our_back(pair: Pair, command: dict[str, Any]) -> None:
    """Run a write command in the database shop of the destination, bypassing the block of user writes."""
    reply = pair.destination.client.shop.command({**command, "mayBypassWriteBlocking": True})
    assert reply["ok"] == 1 and not reply.get("writeErrors")


def corrupt(pair: Pair) -> set[tuple[Any, ...]]:
    """Insert, delete and update documents on the destination; return the mismatches that a check must find.

    A mismatch is a tuple of its type, its aspect and the `_id`, as `listed` returns it. Documents have no aspect: None.
    """

    def run(command: dict[str, Any]) -> None:
        change_behind_our_back(pair, command)

    matching = [each["_id"] for each in pair.source.client.shop.orders.find(QUERY, {}).sort("_id")]
    run({"insert": "orders", "documents": [pair.source.client.shop.orders.find_one({"_id": 0})]})
    run({"insert": "orders", "documents": [{"_id": "nowhere", "region": "eu", "date": NEW}]})
    run({"delete": "orders", "deletes": [{"q": {"_id": matching[0]}, "limit": 1}]})
    run({"update": "orders", "updates": [{"q": {"_id": matching[1]}, "u": {"$set": {"n": -1}}}]})
    return {
        ("extraOnDst", None, 0),
        ("extraOnDst", None, "nowhere"),
        ("missingOnDst", None, matching[0]),
        ("content", None, matching[1]),
    }


def test_the_verification_finds_differences_and_the_repair_removes_them(
    pair: Pair, daemon: Daemon
) -> None:
    fill(pair.source.client)
    daemon.start(documentFilter=elements(), verification={"enabled": True, "repair": "auto"})
    daemon.wait_until_committable()
    wanted = corrupt(pair)
    wait_for(lambda: wanted <= listed(daemon), "the running check finds the documents")
    daemon.commit()
    assert_selected(pair, QUERIES)
    assert wanted <= listed(daemon, repaired=True)


@pytest.mark.full
def test_without_repair_an_unselected_document_fails_the_commit(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(documentFilter=elements())
    daemon.wait_until_committable()
    surplus = pair.source.client.shop.orders.find_one({"_id": 0})
    change_behind_our_back(pair, {"insert": "orders", "documents": [surplus]})
    assert daemon.commit_or_fail()["error"] == "VerificationFailed"
    assert ("extraOnDst", None, 0) in listed(daemon)


@pytest.mark.full
@across(REPLICA_SETS, SHARDED)
def test_a_commit_waits_only_for_selected_documents(pair: Pair, daemon: Daemon) -> None:
    """Keep writing unselected documents; the commit must apply the writes of selected ones, and end."""
    fill(pair.source.client)
    daemon.start(documentFilter=elements())
    daemon.wait_until_committable()
    orders = pair.source.client.shop.orders
    prepared = (Point.STEP_DONE, "definitions prepared")
    with writing_unselected(pair.source.client):
        with daemon.held_at(*prepared):
            daemon.ask_for_commit()
            daemon.wait_until_reached(*prepared)
            orders.update_one({"_id": 3}, {"$set": {"region": "us"}})
            orders.update_one({"_id": 2}, {"$set": {"region": "eu", "date": NEW}})
            orders.delete_one({"_id": 9})
        daemon.wait_for_state("COMMITTED")
    assert daemon.log.count("repeats the commit") == 1
    assert_selected(pair, QUERIES)


def test_a_commit_reads_the_newest_documents_of_the_destination(pair: Pair, daemon: Daemon) -> None:
    """Delete a document during the commit: the search for it on the destination must name a cluster time.

    Without one, a newly elected primary could return older documents.
    """
    fill(pair.source.client)
    daemon.start(documentFilter=elements())
    daemon.wait_until_committable()
    prepared = (Point.STEP_DONE, "definitions prepared")
    shop = pair.destination.client.shop
    with daemon.held_at(*prepared):
        daemon.ask_for_commit()
        daemon.wait_until_reached(*prepared)
        deleted = pair.source.client.shop.orders.find_one(QUERY)
        assert deleted is not None
        pair.source.client.shop.orders.delete_one(deleted)
        shop.command("profile", 2)
    daemon.wait_for_state("COMMITTED")
    shop.command("profile", 0)
    finds = [each["command"] for each in shop["system.profile"].find({"command.find": "orders"})]
    concerns = [
        each["readConcern"]
        for each in finds
        if each["filter"].get("$and", [{}])[0] == {"_id": {"$in": [deleted["_id"]]}}
        and each.get("projection") == {"_id": 1}
    ]
    assert concerns and all("afterClusterTime" in each for each in concerns)
    assert_selected(pair, QUERIES)


def writing_unselected(client: AnyClient) -> AbstractContextManager[None]:
    """In another thread, insert, change and delete documents that no query selects, until the end of the block.

    Fail if a write has failed.
    """
    numbers = itertools.count()

    def write() -> None:
        n = next(numbers)
        client.shop.orders.update_one({"_id": 1}, {"$set": {"pad": n}})
        client.shop.orders.insert_one({"_id": f"unselected {n}", "region": "us", "n": -n - 1})
        client.shop.orders.delete_one({"_id": f"unselected {n - 5}"})

    return repeating(write, pause=0.01)


@pytest.mark.full
@prepared(Daemon.small_partitions)
def test_progress_reaches_its_total(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client, 3000)
    daemon.start(documentFilter=elements())
    daemon.commit()
    copied = daemon.progress()["collectionCopy"]
    assert copied["estimatedCopiedBytes"] == copied["estimatedTotalBytes"] > 0
    (orders,) = [
        each for each in daemon.namespaces()["namespaces"] if each["namespace"] == "shop.orders"
    ]
    selected = pair.source.client.shop.orders.count_documents(QUERY)
    assert orders["copiedDocuments"] == orders["estimatedTotalDocuments"] == selected
    shown = daemon.report()["options"]["documentFilter"]
    assert [json_util.loads(each["filter"]) for each in shown][1:3] == [
        QUERIES["shop.names"],
        QUERIES["shop.people"],
    ]


def element(name: str, query: Any) -> dict[str, Any]:
    database, _, collection = name.partition(".")
    return {"database": database, "collection": collection, "filter": query}


REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"documentFilter": [element("shop.orders", {"$nope": 1})]}, "InvalidDocumentFilter", "$nope"),
    (
        {"documentFilter": [element("shop.orders", {"a": {"$type": "?"}})]},
        "InvalidDocumentFilter",
        "shop.orders",
    ),
    ({"documentFilter": [element("shop.nothing", {"a": 1})]}, "InvalidDocumentFilter", "nothing"),
    (
        {
            "documentFilter": [element("shop.orders", {"a": 1})],
            "excludeNamespaces": [{"database": "shop"}],
        },
        "InvalidDocumentFilter",
        "shop.orders",
    ),
    (
        {
            "documentFilter": [element("shop.orders", {"a": 1})],
            "copyInNaturalOrder": [{"database": "."}],
        },
        "InvalidDocumentFilter",
        "copyInNaturalOrder",
    ),
    ({"documentFilter": [element("shop.orders", {"$where": "1"})]}, "InvalidRequest", "$where"),
    ({"documentFilter": [element("shop.view", {"a": 1})]}, "DocumentFilterNotApplicable", "view"),
    (
        {"documentFilter": [element("shop.capped", {"a": 1})]},
        "DocumentFilterNotApplicable",
        "capped",
    ),
    (
        {"documentFilter": [element("shop.series", {"a": 1})]},
        "DocumentFilterNotApplicable",
        "time-series",
    ),
    (
        {
            "documentFilter": [element("shop.orders", {"a": 1})],
            "enableUserWriteBlocking": "sourceAndDestination",
        },
        "WriteBlockingWithFilter",
        "documentFilter",
    ),
    (
        {
            "documentFilter": [element("shop.orders", {"a": 1})],
            "enableUserWriteBlocking": "sourceAndDestination",
            "reversible": True,
        },
        "ReversibleWithFilter",
        "documentFilter",
    ),
]


def unfilterable(client: AnyClient) -> None:
    client.shop.create_collection("view", viewOn="orders")
    client.shop.create_collection("capped", capped=True, size=4096)
    client.shop.create_collection("series", timeseries={"timeField": "at"})


def test_a_filter_that_cannot_be_exact_is_refused(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client, 10)
    unfilterable(pair.source.client)
    for options, error, text in REFUSED:
        answer = daemon.post("preflight", daemon.start_body(**options))
        if error == "InvalidRequest":
            assert answer.json()["error"] == error, (options, answer.text)
            assert text in answer.json()["errorDescription"]
            continue
        found = {each["error"]: each for each in answer.json()["violations"]}
        assert text in found[error]["errorDescription"], (options, answer.text)
        refused = daemon.post("start", daemon.start_body(**options))
        assert not refused.ok, (options, refused.text)
        assert error in refused.text
    assert daemon.progress()["state"] == "IDLE"


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", ["view", "capped", "series", "converted"])
def test_a_collection_that_cannot_be_filtered_fails_the_sync(
    pair: Pair, daemon: Daemon, kind: str
) -> None:
    client = pair.source.client
    fill(client)
    daemon.start(documentFilter=elements())
    daemon.wait_until_committable()
    if kind == "converted":
        client.shop.command({"convertToCapped": "late", "size": 4096})
    else:
        client.shop.late.drop()
        unfilterable(client)
        if kind == "view":
            client.shop.create_collection("late", viewOn="orders")
        elif kind == "capped":
            client.shop.capped.rename("late")
        else:
            client.shop.create_collection("late", timeseries={"timeField": "at"})
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "DocumentFilterNotApplicable", failed
    assert "shop.late" in failed["errorDescription"]
    client.shop.late.drop()
    if kind == "series":
        client.shop["system.buckets.late"].drop()
    client.shop.late.insert_many([{"_id": 1, "region": "eu"}, {"_id": 2, "region": "us"}])
    for each in ("view", "series", "capped"):
        client.shop[each].drop()
    daemon.resume()
    daemon.commit()
    assert_selected(pair, QUERIES)


@pytest.mark.full
def test_two_instances_share_a_filtered_sync(pair: Pair, fleet: Fleet) -> None:
    fill(pair.source.client)
    fleet.start(documentFilter=elements())
    with busy(pair.source.client, seed=3):
        fleet.wait_until_committable()
        change(pair.source.client)
    redefine(pair.source.client)
    fleet.commit()
    assert_selected(pair, QUERIES)


def test_the_verifier_compares_selected_documents(pair: Pair, tmp_path: Path) -> None:
    source, destination = pair.source.client, pair.destination.client
    fill(source)
    for name, query in QUERIES.items():
        _, _, collection = name.partition(".")
        options = source.shop[collection].options()
        destination.shop.create_collection(collection, **options)
        found = list(source.shop[collection].find(query))
        if found:
            destination.shop[collection].insert_many(found)
    destination.shop.orders.create_index("region")
    destination.shop.orders.create_index([("n", 1)], unique=True)
    destination.shop.complete.insert_many(list(source.shop.complete.find()))
    destination.other.orders.insert_many(list(source.other.orders.find()))
    uris = pair.source.uri, pair.destination.uri
    with contextlib.closing(Verifier(*uris, tmp_path)) as verifier:
        verifier.run()
        verifier.assert_passed(verifier.verify(documentFilter=elements()))
        destination.shop.orders.insert_one(order(0))
        destination.shop.orders.delete_one({"_id": 3})
        destination.shop.orders.update_one({"_id": 9}, {"$set": {"pad": "x"}})
        verifier.check(documentFilter=elements())
        # Change a document during the check.
        source.shop.orders.update_one({"_id": 15}, {"$set": {"region": "us"}})
        verifier.kill()
        verifier.run()
        verifier.writes_off()
        assert verifier.wait_for_verdict()["verdict"] == "failed"
        found_ids = {(each["type"], each["_id"]) for each in verifier.lines("docMismatches")}
        assert found_ids == {
            ("extraOnDst", 0),
            ("missingOnDst", 3),
            ("content", 9),
            ("extraOnDst", 15),
        }
        shown = verifier.get("report").json()["report"]["options"]["documentFilter"]
        assert [each["collection"] for each in shown] == [
            each.partition(".")[2] for each in QUERIES
        ]
        make_unreadable(source, "not utf-8")
        progress = verifier.verify(documentFilter=elements("shop.people"))
        assert progress["verdict"] == "incomplete"
        assert progress["error"].startswith(
            "DocumentFilterFailed: The query of documentFilter for shop.people"
        )
        bad = {"documentFilter": [element("shop.orders", {"$nope": 1})]}
        assert_refused(verifier.post("check", bad), 400, "InvalidFilter", ("$nope",))


@pytest.mark.full
def test_a_count_that_takes_too_long_is_named(pair: Pair, daemon: Daemon) -> None:
    fill(pair.source.client)
    daemon.start(documentFilter=elements())
    fault = {"errorCode": 50, "failCommands": ["count"], "namespace": "shop.orders"}
    with failing(pair.source.client, {**fault, "appName": APPLICATION}):
        daemon.commit()
    assert_selected(pair, QUERIES)
    notes = daemon.report()["verification"]["notCompared"]
    (note,) = [each for each in notes if "numbers of documents were not compared" in each]
    assert note.startswith("shop.orders:")


# Values of `least` for which the query of shop.people fails. The second one, which the server's message quotes, is not
# valid UTF-8.
UNREADABLE = {
    "text": RawBSONDocument(bson.encode({"tags": [], "least": "x"})),
    "not utf-8": RawBSONDocument(
        bson.encode({"tags": [], "least": "xy"}).replace(b"xy", b"\x12\xff")
    ),
}


def make_unreadable(client: AnyClient, kind: str) -> None:
    """Insert a document into shop.people for which the query fails, or change it."""
    update = {"$set": UNREADABLE[kind]}
    client.shop.people.update_one({"_id": "unreadable"}, update, upsert=True)


@pytest.mark.in_turns
@pytest.mark.parametrize("kind", UNREADABLE)
def test_a_document_for_which_the_query_fails_is_reported(
    pair: Pair, daemon: Daemon, kind: str
) -> None:
    source = pair.source.client
    people = source.shop.people
    fill(source)
    make_unreadable(source, kind)
    answer = daemon.post("preflight", daemon.start_body(documentFilter=elements()))
    (violation,) = answer.json()["violations"]
    assert violation["error"] == "DocumentFilterFailed"
    assert "shop.people" in violation["errorDescription"]
    people.delete_one({"_id": "unreadable"})
    with daemon.held_at(Point.LISTED):
        daemon.start(documentFilter=elements())
        daemon.wait_until_reached(Point.LISTED)
        make_unreadable(source, kind)
    assert daemon.wait_for_state("FAILED")["error"] == "DocumentFilterFailed"
    people.update_one({"_id": "unreadable"}, {"$set": {"least": "-1"}})
    daemon.resume()
    daemon.wait_until_committable()
    make_unreadable(source, kind)
    assert daemon.wait_for_state("FAILED")["error"] == "DocumentFilterFailed"
    people.update_one({"_id": "unreadable"}, {"$set": {"least": "-1"}})
    daemon.resume()
    daemon.commit()
    assert_selected(pair, QUERIES)


# A query for which many documents lie between two that match, and one that nearly all documents match.
SPARSE: dict[str, Any] = {"n": {"$mod": [97, 3]}}
DENSE: dict[str, Any] = {"$nor": [{"n": {"$mod": [97, 0]}}]}
SCANNED = Namespace("d", "c")


@pytest.mark.in_turns(2)
@pytest.mark.parametrize("query", [SPARSE, DENSE, {"n": -1}], ids=str)
@pytest.mark.parametrize("in_ranges", [False, True])
def test_a_scan_continues_at_each_of_its_resume_points(
    pair: Pair, query: dict[str, Any], in_ranges: bool
) -> None:
    collection = pair.source.client.d.c
    # Insert the documents in another order than that of `_id`.
    collection.insert_many({"_id": 7919 * n % 5000, "n": n, "pad": "p" * 100} for n in range(5000))
    order = "_id" if in_ranges else "$natural"
    wanted = [each["_id"] for each in collection.find(query).sort(order, 1)]
    with contextlib.closing(open_cluster("source", pair.source.uri, "test").client) as client:
        uuid = collection.database.command("listCollections", filter={"name": "c"})
        found = bytes(uuid["cursor"]["firstBatch"][0]["info"]["uuid"])
        start = append_note(client, StopToken())

        def pages(resume: Any = None) -> Iterator[tuple[list[int], Any]]:
            selected = RawBSONDocument(bson.encode(query))
            scanned = ScannedCollection(
                client, SCANNED, found, start, query=selected, page_bytes=2000, first_page=7
            )
            if in_ranges:
                ranges = RangeScan(scanned, Range(), resume, StopToken())
                yield from ((ids(page.documents()), point) for page, point in ranges.pages())
            else:
                for page, point in NaturalScan(scanned, resume, StopToken()).pages():
                    yield ids(page.documents()), point

        read: list[int] = []
        scanned = [*pages()]
        for number, (page, point) in enumerate(scanned):
            read += page
            if point is not None and number % 20 < 3:
                rest = [each for page, _ in pages(point) for each in page]
                assert read + rest == wanted, (number, point)
        assert read == wanted
        assert len(scanned) > 1 or not wanted


def ids(documents: Sequence[memoryview]) -> list[int]:
    return [bson.decode(bytes(each))["_id"] for each in documents]


@pytest.mark.parametrize("counted", [True, False])
def test_the_selected_size_is_estimated(
    pair: Pair, counted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not counted:
        monkeypatch.setattr(selected_size, "MOST_READ", 0)
    client, stop = pair.source.client, StopToken()
    client.d.c.insert_many({"_id": n, "pad": "p" * 100} for n in range(5000))
    whole = extent(client, SCANNED)
    expected = {"half": 2500, "all": 5000, "none": 0}
    for name, least in (("half", 2500), ("all", 0), ("none", 5000)):
        query = RawBSONDocument(bson.encode({"_id": {"$gte": least}}))
        found = selected_size.selected_size(client, SCANNED, query, whole, stop)
        # Nearly always, 60 to 140 of the 200 sampled documents match.
        assert abs(found.documents - expected[name]) <= (0 if counted or name != "half" else 1000)
        assert found.bytes == pytest.approx(whole.bytes * found.documents / 5000, rel=0.01)
