"""Tests which pairs of clusters the verifier accepts, and in which clusters it can save its state."""

from __future__ import annotations

from typing import Any

import pytest

from verifier.cluster.facts import ClusterFacts, Topology
from verifier.compare.scope import Scope
from verifier.rules import unfit_to_store, violations

EVERYTHING: dict[str, Any] = {
    "access_control": True,
    "privileges": frozenset({"listDatabases", "useUUID"}),
    "database_privileges": frozenset(
        {"changeStream", "collStats", "find", "listCollections", "listIndexes"}
    ),
}


def facts(identity: str, fields: dict[str, Any]) -> ClusterFacts:
    usual: dict[str, Any] = {
        "identity": identity,
        "topology": Topology.REPLICA_SET,
        "address": "h:1",
        "version": (6, 0, 5),
        "access_control": False,
        "privileges": None,
    }
    return ClusterFacts(**{**usual, **fields})


@pytest.mark.parametrize(
    "source, destination, expected",
    [
        ({}, {}, []),
        ({"topology": Topology.SHARDED}, {"topology": Topology.SHARDED}, []),
        ({}, {"topology": Topology.SHARDED}, []),
        ({"topology": Topology.STANDALONE}, {}, ["UnsupportedTopology"]),
        ({"identity": "a"}, {"identity": "a"}, ["SameCluster"]),
        ({"version": (5, 0, 31)}, {}, []),
        (
            {"topology": Topology.SHARDED, "version": (5, 0, 31)},
            {"topology": Topology.SHARDED},
            ["UnsupportedServerVersion"],
        ),
        ({"version": (4, 4, 0)}, {"version": (5, 0, 0)}, ["UnsupportedServerVersion"] * 2),
        ({}, {**EVERYTHING}, []),
        ({}, {**EVERYTHING, "privileges": frozenset()}, ["NotAuthorized"] * 2),
        # Without this privilege, the check would wait: it reads collections by their UUIDs.
        ({}, {**EVERYTHING, "privileges": frozenset({"listDatabases"})}, ["NotAuthorized"]),
        ({**EVERYTHING, "database_privileges": frozenset()}, {}, ["NotAuthorized"] * 2),
        ({**EVERYTHING, "topology": Topology.SHARDED}, {}, []),
        ({**EVERYTHING, "topology": Topology.SHARDED, "identity": None}, {}, ["NotAuthorized"]),
        ({**EVERYTHING, "identity": None}, {}, ["NotAuthorized"]),
        ({"identity": None}, {"identity": None}, ["NotAuthorized"] * 2),
        ({"topology": Topology.STANDALONE, "identity": None}, {}, ["UnsupportedTopology"]),
    ],
)
def test_reasons_to_refuse_a_check(
    source: dict[str, Any], destination: dict[str, Any], expected: list[str]
) -> None:
    found = violations(Scope(), facts("s", source), facts("d", destination))
    assert [kind.name for kind, _ in found] == expected


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, []),
        ({"topology": Topology.SHARDED}, []),
        ({"version": (5, 0, 31)}, ["UnsupportedServerVersion"]),
        ({"compatibility": (5, 0)}, ["UnsupportedServerVersion"]),
    ],
)
def test_reasons_to_refuse_a_cluster_for_the_state(
    fields: dict[str, Any], expected: list[str]
) -> None:
    found = list(unfit_to_store(facts("m", fields)))
    assert [kind.name for kind, _ in found] == expected
    assert all(text.startswith("The cluster of --metaURI runs MongoDB ") for _, text in found)
