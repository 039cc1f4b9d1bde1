"""Builds options, facts and findings with defaults for everything that a test does not specify."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from syncsvc.options import StartOptions
from syncsvc.preflight.findings import Findings
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.runtime.errors import Violation


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
    }
    return ClusterFacts(**{**usual, **fields})


def findings(
    source: Mapping[str, Any] | None = None,
    destination: Mapping[str, Any] | None = None,
    **fields: Any,
) -> Findings:
    of_destination = {"identity": "destination", **(destination or {})}
    return Findings(facts(**(source or {})), facts(**of_destination), **fields)
