"""Tests the start option `buildIndexes`: which indexes the destination gets, and when.

Also tests builds that fail, take long, are withheld, or are interrupted by a kill.
"""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from tests.support import writes
from tests.support.daemon import Daemon, prepared
from tests.support.failpoints import APPLICATION, failing, holding, running, running_for
from tests.support.metrics import scrape
from tests.support.pair import SHARDED, TO_SHARDED, Pair, across
from tests.support.phases import PHASES, When, writes_in
from tests.support.resuming import fails_again
from tests.support.waiting import wait_for
from verifier.cluster.failures import INVALID_OPTIONS

on_shards = across(TO_SHARDED, SHARDED)


def index_names(client: writes.AnyClient, collection: str = "c") -> set[str]:
    return set(client.d[collection].index_information())


def create_and_drop(pair: Pair) -> None:
    """Create indexes of many kinds on d.c, and drop one; create two on a new collection, and hide one of them."""
    client = pair.source.client
    writes.indexes(client, unique=not pair.is_sharded)
    client.d.c.create_index("m", name="dropped")
    client.d.c.drop_index("dropped")
    client.d.new.create_index([("h", "hashed")], name="hashed")
    client.d.new.create_index("n", name="plain")
    client.d.command({"collMod": "new", "index": {"name": "plain", "hidden": True}})


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_indexes_are_built_after_the_copy(pair: Pair, daemon: Daemon, when: When) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    pair.source.client.d.other.create_index("early", unique=True, sparse=True)
    with writes_in(when, daemon, buildIndexes="afterDataCopy"):
        create_and_drop(pair)
    daemon.commit()
    pair.assert_equal()


@pytest.mark.full
@on_shards
def test_indexes_are_built_after_the_copy_on_shards(pair: Pair, daemon: Daemon) -> None:
    test_indexes_are_built_after_the_copy(pair, daemon, When.COPY)


