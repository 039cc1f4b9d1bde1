"""Tests which instances may run a sync together, and which instances may join a running sync."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.metadata import DEFAULT_ID
from syncsvc.preflight.findings import Findings
from syncsvc.preflight.joining import (
    begun_by_others,
    instance_violations,
    instances_of,
    join_violations,
)
from syncsvc.preflight.judgement import judgement_of
from syncsvc.saved.run import RunRecord
from syncsvc.state import State
from tests.unit.preflight.values import findings, names, options, texts
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
    found = sharded(shards=shards) if shards else findings()
    assert instances_of(options(), instance, found) == expected


@pytest.mark.parametrize("requested, expected", [((), ()), (("a",), ()), (("b", "a"), ("b", "a"))])
def test_the_option_names_the_instances_of_a_replica_set(
    requested: tuple[str, ...], expected: tuple[str, ...]
) -> None:
    assert instances_of(options(instances=requested), "a", findings()) == expected
    # With a sharded source, the shards determine the instances, and the first shard coordinates.
    assert instances_of(options(instances=requested), "a", sharded()) == SHARDS


UNKNOWN, NOT_APPLICABLE = "UnknownInstance", "InstancesNotApplicable"


@pytest.mark.parametrize(
    "instance, requested, shards, expected",
    [
        ("any", (), (), []),
        ("any", ("any",), (), []),
        ("b", ("a", "b"), (), []),
        ("c", ("a", "b"), (), [UNKNOWN]),
        ("a", (), SHARDS, []),
        ("b", ("b", "a"), SHARDS, []),
        ("c", (), SHARDS, [UNKNOWN]),
        ("c", ("c",), SHARDS, [UNKNOWN]),
        ("a", ("a",), SHARDS, [NOT_APPLICABLE]),
        ("a", ("a", "b", "c"), SHARDS, [NOT_APPLICABLE]),
        ("a", ("a",), ("a",), []),
        (DEFAULT_ID, (), SHARDS, []),
        (DEFAULT_ID, (DEFAULT_ID,), SHARDS, []),
        (DEFAULT_ID, SHARDS, SHARDS, [UNKNOWN, NOT_APPLICABLE]),
    ],
)
def test_the_id_and_the_option_fit_the_source(
    instance: str, requested: tuple[str, ...], shards: tuple[str, ...], expected: list[str]
) -> None:
    found = sharded(shards=shards) if shards else findings()
    violations = list(instance_violations(options(instances=requested), instance, found))
    assert names(violations) == expected
    assert all(each in text for text in texts(violations) for each in requested)


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
def test_an_instance_joins_the_run_of_the_others(
    instance: str, begun: list[str], joins: bool
) -> None:
    found = sharded(*map(of, begun))
    instances = instances_of(options(), instance, found)
    assert bool(begun_by_others(instance, instances, found)) is joins


@pytest.mark.parametrize(
    "instance, requested, begun, expected",
    [
        ("b", ("a", "b"), of("a", options=options(instances=("a", "b"))), []),
        # The two starts name different coordinators or instances, or only one of the starts names instances.
        ("b", ("b", "a"), of("a", options=options(instances=("a", "b"))), ["DifferentStart"]),
        ("c", ("a", "c"), of("a", options=options(instances=("a", "b"))), ["DifferentStart"]),
        ("b", (), of("a", options=options(instances=("a", "b"))), ["DifferentStart"]),
        ("b", ("a", "b"), replace(of("a"), instances=()), ["DifferentStart"]),
        # The sync from a replica set was started without this instance.
        ("c", (), of("a", options=options(instances=("a", "b"))), None),
        ("c", ("c", "b"), replace(of("a"), instances=()), None),
    ],
)
def test_a_run_from_a_replica_set_is_joined_by_its_instances(
    instance: str, requested: tuple[str, ...], begun: RunRecord, expected: list[str] | None
) -> None:
    found, wanted = findings(runs=(begun,)), options(instances=requested)
    instances = instances_of(wanted, instance, found)
    others = begun_by_others(instance, instances, found)
    assert bool(others) is (expected is not None)
    if others:
        violations = list(join_violations(wanted, instances, found, others))
        assert names(violations) == expected
        assert all("differs in: instances." in text for text in texts(violations))


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, []),
        ({"state": State.PAUSED}, []),
        ({"state": State.COMMITTED}, ["MetadataLeftOver"]),
        ({"options": options(reversible=True)}, ["DifferentStart"]),
    ],
)
def test_only_a_run_of_the_same_sync_can_be_joined(
    fields: dict[str, Any], expected: list[str]
) -> None:
    found = sharded(of("a", **fields))
    assert names(join_violations(options(), ("a", "b"), found, found.runs)) == expected


def test_a_shard_added_between_two_starts_is_named() -> None:
    found = sharded(of("a"), shards=("a", "b", "c"))
    instances = instances_of(options(), "b", found)
    ((kind, description),) = join_violations(options(), instances, found, found.runs)
    assert kind.name == "DifferentStart"
    assert "shards of the source" in description


def test_the_coordinator_needs_an_empty_destination() -> None:
    for begun, expected in (("b", ["DestinationNotEmpty"]), ("a", [])):
        found = replace(sharded(of(begun)), occupied=("shop",))
        assert names(join_violations(options(), SHARDS, found, found.runs)) == expected


def test_a_run_between_other_clusters_is_not_joined() -> None:
    found = sharded(replace(of("a"), identities=("source", "elsewhere")))
    ((kind, text),) = join_violations(options(), ("a", "b"), found, found.runs)
    assert kind.name == "MetadataLeftOver"
    assert (
        "from a cluster with the ID source to a cluster with the ID elsewhere. The requested"
        in text
    )
    assert text.endswith("from a cluster with the ID source to a cluster with the ID destination.")


@pytest.mark.parametrize("instance, begun", [("a", "b"), ("b", "a")])
def test_a_joining_instance_needs_its_own_memory_and_privileges(instance: str, begun: str) -> None:
    """The other instance may run on another host, with other users."""
    found = replace(sharded(of(begun)), memory_available=100, disk_free=0)
    assert judgement_of(options(), instance, found, 100, 0).violations == ()
    judgement = judgement_of(options(), instance, found, 101, 0)
    assert names(judgement.violations) == ["InsufficientMemory"]
    assert judgement.estimates.memory_needed == 101
    poor = replace(found.destination, access_control=True, privileges=frozenset())
    judgement = judgement_of(options(), instance, replace(found, destination=poor), 100, 0)
    assert {*names(judgement.violations)} == {"NotAuthorized"}
