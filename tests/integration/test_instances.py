"""Runs one sync between sharded clusters with several instances, one for each shard of the source.

`make test` leaves out kills in rare states, and cases that the model test covers.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import MOST_LAG
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.state import Phase
from tests.integration.test_bad_input import assert_refused
from tests.integration.test_embedded_verifier import mismatches
from tests.support import writes
from tests.support.daemon import Daemon, prepared
from tests.support.fleet import Fleet, kill_at_each
from tests.support.metrics import scrape
from tests.support.pages import commands, paste
from tests.support.pair import SHARDED, Pair, across
from tests.support.spools import SPOOL, change, leave_row, now, rows, wait_until_spooled
from tests.support.waiting import wait_for

pytestmark = across(SHARDED)

REVERSIBLE = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}
DOCUMENTS = 900


def prepare_copy(pair: Pair, fleet: Fleet) -> None:
    """Insert documents into a sharded collection, and restart the daemons so that they use small partitions."""
    source = pair.source.client
    source.admin.command("shardCollection", "shop.orders", key={"n": "hashed"})
    source.shop.orders.insert_many([{"n": n, "pad": "p" * 200} for n in range(DOCUMENTS)])
    for each in fleet.daemons:
        each.kill()
        each.small_partitions()
        each.run()


def test_instances_share_the_copy(pair: Pair, fleet: Fleet) -> None:
    prepare_copy(pair, fleet)
    # No instance copies more than its first batches before all of them have begun.
    with ExitStack() as held:
        for each in fleet.daemons:
            held.enter_context(each.held_at(Point.BATCH_WRITTEN))
        fleet.start()
        for each in fleet.daemons:
            each.wait_until_reached(Point.BATCH_WRITTEN)
    fleet.wait_until_committable()
    copies = [each.progress()["collectionCopy"] for each in fleet.daemons]
    total = copies[0]["estimatedTotalBytes"]
    assert sum(each["estimatedCopiedBytes"] for each in copies) == total
    # Require no minimum share, such as a third: on a busy machine, one instance can be much slower than the other.
    assert min(each["estimatedCopiedBytes"] for each in copies) > 0
    # After the copy, each instance knows what all of them have copied.
    assert [each["estimatedTotalBytes"] for each in copies] == [total] * len(copies)
    assert [each["estimatedCopiedBytesInAll"] for each in copies] == [total] * len(copies)
    for each in fleet.daemons:
        copy = each.overview()["copy"]
        assert (copy["copiedBytes"], copy["byThisInstance"]) == (total, False)
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
@pytest.mark.parametrize("number", [0, 1], ids=["coordinator", "follower"])
def test_an_instance_killed_during_the_copy_continues(
    pair: Pair, fleet: Fleet, number: int
) -> None:
    prepare_copy(pair, fleet)
    killed, other = fleet.daemons[number], fleet.daemons[1 - number]
    killed.kill_at(Point.BATCH_WRITTEN)
    # Otherwise the other instance might copy everything before this one is killed.
    with other.held_at(Point.BATCH_WRITTEN):
        fleet.start()
        killed.wait_until_killed()
    killed.run()
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_instances_share_the_change_events(pair: Pair, fleet: Fleet) -> None:
    source = pair.source.client
    writes.fill(source)
    source.admin.command("shardCollection", "shop.orders", key={"n": 1})
    source.shop.orders.insert_many([{"_id": n, "n": n} for n in range(100)])
    fleet.start()
    fleet.wait_until_committable()
    for orders in (source.d.c, source.shop.orders):
        orders.insert_many([{"_id": f"new {n}", "n": n} for n in range(DOCUMENTS)])
        orders.update_many({"n": {"$lt": DOCUMENTS}}, {"$set": {"seen": True}})
        orders.delete_many({"n": {"$lt": 100}})
    fleet.commit()
    pair.assert_equal()
    applied = [each.progress()["totalEventsApplied"] for each in fleet.daemons]
    assert min(applied) > sum(applied) / 3


def test_progress_names_the_coordinator(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    told = [each.progress() for each in fleet.daemons]
    assert [(each["mongosyncID"], each["coordinatorID"]) for each in told] == [
        (name, None) for name in fleet.names
    ]
    fleet.start()
    told = [each.progress() for each in fleet.daemons]
    assert [(each["mongosyncID"], each["coordinatorID"]) for each in told] == [
        (name, fleet.names[0]) for name in fleet.names
    ]
    for daemon, others in zip(fleet.daemons, (fleet.names, fleet.names[::-1]), strict=True):
        shown = wait_for(lambda: _instances(daemon, len(fleet.names)), "the instances are shown")
        assert [(each["name"], each["coordinates"]) for each in shown] == [
            (name, name == fleet.names[0]) for name in others
        ]


def _instances(daemon: Daemon, number: int) -> list[dict[str, Any]] | None:
    """Return the instances in the overview; None unless there are `number` of them."""
    shown: list[dict[str, Any]] = daemon.overview()["instances"]
    return shown if len(shown) == number else None


def test_ddl_events_are_applied_once_and_in_order(pair: Pair, fleet: Fleet) -> None:
    source = pair.source.client
    writes.fill(source)
    writes.new_collections(source)
    fleet.start()
    fleet.wait_until_committable()
    for number in range(2):
        source.d.c.insert_many([{"_id": f"{number} {n}", "u": n} for n in range(50)])
        source.d.c.rename("moving")
        source.d.moving.update_many({"u": {"$gte": 0}}, {"$set": {"moved": number}})
        source.d.moving.rename("c")
        source.d.c.delete_many({"u": {"$lt": 20}})
        source.d.drop_collection("other")
        source.d.other.insert_many([{"_id": n, "round": number} for n in range(50)])
        source.d.other.create_index("round")
    writes.single_document_writes(source)
    writes.views(source)
    writes.modifications(source)
    fleet.commit()
    applied = [scrape(each)["mongosync_definitions_applied_total"][()] for each in fleet.daemons]
    assert applied[0] > 0 and applied[1:] == [0]
    pair.assert_equal()


@pytest.mark.full
def test_the_run_waits_for_an_instance_that_was_not_started(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    coordinator, follower = fleet.coordinator, fleet.follower
    follower.start()
    follower.wait_for_warning(f"{fleet.names[0]} (start)")
    assert pair.destination.client.list_database_names().count("d") == 0
    coordinator.start()
    fleet.wait_until_committable()
    fleet.wait_without_warnings()
    coordinator.ask_for_commit()
    coordinator.wait_for_warning(f"{fleet.names[1]} (commit)")
    follower.wait_for_warning(f"{fleet.names[1]} (commit)")
    assert coordinator.progress()["state"] == "COMMITTING"
    assert follower.progress()["canCommit"] is True
    pair.source.client.d.c.insert_one({"_id": "between"})
    follower.ask_for_commit()
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_the_sync_begins_when_all_instances_run(pair: Pair, fleet: Fleet) -> None:
    """Let the coordinator wait for a follower that is not started, and then for the same follower, which is paused.

    The change streams must begin after both waits: the source's oplog might no longer contain older changes.
    """
    source, (coordinator, follower) = pair.source.client, fleet.daemons
    runs = pair.destination.client[METADATA_DATABASE].runs
    writes.fill(source)

    def wait_for_heartbeats() -> None:
        """Wait as long as the coordinator would need to begin."""
        first = runs.find_one({"_id": fleet.names[0]}) or {}
        later = {"_id": fleet.names[0], "beat": {"$gt": first["beat"] + 5}}
        wait_for(lambda: runs.find_one(later), "the coordinator sends heartbeats")

    coordinator.start()
    coordinator.wait_for_warning(f"{fleet.names[1]} (start)")
    wait_for_heartbeats()
    coordinator.kill()
    follower.start()
    follower.pause()
    coordinator.run()
    coordinator.wait_for_warning(f"{fleet.names[1]} (resume)")
    wait_for_heartbeats()
    written = now(source)
    follower.resume()
    fleet.commit()
    assert all(each["start"]["time"] > written for each in runs.find())
    pair.assert_equal()


@pytest.mark.full
def test_data_that_users_create_while_an_instance_is_awaited(pair: Pair, fleet: Fleet) -> None:
    """The coordinator must look for foreign data after it has waited for the other instances."""
    coordinator, follower = fleet.daemons
    writes.fill(pair.source.client)
    coordinator.start(enableUserWriteBlocking="none")
    coordinator.wait_for_warning(f"{fleet.names[1]} (start)")
    pair.destination.client.d.c.insert_one({"_id": "foreign"})
    follower.start(enableUserWriteBlocking="none")
    coordinator.wait_for_failure("DestinationNotEmpty")
    assert [*pair.destination.client.d.c.find()] == [{"_id": "foreign"}]


@pytest.mark.full
@prepared(Daemon.spool_often)
def test_each_instance_saves_the_events_from_the_start(pair: Pair, fleet: Fleet) -> None:
    """Let the coordinator take long to create the collections, and pause the follower meanwhile; then reverse the sync.

    The follower must save the change events in its event spool, although it applies none yet.
    """
    clients = pair.source.client, pair.destination.client
    coordinator, follower = fleet.daemons
    writes.fill(clients[0])
    with coordinator.held_at(Point.COLLECTION_CREATED):
        fleet.start(eventSpool="always", **REVERSIBLE)
        coordinator.wait_until_reached(Point.COLLECTION_CREATED)
        clients[0].d.c.update_many({}, {"$set": {"changed": 1}})
        wait_until_spooled(*clients, instances=2)
        follower.pause()
        clients[0].d.c.update_many({}, {"$set": {"changed": 2}})
        wait_until_spooled(*clients, instances=2)
        follower.resume()
    fleet.commit()
    pair.assert_equal()
    with coordinator.held_at(Point.REVERSED):
        for each in fleet.daemons:
            assert each.post("reverse").ok
        coordinator.wait_until_reached(Point.REVERSED)
        clients[1].d.c.update_many({}, {"$set": {"changed": 3}})
        wait_until_spooled(clients[1], clients[0], instances=2)
    fleet.wait_for_state("RUNNING")
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_all_instances_need_the_same_start_options(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    fleet.follower.start()
    body = fleet.coordinator.start_body(reversible=False, buildIndexes="never")
    answer = fleet.coordinator.post("start", body)
    assert answer.status_code == 409
    assert answer.json()["error"] == "DifferentStart"
    assert "buildIndexes" in answer.json()["errorDescription"]
    (violation,) = fleet.coordinator.post("preflight", body).json()["violations"]
    assert violation["error"] == "DifferentStart"
    assert fleet.coordinator.progress()["state"] == "IDLE"
    fleet.coordinator.start()
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_a_killed_start_with_other_options_is_withdrawn(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    fleet.follower.start()
    fleet.follower.kill()
    fleet.coordinator.start()
    # Simulate two starts at the same moment, before either instance could see the other.
    runs = pair.destination.client[METADATA_DATABASE].runs
    other = {"$set": {"options.buildIndexes": "never"}}
    assert runs.update_one({"_id": fleet.names[1]}, other).modified_count == 1
    fleet.follower.run()
    assert fleet.follower.progress()["state"] == "IDLE"
    fleet.follower.start()
    fleet.commit()
    pair.assert_equal()


def test_an_id_must_be_the_name_of_a_shard(pair: Pair, fleet: Fleet, tmp_path: Path) -> None:
    writes.fill(pair.source.client)
    (tmp_path / "other").mkdir()
    with pair.daemon(tmp_path / "other", "--id", "other").running() as daemon:
        answer = daemon.post("start", daemon.start_body())
    assert (answer.status_code, answer.json()["error"]) == (409, "UnknownInstance")
    assert all(name in answer.json()["errorDescription"] for name in fleet.names)
    for instances in (fleet.names[:1], [*fleet.names, "other"]):
        answer = fleet.coordinator.post("start", daemon.start_body(instances=instances))
        assert (answer.status_code, answer.json()["error"]) == (409, "InstancesNotApplicable")
        assert all(name in answer.json()["errorDescription"] for name in fleet.names)
    # The first shard coordinates in any case.
    fleet.start(instances=fleet.names[::-1])
    assert fleet.follower.progress()["coordinatorID"] == fleet.names[0]


def test_a_single_instance_cannot_join_a_shared_sync(
    pair: Pair, fleet: Fleet, tmp_path: Path
) -> None:
    writes.fill(pair.source.client)
    fleet.follower.start()
    (tmp_path / "alone").mkdir()
    with pair.daemon(tmp_path / "alone").running() as daemon:
        answer = daemon.post("start", daemon.start_body())
    assert (answer.status_code, answer.json()["error"]) == (409, "MetadataLeftOver")


@pytest.mark.full
def test_each_instance_is_paused_separately(pair: Pair, fleet: Fleet) -> None:
    source = pair.source.client
    writes.fill(source)
    fleet.start()
    fleet.wait_until_committable()
    for paused, other in (fleet.daemons, fleet.daemons[::-1]):
        paused.pause()
        other.wait_for_warning("(resume)")
        source.d.c.insert_many([{"n": n} for n in range(100)])
        source.d.c.create_index(f"of {paused.port}")
        paused.resume()
        fleet.wait_without_warnings()
    fleet.commit()
    pair.assert_equal()


def test_all_instances_show_the_failure_of_one(pair: Pair, fleet: Fleet) -> None:
    source = pair.source.client
    writes.fill(source)
    fleet.start(includeNamespaces=[{"database": "d", "collections": ["c", "other"]}])
    fleet.wait_until_committable()
    source.d.other.rename("elsewhere")
    shown = [each.wait_for_state("FAILED") for each in fleet.daemons]
    assert [each["error"] for each in shown] == ["RenamedOutOfFilter"] * 2
    assert fleet.names[0] in shown[1]["errorDescription"]
    assert "User writes are blocked on cluster1" in shown[0]["errorDescription"]
    assert "neither cluster" not in shown[1]["errorDescription"]
    fleet.follower.kill()
    fleet.follower.run()
    assert fleet.follower.progress()["state"] == "FAILED"


def test_a_stopped_instance_is_named_and_awaited(pair: Pair, fleet: Fleet) -> None:
    source = pair.source.client
    writes.fill(source)
    for each in fleet.daemons:
        each.kill()
        each.expect_heartbeats()
        each.run()
    fleet.start()
    fleet.wait_until_committable()
    for away, other in (fleet.daemons, fleet.daemons[::-1]):
        away.kill()
        source.d.c.insert_many([{"n": n} for n in range(100)])
        name = fleet.names[fleet.daemons.index(away)]
        other.wait_for_warning(f"No heartbeat from: {name}")
        assert other.progress()["state"] == "RUNNING"
        away.run()
        fleet.wait_without_warnings()
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_the_changes_of_a_dead_instance_are_not_compared(pair: Pair, fleet: Fleet) -> None:
    """Kill the follower, and write when it is far behind: the verification must not report the missing documents."""
    source, coordinator = pair.source.client, fleet.coordinator
    writes.fill(source)
    fleet.start()
    fleet.wait_until_committable()
    fleet.follower.kill()

    def is_behind(seconds: int) -> bool:
        applied = [each["appliedUntil"] for each in coordinator.overview()["instances"]]
        return len(applied) == len(fleet.names) and applied[0] > applied[-1] + seconds

    wait_for(lambda: is_behind(MOST_LAG), "the follower is known to be behind")
    source.d.c.insert_many([{"_id": f"new {n}"} for n in range(DOCUMENTS)])
    # As long as several generations of the verification need.
    wait_for(lambda: is_behind(MOST_LAG + 10), "the writes could have been compared")
    assert mismatches(coordinator) == []
    assert set(scrape(coordinator)["mongosync_verification_mismatches"].values()) == {0}
    fleet.follower.run()
    fleet.commit()
    pair.assert_equal()


def test_a_shared_sync_is_reversed(pair: Pair, fleet: Fleet) -> None:
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    fleet.start(**REVERSIBLE)
    fleet.commit()
    destination.d.c.update_many({}, {"$set": {"of": "destination"}})
    fleet.coordinator.post("reverse")
    fleet.coordinator.wait_for_warning(
        f"{fleet.names[1]} (reverse). Send each command to the instance that is named before it. Until all instances "
        "have received the command reverse, the oplog of cluster1"
    )
    assert fleet.coordinator.progress()["state"] == "REVERSING"
    fleet.follower.post("reverse")
    fleet.wait_for_state("RUNNING")
    destination.d.c.insert_many([{"_id": f"new {n}"} for n in range(300)])
    destination.d.c.rename("renamed")
    destination.d.renamed.delete_many({"n": {"$gte": 250}})
    fleet.commit()
    pair.assert_equal()
    for report in (each.report() for each in fleet.daemons):
        assert [each["name"] for each in report["instances"]] == fleet.names
        assert [each["destination"] for each in report["commits"]] == ["cluster1", "cluster0"]
        commands = [(each["instance"], each["text"]) for each in report["timeline"]]
        assert all((name, "reverse") in commands for name in fleet.names)
        assert report["verification"]["outcome"] == "passed"


WHILE_APPLYING = [
    *(Point.EVENTS_APPLIED, Point.POSITION_SAVED),
    *(Point.BARRIER_REACHED, Point.DEFINITION_APPLIED),
]


@pytest.mark.full
@pytest.mark.parametrize("number", [0, 1], ids=["coordinator", "follower"])
def test_a_killed_instance_continues(pair: Pair, fleet: Fleet, number: int) -> None:
    source, destination = pair.source.client, pair.destination.client
    killed, other = fleet.daemons[number], fleet.daemons[1 - number]
    writes.fill(source)
    # This instance is killed before the other one is started.
    killed.start(**REVERSIBLE)
    killed.kill()
    killed.run()
    killed.start(**REVERSIBLE)
    other.start(**REVERSIBLE)
    fleet.wait_until_committable()
    rounds = iter(range(100))

    def write(client: writes.AnyClient) -> None:
        mark = next(rounds)
        client.d.c.insert_many([{"_id": f"{mark} {n}", "n": n} for n in range(60)])
        client.d.c.update_many({"n": {"$gte": 30}}, {"$set": {f"at {mark}": 1}, "$inc": {"k": 1}})
        client.d[f"m{mark}"].insert_one({"_id": 1})
        client.d[f"m{mark}"].rename(f"renamed{mark}")
        client.d.c.create_index(f"at {mark}")

    kill_at_each(killed, WHILE_APPLYING, lambda: write(source))
    fleet.ask_for_commit()
    killed.kill()
    killed.run()
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()
    write(destination)
    killed.kill_at(Point.REVERSED)
    for each in fleet.daemons:
        each.post("reverse")
    killed.wait_until_killed()
    write(destination)
    killed.run()
    fleet.wait_for_state("RUNNING")
    kill_at_each(killed, [Point.BARRIER_REACHED], lambda: write(destination))
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_the_commands_of_the_page_on_several_instances(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    ports = {f"2718{2 + n}": str(each.port) for n, each in enumerate(fleet.daemons)}
    addresses = {"localhost": "127.0.0.1", **ports}

    def follow(title: str) -> str:
        found = commands("docs/howto/several-instances.rst", title)
        assert found
        return "".join(paste(block.text, addresses) for block in found)

    follow("From a sharded cluster")
    follow("Give up with several instances")
    assert "d" not in pair.destination.client.list_database_names()
    follow("From a sharded cluster")
    shown = follow("Commit with several instances")
    assert shown.count('"COMMITTED"') == len(fleet.daemons)
    pair.assert_equal()


@pytest.mark.full
@prepared(Daemon.judge_soon)
def test_every_instance_repairs_its_share(pair: Pair, fleet: Fleet) -> None:
    """Corrupt the destination before the commit: each instance must repair the documents whose events it applies."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.c.create_index("n")
    fleet.start(verification={"enabled": True, "repair": "auto"})
    fleet.wait_until_committable()
    writes.spoil(destination)
    destination.d.command({"drop": "other", "mayBypassWriteBlocking": True})
    fleet.follower.kill_at(Point.REPAIR_APPLIED, "1")
    fleet.ask_for_commit()
    fleet.follower.wait_until_killed()
    # The follower has not recorded this repair round as applied.
    assert fleet.coordinator.progress()["repairs"]["inProgress"] is True
    fleet.follower.run()
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()
    shown = fleet.coordinator.progress()["repairs"]
    assert (shown["inProgress"], shown["documents"]) == (False, 100)


