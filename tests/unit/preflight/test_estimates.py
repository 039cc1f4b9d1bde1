"""Tests the estimates of the resources that a sync needs, the violations if one is too small, and the warnings."""

from __future__ import annotations

from typing import Any

import pytest
from bson import Timestamp

from syncsvc.options import BuildIndexes, EventSpool
from syncsvc.preflight.estimates import (
    Estimates,
    estimate,
    resource_violations,
    warnings,
)
from syncsvc.preflight.findings import Measured
from syncsvc.preflight.judgement import judgement_of
from syncsvc.preflight.questions import free_bytes
from syncsvc.source.oplog import Oplog
from tests.unit.preflight.values import findings, names, options, texts
from verifier.cluster.facts import Topology
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind

INDEXES: dict[str, dict[str, Any]] = {
    "a": {"name": "a", "key": {"a": 1}},
    "h": {"name": "h", "key": {"h": "hashed"}},
}
CONTENTS = (
    Measured(
        CollectionSpec(Namespace("d", "c"), Kind.COLLECTION, indexes=INDEXES),
        Size(1000, 60_000_000, 4000, {"_id_": 100, "a": 20, "h": 3}),
    ),
    Measured(CollectionSpec(Namespace("d", "v"), Kind.VIEW)),
    Measured(
        CollectionSpec(Namespace("d", "ts"), Kind.TIME_SERIES), Size(500, 40_000_000, 1000, {})
    ),
)
SHARDED = {"topology": Topology.SHARDED}
OPLOG = Oplog(Timestamp(1000, 1), Timestamp(1900, 5), size=500, limit=1000)


@pytest.mark.parametrize(
    "build, indexes, on_disk",
    [
        (BuildIndexes.BEFORE_DATA_COPY, 2, 5123),
        (BuildIndexes.AFTER_DATA_COPY, 2, 5123),
        (BuildIndexes.EXCLUDE_HASHED, 1, 5120),
        (BuildIndexes.EXCLUDE_HASHED_AFTER_COPY, 1, 5120),
        (BuildIndexes.NEVER, 0, 5100),
    ],
)
def test_the_estimate_counts_copied_data_and_built_indexes(
    build: BuildIndexes, indexes: int, on_disk: int
) -> None:
    found = findings(contents=CONTENTS, disk_free=7, oplog=OPLOG, memory_available=9)
    assert estimate(options(build_indexes=build), found, 7) == Estimates(
        namespaces=3,
        documents=1500,
        bytes=100_000_000,
        indexes=indexes,
        disk_needed=int(on_disk * 1.25),
        disk_free=7,
        memory_needed=7,
        memory_available=9,
        copy_seconds=5,
        oplog_window_seconds=1800,
    )


def test_unknown_estimates_are_none() -> None:
    assert estimate(options(verification=False), findings(), 7) == Estimates()


def test_many_small_documents_increase_the_estimated_duration() -> None:
    many = Measured(CONTENTS[0].definition, Size(documents=1_000_000, bytes=1_000_000))
    found = findings(contents=(many,))
    assert estimate(options(), found, 7).copy_seconds == 50


@pytest.mark.parametrize(
    "size, limit, oldest, newest, window",
    [
        (500, 1000, 100, 200, 200),
        (1000, 1000, 100, 200, 100),
        (1500, 1000, 100, 200, 100),
        (500, 1000, 100, 100, None),
        (0, 1000, 100, 200, None),
    ],
)
def test_the_oplog_window_is_extrapolated_until_it_is_full(
    size: int, limit: int, oldest: int, newest: int, window: int | None
) -> None:
    oplog = Oplog(Timestamp(oldest, 1), Timestamp(newest, 1), size, limit)
    found = estimate(options(), findings(oplog=oplog), 7)
    assert found.oplog_window_seconds == window


