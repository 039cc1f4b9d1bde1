"""The rules of start: facts and options against the violations that they are."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from syncsvc.options import BuildIndexes, StartOptions, WriteBlocking
from syncsvc.preflight.rules import (
    BLOCKING_ACTIONS,
    cluster_violations,
    option_violations,
)
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.runtime.errors import OperationError, Violation, raise_all

CLUSTERS = {"cluster0": object(), "cluster1": object()}


def names(violations: Iterable[Violation]) -> list[str]:
    return [kind.name for kind, _ in violations]


def texts(violations: Iterable[Violation]) -> list[str]:
    return [text for _, text in violations]


def options(source: str = "cluster0", destination: str = "cluster1", **fields: Any) -> StartOptions:
    return StartOptions(source, destination, **fields)


def facts(**fields: Any) -> ClusterFacts:
    usual: dict[str, Any] = {
        "topology": Topology.REPLICA_SET,
        "address": "host:1",
        "version": (6, 0, 5),
        "identity": "source",
        "access_control": False,
        "privileges": None,
        "user_databases": (),
    }
    return ClusterFacts(**{**usual, **fields})


def destination(**fields: Any) -> ClusterFacts:
    return facts(**{"identity": "destination", **fields})


@pytest.mark.parametrize(
    "source, destination, expected",
    [
        ("cluster0", "cluster1", []),
        ("cluster1", "cluster0", []),
        ("cluster0", "cluster0", ["SameCluster"]),
        ("x", "cluster1", ["UnknownCluster"]),
        ("cluster0", "x", ["UnknownCluster"]),
        ("x", "y", ["UnknownCluster", "UnknownCluster"]),
        ("x", "x", ["UnknownCluster", "UnknownCluster", "SameCluster"]),
    ],
)
def test_clusters_are_two_known_ones(source: str, destination: str, expected: list[str]) -> None:
    assert names(option_violations(options(source, destination), CLUSTERS)) == expected


def test_an_unknown_cluster_is_named_beside_the_known_ones() -> None:
    (text,) = texts(option_violations(options(destination="x"), CLUSTERS))
    assert text == "destination is x, the clusters are cluster0 and cluster1."


FILTER = ({"database": "d"},)


@pytest.mark.parametrize(
    "fields, field",
    [
        ({"reversible": True}, "reversible true"),
        ({"sharding": {"shardingEntries": []}}, "sharding"),
        ({"pre_existing_destination_data": True}, "preExistingDestinationData true"),
    ],
)
def test_what_is_not_supported_yet_is_refused_by_its_field(
    fields: dict[str, Any], field: str
) -> None:
    ((kind, text),) = option_violations(options(**fields), CLUSTERS)
    assert kind.name == "NotSupportedYet" and text.startswith(f"{field} is not supported yet")


@pytest.mark.parametrize(
    "fields",
    [
        {},
        *({"write_blocking": mode} for mode in WriteBlocking),
        {"verification": False},
        {"include_namespaces": FILTER, "exclude_namespaces": FILTER},
        *({"build_indexes": build} for build in BuildIndexes),
    ],
)
def test_what_is_supported_is_not_refused(fields: dict[str, Any]) -> None:
    assert list(option_violations(options(**fields), CLUSTERS)) == []


CLUSTER_TABLE: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, []),
    ({"topology": Topology.SHARDED}, {}, ["UnsupportedTopology"]),
    ({}, {"topology": Topology.SHARDED}, ["UnsupportedTopology"]),
    ({}, {"topology": Topology.STANDALONE}, ["UnsupportedTopology"]),
    ({"version": (6, 0, 0)}, {"version": (6, 0, 99)}, []),
    ({"version": (6, 0, 9)}, {"version": (6, 0, 1)}, []),
    ({"version": (6, 0, 9)}, {"version": (7, 0, 1)}, []),
    ({"version": (5, 0, 31)}, {}, []),
    ({"version": (4, 4, 29)}, {}, ["UnsupportedServerVersion"]),
    ({"version": (5, 3, 0)}, {"version": (5, 3, 0)}, ["UnsupportedServerVersion"]),
    ({"version": (4, 4, 0)}, {"version": (5, 0, 0)}, ["UnsupportedServerVersion"] * 2),
    ({"version": (7, 0, 0)}, {"version": (6, 0, 5)}, ["UnsupportedServerVersion"]),
    ({"version": (10, 0, 0)}, {"version": (9, 9, 9)}, ["UnsupportedServerVersion"]),
    ({"version": (6, 0, 0)}, {"version": (5, 0, 0)}, ["UnsupportedServerVersion"] * 2),
    ({"identity": "x"}, {"identity": "x"}, ["SameCluster"]),
    ({"identity": "x"}, {"identity": "x", "user_databases": ("a",)}, ["SameCluster"]),
    ({"identity": None}, {"identity": None}, ["NotAuthorized"] * 2),
    ({}, {"user_databases": ("a", "b")}, ["DestinationNotEmpty"]),
    ({"user_databases": ("a", "b")}, {}, []),
    ({}, {"privileges": frozenset(BLOCKING_ACTIONS)}, []),
    ({}, {"privileges": frozenset()}, ["NotAuthorized"]),
    ({"privileges": frozenset()}, {}, []),
]


@pytest.mark.parametrize("of_source, of_destination, expected", CLUSTER_TABLE)
def test_clusters_fit_each_other(
    of_source: dict[str, Any], of_destination: dict[str, Any], expected: list[str]
) -> None:
    source, target = facts(**of_source), destination(**of_destination)
    assert names(cluster_violations(options(), source, target)) == expected


@pytest.mark.parametrize(
    "mode, held, missing",
    [
        (WriteBlocking.NONE, [], []),
        (WriteBlocking.DESTINATION_ONLY, [], ["setUserWriteBlockMode, bypassWriteBlockingMode"]),
        (WriteBlocking.DESTINATION_ONLY, BLOCKING_ACTIONS[:1], ["[bypassWriteBlockingMode]"]),
        (WriteBlocking.SOURCE_AND_DESTINATION, BLOCKING_ACTIONS[1:], ["[setUserWriteBlockMode]"]),
    ],
)
def test_blocking_needs_its_privileges(
    mode: WriteBlocking, held: Iterable[str], missing: list[str]
) -> None:
    target = destination(access_control=True, privileges=frozenset(held))
    found = texts(cluster_violations(options(write_blocking=mode), facts(), target))
    assert len(found) == len(missing)
    assert all(each in text for each, text in zip(missing, found, strict=True))


@pytest.mark.parametrize(
    "mode, of_source, expected",
    [
        (WriteBlocking.SOURCE_AND_DESTINATION, {}, []),
        (WriteBlocking.SOURCE_AND_DESTINATION, {"version": (5, 0, 31)}, ["UnsupportedServerVersion"]),
        (WriteBlocking.SOURCE_AND_DESTINATION, {"privileges": frozenset()}, ["NotAuthorized"]),
        (WriteBlocking.SOURCE_AND_DESTINATION, {"privileges": frozenset(BLOCKING_ACTIONS[:1])}, []),
        (WriteBlocking.DESTINATION_ONLY, {"version": (5, 0, 31), "privileges": frozenset()}, []),
        (WriteBlocking.NONE, {"version": (5, 0, 31), "privileges": frozenset()}, []),
    ],
)  # fmt: skip
def test_a_source_that_is_blocked_must_allow_it(
    mode: WriteBlocking, of_source: dict[str, Any], expected: list[str]
) -> None:
    source = facts(**of_source)
    found = cluster_violations(options(write_blocking=mode), source, destination())
    assert names(found) == expected


def test_all_violations_are_found_at_once() -> None:
    source = facts(topology=Topology.SHARDED, version=(7, 0, 0))
    target = destination(version=(5, 0, 0), user_databases=("a",), privileges=frozenset())
    assert names(cluster_violations(options(), source, target)) == [
        "UnsupportedTopology",
        "UnsupportedServerVersion",
        "UnsupportedServerVersion",
        "DestinationNotEmpty",
        "NotAuthorized",
    ]


def test_no_violation_raises_nothing() -> None:
    raise_all(iter(()))


def test_several_violations_are_raised_under_the_name_of_the_first() -> None:
    found = option_violations(options("x", "x", reversible=True), CLUSTERS)
    with pytest.raises(OperationError) as raised:
        raise_all(found)
    assert raised.value.kind.name == "UnknownCluster"
    for name in ("UnknownCluster: ", "SameCluster: ", "NotSupportedYet: "):
        assert name in raised.value.description


def test_violations_of_one_kind_need_no_names() -> None:
    with pytest.raises(OperationError) as raised:
        raise_all(option_violations(options("x", "y"), CLUSTERS))
    assert raised.value.description == (
        "source is x, the clusters are cluster0 and cluster1. "
        "destination is y, the clusters are cluster0 and cluster1."
    )