@pytest.mark.full
@prepared(Daemon.judge_soon)
def test_all_instances_continue_after_a_failed_commit(pair: Pair, fleet: Fleet) -> None:
    """Kill a follower during a commit whose verification then fails: after /repair, all instances must continue.

    The restarted follower must notice the failure. /repair is sent to each instance: the coordinator must repair, and
    the follower must resume.
    """
    coordinator, follower = fleet.coordinator, fleet.follower
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    source.d.c.create_index("n")
    fleet.start()
    fleet.wait_until_committable()
    assert_refused(follower.post("repair"), 409, "CannotRepair", (fleet.names[0],))
    writes.spoil(destination)
    with coordinator.held_at(Point.STEP_DONE, "drained"):
        fleet.ask_for_commit()
        coordinator.wait_until_reached(Point.STEP_DONE, "drained")
        follower.kill()
    assert coordinator.wait_for_state("FAILED")["error"] == "VerificationFailed"
    assert_refused(coordinator.post("repair"), 409, "InvalidState", (fleet.names[1],))
    # The saved state of the follower is COMMITTING.
    follower.run()
    for each in fleet.wait_for_state("FAILED"):
        assert each["error"] == "VerificationFailed"
    for daemon in reversed(fleet.daemons):
        assert daemon.post("repair").json() == {"success": True}
    fleet.wait_until_committable()
    assert coordinator.progress()["state"] == "RUNNING"
    source.d.c.insert_one({"_id": "afterwards"})
    fleet.commit()
    pair.assert_equal()