MEMORY = "A sync with verification may need 539 MB of memory, but only 120 MB are available to this process."
DISK = "The data and indexes may need 12.5 GB on the destination's disk, but only 300 MB are free."
RESOURCE_TABLE: list[tuple[dict[str, Any], dict[str, Any], list[tuple[str, str]]]] = [
    ({}, {}, []),
    ({}, {"memory_needed": 1, "disk_needed": 1}, []),
    ({}, {"memory_available": 1, "disk_free": 1}, []),
    (
        {},
        {"memory_needed": 10, "memory_available": 10, "disk_needed": 10, "disk_free": 10},
        [],
    ),
    (
        {},
        {"memory_needed": 539 * 10**6, "memory_available": 120 * 10**6},
        [("InsufficientMemory", MEMORY)],
    ),
    (
        {},
        {"disk_needed": 125 * 10**8, "disk_free": 3 * 10**8},
        [("InsufficientDestinationDiskSpace", DISK)],
    ),
    ({"skip_disk_space_check": True}, {"disk_needed": 125 * 10**8, "disk_free": 3 * 10**8}, []),
    ({}, {"disk_needed": 1, "disk_free": 0}, [("InsufficientDestinationDiskSpace", "")]),
]


@pytest.mark.parametrize("fields, estimates, expected", RESOURCE_TABLE)
def test_a_resource_that_is_too_small_is_reported_with_numbers(
    fields: dict[str, Any], estimates: dict[str, Any], expected: list[tuple[str, str]]
) -> None:
    found = list(resource_violations(options(**fields), Estimates(**estimates), 0))
    assert [kind.name for kind, _ in found] == [name for name, _ in expected]
    for (_, text), (_, wanted) in zip(found, expected, strict=True):
        assert wanted in text


@pytest.mark.parametrize(
    "oplog, estimates, source, expected",
    [
        (OPLOG, {"oplog_window_seconds": 7200, "copy_seconds": 7200}, {}, []),
        (OPLOG, {"oplog_window_seconds": None, "copy_seconds": 7200}, {}, []),
        (OPLOG, {"oplog_window_seconds": 7200, "copy_seconds": None}, {}, []),
        (
            OPLOG,
            {"oplog_window_seconds": 3600, "copy_seconds": 7200},
            {},
            [],
        ),
        (None, {}, {}, ["The user of the source may not read its oplog"]),
        (None, {}, {"topology": Topology.SHARDED}, ["cannot be read through mongos"]),
        (OPLOG, {}, {"privileges": frozenset()}, ["lacks the privilege appendOplogNote"]),
        (OPLOG, {}, {"privileges": frozenset({"appendOplogNote"})}, []),
        (
            OPLOG,
            {},
            {"version": (5, 0, 9)},
            ["The source runs MongoDB 5.0.9; servers before 6.0 do not report"],
        ),
    ],
)
def test_possible_problems_are_warned_of(
    oplog: Oplog | None, estimates: dict[str, Any], source: dict[str, Any], expected: list[str]
) -> None:
    found = list(
        warnings(options(), findings(source, oplog=oplog, disk_free=1), Estimates(**estimates))
    )
    assert len(found) == len(expected)
    assert all(each in text for each, text in zip(expected, found, strict=True))


BY_ID, BY_K = {"key": {"_id": "hashed"}, "unique": False}, {"key": {"k": 1}, "unique": False}


@pytest.mark.parametrize("of_destination", [{}, SHARDED])
def test_ids_that_shards_can_repeat_are_warned_of(of_destination: dict[str, Any]) -> None:
    contents = tuple(
        Measured(CollectionSpec(Namespace("d", name), Kind.COLLECTION, shard_key=key))
        for name, key in (("i", BY_ID), ("k", BY_K), ("u", {}))
    )
    found = findings(SHARDED, of_destination, contents=contents, disk_free=1)
    (warning,) = (
        each for each in warnings(options(), found, Estimates()) if "DuplicateIds" in each
    )
    assert "so d.k may hold several" in warning


