"""Syncs clusters without some server features: the sync must use a substitute, or be refused with a named error."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from pymongo.errors import OperationFailure

from tests.integration.test_bad_input import GOOD, assert_refused
from tests.support import writes
from tests.support.daemon import Daemon
from tests.support.failpoints import failing
from tests.support.pair import REPLICA_SETS, SHARDED, Pair, Side, across
from tests.support.phases import When, writes_in
from verifier.cluster import probing
from verifier.cluster.facts import gather
from verifier.cluster.features import (
    BLOCK_WRITES,
    DOCUMENTS,
    EXPANDED_EVENTS,
    MERGE_PRINCIPALS,
    RAW_UPDATES,
    SPLIT_EVENTS,
    SYSTEM_EVENTS,
    ClusterRole,
)
from verifier.cluster.inventory import sharded_names

NEWEST = (99, 0, 0)


def address(side: Side) -> str:
    return gather(side.client).address


@pytest.fixture
def limited(pair: Pair, tmp_path: Path) -> Iterator[Daemon]:
    """Return a daemon that is not started, so that the test can first choose the missing server features."""
    process = pair.daemon(tmp_path)
    try:
        yield process
    finally:
        process.close()


@across(REPLICA_SETS, SHARDED)
def test_a_server_of_6_0_5_lacks_only_the_splitting_of_events(pair: Pair) -> None:
    for side in (pair.source, pair.destination):
        facts = gather(side.client)
        assert (facts.refused, facts.compatibility) == (frozenset(), (6, 0))
        assert facts.missing(ClusterRole.SOURCE) == [SPLIT_EVENTS]
        assert facts.missing(ClusterRole.DESTINATION) == []


def test_a_passing_failure_does_not_look_like_a_missing_privilege(pair: Pair) -> None:
    """Let the command that reads the identity of a cluster fail with a temporary error: this error must be raised.

    Only an error about a missing privilege may be ignored.
    """
    client = pair.source.client
    fault = {"failCommands": ["replSetGetConfig"], "errorCode": 202}
    with failing(client, fault), pytest.raises(OperationFailure) as raised:
        gather(client)
    assert raised.value.code == 202


def test_a_probe_finds_what_a_server_refuses(pair: Pair) -> None:
    # According to its version, the server should have all features.
    assert probing.refused(pair.source.client, NEWEST) == {SPLIT_EVENTS.name}


@pytest.mark.in_turns
@pytest.mark.parametrize(
    "withheld",
    [(RAW_UPDATES,), (EXPANDED_EVENTS,), (SYSTEM_EVENTS,), (EXPANDED_EVENTS, DOCUMENTS)],
    ids=lambda found: "-".join(each.name.strip("$") for each in found),
)
def test_a_sync_without_a_feature_of_the_source(
    pair: Pair, limited: Daemon, withheld: tuple[object, ...]
) -> None:
    client = pair.source.client
    names = [each.name for each in withheld]  # type: ignore[attr-defined]
    limited.without_features(*(f"{name} {address(pair.source)}" for name in names))
    limited.run()
    client.d.c.insert_many([{"_id": n, "n": 0} for n in range(100)])
    client.left.c.insert_one({"_id": 1})
    found = limited.post("preflight", GOOD).json()["missingFeatures"]
    assert {(each["cluster"], each["feature"]) for each in found} == {
        ("cluster0", name) for name in [*names, SPLIT_EVENTS.name]
    }
    assert all(each["effect"] for each in found)
    filtered = {"excludeNamespaces": [{"databaseRegex": {"pattern": "^le"}}]}
    with writes_in(When.APPLY, limited, **filtered):
        client.d.c.update_many({}, {"$set": {"n": 1}})
        client.d.c.delete_one({"_id": 5})
        client.d.c.insert_one({"_id": "new"})
    limited.commit()
    assert "left" not in pair.destination.client.list_database_names()
    client.drop_database("left")
    pair.assert_equal()


@pytest.mark.parametrize(
    "withheld, options",
    [
        (BLOCK_WRITES.name, {}),
        (MERGE_PRINCIPALS.name, {"usersAndRoles": {"copy": True}}),
        ("collMod", {}),
    ],
)
def test_a_sync_is_refused_without_a_needed_command(
    pair: Pair, limited: Daemon, withheld: str, options: dict[str, object]
) -> None:
    limited.without_features(f"{withheld} {address(pair.destination)}")
    limited.run()
    pair.source.client.d.c.insert_one({"_id": 1})
    answer = limited.post("start", {**GOOD, **options})
    assert_refused(answer, 409, "ServerFeatureMissing", (withheld, "destination"))


@across(SHARDED)
def test_a_sharded_source_that_does_not_report_ddl_is_refused(pair: Pair, limited: Daemon) -> None:
    limited.without_features(EXPANDED_EVENTS.name)
    limited.run()
    pair.source.client.d.c.insert_one({"_id": 1})
    said = ("The source is a sharded cluster", EXPANDED_EVENTS.name)
    assert_refused(limited.post("start", GOOD), 409, "ServerFeatureMissing", said)


@pytest.mark.parametrize("when", [When.REPLAY, When.APPLY])
def test_an_option_that_the_destination_does_not_know_is_left_out(
    pair: Pair, limited: Daemon, when: When
) -> None:
    """Sync collections with `recordPreImages`, which servers from 6.2 on refuse (SERVER-60919).

    The daemon only believes that the destination is newer: the server would accept the option. So the test must check
    that the sync leaves the option out.
    """
    limited.believe_the_destination_is_new()
    limited.run()
    d = pair.source.client.d
    for name in ("on", "off"):
        d.create_collection(name, recordPreImages=True)
        d[name].insert_one({"_id": 1})
    with writes_in(when, limited):
        d.create_collection("new", recordPreImages=True)
        d.command("collMod", "on", recordPreImages=True, validationLevel="moderate")
        d.command("collMod", "off", recordPreImages=False)
    limited.commit()
    options = {
        each["name"]: each["options"] for each in pair.destination.client.d.list_collections()
    }
    changed = {"validationLevel": "moderate", "validationAction": "error"}
    assert options == {"on": changed, "off": {}, "new": {}}


@pytest.fixture
def downgraded(pair: Pair) -> Iterator[Side]:
    """Set the featureCompatibilityVersion of the source to 5.0, as after an upgrade of its servers to 6.0."""
    command = "setFeatureCompatibilityVersion"
    pair.source.client.admin.command(command, "5.0")
    try:
        yield pair.source
    finally:
        pair.source.client.admin.command(command, "6.0")


def test_a_source_with_an_older_compatibility_version(
    downgraded: Side, pair: Pair, daemon: Daemon
) -> None:
    writes.fill(downgraded.client)
    block = {"enableUserWriteBlocking": "sourceAndDestination"}
    said = ("6.0.5 with featureCompatibilityVersion 5.0",)
    refused = daemon.post("start", {**GOOD, **block})
    assert_refused(refused, 409, "WriteBlockingNeedsNewerSource", said)
    with writes_in(When.APPLY, daemon):
        writes.single_document_writes(downgraded.client)
    daemon.commit()
    pair.assert_equal()


def test_a_destination_with_an_older_compatibility_version_is_refused(
    downgraded: Side, pair: Pair, daemon: Daemon
) -> None:
    pair.source.client.d.c.insert_one({"_id": 1})
    reverse = {**GOOD, "source": "cluster1", "destination": "cluster0"}
    answer = daemon.post("start", reverse)
    said = ("The destination runs MongoDB 6.0.5 with featureCompatibilityVersion 5.0",)
    assert answer.status_code == 409
    assert all(text in answer.json()["errorDescription"] for text in said)


def test_a_moved_unsharded_collection_does_not_count_as_sharded(pair: Pair) -> None:
    # Only servers of 8.0 write the second document; here, it is written by hand.
    collections = pair.source.client.config.collections
    row = {"key": {"_id": 1}, "unique": False}
    uuids = [b"s" * 16, b"u" * 16]
    rows = [
        {"_id": "d.sharded", "uuid": uuids[0], **row},
        {"_id": "d.moved", "uuid": uuids[1], **row, "unsplittable": True},
    ]
    collections.insert_many(rows)
    try:
        assert [*sharded_names(pair.source.client)] == [uuids[0]]
    finally:
        collections.drop()