@pytest.mark.full
def test_all_instances_apply_writes_during_the_cut_over(pair: Pair, fleet: Fleet) -> None:
    writes.fill(pair.source.client)
    fleet.start()
    fleet.wait_until_committable()
    prepared = (Point.STEP_DONE, "definitions prepared")
    with fleet.coordinator.held_at(*prepared):
        fleet.ask_for_commit()
        fleet.coordinator.wait_until_reached(*prepared)
        changes = {"$inc": {"n": 1000}}
        pair.source.client.d.c.update_many({}, changes)
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()


@pytest.mark.full
def test_an_outdated_record_withdraws_no_cut_over(pair: Pair, fleet: Fleet) -> None:
    """During the cut-over, let a follower read an outdated run record of the coordinator, as after an election.

    The follower must not return to change event application.
    """
    coordinator, follower = fleet.daemons
    writes.fill(pair.source.client)
    fleet.start()
    fleet.wait_until_committable()
    prepared = (Point.STEP_DONE, "definitions prepared")
    with coordinator.held_at(*prepared):
        fleet.ask_for_commit()
        coordinator.wait_until_reached(*prepared)
        # Change the record repeatedly, because the coordinator saves its own version again within a second.
        outdated = {"$set": {"phase": "withdrawing the commit"}}

        def is_seen() -> bool:
            change(pair.destination.client, "runs", {"_id": fleet.names[0]}, outdated)
            return "Starting withdrawing the commit phase" in follower.log

        wait_for(is_seen, "the follower reads that record")
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert follower.log.count("Starting change event application phase") == 1


