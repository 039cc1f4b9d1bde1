"""Compares complete syncs, and mainly their HTTP answers, with the tables of the documentation, row by row.

A `Row` is a function that returns the observed and the documented value of one row. `pytest -k <name of a row>` tests
that row, and those whose names contain its name. `DOCUMENTED` contains the names of all rows in the order of the
documentation.
"""

from __future__ import annotations

from collections.abc import Callable
from numbers import Real
from typing import Any

import pytest

from syncsvc.schemas import StartSchema
from tests.contract.walks import GOOD, Document, Moment, Seen, Walk, everything
from tests.support.blocks import USER_WRITES_BLOCKED
from tests.support.pair import TO_SHARDED, Clusters

# The observed value, and the expected one.
Row = Callable[[Seen], tuple[object, object]]

_ENTRY: Document = {"database": "d", "collection": "c", "shardCollection": {"key": [{"a": 1}]}}


def _including(**element: object) -> Document:
    return {**GOOD, "includeNamespaces": [element]}


def _sharding(**fields: object) -> Document:
    return {**GOOD, "sharding": {"shardingEntries": [], **fields}}


def _entry(**fields: object) -> Document:
    entry = {name: value for name, value in {**_ENTRY, **fields}.items() if value is not None}
    return _sharding(shardingEntries=[entry])


# Starts that must be refused, by the field or combination that is wrong.
REFUSED: dict[str, Document] = {
    "source": {"destination": "cluster1"},
    "destination": {"source": "cluster0", "destination": 1},
    "buildIndexes": {**GOOD, "buildIndexes": "sometimes"},
    "enableUserWriteBlocking": {**GOOD, "enableUserWriteBlocking": "everywhere"},
    "includeNamespaces": {**GOOD, "includeNamespaces": {}},
    "excludeNamespaces": {**GOOD, "excludeNamespaces": "d"},
    "reversible": {**GOOD, "reversible": "yes"},
    "sharding": {**GOOD, "sharding": []},
    "verification": {**GOOD, "verification": True},
    "verification.enabled": {**GOOD, "verification": {"enabled": "yes"}},
    "includeNamespaces[0].database": _including(collections=["c"]),
    "includeNamespaces[0].collections": _including(database="d", collections="c"),
    "includeNamespaces[0].collectionsRegex": _including(database="d", collectionsRegex="c"),
    "collectionsRegex.pattern": _including(database="d", collectionsRegex={"options": "i"}),
    "collectionsRegex.options": _including(
        database="d", collectionsRegex={"pattern": "c", "options": 1}
    ),
    "createSupportingIndexes": _sharding(createSupportingIndexes="yes"),
    "shardingEntries": {**GOOD, "sharding": {}},
    "shardingEntries[0].database": _entry(database=None),
    "shardingEntries[0].collection": _entry(collection=None),
    "shardingEntries[0].shardCollection": _entry(shardCollection=None),
    "shardCollection.key": _entry(shardCollection={"key": [{"a": 1, "b": 1}]}),
    "never and reversible": {
        **GOOD,
        "buildIndexes": "never",
        "reversible": True,
        "enableUserWriteBlocking": True,
    },
    "sharding of a replica set": _sharding(),
    "reversible without blocks": {**GOOD, "reversible": True},
}


def refused(field: str) -> Row:
    """Return a row for the start request in which the named field is missing or invalid.

    The start must be refused, and the error must name the field.
    """

    def row(seen: Seen) -> tuple[object, object]:
        answer = seen.refused[field]
        named = field.rpartition("]")[2].lstrip(".") in answer.described
        return (answer.status, answer.body["error"], named), (400, "InvalidRequest", True)

    return row


def not_begun(name: str, *words: str) -> Row:
    """Return a row that requires that the refused request `name` (a key of `Seen.refused`) has not begun a sync.

    The description of the error must contain all `words`.
    """

    def row(seen: Seen) -> tuple[object, object]:
        answer = seen.refused[name]
        said = [word for word in words if word in answer.described]
        begun = seen.after_refusals["state"]
        return (answer.body["success"], said, begun), (False, [*words], "IDLE")

    return row


def accepted(field: str) -> Row:
    """Return a row that requires this field in the schema of the start request. A nested field is `name.inner`."""
    name, _, inner = field.partition(".")

    def row(seen: Seen) -> tuple[object, object]:
        known: Any = StartSchema().fields
        found = name in known and (not inner or inner in known[name].schema.fields)
        return found, True

    return row


