"""Tests what a new engine saves, and when the log warns that the version of a cluster has changed."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from syncsvc.running import assembly
from syncsvc.running.assembly import Assembly, new_versions
from syncsvc.saved.journal import Journal, Site
from syncsvc.state import Phase, State
from tests.unit.preflight.values import facts
from tests.unit.syncsvc.records import run_record
from verifier.cluster.cluster import Cluster
from verifier.runtime.tasks import StopToken


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


@pytest.mark.parametrize(
    "state, phase, warns",
    [
        (State.RUNNING, Phase.COPYING, True),
        (State.RESETTING, Phase.COPYING, False),
        (State.FAILED, Phase.RESETTING, False),
    ],
)
def test_a_reset_does_not_warn_of_new_versions(
    state: State,
    phase: Phase,
    warns: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A reset must not warn, and must not read the source again, because the source may be gone for good."""
    read: list[str] = []

    def refreshed(each: Cluster) -> Cluster:
        read.append(each.name)
        return each

    monkeypatch.setattr(assembly, "refreshed", refreshed)
    now = {each: cluster(each, (7, 0, 2)) for each in ("cluster0", "cluster1")}
    before = tuple(site(cluster(each, (6, 0, 5))) for each in now)
    record = run_record(state=state, phase=phase, journal=Journal(sites=before))
    store: Any = SimpleNamespace(record=record)
    process: Any = SimpleNamespace(clusters=now)
    found = Assembly(store, process)._current_clusters(StopToken())
    assert found == (now["cluster0"], now["cluster1"])
    assert sorted(read) == (["cluster0", "cluster1"] if warns else ["cluster1"])
    texts = [each.message for each in caplog.records if each.levelno == logging.WARNING]
    assert ["version" in each for each in texts] == ([True, True] if warns else [])


def test_a_new_engine_has_not_caught_up_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Other instances show the saved `caught_up` as canCommit: the value from before a pause must not count."""
    monkeypatch.setattr(Assembly, "_context", Mock())
    record = run_record(instances=("coordinator", "b"), epoch=3, caught_up=True)
    store = Mock(record=record)
    Assembly(store, Mock()).next_context(StopToken())
    store.update.assert_called_once_with(epoch=4, caught_up=False)
