"""Request bodies are loaded as options, or refused with all violations and the paths of their fields."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from syncsvc.options import BuildIndexes, StartOptions, WriteBlocking
from syncsvc.saved.stored import StoredOptions
from syncsvc.schemas import StartSchema
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import INVALID_REQUEST, EmptySchema, load

NAMES = {"source": "cluster0", "destination": "cluster1"}


def options(**fields: Any) -> StartOptions:
    loaded = load(StartSchema(), {**NAMES, **fields})
    assert isinstance(loaded, StartOptions)
    return loaded


def violations(body: dict[str, Any]) -> list[str]:
    with pytest.raises(OperationError) as raised:
        load(StartSchema(), body)
    assert raised.value.kind is INVALID_REQUEST
    return raised.value.description.removesuffix(".").split("; ")


def entry(*key: Any, **fields: Any) -> dict[str, Any]:
    """Return the part of a start request that shards the collection d.c by the key `key`.

    `fields` are further fields of the entry in `shardingEntries`.
    """
    collection = {"database": "d", "collection": "c", "shardCollection": {"key": list(key)}}
    return {"sharding": {"shardingEntries": [{**collection, **fields}]}}


def test_instances_keep_their_order() -> None:
    assert options(instances=["b", "a"]).instances == ("b", "a")


def test_source_and_destination_are_sufficient() -> None:
    assert options() == StartOptions("cluster0", "cluster1")


@pytest.mark.parametrize(
    "value, mode",
    [
        ("sourceAndDestination", WriteBlocking.SOURCE_AND_DESTINATION),
        (True, WriteBlocking.SOURCE_AND_DESTINATION),
        ("destinationOnly", WriteBlocking.DESTINATION_ONLY),
        ("none", WriteBlocking.NONE),
        (False, WriteBlocking.NONE),
    ],
)
def test_write_blocking_is_a_name_or_a_boolean(value: object, mode: WriteBlocking) -> None:
    assert options(enableUserWriteBlocking=value).write_blocking is mode


@pytest.mark.parametrize(
    "value, enabled", [({}, True), ({"enabled": True}, True), ({"enabled": False}, False)]
)
def test_verification_is_enabled_by_default(value: dict[str, bool], enabled: bool) -> None:
    assert options(verification=value).verification is enabled


@pytest.mark.parametrize("mode", BuildIndexes)
def test_build_indexes_is_a_name(mode: BuildIndexes) -> None:
    assert options(buildIndexes=mode.value).build_indexes is mode


FILTERS = [
    {"database": "d"},
    {"database": "d", "collections": ["a", "b"]},
    {"database": "d", "collectionsRegex": {"pattern": "^a", "options": "ims"}},
    {"databaseRegex": {"pattern": "^a"}, "collectionsRegex": {"pattern": "b", "options": ""}},
]


@pytest.mark.parametrize("name", ["includeNamespaces", "excludeNamespaces"])
def test_filters_are_kept_as_they_are(name: str) -> None:
    loaded = options(**{name: FILTERS})
    assert [*loaded.include_namespaces, *loaded.exclude_namespaces] == FILTERS


@pytest.mark.parametrize("direction", [1, -1, "hashed"])
def test_a_shard_key_has_directions(direction: object) -> None:
    sharding = options(**entry({"a": direction}, {"b.c": 1})).sharding
    assert sharding is not None
    assert sharding["shardingEntries"][0]["shardCollection"]["key"] == [
        {"a": direction},
        {"b.c": 1},
    ]
    assert sharding["createSupportingIndexes"] is False


def _renaming(here: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    return {"namespaceRemap": [{"from": here, "to": there}]}


INDEXES = (
    "Must be one of: beforeDataCopy, afterDataCopy, excludeHashed, excludeHashedAfterCopy, never"
)
BLOCKING = "Must be one of sourceAndDestination, destinationOnly, none, true or false"
KEY = "sharding.shardingEntries[0].shardCollection.key"
NULL = "Field may not be null"


def _document_filter(query: Any, database: str = "d", collection: str = "c") -> dict[str, Any]:
    element = {"database": database, "collection": collection, "filter": query}
    return {"documentFilter": [element]}


BAD_VALUES: list[tuple[dict[str, Any], str]] = [
    *(({name: None}, f"{name}: {NULL}") for name in StartSchema().fields),
    ({"source": 1}, "source: Not a valid string"),
    ({"source": ""}, "source: Shorter than minimum length 1"),
    ({"destination": ["x"]}, "destination: Not a valid string"),
    ({"buildIndexes": "always"}, f"buildIndexes: {INDEXES}"),
    ({"buildIndexes": True}, f"buildIndexes: {INDEXES}"),
    ({"buildIndexes": {}}, f"buildIndexes: {INDEXES}"),
    ({"enableUserWriteBlocking": "all"}, f"enableUserWriteBlocking: {BLOCKING}"),
    ({"enableUserWriteBlocking": 1}, f"enableUserWriteBlocking: {BLOCKING}"),
    ({"enableUserWriteBlocking": []}, f"enableUserWriteBlocking: {BLOCKING}"),
    ({"reversible": 1}, "reversible: Must be true or false"),
    ({"reversible": "true"}, "reversible: Must be true or false"),
    ({"preExistingDestinationData": "no"}, "preExistingDestinationData: Must be true or false"),
    ({"detectRandomId": 0}, "detectRandomId: Must be true or false"),
    ({"skipDiskSpaceCheck": "true"}, "skipDiskSpaceCheck: Must be true or false"),
    ({"instances": "a"}, "instances: Not a valid list"),
    ({"instances": ["a", ""]}, "instances[1]: Shorter than minimum length 1"),
    ({"instances": [1]}, "instances[0]: Not a valid string"),
    (
        {"instances": ["b", "a", "c", "b", "a"]},
        "instances: Must contain each ID only once, but repeats a, b",
    ),
    ({"renamedOutOfFilter": "keep"}, "renamedOutOfFilter: Must be one of: fail, drop"),
    ({"presplit": "chunks"}, "presplit: Must be one of: sample, source, none"),
    ({"presplit": True}, "presplit: Must be one of: sample, source, none"),
    ({"eventSpool": True}, "eventSpool: Must be one of: auto, always, never"),
    ({"eventSpool": "sometimes"}, "eventSpool: Must be one of: auto, always, never"),
    (
        {"copyReadPreference": "hidden"},
        "copyReadPreference: Must be one of: primary, primaryPreferred, secondary, secondaryPreferred, nearest",
    ),
    (
        {"copyReadPreferenceTags": [{"a": "b"}]},
        "copyReadPreferenceTags: Must be empty if copyReadPreference is primary",
    ),
    (
        {"copyReadPreference": "secondary", "copyReadPreferenceTags": [{"a": 1}]},
        "copyReadPreferenceTags[0].a.value: Not a valid string",
    ),
    ({"usersAndRoles": True}, "usersAndRoles: Invalid input type"),
    ({"usersAndRoles": {}}, "usersAndRoles.copy: Missing data"),
    ({"usersAndRoles": {"copy": 1}}, "usersAndRoles.copy: Must be true or false"),
    (
        {"usersAndRoles": {"copy": True, "databases": []}},
        "usersAndRoles.databases: Shorter than minimum length 1",
    ),
    (
        {"usersAndRoles": {"copy": True, "databases": ["a", 1]}},
        "usersAndRoles.databases[1]: Not a valid string",
    ),
    (
        {"usersAndRoles": {"copy": True, "onConflict": "overwrite"}},
        "usersAndRoles.onConflict: Must be one of: fail, skip",
    ),
    ({"usersAndRoles": {"copy": True, "users": []}}, "usersAndRoles.users: Unknown field"),
    ({"copyInNaturalOrder": True}, "copyInNaturalOrder: Not a valid list"),
    ({"copyInNaturalOrder": [{}]}, "copyInNaturalOrder[0].database: Missing data"),
    (
        {"copyInNaturalOrder": [{"database": "d", "collections": []}]},
        "copyInNaturalOrder[0].collections: Shorter than minimum",
    ),
    (
        {"copyInNaturalOrder": [{"database": "d", "collection": "c"}]},
        "copyInNaturalOrder[0].collection: Unknown field",
    ),
    ({"namespaceRemap": True}, "namespaceRemap: Not a valid list"),
    (
        _renaming({"database": "\ud800"}, {"database": "d"}),
        "namespaceRemap[0].from.database: Must not contain an unpaired surrogate",
    ),
    (
        {"includeNamespaces": [{"database": "d", "collections": ["c", "\udfff"]}]},
        "includeNamespaces[0].collections[1]: Must not contain an unpaired surrogate",
    ),
    ({"\ud800": 1}, "the body: Must not contain an unpaired surrogate"),
    ({"namespaceRemap": [{"to": {"database": "d"}}]}, "namespaceRemap[0].from: Missing data"),
    (_renaming({}, {"database": "d"}), "namespaceRemap[0].from.database: Missing data"),
    (
        _renaming({"database": "d", "collection": ""}, {"database": "e", "collection": "c"}),
        "namespaceRemap[0].from.collection: Shorter than minimum length 1",
    ),
    (
        _renaming({"database": "d", "collections": ["c"]}, {"database": "e"}),
        "namespaceRemap[0].from.collections: Unknown field",
    ),
    *(
        (
            _renaming({"database": "d"}, {"database": name}),
            "namespaceRemap[0].to.database: System and reserved databases cannot be renamed",
        )
        for name in (
            *("admin", "config", "local", "mongosync_reserved_for_internal_use"),
            "__mdb_internal_syncsvc_verifier",
        )
    ),
    (
        _renaming({"database": "local"}, {"database": "d"}),
        "namespaceRemap[0].from.database: System and reserved databases cannot be renamed",
    ),
    (
        _renaming({"database": "d"}, {"database": "a.b"}),
        "namespaceRemap[0].to.database: The name of a database must not contain",
    ),
    (
        _renaming({"database": "d"}, {"database": "ä" * 32}),
        "namespaceRemap[0].to.database: Longer than 63 bytes",
    ),
    (
        _renaming(
            {"database": "d", "collection": "c"}, {"database": "d", "collection": "system.x"}
        ),
        "namespaceRemap[0].to.collection: System collections cannot be renamed",
    ),
    (
        _renaming({"database": "d", "collection": "c"}, {"database": "d", "collection": "a$b"}),
        "namespaceRemap[0].to.collection: The name of a collection must not contain $",
    ),
    (
        _renaming({"database": "d"}, {"database": "a\0b"}),
        "namespaceRemap[0].to.database: The name of a database must not contain a space, a null",
    ),
    (
        _renaming({"database": "d", "collection": "c"}, {"database": "d", "collection": "a\0b"}),
        "namespaceRemap[0].to.collection: The name of a collection must not contain $ or a null character",
    ),
    (
        _renaming({"database": "d", "collection": "c"}, {"database": "d", "collection": ".c"}),
        "namespaceRemap[0].to.collection: The name of a collection must not begin with a dot",
    ),
    (
        _renaming({"database": "d", "collection": "c"}, {"database": "d", "collection": "c" * 256}),
        "namespaceRemap[0].to.collection: Longer than 255 bytes",
    ),
    (
        _renaming({"database": "d", "collection": "c"}, {"database": "e"}),
        "namespaceRemap[0].to: `to` must name a collection if",
    ),
    (
        _renaming({"database": "d"}, {"database": "e", "collection": "c"}),
        "namespaceRemap[0].to: `to` must name a collection if",
    ),
    (_renaming({"database": "d"}, {"database": "d"}), "namespaceRemap[0].to: Must differ"),
    ({"documentFilter": {}}, "documentFilter: Not a valid list"),
    (
        {"documentFilter": [{"database": "d", "collection": "c"}]},
        "documentFilter[0].filter: Missing data",
    ),
    (_document_filter({"a": {"$where": "1"}}), "documentFilter[0].filter: $where cannot select"),
    (_document_filter("a"), "documentFilter[0].filter: Must be a document"),
    (
        _document_filter({"$oid": "x"}),
        "documentFilter[0].filter: The value cannot be read as Extended JSON",
    ),
    (
        _document_filter({"a": 2**63}),
        "documentFilter[0].filter: The value cannot be written as BSON",
    ),
    (_document_filter({"a": 1}, database="admin"), "documentFilter: admin.c is a system"),
    *(
        (
            _document_filter({"a": 1}, database=name),
            "documentFilter[0].database: The name of a database must not contain a space, a null",
        )
        for name in ("my db", "a.b", "a/b", "a\\b", "a$b", 'a"b', "a\0b")
    ),
    (_document_filter({"a": 1}, database="d" * 64), "documentFilter[0].database: Longer than 63"),
    (
        _document_filter({"a": 1}, collection="system.views"),
        "documentFilter: d.system.views is a system",
    ),
    (
        {"documentFilter": 2 * _document_filter({"a": 1})["documentFilter"]},
        "documentFilter: The filters must name each collection only once, but d.c is repeated",
    ),
    ({"destinationDataHandling": "requireEmptyDestination"}, "destinationDataHandling: Unknown"),
    ({"verification": True}, "verification: Invalid input type"),
    ({"verification": {"enabled": "yes"}}, "verification.enabled: Must be true or false"),
    ({"verification": {"enabled": None}}, f"verification.enabled: {NULL}"),
    ({"verification": {"depth": 1}}, "verification.depth: Unknown field"),
    ({"includeNamespaces": {}}, "includeNamespaces: Not a valid list"),
    ({"excludeNamespaces": "d"}, "excludeNamespaces: Not a valid list"),
    ({"excludeNamespaces": ["d"]}, "excludeNamespaces[0]: Invalid input type"),
    ({"sharding": []}, "sharding: Invalid input type"),
    ({"sharding": {}}, "sharding.shardingEntries: Missing data for required field"),
    (
        {"sharding": {"shardingEntries": [], "createSupportingIndexes": 0}},
        "sharding.createSupportingIndexes: Must be true or false",
    ),
    (entry(), f"{KEY}: Shorter than minimum length 1"),
    (entry({}), f"{KEY}[0]: Must be a document with a single field"),
    (entry(1), f"{KEY}[0]: Must be a document with a single field"),
    (entry({"a": 1}, {"b": 1, "c": 1}), f"{KEY}[1]: Must be a document with a single field"),
    (entry({"a": 1}, database=""), "sharding.shardingEntries[0].database: Shorter than"),
    (entry({"a": 1}, unique=True), "sharding.shardingEntries[0].unique: Unknown field"),
    ({"soruce": "x"}, "soruce: Unknown field"),
    ({"a.b": 1}, "a.b: Unknown field"),
]


@pytest.mark.parametrize("fields, violation", BAD_VALUES)
def test_a_bad_value_is_refused_by_the_path_of_its_field(
    fields: dict[str, Any], violation: str
) -> None:
    (found,) = violations({**NAMES, **fields})
    assert found.startswith(violation)


@pytest.mark.parametrize("direction", [0, 2, True, "1", "text", None, [1], {"a": 1}, 1.5])
def test_a_shard_key_has_no_other_direction(direction: object) -> None:
    expected = f'{KEY}[0]: Must map a field name to 1 or "hashed"'
    assert violations({**NAMES, **entry({"a": direction})}) == [expected]


@pytest.mark.parametrize(
    "filters, path, violation",
    [
        ({}, ".database", "A filter must have either database or databaseRegex"),
        (
            {"database": "d", "databaseRegex": {"pattern": "x"}},
            ".database",
            "A filter must have either",
        ),
        ({"database": ""}, ".database", "Shorter than minimum length 1"),
        ({"database": 1}, ".database", "Not a valid string"),
        ({"databaseRegex": {}}, ".databaseRegex.pattern", "Missing data for required field"),
        ({"database": "d", "collections": []}, ".collections", "Shorter than minimum"),
        ({"database": "d", "collections": ["a", ""]}, ".collections[1]", "Shorter than"),
        ({"database": "d", "collectionsRegex": "x"}, ".collectionsRegex", "Invalid input type"),
        (
            {"database": "d", "collectionsRegex": {"pattern": "x", "options": "ig"}},
            ".collectionsRegex.options",
            "The options of the regular expression may contain only the letters i, m, x, s",
        ),
        ({"database": "d", "views": []}, ".views", "Unknown field"),
        ({"database": "admin"}, ".database", "System and reserved databases are never synced"),
        ({"database": "mongosync_reserved_x"}, ".database", "System and reserved databases"),
        ({"database": "d", "collections": ["system.js"]}, ".collections[0]", "System collections"),
    ],
)
@pytest.mark.parametrize("name", ["includeNamespaces", "excludeNamespaces"])
def test_a_bad_filter_is_refused_by_its_path(
    name: str, filters: dict[str, Any], path: str, violation: str
) -> None:
    (found,) = violations({**NAMES, name: [{"database": "fine"}, filters]})
    assert found.startswith(f"{name}[1]{path}: {violation}")


def test_all_violations_are_found_at_once() -> None:
    body = {"destination": 1, "reversible": 1, "verification": {"x": 1}, "y": 1}
    assert [each.partition(":")[0] for each in sorted(violations(body))] == [
        "destination",
        "reversible",
        "source",
        "verification.x",
        "y",
    ]


def test_all_violations_of_a_filter_are_found_at_once() -> None:
    assert len(violations({**NAMES, "includeNamespaces": [{"collections": []}]})) == 2


@pytest.mark.parametrize("name, shown", [("_schema", "_schema"), ("", '""')])
def test_an_unknown_field_is_named_whatever_its_name(name: str, shown: str) -> None:
    assert violations({**NAMES, name: 1}) == [f"{shown}: Unknown field"]


def test_a_command_without_options_refuses_any_field() -> None:
    assert load(EmptySchema(), {}) == {}
    with pytest.raises(OperationError) as raised:
        load(EmptySchema(), {"a": 1, "b": {}})
    assert {"a: Unknown field", "b: Unknown field"} == {*raised.value.description[:-1].split("; ")}


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
# Almost valid values reach more of the code than arbitrary ones.
near_filters = st.dictionaries(
    st.sampled_from(["database", "databaseRegex", "collections", "collectionsRegex", "x"]),
    json_values | st.just({"pattern": "a", "options": "q"}) | st.just(["a"]),
    max_size=4,
)
near_sharding = st.dictionaries(
    st.sampled_from(["createSupportingIndexes", "shardingEntries", "x"]),
    json_values | st.lists(st.just(entry({"a": 1})["sharding"]["shardingEntries"][0]), max_size=2),
    max_size=3,
)
bodies = st.dictionaries(
    st.sampled_from([*StartSchema().fields, "x"]) | st.text(max_size=4),
    json_values | st.lists(near_filters, max_size=2) | near_sharding,
    max_size=9,
)


@settings(max_examples=120)
@given(bodies, st.booleans())
def test_any_body_is_options_or_refused(body: dict[str, Any], named: bool) -> None:
    try:
        loaded = load(StartSchema(), {**NAMES, **body} if named else body)
    except OperationError as error:
        assert error.kind is INVALID_REQUEST and error.description
    else:
        assert isinstance(loaded, StartOptions)
        assert StoredOptions().load(StoredOptions().dump(loaded)) == loaded
