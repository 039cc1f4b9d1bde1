"""Tests which instances may run a sync together, and which instances may join a running sync."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.preflight.findings import Findings
from syncsvc.preflight.joining import (
    begun_by_others,
    id_violations,
    instances_of,
    join_violations,
)
from syncsvc.saved.run import RunRecord
from syncsvc.settings import DEFAULT_ID
from syncsvc.state import State
from tests.unit.preflight.values import findings, names, options
from tests.unit.syncsvc.records import run_record
from verifier.cluster.facts import Topology

SHARDS = ("a", "b")


def of(instance: str, **fields: Any) -> RunRecord:
    identities = ("source", "destination")
    return run_record(instance=instance, instances=("a", "b"), identities=identities, **fields)


def sharded(*runs: RunRecord, shards: tuple[str, ...] = SHARDS) -> Findings:
    return findings({"topology": Topology.SHARDED, "shards": shards}, runs=runs)


@pytest.mark.parametrize(
    "instance, shards, expected",
    [
        ("a", SHARDS, ("a", "b")),
        (DEFAULT_ID, SHARDS, ()),
        ("a", ("a",), ()),
        ("a", (), ()),
    ],
)
def test_there_is_one_instance_for_each_shard_or_only_one(
    instance: str, shards: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert instances_of(instance, sharded(shards=shards)) == expected


def test_a_name_must_be_that_of_a_shard() -> None:
    assert names(id_violations("c", sharded())) == ["UnknownInstance"]
    for name in (*SHARDS, DEFAULT_ID):
        assert names(id_violations(name, sharded())) == []
    assert names(id_violations("any", findings())) == []


@pytest.mark.parametrize(
    "instance, begun, joins",
    [
        ("b", ["a"], True),
        ("a", ["b"], True),
        ("a", [], False),
        ("a", ["a"], False),
        ("a", ["other"], False),
        ("a", ["b", "other"], False),
        (DEFAULT_ID, ["a"], False),
    ],
)
def test_a_run_of_the_others_is_joined(instance: str, begun: list[str], joins: bool) -> None:
    found = sharded(*map(of, begun))
    assert bool(begun_by_others(instance, found)) is joins


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, []),
        ({"state": State.PAUSED}, []),
        ({"state": State.COMMITTED}, ["MetadataLeftOver"]),
        ({"options": options(reversible=True)}, ["DifferentStart"]),
    ],
)
def test_what_is_joined_is_the_same_sync(fields: dict[str, Any], expected: list[str]) -> None:
    found = sharded(of("a", **fields))
    assert names(join_violations(options(), ("a", "b"), found, found.runs)) == expected


def test_a_shard_that_came_between_two_starts_is_named() -> None:
    found = sharded(of("a"), shards=("a", "b", "c"))
    instances = instances_of("b", found)
    ((kind, description),) = join_violations(options(), instances, found, found.runs)
    assert kind.name == "DifferentStart"
    assert "shards of the source" in description


def test_whoever_joins_first_as_coordinator_finds_an_empty_destination() -> None:
    for begun, expected in (("b", ["DestinationNotEmpty"]), ("a", [])):
        found = replace(sharded(of(begun)), occupied=("shop",))
        assert names(join_violations(options(), SHARDS, found, found.runs)) == expected


def test_a_run_between_other_clusters_is_not_joined() -> None:
    found = sharded(replace(of("a"), identities=("source", "elsewhere")))
    assert names(join_violations(options(), ("a", "b"), found, found.runs)) == ["MetadataLeftOver"]
