"""Runs one sync from a replica set with two instances, which the start option `instances` names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from bson import encode

from syncsvc.engine.events.event_share import share_of
from syncsvc.engine.run.points import Point
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.saved.run_documents import RUNS
from tests.integration.test_embedded_verifier import mismatches
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.fleet import Fleet, kill_at_each
from tests.support.metrics import scrape
from tests.support.pages import commands, paste
from tests.support.pair import TO_SHARDED, Pair, across
from tests.support.waiting import wait_for
from verifier.cluster.keys import canonical_id

REVERSIBLE = {
    "reversible": True,
    "enableUserWriteBlocking": "sourceAndDestination",
    "buildIndexes": "afterDataCopy",
}
# One capped collection for each reader of an instance. Each collection is a single partition, larger than all others;
# the thread that reads the partition also writes it.
CAPPED = ("first", "second")


def fill(pair: Pair, fleet: Fleet) -> None:
    """Create large collections, which are copied in ranges, small collections, views, a time series, and capped ones.

    Restart the daemons with small partitions.
    """
    client = pair.source.client
    for name in CAPPED:
        client.d.create_collection(name, capped=True, size=1 << 20)
        client.d[name].insert_many({"_id": -n, "pad": "p" * 1000} for n in range(100))
    pair.shard("shop.orders", {"n": 1})
    client.shop.orders.insert_many({"_id": n, "n": -n, "pad": "p" * 500} for n in range(1000))
    writes.fill(client, 100)
    writes.many_collections(client)
    writes.time_series(client)
    writes.views(client)
    for each in fleet.daemons:
        each.kill()
        each.small_partitions(20_000)
        each.watch_closely()
        each.run()


@contextmanager
def coordinator_held_in_the_copy(fleet: Fleet) -> Iterator[None]:
    """Make the coordinator wait in the copy of the capped collections until the end of the block.

    The other instance therefore copies everything else.
    """
    with ExitStack() as held:
        for name in CAPPED:
            held.enter_context(fleet.coordinator.held_at(Point.BATCH_WRITTEN, f"d.{name}"))
        yield


def wait_until_held(fleet: Fleet) -> None:
    for name in CAPPED:
        fleet.coordinator.wait_until_reached(Point.BATCH_WRITTEN, f"d.{name}")


def copied_by(pair: Pair) -> dict[str, int]:
    """Return the number of bytes that each instance has copied according to the metadata, by instance ID."""
    group = {"_id": "$instance", "copied": {"$sum": "$copied"}}
    found = pair.destination.client[METADATA_DATABASE].partitions.aggregate([{"$group": group}])
    return {each["_id"]: each["copied"] for each in found}


def knows_the_oplog(daemon: Daemon) -> bool:
    return bool(daemon.progress()["estimatedOplogTimeRemaining"] != "not checked yet")


def insertion_order(client: writes.AnyClient) -> list[Any]:
    return [each["_id"] for name in CAPPED for each in client.d[name].find()]


def write(client: writes.AnyClient, mark: str) -> None:
    """Write to documents whose events different instances apply, and run DDL operations in between.

    `mark` makes the writes of each call different.
    """
    orders = client.shop.orders
    orders.insert_many([{"_id": f"{mark} {n}", "n": n} for n in range(60)])
    orders.update_many({"n": {"$lt": -950}}, {"$set": {f"at {mark}": 1}, "$inc": {"k": 1}})
    client.d.first.insert_many([{"_id": f"{mark} {n}"} for n in range(5)])
    client.d[f"m{mark}"].insert_one({"_id": 1})
    client.d[f"m{mark}"].rename(f"renamed{mark}")
    orders.delete_many({"_id": {"$in": [f"{mark} {n}" for n in range(20)]}})
    orders.create_index(f"at {mark}")


def test_a_commit_that_an_instance_has_saved_and_forgotten(pair: Pair, fleet: Fleet) -> None:
    """Save a commit of the follower by hand, as a save does that is not acknowledged, until the coordinator reads it.

    The follower then saves RUNNING again, and must nevertheless finish the commit.
    """
    coordinator, follower = fleet.daemons
    metadata = pair.destination.client[METADATA_DATABASE]
    saved = {"_id": fleet.names[1]}
    commit = {"update": RUNS, "updates": [{"q": saved, "u": {"$set": {"state": "COMMITTING"}}}]}
    writes.fill(pair.source.client)
    fleet.start()
    fleet.wait_until_committable()

    def is_read() -> bool:
        metadata.command({**commit, "mayBypassWriteBlocking": True})
        return coordinator.has_reached(Point.STEP_DONE, "commit saved")

    with coordinator.held_at(Point.STEP_DONE, "commit saved"):
        coordinator.ask_for_commit()
        wait_for(is_read, "the coordinator reads the commit")
        again = {**saved, "state": "RUNNING"}
        wait_for(lambda: metadata[RUNS].find_one(again), "the follower saves its state")
        assert follower.progress()["state"] == "RUNNING"
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
@pytest.mark.slow
@pytest.mark.three_members
def test_killed_instances_share_a_sync_and_reverse_it(pair: Pair, fleet: Fleet) -> None:
    source, destination = pair.source.client, pair.destination.client
    coordinator, follower = fleet.daemons
    fill(pair, fleet)
    follower.kill_at(Point.BATCH_WRITTEN, number=3)
    coordinator.kill_at(Point.PARTITION_COPIED, number=9)
    with coordinator_held_in_the_copy(fleet):
        fleet.start(**REVERSIBLE)
        wait_until_held(fleet)
        follower.wait_until_killed()
        writes.single_document_writes(source)
        writes.renames(source)
        writes.modifications(source)
        source.db1.drop_collection("c1")
    # The coordinator copies everything except the partitions that the killed follower has claimed.
    coordinator.wait_until_killed()
    for each in fleet.daemons:
        each.run()
    fleet.wait_until_committable()
    shares = copied_by(pair)
    assert {*shares} == {*fleet.names} and min(shares.values()) > 0
    shown = [each.progress()["collectionCopy"]["estimatedCopiedBytes"] for each in fleet.daemons]
    assert shown == [shares[name] for name in fleet.names]

    for each in fleet.daemons:
        wait_for(lambda each=each: knows_the_oplog(each), "an estimate of the oplog")

    write(source, "before")
    marks = iter("ab")
    kill_at_each(follower, [Point.BARRIER_REACHED], lambda: write(source, next(marks)))
    kill_at_each(coordinator, [Point.DEFINITION_APPLIED], lambda: write(source, next(marks)))
    for each in fleet.daemons:
        each.pause()
    write(source, "paused")
    writes.new_collections(source)
    for each in fleet.daemons:
        each.resume()
    fleet.wait_without_warnings()
    fleet.commit()
    pair.assert_equal()
    assert insertion_order(source) == insertion_order(destination)
    assert min(each.progress()["totalEventsApplied"] for each in fleet.daemons) > 0

    write(destination, "committed")
    follower.kill_at(Point.REVERSED)
    for each in fleet.daemons:
        assert each.post("reverse").ok
    follower.wait_until_killed()
    write(destination, "reversed")
    follower.run()
    fleet.wait_for_state("RUNNING")
    kill_at_each(follower, [Point.BARRIER_REACHED], lambda: write(destination, "back"))
    fleet.commit()
    pair.assert_equal()


@across(TO_SHARDED)
def test_instances_sync_to_a_sharded_cluster(pair: Pair, fleet: Fleet) -> None:
    source = pair.source.client
    fill(pair, fleet)
    with coordinator_held_in_the_copy(fleet):
        fleet.start()
        wait_until_held(fleet)
        wait_for(lambda: copied_by(pair).get("b"), "the follower has copied something")
    fleet.wait_until_committable()
    copies = [each.progress()["collectionCopy"] for each in fleet.daemons]
    assert min(each["estimatedCopiedBytes"] for each in copies) > 0
    total = sum(each["estimatedCopiedBytes"] for each in copies)
    assert total == copies[0]["estimatedTotalBytes"]
    write(source, "a")
    writes.single_document_writes(source)
    writes.drop_and_create_again(source)
    fleet.commit()
    pair.assert_equal()


def refused(fleet: Fleet, number: int, **options: Any) -> tuple[str, str]:
    """Try to start a sync on the instance with this number; fail unless the instance refuses.

    A preflight must report the same error, unless the request is invalid. Return the name of the error and its
    description.
    """
    daemon = fleet.daemons[number]
    body = daemon.start_body(**options)
    answer = daemon.post("start", body)
    assert not answer.ok
    error = answer.json()
    if answer.status_code != 400:
        violations = daemon.post("preflight", body).json()["violations"]
        assert error["error"] in [each["error"] for each in violations]
    return error["error"], error["errorDescription"]


def test_instances_that_do_not_fit_are_refused(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client, 10)
    coordinator, follower = fleet.daemons
    for value in ("a", ["a", ""], ["a", "b", "a"], [1], None):
        name, text = refused(fleet, 0, instances=value)
        assert name == "InvalidRequest" and text.startswith("instances")
    assert refused(fleet, 0, instances=["b", "c"])[0] == "UnknownInstance"
    follower.start()
    for number, instances in ((0, ["b", "a"]), (0, ["a", "b", "c"]), (0, ["a"]), (0, [])):
        name, text = refused(fleet, number, instances=instances)
        assert (
            name == "DifferentStart" and "The start of the instance b differs in: instances" in text
        )
    assert coordinator.progress()["state"] == "IDLE"

    # Simulate another run that began at the same moment, before the two runs could see each other.
    follower.kill()
    runs = pair.destination.client[METADATA_DATABASE].runs
    saved = runs.find_one({"_id": "b"})
    assert saved is not None
    options = {**saved["options"], "instances": ["a", "c"]}
    runs.insert_one({**saved, "_id": "c", "only": "c", "instances": ["a", "c"], "options": options})
    follower.run()
    assert follower.progress()["state"] == "IDLE"
    runs.delete_one({"_id": "c"})

    fleet.start(includeNamespaces=[{"database": "d", "collections": ["c", "other"]}])
    fleet.wait_until_committable()
    pair.source.client.d.other.rename("elsewhere")
    shown = [each.wait_for_state("FAILED") for each in fleet.daemons]
    assert [each["error"] for each in shown] == ["RenamedOutOfFilter"] * 2
    assert "The instance a failed" in shown[1]["errorDescription"]

    # Simulate a coordinator of a later version.
    coordinator.kill()
    later = {"q": {"_id": "a"}, "u": {"$set": {"format": 1000}}}
    runs.database.command({"update": runs.name, "updates": [later], "mayBypassWriteBlocking": True})
    for command, body in (("resume", {}), ("reset", {"confirm": "cluster1"})):
        answer = follower.post(command, body)
        assert (answer.status_code, answer.json()["error"]) == (409, "IncompatibleMetadata")


@pytest.mark.full
def test_the_commands_of_the_page_on_instances_of_a_replica_set(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    ports = {f"2718{2 + n}": str(each.port) for n, each in enumerate(fleet.daemons)}
    addresses = {"localhost": "127.0.0.1", **ports}

    def follow(title: str) -> str:
        found = commands("docs/howto/several-instances.rst", title)
        return "".join(paste(block.text, addresses) for block in found)

    follow("From a replica set")
    follow("Give up with several instances")
    assert "d" not in pair.destination.client.list_database_names()
    follow("From a replica set")
    shown = follow("Commit with several instances")
    assert shown.count('"COMMITTED"') == len(fleet.daemons)
    pair.assert_equal()


@pytest.mark.full
def test_changed_documents_are_compared_until_all_instances_commit(
    pair: Pair, fleet: Fleet
) -> None:
    writes.fill(pair.source.client)
    checks = pair.destination.client[METADATA_DATABASE].check

    def compared() -> int:
        return int((checks.find_one() or {})["rechecked"])

    fleet.start()
    fleet.wait_until_committable()
    fleet.coordinator.ask_for_commit()
    before = compared()
    pair.source.client.d.c.update_many({}, {"$set": {"late": 1}})
    # Otherwise the lag of the rechecks would grow, and the commit of the other instance would be refused for good.
    wait_for(lambda: compared() > before, "the changed documents are compared")
    fleet.follower.ask_for_commit()
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_both_repair_and_apply_writes_after_the_verdict(pair: Pair, fleet: Fleet) -> None:
    """Write to the source after the verdict, and let the coordinator save a position after this write.

    The follower is killed before it applies the events that belong to it, and must apply them after its restart.
    """
    source, destination = pair.source.client, pair.destination.client
    coordinator, follower = fleet.daemons
    writes.fill(source)
    source.d.c.create_index("n")
    source.d.create_collection("capped", capped=True, size=1 << 20)
    source.d.capped.insert_many({"_id": n, "n": n} for n in range(20))
    fleet.start(verification={"enabled": True, "repair": "auto"})
    fleet.wait_until_committable()
    writes.spoil(destination)
    changes = [{"q": {"_id": n}, "u": {"$set": {"n": -n}}} for n in range(1, 20)]
    bypass = {"mayBypassWriteBlocking": True}
    destination.d.command({"update": "capped", "updates": changes, **bypass})
    follower.kill_at(Point.REPAIR_APPLIED, "1")
    verified = (Point.STEP_DONE, "verified")
    with coordinator.held_at(*verified):
        fleet.ask_for_commit()
        follower.wait_until_killed()
        # The follower has not recorded this repair round as applied.
        assert coordinator.progress()["repairs"]["inProgress"] is True
        follower.run()
        coordinator.wait_until_reached(*verified)
        follower.kill()
        with source.start_session() as session:
            source.d.c.update_many({}, {"$inc": {"n": 1000}}, session=session)
            written = session.operation_time
        wait_for(lambda: position_of(pair, "a") > written, "the coordinator has saved its share")
    follower.run()
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()
    shown = coordinator.progress()["repairs"]
    assert (shown["inProgress"], shown["documents"]) == (False, 90 + 19)


def position_of(pair: Pair, instance: str) -> Any:
    """Return the cluster time of the position that this instance has saved in its run record."""
    record = pair.destination.client[METADATA_DATABASE].runs.find_one({"_id": instance})
    assert record is not None
    return record["position"]["time"]


def make_the_follower_withhold(
    pair: Pair, fleet: Fleet, collection: str, fields: str = "pq"
) -> None:
    """Create an index on the destination, as a user could, that refuses a new document of the follower's share.

    `fields` are the names of two fields, which no document has yet.
    """
    index = {"name": "theirs", "key": dict.fromkeys(fields, 1)}
    create = {"createIndexes": collection, "indexes": [index], "mayBypassWriteBlocking": True}
    pair.destination.client.d.command(create)
    share = share_of("b", fleet.names)
    ids = (f"{fields} {n}" for n in range(1000))
    refused = next(each for each in ids if share.has(b"", canonical_id(encode({"_id": each}))))
    pair.source.client.d[collection].insert_one({"_id": refused, **dict.fromkeys(fields, [1, 2])})


@pytest.mark.full
def test_a_follower_withholds_indexes_again_when_the_commit_is_repeated(
    pair: Pair, fleet: Fleet
) -> None:
    """Let the follower withhold indexes, build them in a commit that is withdrawn, and let it withhold them again.

    The repeated commit must build them. No verification may repair them.
    """
    source, destination = pair.source.client.d, pair.destination.client.d
    writes.fill(pair.source.client)
    source.c.create_index("n")
    fleet.start(verification={"enabled": False})
    fleet.wait_until_committable()
    make_the_follower_withhold(pair, fleet, "c")
    fleet.follower.wait_for_warning("The indexes of d.c are withheld")
    repeated, prepared = (Point.STEP_DONE, "commit saved", 2), (
        Point.STEP_DONE,
        "definitions prepared",
    )
    with fleet.coordinator.held_at(*repeated):
        with fleet.coordinator.held_at(*prepared):
            fleet.ask_for_commit()
            fleet.coordinator.wait_until_reached(*prepared)
            assert "n_1" in destination.c.index_information()
            source.c.insert_one({"_id": "late"})
        fleet.coordinator.wait_until_reached(*repeated)
        make_the_follower_withhold(pair, fleet, "c", "rs")
        wait_for(lambda: {*destination.c.index_information()} == {"_id_"}, "no indexes are left")
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_indexes_that_only_a_follower_withholds_do_not_differ(pair: Pair, fleet: Fleet) -> None:
    """Let the follower withhold indexes before the verification begins, and others afterwards.

    The verification must not report the first ones as missing, and a repair must not build the second ones.
    """
    source, destination = pair.source.client.d, pair.destination.client.d
    writes.fill(pair.source.client)
    for each in (source.c, source.other):
        each.create_index("n")
    with fleet.coordinator.held_at(Point.INDEXES_BUILT, "d.c"):
        fleet.start(buildIndexes="afterDataCopy")
        fleet.coordinator.wait_until_reached(Point.INDEXES_BUILT, "d.c")
        make_the_follower_withhold(pair, fleet, "c")
        wait_for(lambda: "n_1" in destination.other.index_information(), "an index")
        drop = {"dropIndexes": "other", "index": "n_1", "mayBypassWriteBlocking": True}
        destination.command(drop)
    fleet.wait_until_committable()
    (found,) = mismatches(fleet.coordinator)
    assert (found["namespace"], found["component"]) == ("d.other", "n_1")
    make_the_follower_withhold(pair, fleet, "other")
    fleet.follower.wait_for_warning("The indexes of d.c, d.other are withheld")
    assert fleet.coordinator.post("repair").ok
    wait_for(
        lambda: fleet.coordinator.progress()["repairs"]["definitions"], "the repair is complete"
    )
    for each in (destination.c, destination.other):
        assert {*each.index_information()} == {"_id_"}
    fleet.commit()
    pair.assert_equal()


def test_a_process_with_a_wrong_id_warns_before_a_start(
    pair: Pair, fleet: Fleet, tmp_path: Path
) -> None:
    fleet.coordinator.start()
    (tmp_path / "stray").mkdir()
    uris = pair.source.uri, pair.destination.uri
    with Daemon(*uris, tmp_path / "stray", "--id", "c").running() as stray:
        text = stray.wait_for_warning("a (RUNNING), b (not started)")
        assert "cluster1 holds the sync of the instances" in text and "its --id is c" in text
        assert stray.overview()["warnings"][0]["text"] == text
        assert scrape(stray)["mongosync_warning"]["wrong instance",] == 1.0
        assert not fleet.follower.warnings()
        assert fleet.coordinator.post("reset", {"confirm": "cluster1"}).ok
        stray.wait_without_warning()
