"""Tests which privileges a sync needs on each cluster, depending on its options."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.options import Presplit, UsersAndRoles, WriteBlocking
from syncsvc.preflight.privileges import (
    READING_PRINCIPALS,
    needs_of_destination,
    needs_of_source,
    privilege_violations,
)
from syncsvc.schemas import StartSchema
from tests.support.custom_roles import of_sync
from tests.support.roles import READER, SHARDED_READER, SHARDED_WRITER, USES, WRITER, Use
from tests.unit.preflight.values import facts, options, texts
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.privileges import NOTING, Need
from verifier.runtime.schemas import load

BOTH = WriteBlocking.SOURCE_AND_DESTINATION
NONE = WriteBlocking.NONE
PLAIN: dict[str, Any] = {"write_blocking": NONE, "verification": False}

# The actions that the service checks, by built-in role, as on MongoDB 6.0.
ROLES = {
    "readAnyDatabase": {
        *("listDatabases", "changeStream", "collStats", "find", "listCollections"),
        "listIndexes",
    },
    "readWriteAnyDatabase": {
        *("listDatabases", "changeStream", "collStats", "find", "listCollections", "listIndexes"),
        *("insert", "update", "remove", "createCollection", "createIndex", "dropCollection"),
        *("convertToCapped", "dropIndex", "renameCollectionSameDB"),
    },
    "dbAdminAnyDatabase": {
        *("bypassDocumentValidation", "collMod", "collStats", "dropDatabase", "dropCollection"),
        *("createCollection", "createIndex", "dropIndex", "listCollections", "listIndexes"),
        "renameCollectionSameDB",
    },
    "clusterMonitor": {"inprog", "listDatabases", "replSetGetConfig", "serverStatus", "useUUID"},
    "backup": {
        *("appendOplogNote", "listDatabases", "serverStatus", "setUserWriteBlockMode", "useUUID"),
        *("find", "collStats", "listCollections", "listIndexes"),
    },
    "restore": {
        *("setUserWriteBlockMode", "bypassWriteBlockingMode", "useUUID", "collMod"),
        *("bypassDocumentValidation", "createCollection", "createIndex", "dropCollection"),
        *("insert", "listCollections"),
    },
    "clusterManager": {"appendOplogNote", "enableSharding", "refineCollectionShardKey"},
}
# The actions on collections of the config database, by built-in role.
ON_CONFIG = {
    "clusterMonitor": {("find", "")},
    "clusterManager": {("find", ""), ("insert", ""), ("remove", ""), ("update", "")},
    "backup": {("find", ""), ("insert", "settings"), ("update", "settings")},
}


def user(*roles: str, topology: Topology = Topology.REPLICA_SET) -> ClusterFacts:
    held = frozenset(action for role in roles for action in ROLES[role])
    on_config = frozenset(each for role in roles for each in ON_CONFIG.get(role, ()))
    return facts(
        identity="x" if "replSetGetConfig" in held else None,
        topology=topology,
        access_control=True,
        privileges=held - {"enableSharding"},
        database_privileges=held,
        bucket_privileges=held,
        config_privileges=on_config,
    )


def lacking(fields: dict[str, Any], source: ClusterFacts, destination: ClusterFacts) -> list[str]:
    return texts(privilege_violations(options(**fields), source, destination, time_series=True))


@pytest.mark.parametrize("use", USES, ids=lambda use: str(use.name))
def test_the_documented_roles_are_sufficient_and_necessary(use: Use) -> None:
    asked = load(StartSchema(), {"source": "cluster0", "destination": "cluster1", **use.options})
    source, destination = user(*use.source), user(*use.destination)
    assert texts(privilege_violations(asked, source, destination, True)) == []
    for role in use.source:
        poor = user(*(each for each in use.source if each != role))
        found = texts(privilege_violations(asked, poor, destination, True))
        assert any("on the source" in each and role in each for each in found)
    for role in use.destination:
        poor = user(*(each for each in use.destination if each != role))
        found = texts(privilege_violations(asked, source, poor, True))
        assert any("on the destination" in each and role in each for each in found)


@pytest.mark.parametrize(
    "fields, source, destination, expected",
    [
        (
            {},
            user(*READER),
            user(*WRITER, "backup"),
            [
                "missing privileges ([bypassWriteBlockingMode]) to enable user write blocking on the destination; "
                "the built-in role restore has them. Grant it to the user of cluster1."
            ],
        ),
        (
            {"write_blocking": BOTH},
            user(*READER),
            user(*WRITER, "restore"),
            [
                "missing privileges ([setUserWriteBlockMode]) to enable user write blocking on the source; "
                "the built-in role backup has them. Grant it to the user of cluster0."
            ],
        ),
        (
            PLAIN,
            user("clusterMonitor"),
            user(*WRITER),
            [
                "missing privileges ([collStats, find, listCollections, listIndexes]) to read on the source; "
                "the built-in role readAnyDatabase has them. Grant it to the user of cluster0.",
                "missing privileges ([collStats, find, listIndexes]) to read time-series collections on the source; "
                "the built-in role readAnyDatabase has them. Grant it to the user of cluster0.",
                "missing privileges ([changeStream]) to read changes on the source; "
                "the built-in role readAnyDatabase has them. Grant it to the user of cluster0.",
            ],
        ),
        (
            PLAIN,
            facts(identity=None, access_control=True),
            user(*WRITER),
            [
                "missing privileges ([replSetGetConfig]) to read the ID of the replica set on the source; "
                "the built-in role clusterMonitor has them. Grant it to the user of cluster0."
            ],
        ),
    ],
)
def test_missing_privileges_are_named_with_the_role_that_has_them(
    fields: dict[str, Any], source: ClusterFacts, destination: ClusterFacts, expected: list[str]
) -> None:
    assert lacking(fields, source, destination) == expected


def sharded(*roles: str) -> ClusterFacts:
    return user(*roles, topology=Topology.SHARDED)


@pytest.mark.parametrize("use", USES, ids=lambda use: str(use.name))
def test_sharded_clusters_need_an_additional_role(use: Use) -> None:
    asked = load(StartSchema(), {"source": "cluster0", "destination": "cluster1", **use.options})
    wide = use.on_sharded
    source, destination = sharded(*wide.source), sharded(*wide.destination)
    assert texts(privilege_violations(asked, source, destination, True)) == []
    poor = sharded(*use.destination)
    found = texts(privilege_violations(asked, source, poor, True))
    assert all(f"the built-in role {SHARDED_WRITER} has" in each for each in found) and found
    (more,) = {*wide.source} - {*use.source} or {"backup"}
    poor = sharded(*(each for each in wide.source if each != more))
    found = texts(privilege_violations(asked, poor, destination, True))
    assert any("to stop the balancer on the source" in each and more in each for each in found)


def without_inprog(some: ClusterFacts) -> ClusterFacts:
    return replace(some, privileges=(some.privileges or frozenset()) - {"inprog"})


def without_chunks(some: ClusterFacts) -> ClusterFacts:
    """Return a copy of the facts in which the user may read what a sync reads in the database config, except chunks."""
    names = (
        *("collections", "databases", "settings", "sharding_configsvr_coordinators", "shards"),
        *("tags", "user_writes_critical_sections", "version"),
    )
    held = (some.config_privileges or frozenset()) - {("find", "")}
    return replace(some, config_privileges=held | {("find", name) for name in names})


def to_stop(actions: str, side: str, role: str) -> str:
    """Return the text about missing privileges to stop the balancer."""
    return _lacking(actions, "stop the balancer", side, role)


def to_reject(actions: str, side: str) -> str:
    """Return the text about missing privileges to reject late writes."""
    return _lacking(actions, "reject late writes of an earlier process", side, "clusterMonitor")


def _lacking(actions: str, purpose: str, side: str, role: str) -> str:
    cluster = {"source": "cluster0", "destination": "cluster1"}[side]
    return (
        f"missing privileges ([{actions}]) to {purpose} on the {side}; the built-in role {role} has them. Grant it to "
        f"the user of {cluster}."
    )


SHARDS = {"sharding": {"createSupportingIndexes": False, "shardingEntries": []}}


@pytest.mark.parametrize(
    "fields, source, destination, expected",
    [
        (
            PLAIN,
            sharded(*READER),
            sharded(*WRITER, SHARDED_WRITER),
            [to_stop("update on config.settings", "source", "backup")],
        ),
        (
            {**PLAIN, **SHARDS},
            user(*READER),
            sharded(*WRITER),
            [
                to_stop("update on config.settings", "destination", "clusterManager"),
                "missing privileges ([enableSharding]) to shard collections on the destination; "
                "the built-in role clusterManager has them. Grant it to the user of cluster1.",
                "missing privileges ([update on config.shards, update on config.tags, remove on config.tags]) "
                "to assign ranges of shard keys to zones on the destination; "
                "the built-in role clusterManager has them. Grant it to the user of cluster1.",
            ],
        ),
        (
            {"verification": False},
            facts(),
            replace(sharded(*WRITER, "restore", SHARDED_WRITER), config_privileges=frozenset()),
            [
                "missing privileges ([find on config.collections, find on config.shards, find on config.version]) "
                "to read how collections are sharded on the destination; "
                "the built-in role clusterMonitor has them. Grant it to the user of cluster1.",
                "missing privileges ([find on config.sharding_configsvr_coordinators, "
                "find on config.user_writes_critical_sections]) "
                "to enable user write blocking on the destination; "
                "the built-in role clusterMonitor has them. Grant it to the user of cluster1.",
                to_stop(
                    "find on config.settings, update on config.settings",
                    "destination",
                    "clusterManager",
                ),
                "missing privileges ([find on config.databases, find on config.tags]) "
                "to shard collections on the destination; the built-in role clusterManager has them. Grant it to the "
                "user of cluster1.",
                "missing privileges ([find on config.shards, update on config.shards, find on config.tags, "
                "update on config.tags, remove on config.tags]) to assign ranges of shard keys to zones "
                "on the destination; the built-in role clusterManager has them. Grant it to the user of cluster1.",
                to_reject("find on config.chunks", "destination"),
            ],
        ),
        (
            PLAIN,
            facts(),
            without_inprog(sharded(*WRITER, SHARDED_WRITER)),
            [to_reject("inprog", "destination")],
        ),
        (
            PLAIN,
            facts(),
            without_chunks(sharded(*WRITER, SHARDED_WRITER)),
            [to_reject("find on config.chunks", "destination")],
        ),
        ({}, without_inprog(sharded(*READER, SHARDED_READER)), facts(), []),
        (
            {"write_blocking": BOTH, "reversible": True},
            without_inprog(sharded(*WRITER, "restore", SHARDED_WRITER)),
            facts(),
            [
                to_reject("inprog", "source").replace(
                    "source;", "source (needed because reversible is true);"
                )
            ],
        ),
        ({}, without_chunks(sharded(*READER, SHARDED_READER)), facts(), []),
        (
            {"presplit": Presplit.SOURCE},
            without_chunks(sharded(*READER, SHARDED_READER)),
            facts(),
            [
                "missing privileges ([find on config.chunks]) to read which shard holds each chunk on the source; "
                "the built-in role clusterMonitor has them. Grant it to the user of cluster0."
            ],
        ),
        ({"presplit": Presplit.SOURCE}, user(*READER), facts(), []),
    ],
)
def test_missing_privileges_on_sharded_clusters_are_named(
    fields: dict[str, Any], source: ClusterFacts, destination: ClusterFacts, expected: list[str]
) -> None:
    assert lacking(fields, source, destination) == expected


def test_privileges_on_the_cluster_replace_those_for_zones() -> None:
    poor = sharded(*WRITER, SHARDED_WRITER)
    held = frozenset({("find", ""), ("update", "settings")})
    of_cluster = (poor.privileges or frozenset()) | {"enableSharding"}
    enough = replace(poor, config_privileges=held, privileges=of_cluster)
    assert lacking(PLAIN, facts(), enough) == []
    (text,) = lacking(PLAIN, facts(), replace(enough, privileges=poor.privileges))
    assert "to zones" in text


@pytest.mark.parametrize("time_series", [True, False])
def test_bucket_privileges_are_needed_only_with_time_series(time_series: bool) -> None:
    every = frozenset().union(*ROLES.values())
    poor = facts(privileges=every, database_privileges=every, bucket_privileges=frozenset())
    found = texts(privilege_violations(options(**PLAIN), poor, poor, time_series))
    assert len(found) == (4 if time_series else 0)
    assert all("time-series collections" in each for each in found)


@pytest.mark.parametrize("fields", [PLAIN, {}, {"write_blocking": BOTH, "reversible": True}])
def test_without_access_control_nothing_is_missing(fields: dict[str, Any]) -> None:
    assert lacking(fields, facts(), facts()) == []


def test_each_named_role_has_the_privileges_of_its_need() -> None:
    widest = options(write_blocking=BOTH, reversible=True)
    narrow = options(write_blocking=BOTH)
    for need in {
        *(*needs_of_source(widest, True, True), *needs_of_destination(widest, True, True)),
        *(*needs_of_source(narrow, True, True), NOTING),
    }:
        assert isinstance(need, Need)
        assert need.lacking(user(need.role)) == [], need


@pytest.mark.parametrize(
    "fields, streamed",
    [
        (PLAIN, False),
        ({"write_blocking": NONE}, True),
        ({"write_blocking": BOTH, "verification": False}, False),
        ({"write_blocking": BOTH, "verification": False, "reversible": True}, True),
    ],
)
def test_changes_of_the_destination_are_read_to_verify_and_to_reverse(
    fields: dict[str, Any], streamed: bool
) -> None:
    held = ROLES["readWriteAnyDatabase"] | ROLES["dbAdminAnyDatabase"] | ROLES["restore"]
    every = frozenset(held | ROLES["clusterMonitor"])
    poor = facts(privileges=every, database_privileges=every - {"changeStream"})
    found = lacking(fields, facts(), poor)
    assert any("[changeStream]" in each for each in found) == streamed


@pytest.mark.parametrize("reversible", [False, True])
def test_a_copy_of_users_needs_to_read_both_clusters_and_to_write_the_destination(
    reversible: bool,
) -> None:
    asked = options(reversible=reversible)
    copying = replace(asked, users_and_roles=UsersAndRoles())
    more = [
        {each.purpose for each in needs(copying, False)}
        - {each.purpose for each in needs(asked, False)}
        for needs in (needs_of_source, needs_of_destination)
    ]
    both = {"read users and roles", "copy users and roles"}
    assert more == [both if reversible else {"read users and roles"}, both]


def test_a_reversible_sync_needs_the_privileges_of_a_destination_on_both_clusters() -> None:
    """The documentation of the custom roles says so."""
    fields: dict[str, Any] = {"reversible": True, "enableUserWriteBlocking": "sourceAndDestination"}
    both = {*of_sync("destination")}
    assert {*of_sync("source", **fields)} == {*of_sync("destination", **fields)} == both


def test_a_privilege_on_users_is_named_with_its_collection() -> None:
    lacking = facts(access_control=True, admin_privileges=frozenset({("find", "system.users")}))
    assert READING_PRINCIPALS.lacking(lacking) == [
        "find on admin.system.roles",
        "find on admin.system.version",
    ]