def all_of(*rows: Row) -> Row:
    def row(seen: Seen) -> tuple[object, object]:
        results = [each(seen) for each in rows]
        return [found for found, _ in results], [expected for _, expected in results]

    return row


def of_type(kind: type, *path: str) -> Row:
    """Return a row that requires a field of the progress to have the type `kind` during change event application.

    `path` lists the names of the nested fields, from the outermost to the innermost.
    """

    def row(seen: Seen) -> tuple[object, object]:
        value: Any = seen.usual.applying.progress
        for name in path:
            value = value[name]
        return (value, isinstance(value, kind)), (value, True)

    return row


def count(name: str) -> Row:
    """Return a row for a counter in the verifier's progress: it must be 0 before a check, and an integer afterwards."""

    def row(seen: Seen) -> tuple[object, object]:
        before, after = (
            each["verificationStatus"][name] for each in (seen.check.idle, seen.check.ended)
        )
        return (before, isinstance(after, int)), (0, True)

    return row


def stages(walk: Walk) -> list[Moment]:
    return [walk.copying, walk.applying, walk.committing, walk.writable, walk.committed]


def shown(name: str, walk: Walk) -> list[Any]:
    """Return the values of the progress field `name` in all recorded moments of a sync, in order."""
    return [each.progress[name] for each in stages(walk)]


def refusals(walk: Walk) -> tuple[list[bool], list[bool]]:
    """Return one list for the source and one for the destination, with a flag for each recorded moment.

    A flag is true if user writes to the cluster were blocked at that moment.
    """
    return (
        [each.source_refuses == USER_WRITES_BLOCKED for each in stages(walk)],
        [each.destination_refuses == USER_WRITES_BLOCKED for each in stages(walk)],
    )


BLOCKED_UNTIL_WRITABLE = [True, True, True, False, False]
NEVER = [False] * 5

START: dict[str, Row] = {
    "start.source": refused("source"),
    "start.destination": refused("destination"),
    "start.buildIndexes": all_of(
        refused("buildIndexes"),
        lambda seen: (seen.usual.indexes, {"_id_", "n_1"}),
        lambda seen: (seen.blocking.indexes, {"_id_"}),
    ),
    "start.enableUserWriteBlocking": all_of(
        refused("enableUserWriteBlocking"),
        lambda seen: (refusals(seen.usual)[1], BLOCKED_UNTIL_WRITABLE),
    ),
    "start.includeNamespaces": all_of(
        refused("includeNamespaces"),
        lambda seen: ("some.kept" in seen.filtered_names, True),
    ),
    "start.excludeNamespaces": all_of(
        refused("excludeNamespaces"),
        lambda seen: ("all.left out" in seen.filtered_names, False),
    ),
    "start.reversible": refused("reversible"),
    "start.sharding": refused("sharding"),
    "start.verification": refused("verification"),
    "start.verification.enabled": all_of(
        refused("verification.enabled"),
        # With verification, a sync that builds no TTL indexes fails: see `start_behavior.7`.
        lambda seen: (seen.blocking.committed.progress["state"], "COMMITTED"),
    ),
    "write_blocking.sourceAndDestination": lambda seen: (
        refusals(seen.blocking),
        ([False, False, True, True, True], BLOCKED_UNTIL_WRITABLE),
    ),
    "write_blocking.destinationOnly": lambda seen: (
        refusals(seen.usual),
        (NEVER, BLOCKED_UNTIL_WRITABLE),
    ),
    "write_blocking.none": lambda seen: ("behind the back" in str(seen.filtered), True),
    "filter.database": all_of(
        refused("includeNamespaces[0].database"),
        lambda seen: ({"all.c", "all.left out"} & seen.filtered_names, {"all.c"}),
    ),
    "filter.collections": all_of(
        refused("includeNamespaces[0].collections"),
        lambda seen: ({"some.kept", "some.other"} & seen.filtered_names, {"some.kept"}),
    ),
    "filter.collectionsRegex": all_of(
        refused("includeNamespaces[0].collectionsRegex"),
        lambda seen: ({"regex.kept 1", "regex.other"} & seen.filtered_names, {"regex.kept 1"}),
    ),
    "filter.collectionsRegex.pattern": refused("collectionsRegex.pattern"),
    "filter.collectionsRegex.options": all_of(
        refused("collectionsRegex.options"),
        # The pattern is in upper case, so it matches only with the option `i`.
        lambda seen: ("regex.kept 1" in seen.filtered_names, True),
    ),
    "filter.only_what_is_named": lambda seen: (
        seen.filtered_names,
        {"all.c", "some.kept", "regex.kept 1"},
    ),
    "sharding.createSupportingIndexes": refused("createSupportingIndexes"),
    "sharding.shardingEntries": refused("shardingEntries"),
    "sharding.shardingEntries.database": refused("shardingEntries[0].database"),
    "sharding.shardingEntries.collection": refused("shardingEntries[0].collection"),
    "sharding.shardingEntries.shardCollection": refused("shardingEntries[0].shardCollection"),
    "sharding.shardingEntries.shardCollection.key": refused("shardCollection.key"),
    "sharding_rule.createSupportingIndexes_false": lambda seen: (
        (
            [
                seen.sharded.refused[name].body["error"]
                for name in ("unserved", "collated", "against")
            ],
            seen.sharded.served,
        ),
        (
            ["ShardKeyIndexMissing", "ShardKeyIndexMissing", "UniqueIndexIncompatible"],
            {"_id_", "n_1"},
        ),
    ),
    "sharding_rule.createSupportingIndexes_true": lambda seen: (
        seen.sharded.created,
        {"_id_", "n_1"},
    ),
    "sharding_rule.indexes_always_built": lambda seen: (seen.sharded.always, {"_id_", "n_1"}),
    "start_response.success": lambda seen: (
        (seen.usual.started.body["success"], seen.refused["source"].body["success"]),
        (True, False),
    ),
    "start_response.error": lambda seen: (
        ("error" in seen.usual.started.body, seen.refused["source"].body["error"]),
        (False, "InvalidRequest"),
    ),
    "start_response.errorDescription": lambda seen: (
        ("errorDescription" in seen.usual.started.body, bool(seen.refused["source"].described)),
        (False, True),
    ),
}

