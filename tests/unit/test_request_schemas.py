"""The OpenAPI schema of a start request refuses the same requests as the code, as far as JSON Schema allows."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from syncsvc.rules.sharding import entry_violations
from syncsvc.schemas import StartSchema
from tests.support.descriptions import DESCRIPTIONS
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import load

NAMES = {"source": "cluster0", "destination": "cluster1"}
COMPONENTS = DESCRIPTIONS["syncsvc"]["components"]
VALIDATOR = Draft202012Validator({"$ref": "#/components/schemas/Start", "components": COMPONENTS})

NAME = st.sampled_from(
    [
        "",
        "d",
        "admin",
        "administration",
        "local",
        "config",
        "mongosync_reserved_x",
        "__mdb_internal",
    ]
    + ["mongosync_internal_", "a.b", "system.js", "systems", "system.", "$x", "é"]
)
BAD_NAME = st.sampled_from(["a b", "a/b", "a\\b", 'a"b', "a$b", ".a", "a\0b", "a" * 64, "a" * 256])
FIELD = st.sampled_from(["", "a", "b", "a.b", "a..b", ".a", "a.", "$a", "a.$b", "a$", "."])
DIRECTION = st.sampled_from([1, -1, 0, 2, "hashed", "text", True, None])
KEY = st.lists(st.dictionaries(FIELD, DIRECTION, max_size=2), max_size=3)


def is_described(fields: Mapping[str, Any]) -> bool:
    return bool(VALIDATOR.is_valid({**NAMES, **fields}))


def is_accepted(fields: Mapping[str, Any]) -> bool:
    try:
        options = load(StartSchema(), {**NAMES, **fields})
    except OperationError:
        return False
    return not options.sharding or not [*entry_violations(options.sharding)]


def entry(database: str, collection: str, key: list[Any]) -> dict[str, Any]:
    shard_key = {"key": key}
    named = {"database": database, "collection": collection, "shardCollection": shard_key}
    return {"sharding": {"shardingEntries": [named]}}


@given(key=KEY)
@example([{"a": -1}])
@example([{"a": 1}, {"b": "hashed"}])
@example([{"a": "hashed"}, {"b": "hashed"}])
def test_shard_keys(key: list[dict[str, Any]]) -> None:
    fields = entry("d", "c", key)
    names = [name for each in key for name in each]
    # Only a repeated field name cannot be expressed in the schema.
    if len(names) == len({*names}):
        assert is_described(fields) == is_accepted(fields)


@given(database=NAME, collection=NAME)
def test_names_in_sharding_entries(database: str, collection: str) -> None:
    fields = entry(database, collection, [{"a": 1}])
    assert is_described(fields) == is_accepted(fields)


@given(
    database=NAME, collection=NAME, name=st.sampled_from(["includeNamespaces", "excludeNamespaces"])
)
def test_names_in_filters(database: str, collection: str, name: str) -> None:
    fields = {name: [{"database": database, "collections": [collection]}]}
    assert is_described(fields) == is_accepted(fields)


@given(database=NAME | BAD_NAME, collection=NAME | BAD_NAME)
def test_new_names(database: str, collection: str) -> None:
    other = {"database": "other", "collection": "c"}
    for named, there in (
        ({"database": database, "collection": collection}, other),
        ({"database": database}, {"database": "other"}),
        ({"database": database}, other),
        ({"database": database, "collection": collection}, {"database": "other"}),
    ):
        for pair in ({"from": named, "to": there}, {"from": there, "to": named}):
            fields = {"namespaceRemap": [pair]}
            assert is_described(fields) == is_accepted(fields)


@pytest.mark.parametrize("database", [{}, {"database": "d"}])
@pytest.mark.parametrize("regex", [{}, {"databaseRegex": {"pattern": "d"}}])
def test_a_filter_has_one_kind_of_database(database: dict[str, Any], regex: dict[str, Any]) -> None:
    fields = {"includeNamespaces": [{**database, **regex}]}
    assert is_described(fields) == is_accepted(fields) == (bool(database) != bool(regex))


@pytest.mark.parametrize("name", ["source", "destination"])
def test_there_are_two_clusters(name: str) -> None:
    assert is_described({name: "cluster0"}) and not is_described({name: "cluster2"})


@given(instances=st.lists(st.sampled_from(["", "a", "b", "c"]), max_size=4))
def test_instances(instances: list[str]) -> None:
    assert is_described({"instances": instances}) == is_accepted({"instances": instances})
