"""Runs reshardCollection on the source: the new collection is copied, and replaces the old one on the destination.

MongoDB 6.0.5 sends no change event for a resharding; 6.0.14 and newer versions do. Some tests forge the event.

`make test` runs two of these tests: one without an event, and one with an event and a kill.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from syncsvc.engine.run.points import Point
from syncsvc.sandbox.replica_set import Client
from tests.integration.test_existing_data import EXISTING
from tests.integration.test_sharded import assert_equal, fill, others, shard_keys
from tests.support.daemon import Daemon, prepared
from tests.support.fleet import Fleet
from tests.support.forged import report_resharding, uuid_of
from tests.support.pair import FROM_SHARDED, SHARDED, Pair, across
from tests.support.phases import When, writes_in
from tests.support.renamed import assert_renamed, remap
from tests.support.selection import full

pytestmark = [across(SHARDED, FROM_SHARDED), prepared(Daemon.watch_closely)]

_PHASES = (When.REPLAY, When.LISTED, When.COPY, When.APPLY)


def reshard(client: Client, name: str = "d.ranged", **key: Any) -> None:
    """Reshard a collection by the shard key `key` (default: `m`), into a single chunk to save time."""
    client.admin.command("reshardCollection", name, key=key or {"m": 1}, numInitialChunks=1)


def write(client: Client) -> None:
    """Insert, update and delete documents of d.ranged, and create an index on it."""
    ranged = client.d.ranged
    ranged.insert_many({"_id": f"new {n}", "k": n, "m": n % 5} for n in range(50))
    ranged.update_many({"m": 3}, {"$set": {"late": True}})
    ranged.delete_many({"m": 5})
    ranged.create_index("late")


@pytest.mark.in_turns
@pytest.mark.parametrize("when", _PHASES, ids=lambda when: when.name)
def test_a_resharded_collection_is_copied_again(pair: Pair, daemon: Daemon, when: When) -> None:
    client = pair.source.client
    fill(client)
    with writes_in(when, daemon):
        client.d.ranged.update_many({"k": {"$lt": 30}}, {"$set": {"early": True}})
        reshard(client)
        write(client)
    daemon.commit()
    assert_equal(pair)


def _rename(client: Client) -> None:
    client.d.ranged.rename("moved")
    client.d.moved.insert_one({"_id": "late", "m": 1})


def _drop(client: Client) -> None:
    client.d.ranged.drop()


def _create_again(client: Client) -> None:
    client.d.ranged.drop()
    client.admin.command("shardCollection", "d.ranged", key={"m": 1})
    client.d.ranged.insert_many({"_id": n, "m": n} for n in range(20))


def _reshard_again(client: Client) -> None:
    reshard(client, k=1)
    write(client)


@pytest.mark.full
@pytest.mark.parametrize("change", [_rename, _drop, _create_again, _reshard_again])
def test_changes_right_after_a_resharding(
    pair: Pair, daemon: Daemon, change: Callable[[Client], None]
) -> None:
    client = pair.source.client
    fill(client)
    daemon.start()
    daemon.wait_until_committable()
    reshard(client)
    change(client)
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@pytest.mark.parametrize(
    "point",
    [
        Point.BATCH_WRITTEN,
        Point.COLLECTION_REPLACED,
        Point.COLLECTION_COPIED,
        Point.RECORD_REMOVED,
    ],
)
def test_a_daemon_killed_while_it_copies_again_continues(
    pair: Pair, daemon: Daemon, point: Point
) -> None:
    client = pair.source.client
    fill(client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    daemon.kill_at(point)
    daemon.run()
    daemon.wait_until_committable()
    reshard(client)
    write(client)
    daemon.wait_until_killed()
    client.d.ranged.insert_one({"_id": "while dead", "m": 2})
    daemon.run()
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@pytest.mark.parametrize("change", [_rename, _drop])
def test_a_collection_that_is_gone_before_its_second_copy_ends(
    pair: Pair, daemon: Daemon, change: Callable[[Client], None]
) -> None:
    """Kill the daemon while it copies a resharded collection: the replaced copy must not stay on the destination."""
    client = pair.source.client
    fill(client)
    daemon.start()
    daemon.wait_until_committable()
    daemon.kill()
    daemon.kill_at(Point.BATCH_WRITTEN)
    daemon.run()
    daemon.wait_until_committable()
    reshard(client)
    daemon.wait_until_killed()
    change(client)
    daemon.run()
    daemon.commit()
    assert_equal(pair)


def test_a_collection_that_is_renamed_into_the_filter_and_resharded_is_copied(
    pair: Pair, daemon: Daemon
) -> None:
    """Rename a collection into the filter and reshard it while the daemon is down."""
    client = pair.source.client
    fill(client)
    client.d.ranged.rename("excluded")
    selected = [{"database": "d", "collections": ["ranged", "plain"]}]
    daemon.start(includeNamespaces=selected)
    daemon.wait_until_committable()
    daemon.kill()
    client.d.excluded.rename("ranged")
    reshard(client)
    write(client)
    daemon.run()
    daemon.commit()
    of_source, of_destination = (
        [*each.client.d.ranged.find(sort=["_id"])] for each in (pair.source, pair.destination)
    )
    assert of_source and of_source == of_destination


@pytest.mark.full
@pytest.mark.parametrize("options", [{}, EXISTING], ids=["alone", "beside other data"])
def test_a_renamed_collection_is_copied_again(
    pair: Pair, daemon: Daemon, options: dict[str, Any]
) -> None:
    """Reshard a collection that the sync renames: it must be copied again, and foreign data must stay."""
    client, destination = pair.source.client, pair.destination.client
    fill(client)
    if options:
        destination.other.c.insert_one({"_id": "foreign"})
    daemon.start(namespaceRemap=remap({"d.ranged": "new.name", "e": "f"}), **options)
    daemon.wait_until_committable()
    reshard(client)
    write(client)
    daemon.commit()
    if options:
        assert [*destination.other.c.find()] == [{"_id": "foreign"}]
        destination.drop_database("other")
    assert_renamed(pair, {"d.ranged": "new.name", "e": "f"})
    if pair.destination.shards:
        assert shard_keys(destination)["new.name"] == ([("m", 1)], False)


@pytest.mark.full
def test_a_resharding_during_the_commit_fails_it_until_the_sync_is_resumed(
    pair: Pair, daemon: Daemon
) -> None:
    """Reshard a collection during a commit without verification: the commit must fail.

    After a resume, the clusters must be equal, including later writes.
    """
    client = pair.source.client
    fill(client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    with daemon.held_at(Point.STEP_DONE, "commit time saved"):
        daemon.ask_for_commit()
        daemon.wait_until_reached(Point.STEP_DONE, "commit time saved")
        # The ShardKeyWatch waits for events after this point, so the check of the commit notices the resharding first.
        reshard(client)
        client.d.ranged.insert_one({"_id": "late", "m": 3})
    failed = daemon.wait_for_state("FAILED")
    assert failed["error"] == "ShardKeyChanged"
    assert "d.ranged" in failed["errorDescription"]
    daemon.resume()
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@prepared(Daemon.forge_events)
def test_a_resharding_while_the_commit_is_postponed_fails_it(pair: Pair, daemon: Daemon) -> None:
    """Reshard a collection while a write postpones the commit: the commit must fail, not miss the next write.

    Because the daemon expects forged events, it looks for resharded collections only in the commit.
    """
    client = pair.source.client
    fill(client)
    daemon.start(verification={"enabled": False})
    daemon.wait_until_committable()
    with daemon.held_at(Point.COMMIT_POSTPONED):
        with daemon.held_at(Point.STEP_DONE, "drained"):
            daemon.ask_for_commit()
            daemon.wait_until_reached(Point.STEP_DONE, "drained")
            client.d.ranged.insert_one({"_id": "late", "k": 1, "m": 3})
        daemon.wait_until_reached(Point.COMMIT_POSTPONED)
        reshard(client)
        client.d.ranged.update_one({"_id": "late"}, {"$set": {"later": True}})
    daemon.wait_for_failure("ShardKeyChanged", "d.ranged")
    daemon.resume()
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
def test_a_resharding_fails_several_instances_by_name(pair: Pair, fleet: Fleet) -> None:
    client = pair.source.client
    fill(client)
    fleet.start()
    fleet.wait_until_committable()
    reshard(client)
    failed = fleet.coordinator.wait_for_state("FAILED")
    assert failed["error"] == "ShardKeyChanged"
    assert "d.ranged" in failed["errorDescription"]


@pytest.mark.full
@prepared(Daemon.hide_drops)
def test_a_moved_database_fails_several_instances_by_name(pair: Pair, fleet: Fleet) -> None:
    """Run movePrimary on a source that sends no drop events for it, like MongoDB 8.0."""
    client = pair.source.client
    fill(client)
    fleet.start()
    fleet.wait_until_committable()
    client.admin.command("movePrimary", "d", to=others(client, "d")[0])
    failed = fleet.coordinator.wait_for_state("FAILED")
    assert failed["error"] == "ShardKeyChanged"
    assert "d.plain" in failed["errorDescription"]


def reshard_and_report(client: Client) -> None:
    """Reshard d.ranged with an event, as MongoDB 6.0.14 does, and write to the new collection."""
    old = uuid_of(client, "d.ranged")
    reshard(client)
    report_resharding(client, "d.ranged", old)
    write(client)


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "point",
    [
        full(None),
        Point.COLLECTION_REPLACED,
        full(Point.COLLECTION_COPIED),
        full(Point.RECORD_REMOVED),
    ],
)
@prepared(Daemon.forge_events)
def test_a_reported_resharding_is_applied(pair: Pair, daemon: Daemon, point: Point | None) -> None:
    """Reshard a collection with an event: it must be copied again, also if the daemon is killed meanwhile."""
    client = pair.source.client
    fill(client)
    daemon.start()
    daemon.wait_until_committable()
    if point is None:
        reshard_and_report(client)
    else:
        daemon.kill()
        daemon.kill_at(point)
        daemon.run()
        daemon.wait_until_committable()
        reshard_and_report(client)
        daemon.wait_until_killed()
        daemon.run()
    daemon.commit()
    assert_equal(pair)


@pytest.mark.full
@prepared(Daemon.forge_events, Daemon.judge_soon)
def test_a_collection_of_a_reported_resharding_is_compared_again(
    pair: Pair, daemon: Daemon
) -> None:
    """Change a document in the new copy of a resharded collection before it replaces the old one.

    The verification has compared the collection before the resharding: it must find the difference all the same.
    """
    client, destination = pair.source.client, pair.destination.client
    fill(client)
    daemon.start(enableUserWriteBlocking="none")
    daemon.wait_until_committable()
    old = uuid_of(client, "d.ranged")
    copies = {*destination.d.list_collection_names()}
    reshard(client)
    with daemon.held_at(Point.COLLECTION_REPLACED):
        report_resharding(client, "d.ranged", old)
        daemon.wait_until_reached(Point.COLLECTION_REPLACED)
        (copy,) = {*destination.d.list_collection_names()} - copies
        # Do not change the number of documents, which is always compared.
        destination.d[copy].update_one({"_id": 7}, {"$set": {"k": "changed"}})
    found = daemon.commit_or_fail()
    assert (found["state"], found.get("error")) == ("FAILED", "VerificationFailed")
    assert "d.ranged" in found["errorDescription"]


@pytest.mark.full
@prepared(Daemon.forge_events)
def test_several_instances_apply_a_reported_resharding(pair: Pair, fleet: Fleet) -> None:
    client = pair.source.client
    fill(client)
    fleet.start()
    fleet.wait_until_committable()
    reshard_and_report(client)
    fleet.commit()
    assert_equal(pair)


@pytest.mark.full
@prepared(Daemon.forge_events)
def test_a_coordinator_killed_while_it_replaces_a_collection_continues(
    pair: Pair, fleet: Fleet
) -> None:
    client = pair.source.client
    fill(client)
    fleet.start()
    fleet.wait_until_committable()
    fleet.coordinator.kill_at(Point.RECORD_REMOVED)
    reshard_and_report(client)
    fleet.coordinator.wait_until_killed()
    fleet.coordinator.run()
    fleet.commit()
    assert_equal(pair)