@pytest.mark.full
def test_each_instance_spools_for_itself(pair: Pair, fleet: Fleet) -> None:
    """Make both instances use an event spool during the copy and a pause; kill one while it reads its spool.

    Each instance must apply the events of its own spool, and no event may be lost.
    """
    source, destination = pair.source.client, pair.destination.client
    for each in fleet.daemons:
        each.spool_often()
    prepare_copy(pair, fleet)
    writes.fill(source)
    fleet.follower.kill_at(Point.SPOOL_READ)
    with ExitStack() as held:
        for each in fleet.daemons:
            held.enter_context(each.held_at(Point.BATCH_WRITTEN))
        fleet.start(eventSpool="always")
        for each in fleet.daemons:
            each.wait_until_reached(Point.BATCH_WRITTEN)
        source.shop.orders.update_many({}, {"$set": {"changed": 1}})
        source.shop.orders.delete_many({"n": {"$mod": [7, 0]}})
        writes.drop_and_create_again(source)
        wait_until_spooled(source, destination, instances=2)
    fleet.follower.wait_until_killed()
    source.shop.orders.update_many({}, {"$set": {"changed": 2}})
    fleet.follower.run()
    fleet.wait_until_committable()
    for each in fleet.daemons:
        wait_for(lambda each=each: "eventSpool" not in each.progress(), "the spool is empty")
    for each in fleet.daemons:
        each.pause()
    source.shop.orders.update_many({}, {"$set": {"changed": 3}})
    writes.many_collections(source)
    wait_until_spooled(source, destination, instances=2)
    for each in fleet.daemons:
        each.resume()
    fleet.commit()
    pair.assert_equal()
    assert not rows(destination)


