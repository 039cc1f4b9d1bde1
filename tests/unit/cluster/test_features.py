"""Tests the table of server features: which versions have a feature, and when a cluster counts as lacking it."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from tests.unit.preflight.values import facts
from verifier.cluster.cluster import lacking
from verifier.cluster.facts import Topology
from verifier.cluster.features import (
    BLOCK_WRITES,
    COLLECTION_UUID,
    DOCUMENTS,
    EXPANDED_EVENTS,
    FEATURES,
    MIGRATION_EVENTS,
    RAW_UPDATES,
    REPORTING_DDL,
    SPLIT_EVENTS,
    ClusterRole,
    Version,
)


def test_each_feature_has_one_row() -> None:
    assert max(Counter(each.name for each in FEATURES).values()) == 1


@pytest.mark.parametrize(
    "version, splits",
    [
        ((6, 0, 5), False),
        ((6, 0, 9), True),
        ((6, 0, 30), True),
        ((6, 1, 0), False),
        ((6, 3, 2), False),
        ((7, 0, 0), True),
        ((8, 0, 4), True),
    ],
)
def test_a_feature_that_a_patch_release_got_counts_for_that_release(
    version: Version, splits: bool
) -> None:
    assert SPLIT_EVENTS.promised(version) is splits
    assert facts(version=version).splits_large_events is splits


@pytest.mark.parametrize(
    "fields, said, reports",
    [
        ({"version": (5, 0, 31)}, "5.0.31", False),
        ({"version": (6, 0, 5)}, "6.0.5", True),
        ({"version": (6, 0, 5), "compatibility": (6, 0)}, "6.0.5", True),
        (
            {"version": (6, 0, 5), "compatibility": (5, 0)},
            "6.0.5 with featureCompatibilityVersion 5.0",
            False,
        ),
        (
            {"version": (8, 0, 1), "compatibility": (7, 0)},
            "8.0.1 with featureCompatibilityVersion 7.0",
            True,
        ),
    ],
)
def test_the_older_compatibility_version_counts(
    fields: dict[str, Any], said: str, reports: bool
) -> None:
    found = facts(**fields)
    assert (found.dotted_version, found.reports_ddl) == (said, reports)
    assert found.blocks_writes is reports


@pytest.mark.parametrize(
    "fields, unknown",
    [
        ({"version": (5, 0, 31)}, set()),
        ({"version": (6, 0, 30)}, set()),
        ({"version": (6, 2, 0)}, {"recordPreImages"}),
        ({"version": (8, 0, 4)}, {"recordPreImages"}),
        ({"version": (7, 0, 2), "compatibility": (6, 0)}, {"recordPreImages"}),
    ],
)
def test_newer_servers_do_not_know_an_old_option(fields: dict[str, Any], unknown: set[str]) -> None:
    """Test for which versions `create` and `collMod` refuse `recordPreImages`, as SERVER-60919 says."""
    assert facts(**fields).unknown_options == unknown


@pytest.mark.parametrize("each", REPORTING_DDL, ids=lambda each: each.name)
def test_ddl_is_reported_only_with_all_features_for_it(each: Any) -> None:
    assert not facts(refused=frozenset({each.name})).reports_ddl


def test_a_refused_feature_is_missing_on_the_side_that_uses_it() -> None:
    refused = facts(version=(8, 0, 0), refused=frozenset({RAW_UPDATES.name, BLOCK_WRITES.name}))
    assert refused.missing(ClusterRole.SOURCE) == [RAW_UPDATES, BLOCK_WRITES]
    assert refused.missing(ClusterRole.DESTINATION) == [BLOCK_WRITES]
    assert refused.missing(ClusterRole.BOTH) == [RAW_UPDATES, BLOCK_WRITES]


def test_a_feature_of_replica_sets_is_not_missing_on_a_sharded_cluster() -> None:
    refused = frozenset({MIGRATION_EVENTS.name})
    sharded = facts(version=(7, 0, 0), topology=Topology.SHARDED, refused=refused)
    assert sharded.missing(ClusterRole.SOURCE) == []


@pytest.mark.parametrize("of_verifier", [False, True])
def test_a_sharded_source_must_report_ddl(of_verifier: bool) -> None:
    refused = frozenset({EXPANDED_EVENTS.name, COLLECTION_UUID.name})
    sharded = facts(topology=Topology.SHARDED, refused=refused)
    ((kind, text),) = lacking(ClusterRole.SOURCE, sharded, of_verifier)
    assert kind.name == "ServerFeatureMissing"
    assert text == (
        "The source is a sharded cluster (MongoDB 6.0.5) that does not report all DDL events: it does not have "
        "showExpandedEvents, collectionUUID."
    )
    assert [*lacking(ClusterRole.DESTINATION, sharded, of_verifier)] == []
    assert [*lacking(ClusterRole.SOURCE, facts(refused=refused), of_verifier)] == []


def test_the_verifier_needs_the_command_that_reads_sizes() -> None:
    refused = facts(refused=frozenset({"dataSize", "serverStatus"}))
    ((_, text),) = lacking(ClusterRole.SOURCE, refused, of_verifier=True)
    assert text.endswith("commands: dataSize.")


def test_only_required_commands_rule_a_cluster_out() -> None:
    refused = facts(refused=frozenset({DOCUMENTS.name, "collMod", "listIndexes"}))
    ((kind, text),) = lacking(ClusterRole.DESTINATION, refused)
    assert kind.name == "ServerFeatureMissing"
    assert text == (
        "The destination (MongoDB 6.0.5) does not have the commands: listIndexes, collMod."
    )
    ((_, text),) = lacking(ClusterRole.DESTINATION, refused, of_verifier=True)
    assert text.endswith("commands: listIndexes.")
    assert [*lacking(ClusterRole.SOURCE, facts(version=(4, 4, 0)))] == []