@pytest.mark.parametrize("skipped", [False, True])
def test_unknown_free_disk_space_is_warned_of(skipped: bool) -> None:
    fields = options(skip_disk_space_check=skipped)
    found = list(warnings(fields, findings(oplog=OPLOG), Estimates()))
    assert ["free disk space of the destination is unknown" in text for text in found] == (
        [] if skipped else [True]
    )


def test_an_oplog_that_is_shorter_than_the_copy_is_reported_if_no_events_are_spooled() -> None:
    short = Estimates(oplog_window_seconds=3600, copy_seconds=7200)
    given = options(event_spool=EventSpool.NEVER)
    found = list(warnings(given, findings(oplog=OPLOG, disk_free=1), short))
    assert len(found) == 1
    wanted = "copy may take 2 hours, but the oplog of the source (0 MB) keeps entries for 1 hour at"
    assert wanted in found[0]


SPOOL_TABLE = [
    (EventSpool.AUTO, 10, 19, False, True),
    (EventSpool.AUTO, 10, 20, False, False),
    (EventSpool.ALWAYS, 10, 19, True, False),
    (EventSpool.ALWAYS, 10, 20, False, False),
    (EventSpool.NEVER, 10, 19, False, False),
    (EventSpool.ALWAYS, 10, None, False, False),
    (EventSpool.ALWAYS, None, 1, False, False),
]


@pytest.mark.parametrize("spool, needed, free, refused, warned", SPOOL_TABLE)
def test_a_disk_without_room_for_a_full_spool_is_reported(
    spool: EventSpool, needed: int | None, free: int | None, refused: bool, warned: bool
) -> None:
    given = options(event_spool=spool)
    estimates = Estimates(disk_needed=needed, disk_free=free)
    violations = list(resource_violations(given, estimates, 10))
    texts = list(warnings(given, findings(oplog=OPLOG, disk_free=1), estimates, 10))
    assert [kind.name for kind, _ in violations] == ["InsufficientDestinationDiskSpace"] * refused
    assert ["--eventSpoolMB" in text for text in texts] == [True] * warned
    skipped = options(event_spool=spool, skip_disk_space_check=True)
    assert not list(resource_violations(skipped, estimates, 10))


@pytest.mark.parametrize("instances, refused", [((), False), (("a",), False), (("a", "b"), True)])
def test_each_instance_needs_room_for_its_own_spool(
    instances: tuple[str, ...], refused: bool
) -> None:
    given = options(event_spool=EventSpool.ALWAYS, instances=instances)
    needed = estimate(options(), findings(contents=CONTENTS, disk_free=1), 7).disk_needed
    assert needed is not None
    found = findings(contents=CONTENTS, disk_free=needed + 10**6, oplog=OPLOG)
    judgement = judgement_of(given, "a", found, 7, 10**6)
    assert names(judgement.violations) == ["InsufficientDestinationDiskSpace"] * refused
    assert all("event spool up to 2 MB" in text for text in texts(judgement.violations))


@pytest.mark.parametrize(
    "reply, free",
    [
        ({"fsTotalSize": 10.0, "fsUsedSize": 7.0}, 3),
        ({"objects": 1}, None),
        ({"fsTotalSize": 0.0, "fsUsedSize": 0.0}, None),
        # A mongos before 7.0.
        (
            {
                "raw": {
                    "a": {"fsTotalSize": 10, "fsUsedSize": 7},
                    "b": {"fsTotalSize": 9, "fsUsedSize": 1},
                }
            },
            11,
        ),
        (
            {"raw": {"a": {"fsTotalSize": 10, "fsUsedSize": 7}, "b": {"ok": 1}}, "fsTotalSize": 10},
            None,
        ),
    ],
)
def test_the_free_space_of_all_shards_counts(reply: dict[str, Any], free: int | None) -> None:
    assert free_bytes(reply) == free
