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
    """Return the fields of a start request that shards one collection by this key; `fields` are added to its entry."""
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


INDEXES = (
    "Must be one of: beforeDataCopy, afterDataCopy, excludeHashed, excludeHashedAfterCopy, never"
)
BLOCKING = "Must be one of sourceAndDestination, destinationOnly, none, true or false"
KEY = "sharding.shardingEntries[0].shardCollection.key"
NULL = "Field may not be null"
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
    ({"eventSpool": True}, "eventSpool: Must be one of: auto, always, never"),
    ({"eventSpool": "sometimes"}, "eventSpool: Must be one of: auto, always, never"),
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
    ({"documentFilter": {}}, "documentFilter: Unknown field"),
    ({"namespaceRemap": []}, "namespaceRemap: Unknown field"),
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
        ({}, ".database", "Give either database or databaseRegex"),
        ({"database": "d", "databaseRegex": {"pattern": "x"}}, ".database", "Give either"),
        ({"database": ""}, ".database", "Shorter than minimum length 1"),
        ({"database": 1}, ".database", "Not a valid string"),
        ({"databaseRegex": {}}, ".databaseRegex.pattern", "Missing data for required field"),
        ({"database": "d", "collections": []}, ".collections", "Shorter than minimum"),
        ({"database": "d", "collections": ["a", ""]}, ".collections[1]", "Shorter than"),
        ({"database": "d", "collectionsRegex": "x"}, ".collectionsRegex", "Invalid input type"),
        (
            {"database": "d", "collectionsRegex": {"pattern": "x", "options": "ig"}},
            ".collectionsRegex.options",
            "Only these letters are allowed: imxs",
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


@pytest.mark.parametrize("name", ["_schema", ""])
def test_an_unknown_field_is_named_whatever_its_name(name: str) -> None:
    (found,) = violations({**NAMES, name: 1})
    assert found != "the body: Unknown field"


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
