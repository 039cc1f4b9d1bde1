"""Tests which differences between the definitions of two clusters are reported, and which are ignored."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import bson
import pytest
from bson import Decimal128, Int64
from bson.raw_bson import RawBSONDocument

from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.compare.definitions import compare_definitions

INDEX = {"v": 2, "key": {"a": 1, "b": -1}, "name": "ab", "sparse": True}
OPTIONS = {"validator": {"a": {"$gt": 1}}, "collation": {"locale": "de", "strength": 2}}


def spec(
    name: str = "c",
    kind: Kind = Kind.COLLECTION,
    options: dict[str, Any] | None = None,
    *indexes: dict[str, Any],
    uuid: bytes | None = None,
) -> CollectionSpec:
    by_name = {index["name"]: index for index in indexes}
    return CollectionSpec(Namespace("d", name), kind, uuid, options or {}, by_name)


def differences(wanted: list[CollectionSpec], found: list[CollectionSpec]) -> list[str]:
    return [str(mismatch) for mismatch in compare_definitions(wanted, found)]


def test_equal_definitions_have_no_difference() -> None:
    one = [spec("a", Kind.COLLECTION, OPTIONS, INDEX), spec("v", Kind.VIEW, {"viewOn": "a"})]
    assert differences(one, one[::-1]) == []


def test_defaults_that_collmod_leaves_are_ignored() -> None:
    left = {"validator": {}, "validationLevel": "strict", "validationAction": "error"}
    assert differences([spec()], [spec(options=left)]) == []
    assert differences([spec(options=left)], [spec()]) == []
    assert differences([spec()], [spec(options={**left, "validationAction": "warn"})]) == [
        "d.c: option validationAction is extra on the destination"
    ]


def test_a_limit_without_effect_is_ignored() -> None:
    capped = {"capped": True, "size": 4096}
    assert differences([spec(options=capped)], [spec(options={**capped, "max": 2147483647})]) == []


def test_auto_index_id_is_ignored() -> None:
    options = {"idIndex": {"v": 2, "key": {"_id": 1}, "name": "_id_"}}
    left, right = spec(options={**options, "autoIndexId": True}), spec(options=options)
    assert differences([left], [right]) == differences([right], [left]) == []


MIXED = "timeseriesBucketsMayHaveMixedSchemaData=true"
CHANGED = "timeseriesBucketingParametersHaveChanged=false"


@pytest.mark.parametrize(
    "wanted, found",
    [
        (None, f"app_metadata=({MIXED})"),
        ("", f"app_metadata=({CHANGED},{MIXED})"),
        ("block_compressor=zlib", f"block_compressor=zlib,app_metadata=({MIXED})"),
        ("app_metadata=(x=y)", f"app_metadata=({MIXED},x=y)"),
        ("app_metadata=(x=y,z=t)", f"app_metadata=(x=y,{CHANGED},z=t,{MIXED})"),
    ],
)
def test_flags_about_buckets_are_ignored(wanted: str | None, found: str) -> None:
    """Compare time-series collections of which only one has the flags that servers add to its options.

    The options are in the form of the server's tests `backwards_compatible_timeseries_catalog_options.js` and
    `wiredtiger_storage_options_config_string_flags_parser_test.cpp`.
    """
    plain, flagged = (
        spec(kind=Kind.TIME_SERIES, options={} if each is None else stored_with(each))
        for each in (wanted, found)
    )
    assert differences([plain], [flagged]) == differences([flagged], [plain]) == []
    other = spec(kind=Kind.TIME_SERIES, options=stored_with("block_compressor=snappy"))
    assert len(differences([other], [flagged])) == 1


def stored_with(configuration: str) -> dict[str, Any]:
    return {"storageEngine": {"wiredTiger": {"configString": configuration}}}


def test_the_uuid_is_ignored() -> None:
    assert differences([spec(uuid=b"a" * 16)], [spec(uuid=b"b" * 16)]) == []


@pytest.mark.parametrize(
    "kind, text",
    [
        (Kind.COLLECTION, "a collection"),
        (Kind.VIEW, "a view"),
        (Kind.TIME_SERIES, "a time-series collection"),
    ],
)
def test_missing_and_extra_collections_are_reported(kind: Kind, text: str) -> None:
    there = [spec("x", kind)]
    assert differences(there, []) == [f"d.x: it is missing on the destination ({text})"]
    assert differences([], there) == [f"d.x: it is extra on the destination ({text})"]


def test_a_different_type_is_one_difference() -> None:
    found = differences([spec(options={"a": 1})], [spec(kind=Kind.VIEW, options={"b": 1})])
    assert found == [
        "d.c: its type is different (a collection on the source, a view on the destination)"
    ]


def sides(source: str, destination: str) -> str:
    return f"{source} expected, {destination} on the destination"


@pytest.mark.parametrize(
    "wanted, found, difference",
    [
        ({"max": 1}, {}, "option max is missing on the destination"),
        ({}, {"max": 1}, "option max is extra on the destination"),
        ({"max": 1}, {"max": 2}, f"option max is different ({sides('int 1', 'int 2')})"),
        (
            {"validator": {"a": {"$gt": 1}}},
            {"validator": {"a": {"$gt": 1.0}}},
            f"option validator is different (validator.a.$gt: {sides('int 1', 'double 1.0')})",
        ),
    ],
)
def test_options_are_compared(
    wanted: dict[str, Any], found: dict[str, Any], difference: str
) -> None:
    assert differences([spec(options=wanted)], [spec(options=found)]) == [f"d.c: {difference}"]


@pytest.mark.parametrize("number", [60, 60.0, Int64(60), Decimal128("60.0")])
def test_the_type_of_a_number_is_ignored(number: Any) -> None:
    one = spec("c", Kind.COLLECTION, {"size": 60}, {**INDEX, "expireAfterSeconds": 60})
    other = spec("c", Kind.COLLECTION, {"size": number}, {**INDEX, "expireAfterSeconds": number})
    assert differences([one], [other]) == []


def test_the_type_of_a_number_in_an_array_is_ignored_except_in_expressions() -> None:
    def options(number: float) -> dict[str, Any]:
        field = {"path": "a", "queries": [{"queryType": "equality", "contention": number}]}
        return {"encryptedFields": {"fields": [field]}}

    assert differences([spec(options=options(8))], [spec(options=options(8.0))]) == []
    assert len(differences([spec(options=options(8))], [spec(options=options(9))])) == 1
    whole, double = ({"pipeline": [{"$limit": number}]} for number in (8, 8.0))
    (found,) = differences([spec(kind=Kind.VIEW, options=whole)], [spec("c", Kind.VIEW, double)])
    assert found.startswith("d.c: option pipeline is different")


@pytest.mark.parametrize("number", [0.5, float("nan"), float("inf"), 1e300, Decimal128("NaN")])
def test_unusual_numbers_are_compared(number: Any) -> None:
    one, other = spec(options={"size": number}), spec(options={"size": 60})
    assert differences([one], [one]) == [] and len(differences([one], [other])) == 1


def test_only_the_order_within_an_option_counts() -> None:
    swapped = dict(reversed(OPTIONS.items()))
    assert differences([spec(options=OPTIONS)], [spec(options=swapped)]) == []
    within = {**OPTIONS, "collation": {"strength": 2, "locale": "de"}}
    assert len(differences([spec(options=OPTIONS)], [spec(options=within)])) == 1


@pytest.mark.parametrize(
    "index",
    [
        {**INDEX, "key": {"b": -1, "a": 1}},
        {**INDEX, "key": {"a": 2, "b": -1}},
        {**INDEX, "key": {"a": "1", "b": -1}},
        {**INDEX, "unique": True},
        {**INDEX, "sparse": False},
        {**INDEX, "v": 1},
        {name: value for name, value in INDEX.items() if name != "sparse"},
    ],
)
def test_a_different_index_with_the_same_name_is_a_difference(index: dict[str, Any]) -> None:
    (found,) = differences(
        [spec("c", Kind.COLLECTION, {}, INDEX)], [spec("c", Kind.COLLECTION, {}, index)]
    )
    assert found.startswith("d.c: index ab is different (")


def test_the_differing_options_of_an_index_are_named() -> None:
    other = {**INDEX, "key": {"b": -1, "a": 1}, "sparse": False, "collation": {"locale": "de"}}
    (found,) = differences(
        [spec("c", Kind.COLLECTION, {}, INDEX)], [spec("c", Kind.COLLECTION, {}, other)]
    )
    assert "collation: extra on the destination (object {'locale': 'de'})" in found
    assert f"sparse: {sides('bool true', 'bool false')}" in found
    assert "key: the order of the fields differs" in found


def test_the_order_of_an_indexs_options_is_ignored() -> None:
    swapped = dict(reversed(INDEX.items()))
    assert (
        differences(
            [spec("c", Kind.COLLECTION, {}, INDEX)], [spec("c", Kind.COLLECTION, {}, swapped)]
        )
        == []
    )


def test_a_missing_and_an_extra_index_are_named() -> None:
    other = {**INDEX, "name": "other"}
    assert differences(
        [spec("c", Kind.COLLECTION, {}, INDEX)], [spec("c", Kind.COLLECTION, {}, other)]
    ) == [
        "d.c: index ab is missing on the destination",
        "d.c: index other is extra on the destination",
    ]


def test_all_differences_come_in_the_order_of_names() -> None:
    wanted = [spec("b"), spec("a", options={"z": 1, "y": 1})]
    assert [text.partition(" is ")[0] for text in differences(wanted, [spec("a"), spec("c")])] == [
        "d.a: option y",
        "d.a: option z",
        "d.b: it",
        "d.c: it",
    ]


def keyed(shard_key: dict[str, Any] | None) -> CollectionSpec:
    return CollectionSpec(Namespace("d", "c"), Kind.COLLECTION, shard_key=shard_key)


def by(key: dict[str, Any], unique: bool = False) -> dict[str, Any]:
    return {"key": key, "unique": unique}


@pytest.mark.parametrize(
    "source, destination, expected",
    [
        (by({"a": 1}), by({"a": 1.0}), None),
        ({}, {}, None),
        (None, by({"a": 1}), None),
        (by({"a": 1}), None, None),
        (None, None, None),
        (by({"a": 1}), {}, "missing on the destination"),
        ({}, by({"a": 1}), "extra on the destination"),
        (
            by({"a": 1}),
            by({"a": "hashed"}),
            "different (key.a: " + sides("int 1", 'string "hashed"') + ")",
        ),
        (
            by({"a": 1}),
            by({"a": 1, "b": 1}),
            "different (key.b: extra on the destination (int 1))",
        ),
        (
            by({"a": 1, "b": 1}),
            by({"b": 1, "a": 1}),
            "different (key: the order of the fields differs)",
        ),
        (
            by({"a": 1}),
            by({"a": 1}, True),
            f"different (unique: {sides('bool false', 'bool true')})",
        ),
    ],
)
def test_shard_keys_are_compared_if_both_clusters_are_sharded(
    source: dict[str, Any] | None, destination: dict[str, Any] | None, expected: str | None
) -> None:
    found = differences([keyed(source)], [keyed(destination)])
    assert found == ([] if expected is None else [f"d.c: its shard key is {expected}"])


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, None),
        ({"name": "of its own"}, None),
        ({"key": {"a": 1.0}}, None),
        ({"key": {"a": 1, "syncsvc": 1}}, None),
        ({"key": {"a": 1, "b": 1}}, "extra"),
        ({"key": {"a": -1}}, "extra"),
        ({"unique": True}, "extra"),
        ({"sparse": True}, "extra"),
    ],
)
def test_an_index_for_a_shard_key_of_the_destination_alone_is_not_extra(
    fields: dict[str, Any], expected: str | None
) -> None:
    index = {"v": 2, "key": {"a": 1}, "name": "a_1", **fields}
    there = replace(spec("c", Kind.COLLECTION, None, index), shard_key=by({"a": 1}))
    named = [f"d.c: index {index['name']} is extra on the destination"]
    assert differences([keyed(None)], [there]) == ([] if expected is None else named)
    assert differences([keyed(by({"a": 1}))], [there]) == named


def test_a_supporting_index_is_compared_if_the_source_has_it() -> None:
    index = {"v": 2, "key": {"a": 1}, "name": "a_1"}
    there = replace(spec("c", Kind.COLLECTION, None, index), shard_key=by({"a": 1}))
    assert differences([spec("c", Kind.COLLECTION, None, {**index, "unique": True})], [there]) == [
        "d.c: index a_1 is different (unique: missing on the destination (bool true))"
    ]


def test_expressions_that_are_bytes_are_compared_as_bytes() -> None:
    empty = {"validator": RawBSONDocument(bson.encode({}))}
    text = bson.encode({"f": "s"})
    symbol = text.replace(b"\x02f", b"\x0ef")
    odd, usual = ({"validator": RawBSONDocument(each)} for each in (symbol, text))
    assert differences([spec(options=empty)], [spec()]) == []
    assert differences([spec(options=odd)], [spec(options=odd)]) == []
    (found,) = differences([spec(options=odd)], [spec(options=usual)])
    assert found.startswith("d.c: option validator is different (validator.f: ")