def test_no_index_exists_before_the_end_of_the_copy(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n")
    with daemon.held_at(Point.BATCH_WRITTEN):
        daemon.start(buildIndexes="afterDataCopy")
        daemon.wait_until_reached(Point.BATCH_WRITTEN)
        assert index_names(pair.destination.client) == {"_id_"}
    daemon.wait_until_committable()
    assert index_names(pair.destination.client) == {"_id_", "n_1"}
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.parametrize("when", PHASES, ids=lambda when: when.name)
def test_no_indexes_are_built(pair: Pair, daemon: Daemon, when: When) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    pair.source.client.d.other.create_index("early")
    with writes_in(when, daemon, buildIndexes="never", verification={"enabled": False}):
        create_and_drop(pair)
    daemon.commit()
    for collection in ("c", "other", "new"):
        assert index_names(pair.destination.client, collection) == needed(pair, collection)
    assert pair.destination.client.d.c.count_documents({}) == 300


def needed(pair: Pair, collection: str) -> set[str]:
    """Return the names of the indexes that the destination's collection has even if `buildIndexes` is `never`."""
    serving = {"_id_hashed"} if pair.is_sharded and collection == "c" else set()
    return {"_id_", *serving}


@pytest.mark.full
@on_shards
def test_no_indexes_are_built_on_shards(pair: Pair, daemon: Daemon) -> None:
    test_no_indexes_are_built(pair, daemon, When.COPY)


def test_no_indexes_are_built_with_verification(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("n", unique=True)
    daemon.start(buildIndexes="never")
    daemon.wait_until_committable()
    pair.source.client.d.c.create_index("m", hidden=True)
    daemon.commit()
    assert index_names(pair.destination.client) == {"_id_"}


@pytest.mark.in_turns
@pytest.mark.parametrize("when", [When.REPLAY, When.COPY, When.APPLY], ids=lambda when: when.name)
def test_a_ttl_index_without_index_builds_is_refused(
    pair: Pair, daemon: Daemon, when: When
) -> None:
    writes.fill(pair.source.client)
    with writes_in(when, daemon, buildIndexes="never"):
        pair.source.client.d.c.create_index("when", expireAfterSeconds=10**8)
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "TTLNotVerifiable"
    told = progress["errorDescription"]
    assert "The TTL indexes of d.c would be missing" in told and "never: when_1." in told
    fails_again(daemon, "TTLNotVerifiable")
    pair.source.client.d.c.drop_index("when_1")
    daemon.resume()
    daemon.commit()
    assert index_names(pair.destination.client) == {"_id_"}


@pytest.mark.full
def test_an_index_that_becomes_ttl_without_index_builds_is_refused(
    pair: Pair, daemon: Daemon
) -> None:
    writes.fill(pair.source.client)
    pair.source.client.d.c.create_index("when")
    daemon.start(buildIndexes="never")
    daemon.wait_until_committable()
    index = {"name": "when_1", "expireAfterSeconds": 10**8}
    pair.source.client.d.command({"collMod": "c", "index": index})
    assert daemon.wait_for_state("FAILED")["error"] == "TTLNotVerifiable"
    pair.source.client.d.c.drop_index("when_1")
    daemon.resume()
    daemon.commit()


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "when, build",
    [*((when, "excludeHashed") for when in PHASES), (When.COPY, "excludeHashedAfterCopy")],
)
def test_all_but_hashed_indexes_are_built(
    pair: Pair, daemon: Daemon, when: When, build: str
) -> None:
    pair.shard("d.c")
    writes.fill(pair.source.client)
    pair.source.client.d.other.create_index([("n", "hashed")])
    with writes_in(when, daemon, buildIndexes=build):
        create_and_drop(pair)
    daemon.commit()
    for collection in ("c", "other", "new"):
        expected = {
            name
            for name, index in pair.source.client.d[collection].index_information().items()
            if "hashed" not in dict(index["key"]).values()
        }
        assert index_names(pair.destination.client, collection) == expected | needed(
            pair, collection
        )
    assert index_names(pair.destination.client, "new") == {"_id_", "plain"}


@pytest.mark.full
@on_shards
def test_all_but_hashed_indexes_are_built_on_shards(pair: Pair, daemon: Daemon) -> None:
    test_all_but_hashed_indexes_are_built(pair, daemon, When.COPY, "excludeHashed")


def test_an_index_that_cannot_be_built_is_reported_by_name(pair: Pair, daemon: Daemon) -> None:
    """Insert a document into the destination that makes an index build fail there: the error must name the index."""
    writes.fill(pair.source.client)
    daemon.start()
    daemon.wait_until_committable()
    parallel = {"_id": "parallel", "p": [1, 2], "q": [1, 2]}
    insert = {"insert": "c", "documents": [parallel], "mayBypassWriteBlocking": True}
    pair.destination.client.d.command(insert)
    pair.source.client.d.c.create_index([("p", 1), ("q", 1)], name="both")
    (warning,) = wait_for(daemon.warnings, "a warning")
    assert "The indexes of d.c are withheld" in warning
    daemon.ask_for_commit()
    progress = daemon.wait_for_state("FAILED")
    assert progress["error"] == "DefinitionNotApplicable"
    assert (
        "Index both: The destination refused createIndexes on d.c" in progress["errorDescription"]
    )
    delete = {"delete": "c", "deletes": [{"q": {"_id": "parallel"}, "limit": 1}]}
    pair.destination.client.d.command({**delete, "mayBypassWriteBlocking": True})
    daemon.resume()
    daemon.commit()
    pair.assert_equal()


@pytest.mark.in_turns
@pytest.mark.each_once
@pytest.mark.parametrize("build", ["beforeDataCopy", "afterDataCopy"])
@pytest.mark.parametrize("point", [Point.STARTED, Point.LISTED, Point.BATCH_WRITTEN])
def test_documents_that_an_older_or_newer_index_refuses(
    pair: Pair, daemon: Daemon, point: Point, build: str
) -> None:
    """Drop an index, insert documents that violate it, and create another index with the same name.

    The sync must apply these changes in their order; the clusters must be equal.
    """
    writes.fill(pair.source.client)
    c = pair.source.client.d.c
    c.create_index([("p", 1), ("q", 1)], name="x", hidden=True)
    c.create_index([("t", "text")], name="text")
    c.insert_one({"_id": "mixed", "p": 1, "q": 1, "pad": "p" * 2000})
    with daemon.held_at(point):
        daemon.start(buildIndexes=build)
        daemon.wait_until_reached(point)
        c.drop_index("x")
        c.drop_index("text")
        c.insert_one({"_id": "parallel", "p": [1, 2], "q": [1, 2]})
        c.insert_one({"_id": "language", "t": "text", "language": "klingon"})
        c.update_one({"_id": "mixed"}, {"$set": {"q": [1]}})
        c.delete_one({"_id": "parallel"})
        c.create_index([("p", 1), ("q", 1)], name="x", unique=True, sparse=True)
        c.update_one({"_id": "mixed"}, {"$set": {"q": 1}})
        c.update_one({"_id": "mixed"}, {"$set": {"p": [1, 2]}})
        c.drop_index("x")
        c.insert_one({"_id": "parallel", "p": [1, 2], "q": [1, 2]})
        c.create_index("n", name="x")
    daemon.commit()
    pair.assert_equal()
    assert "warnings" not in daemon.progress()


def _start_and_withhold(pair: Pair, daemon: Daemon, **options: Any) -> None:
    """Start a sync, drop an index, and insert a document that the index has refused.

    Return when the sync withholds all indexes of the collection, because the document is inserted during the copy.
    """
    writes.fill(pair.source.client)
    c = pair.source.client.d.c
    c.create_index([("p", 1), ("q", 1)], name="both")
    c.create_index("n")
    with daemon.held_at(Point.LISTED):
        daemon.start(**options)
        daemon.wait_until_reached(Point.LISTED)
        c.drop_index("both")
        c.insert_one({"_id": "parallel", "p": [1, 2], "q": [1, 2]})
    wait_for(lambda: "The indexes of a collection are withheld" in daemon.log, "they are withheld")


def test_withheld_indexes_are_built_before_the_commit(pair: Pair, daemon: Daemon) -> None:
    _start_and_withhold(pair, daemon)
    built = {"_id_", "n_1"}
    wait_for(lambda: index_names(pair.destination.client) == built, "the other index is built")
    daemon.wait_without_warning("withheld")
    daemon.commit()
    pair.assert_equal()


def test_a_commit_must_wait_for_withheld_indexes(pair: Pair, daemon: Daemon) -> None:
    """Hold the build of withheld indexes: canCommit must be false, because a commit would block users meanwhile."""
    _start_and_withhold(pair, daemon, verification={"enabled": False})
    with holding(pair.destination.client, "hangAfterSettingUpIndexBuild"):
        wait_for(lambda: running(pair.destination.client, "createIndexes"), "the index is built")
        # The first measurements are small enough for a commit.
        wait_for(lambda: (daemon.progress()["lagTimeSeconds"] or 0) > 1, "the lag is measured")
        assert not daemon.progress()["canCommit"]
        assert daemon.overview()["commit"]["reasons"] == [
            "The indexes that are withheld from the destination are not built yet."
        ]
        daemon.kill()
        daemon.run()
        assert "are withheld" in daemon.wait_until_applying()["warnings"][0]
    daemon.wait_without_warning("withheld")
    daemon.commit()
    pair.assert_equal()


@prepared(Daemon.warn_soon, Daemon.give_up_soon)
def test_a_long_index_build_is_no_failure(pair: Pair, daemon: Daemon) -> None:
    """Hold an index build for longer than a call waits: the daemon must not send the command again."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    daemon.start()
    daemon.wait_until_applying()
    with holding(destination, "hangAfterSettingUpIndexBuild"):
        source.d.c.create_index("n", name="long")
        wait_for(lambda: running_for(destination, 12.0, "createIndexes"), "the call has timed out")
        text = daemon.wait_for_warning("No answer yet to createIndexes of d.c", "index build takes")
        assert "currentOp" in text
        assert len(running(destination, "createIndexes")) == 1
        assert not daemon.warnings("A call to a cluster fails")
        assert scrape(daemon)["mongosync_longest_wait_seconds"] == {(): 0}
    daemon.commit()
    pair.assert_equal()
    assert "A call to a cluster failed and will be retried." not in daemon.log


@pytest.mark.parametrize("refused", [False, True], ids=["modified", "refused"])
def test_an_index_that_becomes_ttl_is_replaced_only_if_necessary(
    pair: Pair, daemon: Daemon, refused: bool
) -> None:
    """Turn an index into a TTL index: the destination must replace its index only if it refuses the collMod."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.c.create_index("when")
    daemon.start()
    daemon.wait_until_committable()
    began = destination.admin.command("ping")["operationTime"]

    def is_ttl() -> bool:
        return "expireAfterSeconds" in destination.d.c.index_information().get("when_1", {})

    refusal = {"failCommands": ["collMod"], "errorCode": INVALID_OPTIONS, "appName": APPLICATION}
    with failing(destination, refusal) if refused else nullcontext():
        index = {"name": "when_1", "expireAfterSeconds": 10**8}
        source.d.command({"collMod": "c", "index": index})
        wait_for(is_ttl, "the index is a TTL index")
    dropped = {"ts": {"$gt": began}, "ns": "d.$cmd", "o.dropIndexes": "c"}
    assert bool(destination.local["oplog.rs"].find_one(dropped)) is refused
    daemon.commit()
    pair.assert_equal()


def test_a_restarted_daemon_joins_an_index_build(pair: Pair, daemon: Daemon) -> None:
    """Restart the daemon during an index build: it must not set the write block again, which would abort the build."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    daemon.start()
    daemon.wait_until_applying()
    with holding(destination, "hangAfterSettingUpIndexBuild"):
        source.d.c.create_index("n")
        wait_for(lambda: running(destination, "createIndexes"), "the index is built")
        daemon.kill()
        daemon.run()
        wait_for(lambda: len(running(destination, "createIndexes")) > 1, "the daemon joins")
    daemon.commit()
    pair.assert_equal()


def test_a_kill_while_indexes_are_built_after_the_copy(pair: Pair, daemon: Daemon) -> None:
    writes.fill(pair.source.client)
    writes.indexes(pair.source.client)
    daemon.kill_at(Point.INDEXES_BUILT)
    daemon.post_unanswered(
        "start", {"source": "cluster0", "destination": "cluster1", "buildIndexes": "afterDataCopy"}
    )
    daemon.wait_until_killed()
    pair.source.client.d.c.drop_index("n_-1_sub.a_1")
    daemon.run()
    daemon.commit()
    pair.assert_equal()
