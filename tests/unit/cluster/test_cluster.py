"""A cluster is identified by its ID or its address, and errors are reported under documented names."""

from __future__ import annotations

import pytest
from pymongo.errors import AutoReconnect, OperationFailure

from verifier.cluster.cluster import SAME_CLUSTER, Cluster
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.failures import named
from verifier.runtime.errors import OperationError, describe

OURS = OperationError(SAME_CLUSTER, "Why.")


@pytest.mark.parametrize(
    "error, name",
    [
        (OURS, "SameCluster"),
        (AutoReconnect("h:1: closed"), "ClusterUnreachable"),
        (OperationFailure("x", 13), "NotAuthorized"),
        (OperationFailure("x", 286), "OplogWindowExceeded"),
        (OperationFailure("x", 1), "UnexpectedServerError"),
        (OperationFailure("x", 2), "InternalError"),
        (ValueError("x"), "InternalError"),
        (ExceptionGroup("two", [AutoReconnect("x"), ValueError("y")]), "ClusterUnreachable"),
        (ExceptionGroup("a", [ExceptionGroup("b", [OURS]), ValueError("y")]), "SameCluster"),
    ],
)
def test_an_error_is_reported_under_its_name(error: BaseException, name: str) -> None:
    assert describe(named(error))[0].name == name


@pytest.mark.parametrize("identity, expected", [("65aa", "65aa"), (None, "h:1")])
def test_the_identity_of_a_cluster_is_its_id_or_else_its_address(
    identity: str | None, expected: str
) -> None:
    facts = ClusterFacts(Topology.REPLICA_SET, "h:1", (6, 0, 5), identity, False, None)
    assert Cluster("cluster0", None, facts).identity == expected  # type: ignore[arg-type]
