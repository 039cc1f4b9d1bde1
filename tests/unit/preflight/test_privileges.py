"""Options against the privileges that a sync with them needs on each side."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.options import WriteBlocking
from syncsvc.preflight.privileges import (
    NOTING,
    Need,
    needs_of_destination,
    needs_of_source,
    privilege_violations,
)
from syncsvc.schemas import StartSchema
from tests.support.roles import READER, USES, WRITER, Use
from tests.unit.preflight.values import facts, options, texts
from verifier.cluster.facts import ClusterFacts
from verifier.runtime.schemas import load

BOTH = WriteBlocking.SOURCE_AND_DESTINATION
NONE = WriteBlocking.NONE
PLAIN = {"write_blocking": NONE, "verification": False}

# What the built-in roles have of the actions that are asked for, on servers of 6.0.
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
    "clusterMonitor": {"listDatabases", "replSetGetConfig", "serverStatus", "useUUID"},
    "backup": {
        *("appendOplogNote", "listDatabases", "serverStatus", "setUserWriteBlockMode", "useUUID"),
        *("find", "collStats", "listCollections", "listIndexes"),
    },
    "restore": {
        *("setUserWriteBlockMode", "bypassWriteBlockingMode", "useUUID", "collMod"),
        *("bypassDocumentValidation", "createCollection", "createIndex", "dropCollection"),
        *("insert", "listCollections"),
    },
}


def user(*roles: str) -> ClusterFacts:
    held = frozenset(action for role in roles for action in ROLES[role])
    return facts(
        identity="x" if "replSetGetConfig" in held else None,
        access_control=True,
        privileges=held,
        database_privileges=held,
        bucket_privileges=held,
    )


def lacking(fields: dict[str, Any], source: ClusterFacts, destination: ClusterFacts) -> list[str]:
    return texts(privilege_violations(options(**fields), source, destination, time_series=True))


@pytest.mark.parametrize("use", USES, ids=lambda use: str(use.name))
def test_the_documented_roles_do_and_none_can_be_left_out(use: Use) -> None:
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
                "the built-in role restore has them."
            ],
        ),
        (
            {"write_blocking": BOTH},
            user(*READER),
            user(*WRITER, "restore"),
            [
                "missing privileges ([setUserWriteBlockMode]) to enable user write blocking on the source; "
                "the built-in role backup has them."
            ],
        ),
        (
            PLAIN,
            user("clusterMonitor"),
            user(*WRITER),
            [
                "missing privileges ([collStats, find, listCollections, listIndexes]) to read on the source; "
                "the built-in role readAnyDatabase has them.",
                "missing privileges ([collStats, find, listIndexes]) to read time-series collections on the source; "
                "the built-in role readAnyDatabase has them.",
                "missing privileges ([changeStream]) to read changes on the source; "
                "the built-in role readAnyDatabase has them.",
            ],
        ),
        (
            PLAIN,
            facts(identity=None, access_control=True),
            user(*WRITER),
            [
                "missing privileges ([replSetGetConfig]) to read the id of the replica set on the source; "
                "the built-in role clusterMonitor has them."
            ],
        ),
    ],
)
def test_what_is_missing_is_named_with_the_role_that_has_it(
    fields: dict[str, Any], source: ClusterFacts, destination: ClusterFacts, expected: list[str]
) -> None:
    assert lacking(fields, source, destination) == expected


@pytest.mark.parametrize("time_series", [True, False])
def test_buckets_matter_where_there_are_some(time_series: bool) -> None:
    every = frozenset().union(*ROLES.values())
    poor = facts(privileges=every, database_privileges=every, bucket_privileges=frozenset())
    found = texts(privilege_violations(options(**PLAIN), poor, poor, time_series))
    assert len(found) == (4 if time_series else 0)
    assert all("time-series collections" in each for each in found)


@pytest.mark.parametrize("fields", [PLAIN, {}, {"write_blocking": BOTH, "reversible": True}])
def test_without_access_control_nothing_is_missing(fields: dict[str, Any]) -> None:
    assert lacking(fields, facts(), facts()) == []


def test_the_named_roles_have_what_they_are_named_for() -> None:
    widest = options(write_blocking=BOTH, reversible=True)
    narrow = options(write_blocking=BOTH)
    for need in {
        *(*needs_of_source(widest, True), *needs_of_destination(widest, True)),
        *(*needs_of_source(narrow, True), NOTING),
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