PROGRESS: dict[str, Row] = {
    "progress.state": lambda seen: (
        [seen.idle["state"], *shown("state", seen.usual)],
        ["IDLE", "RUNNING", "RUNNING", "COMMITTING", "COMMITTING", "COMMITTED"],
    ),
    "progress.canCommit": lambda seen: (
        [seen.idle["canCommit"], *shown("canCommit", seen.usual)],
        [False, False, True, False, False, False],
    ),
    "progress.canWrite": lambda seen: (
        [seen.idle["canWrite"], *shown("canWrite", seen.usual)],
        [False, False, False, False, True, True],
    ),
    "progress.info": lambda seen: (
        shown("info", seen.usual)[:2],
        ["collection copy", "change event application"],
    ),
    "progress.lagTimeSeconds": of_type(Real, "lagTimeSeconds"),
    "progress.collectionCopy.estimatedTotalBytes": of_type(
        Real, "collectionCopy", "estimatedTotalBytes"
    ),
    "progress.collectionCopy.estimatedCopiedBytes": all_of(
        of_type(Real, "collectionCopy", "estimatedCopiedBytes"),
        lambda seen: (seen.usual.copying.progress["collectionCopy"]["estimatedCopiedBytes"], 0),
    ),
    "progress.directionMapping.Source": lambda seen: (
        seen.usual.copying.progress["directionMapping"]["Source"],
        f"cluster0: {seen.addresses[0]}",
    ),
    "progress.directionMapping.Destination": lambda seen: (
        seen.usual.copying.progress["directionMapping"]["Destination"],
        f"cluster1: {seen.addresses[1]}",
    ),
    "verifier_progress.phase": lambda seen: (
        [
            seen.check.idle["phase"],
            seen.check.running["phase"] != "idle",
            seen.check.ended["phase"],
        ],
        ["idle", True, "idle"],
    ),
    "verifier_progress.error": lambda seen: (
        [seen.check.idle["error"], seen.check.ended["error"]],
        [None, None],
    ),
    "verifier_progress.verificationStatus.totalTasks": count("totalTasks"),
    "verifier_progress.verificationStatus.addedTasks": count("addedTasks"),
    "verifier_progress.verificationStatus.processingTasks": count("processingTasks"),
    "verifier_progress.verificationStatus.failedTasks": all_of(
        count("failedTasks"),
        lambda seen: (seen.check.ended["verificationStatus"]["failedTasks"], 0),
    ),
    "verifier_progress.verificationStatus.completedTasks": count("completedTasks"),
    "verifier_progress.verificationStatus.metadataMismatchTasks": count("metadataMismatchTasks"),
    "verifier_progress.verificationStatus.recheckTasks": count("recheckTasks"),
}

