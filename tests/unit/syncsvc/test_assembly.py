"""Tests which clusters are reported because their version has changed since the sync was started."""

from __future__ import annotations

from typing import Any
from unittest.mock import Mock

from syncsvc.running.assembly import new_versions
from syncsvc.saved.journal import Site
from tests.unit.preflight.values import facts
from verifier.cluster.cluster import Cluster


def cluster(name: str, version: tuple[int, int, int], **fields: Any) -> Cluster:
    return Cluster(name, Mock(), facts(version=version, **fields))


def site(of: Cluster) -> Site:
    return Site.of(of.name, of.facts)


def test_changed_versions_are_reported() -> None:
    before = [cluster("cluster0", (6, 0, 5)), cluster("cluster1", (7, 0, 2))]
    now = [cluster("cluster0", (6, 0, 9)), cluster("cluster1", (7, 0, 2))]
    assert list(new_versions(map(site, before), now)) == [("cluster0", "6.0.5", "6.0.9")]


def test_a_changed_feature_compatibility_version_is_reported() -> None:
    lowered = cluster("cluster0", (6, 0, 5), compatibility=(5, 0))
    found = new_versions([site(lowered)], [cluster("cluster0", (6, 0, 5))])
    shown = "6.0.5 with featureCompatibilityVersion 5.0"
    assert list(found) == [("cluster0", shown, "6.0.5")]


def test_a_sync_without_a_journal_has_no_earlier_versions() -> None:
    assert list(new_versions([], [cluster("cluster0", (6, 0, 5))])) == []