@pytest.mark.full
def test_a_resume_keeps_the_intact_spools_of_other_instances(pair: Pair, fleet: Fleet) -> None:
    """Damage the event spool of the follower: the resume must clear it, and keep that of the coordinator."""
    source, destination = pair.source.client, pair.destination.client
    coordinator, follower = fleet.daemons
    writes.fill(source)
    fleet.start(eventSpool="always")
    fleet.wait_until_committable()
    for each in fleet.daemons:
        each.pause()
    source.d.c.update_many({}, {"$set": {"changed": True}})
    wait_until_spooled(source, destination, instances=2)
    spool = destination[METADATA_DATABASE][SPOOL]
    own = {name: {"_id.run": _run_of(destination, name)} for name in fleet.names}
    of_coordinator, of_follower = own.values()
    change(destination, SPOOL, {**of_follower, "_id.part": 1}, {"$set": {"data": b"damaged"}})
    follower.resume()
    follower.wait_for_failure("EventSpoolDamaged", "the checksum is wrong")
    coordinator.resume()
    coordinator.wait_for_failure("EventSpoolDamaged", f"{fleet.names[-1]} failed: ")
    intact = spool.count_documents(of_coordinator)
    assert intact
    coordinator.kill_at(Point.RESUME_SAVED)
    coordinator.post_unanswered("resume", {})
    coordinator.wait_until_killed()
    assert spool.count_documents(of_coordinator) == intact
    coordinator.run()
    follower.resume()
    fleet.commit()
    pair.assert_equal()
    assert not rows(destination)