TRANSITIONS: dict[str, Row] = {
    "transition.IDLE.start": lambda seen: (
        (
            seen.after_refusals["state"],
            seen.usual.started.status,
            seen.usual.copying.progress["state"],
        ),
        ("IDLE", 200, "RUNNING"),
    ),
    "transition.RUNNING.verification_passes": lambda seen: (
        seen.usual.committed.progress["state"],
        "COMMITTED",
    ),
    "transition.RUNNING.verification_fails": lambda seen: (
        (seen.filtered["state"], seen.filtered["error"], seen.filtered["canWrite"]),
        ("FAILED", "VerificationFailed", False),
    ),
}

ENDPOINTS: dict[str, Row] = {
    "endpoint.start": lambda seen: (seen.usual.started.status, 200),
    "endpoint.progress": lambda seen: (seen.idle["state"], "IDLE"),
    "endpoint.commit": all_of(
        lambda seen: (seen.refused["commit"].body["error"], "InvalidState"),
        # The commit blocks user writes on the source if both clusters are to be blocked.
        lambda seen: (seen.blocking.committing.source_refuses, USER_WRITES_BLOCKED),
    ),
    "endpoint.reverse": all_of(
        lambda seen: (seen.refused["reverse"].body["error"], "InvalidState"),
        lambda seen: (seen.reversing.body, {"success": True}),
        lambda seen: (
            seen.reversed["directionMapping"],
            {
                "Source": f"cluster1: {seen.addresses[1]}",
                "Destination": f"cluster0: {seen.addresses[0]}",
            },
        ),
    ),
    "verifier_endpoint.check": lambda seen: (
        (seen.check.checked.status, seen.check.checked.body),
        (200, {"success": True}),
    ),
    "verifier_endpoint.writesOff": lambda seen: (
        (seen.check.writes_off.status, seen.check.writes_off.body),
        (200, {"success": True}),
    ),
    "verifier_endpoint.progress": lambda seen: (seen.check.ended["verdict"], "passed"),
}

START_BEHAVIOR: dict[str, Row] = {
    "start_behavior.1": lambda seen: (
        (seen.started_again.status, seen.started_again.body["error"]),
        (409, "InvalidState"),
    ),
    "start_behavior.2": lambda seen: (
        (seen.usual.started.body, seen.usual.copying.progress["state"]),
        ({"success": True}, "RUNNING"),
    ),
    # No start of these tests sends the header Content-Type.
    "start_behavior.3": lambda seen: (seen.usual.started.status, 200),
    "start_behavior.4": not_begun("never and reversible", "reversible"),
    "start_behavior.5": all_of(
        not_begun("sharding of a replica set", "sharding"),
        lambda seen: (seen.sharded.refused["no sharding"].body["error"], "ShardingRequired"),
    ),
    "start_behavior.6": all_of(
        not_begun("little memory", "memory"),
        # The verification of a TTL collection cannot succeed without the TTL index.
        lambda seen: (seen.ttl["error"], "TTLNotVerifiable"),
    ),
    "start_behavior.7": lambda seen: (
        (seen.ttl["state"], seen.ttl["error"], seen.blocking.committed.progress["state"]),
        ("FAILED", "TTLNotVerifiable", "COMMITTED"),
    ),
    "start_behavior.8": all_of(
        not_begun("reversible without blocks", "reversible"),
        not_begun("never and reversible", "buildIndexes"),
        lambda seen: (seen.reversed["state"], "RUNNING"),
        lambda seen: (
            seen.sharded.refused["reversible"].body["error"],
            "ReversibleNeedsEqualShards",
        ),
    ),
    "start_behavior.9": lambda seen: (
        [each.destination_refuses_index == USER_WRITES_BLOCKED for each in stages(seen.usual)],
        BLOCKED_UNTIL_WRITABLE,
    ),
    "start_behavior.10": all_of(
        # Entries name collections as the sync lists them: later renames do not change which collections are sharded.
        lambda seen: (
            seen.sharded.keys,
            dict.fromkeys(("d.c", "d.from before", "d.from after"), {"n": 1}),
        ),
        lambda seen: (seen.sharded.renamed["error"], "RenamedAcrossDatabases"),
    ),
}

