"""Tests the rules for a start: combinations of facts and options, the violations that they cause, and their errors.

Also tests the definition that a collection gets on the destination.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest

from syncsvc.options import (
    BuildIndexes,
    CopyReadPreference,
    StartOptions,
    UsersAndRoles,
    WriteBlocking,
)
from syncsvc.preflight.findings import Measured, ReservedDatabase
from syncsvc.preflight.rules import (
    cluster_violations,
    emptiness_violations,
    name_violations,
    option_violations,
)
from syncsvc.rules.indexing import Target, definition_violations, destined
from tests.support.renamed import remap as namespace_remap
from tests.unit.preflight.values import facts, findings, names, options, texts
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.facts import Topology
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.errors import OperationError, raise_all

CLUSTERS = {"cluster0": object(), "cluster1": object()}
FILTER = ({"database": "d"},)
BOTH = WriteBlocking.SOURCE_AND_DESTINATION
REVERSIBLE: dict[str, Any] = {"reversible": True, "write_blocking": BOTH}
SHARDING: dict[str, Any] = {"sharding": {"createSupportingIndexes": False, "shardingEntries": []}}


def sharding_of(*key: dict[str, Any], collection: str = "e", **fields: bool) -> dict[str, Any]:
    """Return the start option `sharding`, as a keyword of StartOptions, for one collection of the database d.

    `key` contains a document for each field of the shard key. `fields` are further fields of the option, such as
    `createSupportingIndexes`.
    """
    entry = {"database": "d", "collection": collection, "shardCollection": {"key": list(key)}}
    return {"sharding": {"createSupportingIndexes": False, **fields, "shardingEntries": [entry]}}


def target(sharded: bool = False, **fields: Any) -> Target:
    given = options(**fields)
    return Target(given, sharded, given.names)


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
def test_unknown_or_equal_cluster_names_are_refused(
    source: str, destination: str, expected: list[str]
) -> None:
    assert names(name_violations(StartOptions(source, destination), CLUSTERS)) == expected


def test_an_unknown_cluster_is_named_beside_the_known_ones() -> None:
    (text,) = texts(name_violations(options(destination="x"), CLUSTERS))
    assert text == "The field destination is x, but the clusters are named cluster0 and cluster1."


def remap(*entries: tuple[str, str]) -> dict[str, Any]:
    """Return the start option `namespaceRemap`, as a keyword of StartOptions.

    Each entry is a pair of the name on the source and the name on the destination: `d.c`, or `d` for a whole database.
    """
    return {"namespace_remap": tuple(namespace_remap(dict(entries)))}


OPTION_TABLE: list[tuple[dict[str, Any], list[str]]] = [
    ({}, []),
    (remap(("d", "e"), ("f.a", "g.a")), []),
    (remap(("d", "e"), ("f.a", "e.a")), ["NamespaceCollision"]),
    ({**REVERSIBLE, **remap(("d", "e"), ("d.a", "f.a"))}, []),
    (remap(("d", "e"), ("D", "f")), []),
    ({**REVERSIBLE, **remap(("d", "e"), ("D", "f"))}, ["NamespaceCollision"]),
    (
        {"users_and_roles": UsersAndRoles(), **remap(("d", "e"))},
        ["RemapWithUsersAndRoles"],
    ),
    *(({"write_blocking": mode}, []) for mode in WriteBlocking),
    *(({"build_indexes": build}, []) for build in BuildIndexes),
    ({"verification": False}, []),
    ({"include_namespaces": FILTER, "exclude_namespaces": FILTER}, []),
    ({"copy_in_natural_order": ({"database": "."},)}, []),
    ({"detect_random_id": False}, []),
    ({"skip_disk_space_check": True}, []),
    ({"pre_existing_destination_data": True}, ["WriteBlockingWithExistingData"]),
    ({"pre_existing_destination_data": True, "write_blocking": WriteBlocking.NONE}, []),
    (REVERSIBLE, []),
    ({"reversible": True}, ["ReversibleNeedsWriteBlocking"]),
    (
        {"reversible": True, "write_blocking": WriteBlocking.NONE},
        ["ReversibleNeedsWriteBlocking"],
    ),
    ({**REVERSIBLE, "build_indexes": BuildIndexes.AFTER_DATA_COPY}, []),
    ({**REVERSIBLE, "build_indexes": BuildIndexes.NEVER}, ["ReversibleWithoutIndexes"]),
    ({**REVERSIBLE, "build_indexes": BuildIndexes.EXCLUDE_HASHED}, ["ReversibleWithoutIndexes"]),
    (
        {**REVERSIBLE, "build_indexes": BuildIndexes.EXCLUDE_HASHED_AFTER_COPY},
        ["ReversibleWithoutIndexes"],
    ),
    (sharding_of({"a": 1}), []),
    (sharding_of({"a": -1}), ["InvalidShardingEntry"]),
    (
        {**REVERSIBLE, "include_namespaces": FILTER},
        ["WriteBlockingWithFilter", "ReversibleWithFilter"],
    ),
    ({"write_blocking": BOTH, "exclude_namespaces": FILTER}, ["WriteBlockingWithFilter"]),
    (
        {
            "reversible": True,
            "exclude_namespaces": FILTER,
            "build_indexes": BuildIndexes.NEVER,
            "pre_existing_destination_data": True,
        },
        [
            *("WriteBlockingWithExistingData", "ReversibleWithExistingData"),
            *("ReversibleNeedsWriteBlocking", "ReversibleWithFilter", "ReversibleWithoutIndexes"),
        ],
    ),
]


@pytest.mark.parametrize("fields, expected", OPTION_TABLE)
def test_conflicting_options_are_refused(fields: dict[str, Any], expected: list[str]) -> None:
    assert names(option_violations(options(**fields))) == expected


def sharded(shards: int) -> dict[str, Any]:
    """Return the fields of ClusterFacts for a sharded cluster with this number of shards."""
    return {"topology": Topology.SHARDED, "shards": tuple(map(str, range(shards)))}


CLUSTER_TABLE: list[tuple[dict[str, Any], dict[str, Any], list[str]]] = [
    ({}, {}, []),
    ({"version": (6, 0, 0)}, {"version": (6, 0, 99)}, []),
    ({"version": (6, 0, 9)}, {"version": (6, 0, 1)}, []),
    ({"version": (6, 0, 9)}, {"version": (7, 0, 1)}, []),
    ({"version": (5, 0, 31)}, {}, []),
    ({**sharded(2), "version": (5, 0, 31)}, sharded(2), ["UnsupportedServerVersion"]),
    ({**sharded(2), "version": (6, 0, 0)}, sharded(2), []),
    ({**sharded(2), "version": (4, 4, 0)}, sharded(2), ["UnsupportedServerVersion"]),
    ({"version": (4, 4, 29)}, {}, ["UnsupportedServerVersion"]),
    ({"version": (5, 3, 0)}, {"version": (5, 3, 0)}, ["UnsupportedServerVersion"]),
    ({"version": (4, 4, 0)}, {"version": (5, 0, 0)}, ["UnsupportedServerVersion"] * 2),
    ({"version": (7, 0, 0)}, {"version": (6, 0, 5)}, ["UnsupportedServerVersion"]),
    ({"version": (10, 0, 0)}, {"version": (9, 9, 9)}, ["UnsupportedServerVersion"]),
    ({"version": (6, 0, 0)}, {"version": (5, 0, 0)}, ["UnsupportedServerVersion"] * 2),
    ({"identity": "x"}, {"identity": "x"}, ["SameCluster"]),
    ({"identity": None}, {"identity": None}, ["NotAuthorized"] * 2),
]


@pytest.mark.parametrize("of_source, of_destination, expected", CLUSTER_TABLE)
def test_clusters_fit_each_other(
    of_source: dict[str, Any], of_destination: dict[str, Any], expected: list[str]
) -> None:
    found = findings(of_source, of_destination)
    assert names(cluster_violations(options(), found)) == expected


@pytest.mark.parametrize(
    "identity, expected", [("other", "DestinationNotEmpty"), ("source", "SameCluster")]
)
def test_an_occupied_destination_is_refused(identity: str, expected: str) -> None:
    found = findings(destination={"identity": identity}, occupied=("a", "b"))
    assert names(cluster_violations(options(), found)) == [expected]


ALONE = {"topology": Topology.STANDALONE}
# For each pair of topologies, the violations of a start without and with the option `sharding`.
TOPOLOGY_TABLE: list[tuple[dict[str, Any], dict[str, Any], list[str], list[str]]] = [
    ({}, {}, [], ["ShardingNotApplicable"]),
    ({}, sharded(2), ["ShardingRequired"], []),
    ({}, ALONE, ["UnsupportedTopology"], ["ShardingNotApplicable", "UnsupportedTopology"]),
    (sharded(2), {}, [], ["ShardingNotApplicable"]),
    (sharded(2), sharded(2), [], ["ShardingNotApplicable"]),
    (sharded(2), sharded(3), [], ["ShardingNotApplicable"]),
    (sharded(2), ALONE, ["UnsupportedTopology"], ["ShardingNotApplicable", "UnsupportedTopology"]),
    (ALONE, {}, ["UnsupportedTopology"], ["ShardingNotApplicable", "UnsupportedTopology"]),
    (ALONE, sharded(2), ["UnsupportedTopology"], ["ShardingNotApplicable", "UnsupportedTopology"]),
    (
        ALONE,
        ALONE,
        ["UnsupportedTopology"] * 2,
        ["ShardingNotApplicable", *("UnsupportedTopology",) * 2],
    ),
]


@pytest.mark.parametrize("of_source, of_destination, without, given", TOPOLOGY_TABLE)
def test_unsupported_pairs_of_topologies_are_refused(
    of_source: dict[str, Any], of_destination: dict[str, Any], without: list[str], given: list[str]
) -> None:
    found = findings(of_source, of_destination)
    assert names(cluster_violations(options(), found)) == without
    assert names(cluster_violations(options(**SHARDING), found)) == given


BOTH_TABLE: list[tuple[dict[str, Any], dict[str, Any], dict[str, Any], list[str]]] = [
    (REVERSIBLE, {}, {}, []),
    (REVERSIBLE, {"version": (6, 0, 1)}, {"version": (6, 0, 9)}, []),
    (REVERSIBLE, {}, {"version": (7, 0, 0)}, ["ReversibleNeedsEqualVersions"]),
    (
        REVERSIBLE,
        {"version": (5, 0, 31)},
        {},
        [
            *("WriteBlockingNeedsNewerSource", "ReversibleNeedsNewerSource"),
            "ReversibleNeedsEqualVersions",
        ],
    ),
    ({"write_blocking": BOTH}, {"version": (5, 0, 31)}, {}, ["WriteBlockingNeedsNewerSource"]),
    ({"write_blocking": WriteBlocking.DESTINATION_ONLY}, {"version": (5, 0, 31)}, {}, []),
    ({"write_blocking": WriteBlocking.NONE}, {"version": (5, 0, 31)}, {}, []),
    (REVERSIBLE, sharded(2), sharded(2), []),
    (REVERSIBLE, sharded(3), sharded(2), ["ReversibleNeedsEqualShards"]),
    ({**REVERSIBLE, **SHARDING}, {}, sharded(1), ["ReversibleNeedsEqualShards"]),
    (REVERSIBLE, sharded(1), {}, ["ReversibleNeedsEqualShards"]),
    (REVERSIBLE, {"compatibility": (6, 0)}, {"compatibility": (6, 0)}, []),
    (
        REVERSIBLE,
        {"version": (7, 0, 2), "compatibility": (6, 0)},
        {"version": (7, 0, 2), "compatibility": (7, 0)},
        ["ReversibleNeedsEqualVersions"],
    ),
    ({}, {}, {"compatibility": (5, 0)}, ["UnsupportedServerVersion"] * 2),
    ({}, {}, {"refused": frozenset({"collMod"})}, ["ServerFeatureMissing"]),
    ({}, {}, {"refused": frozenset({"setUserWriteBlockMode"})}, ["ServerFeatureMissing"]),
    (
        {"write_blocking": WriteBlocking.NONE},
        {},
        {"refused": frozenset({"setUserWriteBlockMode"})},
        [],
    ),
]


@pytest.mark.parametrize("fields, of_source, of_destination, expected", BOTH_TABLE)
def test_options_fit_the_clusters(
    fields: dict[str, Any],
    of_source: dict[str, Any],
    of_destination: dict[str, Any],
    expected: list[str],
) -> None:
    found = findings(of_source, of_destination)
    assert names(cluster_violations(options(**fields), found)) == expected


OF_MONGOSYNC = (
    " If mongosync still runs, let it finish first. Then drop this database: this program does not need it, but "
    "mongosync can no longer resume or reverse that migration."
)


@pytest.mark.parametrize(
    "metadata, text",
    [
        (ReservedDatabase("mongosync_reserved_for_internal_use", frozenset()), None),
        (ReservedDatabase("mongosync_reserved_for_internal_use", frozenset({"collections"})), None),
        (ReservedDatabase("mongosync_reserved_for_internal_use", frozenset({"partitions"})), None),
        # Left behind by a start that was refused after it had written its documents for dashboards.
        (
            ReservedDatabase(
                "mongosync_reserved_for_internal_use", frozenset({"resumeData", "runs"})
            ),
            None,
        ),
        (ReservedDatabase("__mdb_internal_syncsvc_verifier", frozenset({"partitions_of_a"})), None),
        (ReservedDatabase("__mdb_internal_migration_verifier", frozenset({"tasks"})), None),
        (
            ReservedDatabase(
                "mongosync_reserved_for_internal_use", frozenset({"runs"}), ("a", "b")
            ),
            "The database mongosync_reserved_for_internal_use holds the metadata of a sync (instances: a, b).",
        ),
        (
            ReservedDatabase("mongosync_reserved_for_internal_use", frozenset({"resumeData"})),
            "The database mongosync_reserved_for_internal_use holds the metadata of mongosync."
            + OF_MONGOSYNC,
        ),
        (
            ReservedDatabase("__mdb_internal_mongosync", frozenset()),
            "The database __mdb_internal_mongosync holds the metadata of mongosync." + OF_MONGOSYNC,
        ),
        (
            ReservedDatabase("__mdb_internal_mongosync_verifier_src", frozenset()),
            "The database __mdb_internal_mongosync_verifier_src holds the metadata of mongosync."
            + OF_MONGOSYNC,
        ),
        (
            ReservedDatabase("mongosync_reserved_for_verification_dst_metadata", frozenset()),
            "The database mongosync_reserved_for_verification_dst_metadata holds the metadata of mongosync."
            + OF_MONGOSYNC,
        ),
        (
            ReservedDatabase("mongosync_internal_shop", frozenset()),
            "The database mongosync_internal_shop holds the metadata of mongosync." + OF_MONGOSYNC,
        ),
    ],
)
def test_metadata_of_another_sync_is_left_over(
    metadata: ReservedDatabase, text: str | None
) -> None:
    found = list(cluster_violations(options(), findings(metadata=(metadata,))))
    assert [each.name for each, _ in found] == ([] if text is None else ["MetadataLeftOver"])
    assert texts(found) == ([] if text is None else [text])


@pytest.mark.parametrize(
    "contents, fields, text",
    [
        ((Measured(CollectionSpec(Namespace("d", "c"), Kind.COLLECTION)),), {}, ""),
        (None, {}, ""),
        ((), {"include_namespaces": FILTER}, ""),
        (
            (),
            {},
            " The source cluster0 (a:1) holds no user databases: source and destination are probably swapped.",
        ),
    ],
)
def test_a_destination_with_data_is_named_and_so_is_a_source_without(
    contents: tuple[Measured, ...] | None, fields: dict[str, Any], text: str
) -> None:
    found = findings(
        {"address": "a:1"}, {"address": "b:2"}, occupied=("hr", "shop"), contents=contents
    )
    assert texts(emptiness_violations(options(**fields), found)) == [
        f"The destination cluster1 (b:2) holds user databases: hr, shop.{text}"
    ]


def test_different_numbers_of_shards_are_named() -> None:
    (text,) = texts(cluster_violations(options(**REVERSIBLE), findings(sharded(1), sharded(2))))
    assert text.endswith("but the source has 1 shard, and the destination has 2 shards.")


def test_a_bad_pattern_is_refused_by_its_field() -> None:
    found = findings(bad_patterns=("includeNamespaces[0].databaseRegex: missing )",))
    ((kind, text),) = cluster_violations(options(), found)
    assert (kind.name, kind.status) == ("InvalidRequest", 400)
    assert text == "includeNamespaces[0].databaseRegex: missing )."


FILTERS = DocumentFilters({Namespace("d", "c"): bson.encode({"a": 1})})


def test_a_refused_query_names_its_collection() -> None:
    found = findings(bad_queries=((Namespace("d", "c"), "unknown operator"),))
    ((kind, text),) = cluster_violations(options(document_filters=FILTERS), found)
    assert (kind.name, kind.status) == ("InvalidDocumentFilter", 400)
    assert text == "The source refused the document filter of d.c: unknown operator."


@pytest.mark.parametrize(
    "contents, refused",
    [
        ([("c", Kind.COLLECTION, {})], []),
        ([("c", Kind.COLLECTION, {"clusteredIndex": True}), ("e", Kind.VIEW, {})], []),
        ([("e", Kind.COLLECTION, {})], ["InvalidDocumentFilter"]),
        ([("c", Kind.VIEW, {})], ["DocumentFilterNotApplicable"]),
        ([("c", Kind.TIME_SERIES, {})], ["DocumentFilterNotApplicable"]),
        ([("c", Kind.COLLECTION, {"capped": True})], ["DocumentFilterNotApplicable"]),
    ],
)
def test_a_filter_names_a_collection_whose_documents_are_independent(
    contents: list[tuple[str, Kind, dict[str, Any]]], refused: list[str]
) -> None:
    listed = tuple(
        Measured(CollectionSpec(Namespace("d", name), kind, options=found))
        for name, kind, found in contents
    )
    found = cluster_violations(options(document_filters=FILTERS), findings(contents=listed))
    assert names(found) == refused
    assert not names(cluster_violations(options(), findings(contents=listed)))


@pytest.mark.parametrize(
    "fields, refused",
    [
        ({}, []),
        ({"write_blocking": BOTH}, ["WriteBlockingWithFilter"]),
        (REVERSIBLE, ["WriteBlockingWithFilter", "ReversibleWithFilter"]),
        ({"copy_in_natural_order": ({"database": "d"},)}, ["InvalidDocumentFilter"]),
        ({"copy_in_natural_order": ({"database": "."},)}, ["InvalidDocumentFilter"]),
        ({"copy_in_natural_order": ({"database": "d", "collections": ["e"]},)}, []),
    ],
)
def test_a_document_filter_excludes_options(fields: dict[str, Any], refused: list[str]) -> None:
    assert names(option_violations(options(document_filters=FILTERS, **fields))) == refused


def spec(name: str, kind: Kind = Kind.COLLECTION, **indexes: dict[str, Any]) -> CollectionSpec:
    return CollectionSpec(Namespace("d", name), kind, indexes=indexes)


TTL: dict[str, Any] = {"t": {"name": "t", "key": {"t": 1}, "expireAfterSeconds": 1}}
LISTED = [
    spec("a", Kind.TIME_SERIES),
    spec("b", Kind.VIEW),
    spec("c", Kind.TIME_SERIES),
    spec("d", **TTL),
    spec("e", x={"name": "x", "key": {"x": 1}}),
]
NEVER: dict[str, Any] = {"build_indexes": BuildIndexes.NEVER}


@pytest.mark.parametrize(
    "fields, version, expected",
    [
        ({}, (6, 0, 0), []),
        ({}, (5, 0, 31), ["UnsupportedCollection"]),
        (NEVER, (6, 0, 0), ["TTLNotVerifiable"]),
        (NEVER, (5, 0, 31), ["UnsupportedCollection", "TTLNotVerifiable"]),
        ({**NEVER, "verification": False}, (6, 0, 0), []),
        ({"build_indexes": BuildIndexes.EXCLUDE_HASHED}, (6, 0, 0), []),
    ],
)
def test_collections_that_cannot_be_synced_are_named(
    fields: dict[str, Any], version: tuple[int, int, int], expected: list[str]
) -> None:
    found = list(definition_violations(target(**fields), facts(version=version), LISTED))
    assert names(found) == expected
    told = " ".join(texts(found))
    assert ("d.a, d.c." in told) == ("UnsupportedCollection" in expected)
    assert ("buildIndexes is never: t." in told) == ("TTLNotVerifiable" in expected)


BY_K = {"key": {"k": 1}, "unique": False}


def test_a_time_series_without_buckets_is_refused() -> None:
    # This is how servers of 9.0 list a time-series collection.
    series = replace(spec("a"), options={"timeseries": {"timeField": "t"}})
    assert names(definition_violations(target(), facts(), [series])) == ["UnsupportedCollection"]


@pytest.mark.parametrize("sharded", [False, True])
def test_a_sharded_time_series_is_named(sharded: bool) -> None:
    series = replace(spec("a", Kind.TIME_SERIES), shard_key=BY_K)
    found = list(definition_violations(target(sharded), facts(), [series, spec("e")]))
    assert names(found) == ["CollectionNotShardable"]
    assert texts(found) == ["d.a is a sharded time-series collection, which cannot be synced."]


@pytest.mark.parametrize(
    "sharded, of_source, fields, expected",
    [
        (False, None, {}, None),
        (False, BY_K, {}, None),
        (False, {}, {}, None),
        (True, BY_K, {}, BY_K),
        (True, {}, {}, {}),
        (True, None, SHARDING, {}),
        (True, None, sharding_of({"k": 1}), BY_K),
    ],
)
def test_the_target_decides_the_shard_key(
    sharded: bool, of_source: Any, fields: dict[str, Any], expected: Any
) -> None:
    definition = replace(spec("e"), shard_key=of_source)
    assert destined(definition, target(sharded, **fields)).shard_key == expected


def test_an_option_that_the_destination_does_not_know_is_left_out() -> None:
    definition = replace(spec("e"), options={"recordPreImages": True, "validationLevel": "off"})
    newer = replace(target(), unknown_options=frozenset({"recordPreImages"}))
    assert destined(definition, newer).options == {"validationLevel": "off"}
    assert destined(definition, target()).options == definition.options


def test_a_unique_index_beside_the_shard_key_fits_a_replica_set() -> None:
    definition = replace(UNIQUE, shard_key=BY_K)
    assert names(definition_violations(target(), facts(), [definition])) == []
    assert names(definition_violations(target(True), facts(), [definition])) == [
        "UniqueIndexIncompatible"
    ]


UNIQUE = spec("u", q={"name": "q", "key": {"q": 1}, "unique": True})
CAPPED = CollectionSpec(Namespace("d", "l"), Kind.COLLECTION, options={"capped": True})


@pytest.mark.parametrize(
    "fields, expected",
    [
        (sharding_of({"x": 1}), []),
        (sharding_of({"y": 1}), ["ShardKeyIndexMissing"]),
        (sharding_of({"y": 1}, createSupportingIndexes=True), []),
        ({**sharding_of({"x": 1}), **NEVER}, []),
        ({**sharding_of({"y": 1}), **NEVER}, ["ShardKeyIndexMissing"]),
        (sharding_of({"y": 1}, collection="not there"), []),
        *((sharding_of({"_id": 1}, collection=name), ["CollectionNotShardable"]) for name in "abl"),
        (sharding_of({"_id": 1}, collection="u"), ["UniqueIndexIncompatible"]),
        ({**sharding_of({"_id": 1}, collection="u"), **NEVER}, []),
        (sharding_of({"q": "hashed"}, collection="u"), ["ShardKeyIndexMissing"]),
        (sharding_of({"q": 1}, collection="u"), []),
    ],
)
def test_collections_that_cannot_be_sharded_as_requested_are_named(
    fields: dict[str, Any], expected: list[str]
) -> None:
    chosen = target(sharded=True, **{"verification": False, **fields})
    found = list(definition_violations(chosen, facts(), [*LISTED, UNIQUE, CAPPED]))
    assert names(found) == expected
    entry = fields["sharding"]["shardingEntries"][0]
    assert all(f"d.{entry['collection']} " in text for text in texts(found))


@pytest.mark.parametrize(
    "length, entry, database, expected",
    [
        (233, "e" * 233, "d", []),
        (234, "e" * 234, "d", ["CollectionNotShardable"]),
        (234, "another", "d", []),
        (233, "e" * 233, "dd", ["CollectionNotShardable"]),
    ],
)
def test_a_name_that_is_too_long_for_a_sharded_collection_is_refused(
    length: int, entry: str, database: str, expected: list[str]
) -> None:
    renames = {} if database == "d" else remap(("d", database))
    definition = spec("e" * length)
    given = {**sharding_of({"_id": 1}, collection=entry), **renames}
    found = list(definition_violations(target(True, **given), facts(), [definition]))
    assert names(found) == expected
    assert all(f"{database}.{entry} " in text and "not 236" in text for text in texts(found))
    assert names(definition_violations(target(**renames), facts(), [definition])) == []


def test_an_entry_that_the_filter_leaves_out_is_named() -> None:
    left_out = frozenset({Namespace("d", "e")})
    found = list(
        cluster_violations(
            options(**sharding_of({"a": 1})), findings({}, sharded(2), left_out=left_out)
        )
    )
    assert names(found) == ["InvalidShardingEntry"]
    assert texts(found) == ["sharding.shardingEntries[0], d.e: the filter excludes it."]


def test_the_contents_of_the_source_are_checked() -> None:
    contents = tuple(map(Measured, LISTED))
    found = cluster_violations(options(**NEVER), findings(contents=contents))
    assert names(found) == ["TTLNotVerifiable"]


@pytest.mark.parametrize(
    "contents, expected",
    [
        (None, ["NotAuthorized"]),
        ((), []),
        ((Measured(LISTED[1]), Measured(LISTED[3])), []),
        ((Measured(LISTED[0]),), ["NotAuthorized"]),
    ],
)
def test_bucket_privileges_are_checked_if_time_series_may_exist(
    contents: tuple[Measured, ...] | None, expected: list[str]
) -> None:
    found = findings({"bucket_privileges": frozenset()}, contents=contents)
    assert names(cluster_violations(options(), found)) == expected


@pytest.mark.parametrize("mode", CopyReadPreference)
def test_only_a_replica_set_with_a_suitable_member_is_read_by_preference(
    mode: CopyReadPreference,
) -> None:
    given = options(copy_read_preference=mode)
    is_primary = mode is CopyReadPreference.PRIMARY
    sharded_source = findings(sharded(2), sharded(2))
    expected = [] if is_primary else ["ReadPreferenceNotApplicable"]
    assert names(cluster_violations(given, sharded_source)) == expected
    expected = [] if is_primary else ["NoMemberToCopy"]
    assert names(cluster_violations(given, findings(readable=False))) == expected
    assert names(cluster_violations(given, findings())) == []


def test_all_violations_are_found_at_once() -> None:
    found = findings(
        {"topology": Topology.SHARDED, "version": (7, 0, 0)},
        {"version": (5, 0, 0), "privileges": frozenset()},
        occupied=("a",),
        metadata=(ReservedDatabase("__mdb_internal_mongosync", frozenset()),),
        bad_patterns=("x",),
    )
    assert names(cluster_violations(options(**SHARDING), found)) == [
        "InvalidRequest",
        "ShardingNotApplicable",
        "UnsupportedServerVersion",
        "UnsupportedServerVersion",
        "MetadataLeftOver",
        "DestinationNotEmpty",
        *("NotAuthorized",) * 4,
    ]


def test_no_violation_raises_nothing() -> None:
    raise_all(iter(()))


def test_several_violations_are_raised_under_the_first_name() -> None:
    with pytest.raises(OperationError) as raised:
        raise_all(name_violations(options("x", "x"), CLUSTERS))
    assert raised.value.kind.name == "UnknownCluster"
    assert str(raised.value) == (
        "UnknownCluster: The field source is x, but the clusters are named cluster0 and cluster1. "
        "The field destination is x, but the clusters are named cluster0 and cluster1. "
        "Use cluster0 and cluster1, in either order. "
        "SameCluster: The fields source and destination are both x. "
        "Name two different clusters, and check both connection strings. "
        "A cluster and its copy with the same ID are not supported."
    )


def test_violations_of_one_kind_are_listed_without_names() -> None:
    with pytest.raises(OperationError) as raised:
        raise_all(name_violations(options("x", "y"), CLUSTERS))
    assert raised.value.description == (
        "The field source is x, but the clusters are named cluster0 and cluster1. "
        "The field destination is y, but the clusters are named cluster0 and cluster1."
    )


@pytest.mark.parametrize(
    "name, kind, expected",
    [
        ("d.a", Kind.COLLECTION, []),
        ("d.b", Kind.COLLECTION, []),
        ("e.a", Kind.COLLECTION, ["NamespaceCollision"]),
        ("d.v", Kind.VIEW, ["NotRenamable"]),
        ("E.x", Kind.COLLECTION, ["NamespaceCollision"]),
    ],
)
def test_definitions_that_cannot_have_their_names_are_refused(
    name: str, kind: Kind, expected: list[str]
) -> None:
    renamed = CollectionSpec(Namespace("d", "a"), Kind.COLLECTION, b"u")
    database, _, collection = name.partition(".")
    view = {"viewOn": "a", "pipeline": []} if kind is Kind.VIEW else {}
    definitions = [renamed, CollectionSpec(Namespace(database, collection), kind, b"v", view)]
    found = definition_violations(target(**remap(("d.a", "e.a"))), facts(), definitions)
    assert names(found) == expected
    assert names(definition_violations(target(), facts(), definitions)) == []


@pytest.mark.parametrize(
    "name, kind, expected",
    [
        ("f.a", Kind.COLLECTION, ["NamespaceCollision"]),
        ("f.a", Kind.TIME_SERIES, ["NamespaceCollision"]),
        ("f.a", Kind.VIEW, ["NamespaceCollision"]),
        ("e.a", Kind.COLLECTION, []),
        ("e.b", Kind.COLLECTION, []),
        ("x.a", Kind.VIEW, []),
    ],
)
def test_a_reversible_sync_refuses_names_that_cannot_be_mapped_back(
    name: str, kind: Kind, expected: list[str]
) -> None:
    database, _, collection = name.partition(".")
    view = {"viewOn": "x", "pipeline": []} if kind is Kind.VIEW else {}
    definition = CollectionSpec(Namespace(database, collection), kind, b"u", view)
    renamed = remap(("e", "f"), ("e.a", "g.a"))
    for fields, refused in ((REVERSIBLE, expected), ({}, [])):
        found = definition_violations(target(**fields, **renamed), facts(), [definition])
        assert names(found) == refused


def test_shard_keys_are_requested_for_names_on_the_source() -> None:
    asked = {**sharding_of({"n": 1}, collection="a"), **remap(("d.a", "e.b"))}
    definition = CollectionSpec(Namespace("d", "a"), Kind.COLLECTION, b"u")
    wanted = destined(definition, target(True, **asked))
    assert wanted.namespace == Namespace("e", "b")
    assert wanted.shard_key == {"key": {"n": 1}, "unique": False}