def _run_of(client: writes.AnyClient, instance: str) -> str:
    """Return the value that identifies an instance in its rows of the event spool."""
    run = client[METADATA_DATABASE].runs.find_one({"_id": instance})
    assert run is not None
    return UUID(run["fence"]).hex


@pytest.mark.full
def test_an_instance_needs_no_events_once_the_coordinator_cuts_over(
    pair: Pair, fleet: Fleet
) -> None:
    """Kill a follower that has applied all events: after its restart, it must complete without its event spool."""
    source, destination = pair.source.client, pair.destination.client
    writes.fill(source)
    fleet.start(eventSpool="always")
    fleet.wait_until_committable()
    with fleet.coordinator.held_at(Point.STEP_DONE, "drained"):
        fleet.ask_for_commit()
        fleet.coordinator.wait_until_reached(Point.STEP_DONE, "drained")
        fleet.follower.kill()
        run = destination[METADATA_DATABASE].runs.find_one({"_id": fleet.names[-1]})
        assert run is not None
        leave_row(destination, run)
    # The field `info` of the progress shows the cut-over before its phase is saved.
    cutting_over = {"_id": fleet.names[0], "phase": Phase.CUTTING_OVER.value}
    wait_for(
        lambda: destination[METADATA_DATABASE].runs.find_one(cutting_over), "the cut-over begins"
    )
    fleet.follower.run()
    fleet.wait_for_state("COMMITTED")
    pair.assert_equal()
    assert not rows(destination)