PROCESSES: dict[str, Row] = {
    "verifier_flag.verifyAll": lambda seen: (seen.check.summary["checkStats"]["totalNamespaces"], 1),
    "verifier_flag.srcURI": lambda seen: (seen.check.ended["srcChangeStats"]["eventCounts"] != {}, True),
    "verifier_flag.destURI": lambda seen: (seen.check.ended["dstChangeStats"]["eventCounts"] != {}, True),
    "verifier_flag.metaURI": lambda seen: (seen.check.state_kept_on_source, True),
    # All other answers come from paths with this prefix, too.
    "versioning.prefix": lambda seen: (seen.idle["state"], "IDLE"),
    "versioning.sharding": accepted("sharding"),
    "versioning.includeNamespaces": accepted("includeNamespaces"),
    "versioning.buildIndexes": accepted("buildIndexes"),
    "versioning.excludeNamespaces": accepted("excludeNamespaces"),
    "versioning.verification": accepted("verification"),
    "versioning.verification.enabled": accepted("verification.enabled"),
    "versioning.verification_runs_by_default": lambda seen: (
        seen.filtered["error"],
        "VerificationFailed",
    ),
}  # fmt: skip

ROWS: dict[str, Row] = {
    **START,
    **PROGRESS,
    **TRANSITIONS,
    **ENDPOINTS,
    **START_BEHAVIOR,
    **PROCESSES,
}

# Every row of every table of the interface, table by table.
DOCUMENTED = (
    *("start.source", "start.destination", "start.buildIndexes", "start.enableUserWriteBlocking"),
    *("start.includeNamespaces", "start.excludeNamespaces", "start.reversible", "start.sharding"),
    *("start.verification", "start.verification.enabled"),
    "write_blocking.sourceAndDestination",
    "write_blocking.destinationOnly",
    "write_blocking.none",
    *("filter.database", "filter.collections", "filter.collectionsRegex"),
    *("filter.collectionsRegex.pattern", "filter.collectionsRegex.options"),
    "filter.only_what_is_named",
    "sharding.createSupportingIndexes",
    "sharding.shardingEntries",
    "sharding.shardingEntries.database",
    "sharding.shardingEntries.collection",
    "sharding.shardingEntries.shardCollection",
    "sharding.shardingEntries.shardCollection.key",
    "sharding_rule.createSupportingIndexes_false",
    "sharding_rule.createSupportingIndexes_true",
    "sharding_rule.indexes_always_built",
    *("start_response.success", "start_response.error", "start_response.errorDescription"),
    *("progress.state", "progress.canCommit", "progress.canWrite", "progress.info"),
    "progress.lagTimeSeconds",
    "progress.collectionCopy.estimatedTotalBytes",
    "progress.collectionCopy.estimatedCopiedBytes",
    "progress.directionMapping.Source",
    "progress.directionMapping.Destination",
    *("verifier_progress.phase", "verifier_progress.error"),
    "verifier_progress.verificationStatus.totalTasks",
    "verifier_progress.verificationStatus.addedTasks",
    "verifier_progress.verificationStatus.processingTasks",
    "verifier_progress.verificationStatus.failedTasks",
    "verifier_progress.verificationStatus.completedTasks",
    "verifier_progress.verificationStatus.metadataMismatchTasks",
    "verifier_progress.verificationStatus.recheckTasks",
    "transition.IDLE.start",
    "transition.RUNNING.verification_passes",
    "transition.RUNNING.verification_fails",
    *("endpoint.start", "endpoint.progress", "endpoint.commit", "endpoint.reverse"),
    *(f"start_behavior.{number}" for number in range(1, 11)),
    *("verifier_endpoint.check", "verifier_endpoint.writesOff", "verifier_endpoint.progress"),
    *("verifier_flag.verifyAll", "verifier_flag.srcURI", "verifier_flag.destURI"),
    "verifier_flag.metaURI",
    *("versioning.prefix", "versioning.sharding", "versioning.includeNamespaces"),
    *("versioning.buildIndexes", "versioning.excludeNamespaces", "versioning.verification"),
    *("versioning.verification.enabled", "versioning.verification_runs_by_default"),
)


@pytest.fixture(scope="module")
def seen(clusters: Clusters, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    folder = tmp_path_factory.mktemp("contract")
    return everything(clusters.pair(), clusters.pair(TO_SHARDED), folder, REFUSED)


@pytest.mark.parametrize("name", ROWS)
def test_the_row_holds(name: str, seen: Seen) -> None:
    found, expected = ROWS[name](seen)
    assert found == expected


def test_every_row_is_in_the_table() -> None:
    assert sorted(ROWS) == sorted(DOCUMENTED)
