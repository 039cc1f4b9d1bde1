"""Tests how a collMod changes a definition: all of its changes, and the changes that are applied before the commit."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.engine.events.modification import immediate, modified
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind

PLAIN = {"v": 2, "key": {"a": 1}, "name": "a_1"}


def collection(options: dict[str, Any], *indexes: dict[str, Any]) -> CollectionSpec:
    named = {index["name"]: index for index in indexes}
    return CollectionSpec(Namespace("d", "c"), Kind.COLLECTION, b"u" * 16, options, named)


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, {}, {}),
        ({}, {"validator": {"n": 1}}, {"validator": {"n": 1}}),
        ({"validator": {"n": 1}}, {"validationLevel": "off"}, {"validator": {"n": 1}, "validationLevel": "off"}),
        ({"capped": True, "size": 5120}, {"cappedSize": 300}, {"capped": True, "size": 300}),
        ({"capped": True, "size": 5120}, {"cappedMax": 7}, {"capped": True, "size": 5120, "max": 7}),
        ({"max": 7}, {"cappedMax": 0}, {"max": 2147483647}),
        ({"max": 7}, {"cappedMax": -1}, {"max": 2147483647}),
        ({"expireAfterSeconds": 5}, {"expireAfterSeconds": 6}, {"expireAfterSeconds": 6}),
        ({"expireAfterSeconds": 5}, {"expireAfterSeconds": "off"}, {}),
        ({}, {"expireAfterSeconds": "off"}, {}),
    ],
)  # fmt: skip
def test_options(before: dict[str, Any], change: dict[str, Any], after: dict[str, Any]) -> None:
    assert modified(collection(before), change).options == after


SECONDS = {"granularity": "seconds", "bucketMaxSpanSeconds": 3600}
CUSTOM = {"bucketMaxSpanSeconds": 7200, "bucketRoundingSeconds": 7200}
LONGER = {"bucketMaxSpanSeconds": 9000, "bucketRoundingSeconds": 9000}
OF_SECONDS = {"bucketMaxSpanSeconds": 3600, "bucketRoundingSeconds": 60}
HOURS = {"granularity": "hours"}


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        (SECONDS, HOURS, HOURS),
        (SECONDS, CUSTOM, CUSTOM),
        (SECONDS, OF_SECONDS, SECONDS),
        (SECONDS, {}, SECONDS),
        (CUSTOM, LONGER, LONGER),
        (CUSTOM, HOURS, HOURS),
    ],
)
def test_buckets_of_time_series(
    before: dict[str, Any], change: dict[str, Any], after: dict[str, Any]
) -> None:
    """Test collMods with the custom bucket spans of MongoDB 6.3 and newer.

    The server's `applyTimeseriesOptionsModifications` removes the granularity when a custom bucket span is set, and
    vice versa; `isTimeseriesGranularityValidAndUnchanged` determines which changes the server accepts.
    """
    fields = {"timeField": "t", "metaField": "m"}
    changed = modified(collection({"timeseries": {**fields, **before}}), {"timeseries": change})
    assert changed.options == {"timeseries": {**fields, **after}}


def test_a_flag_about_buckets_is_no_option() -> None:
    change = {"timeseriesBucketsMayHaveMixedSchemaData": True}
    assert modified(collection({}), change).options == {}
    assert immediate(change) == change


@pytest.mark.parametrize(
    ("before", "change", "after"),
    [
        ({}, {"hidden": True}, {"hidden": True}),
        ({"hidden": True}, {"hidden": False}, {}),
        ({}, {"expireAfterSeconds": 5}, {"expireAfterSeconds": 5}),
        ({"expireAfterSeconds": 5}, {"expireAfterSeconds": 0}, {"expireAfterSeconds": 0}),
        ({"hidden": True}, {"hidden": False, "expireAfterSeconds": 9}, {"expireAfterSeconds": 9}),
        ({}, {"prepareUnique": True}, {"prepareUnique": True}),
        ({"prepareUnique": True}, {"prepareUnique": False}, {}),
        ({"prepareUnique": True}, {"unique": True}, {"unique": True}),
        ({"unique": True, "hidden": True}, {"forceNonUnique": True}, {"hidden": True}),
        ({"prepareUnique": True}, {"forceNonUnique": True}, {}),
    ],
)
def test_indexes(before: dict[str, Any], change: dict[str, Any], after: dict[str, Any]) -> None:
    definition = collection({}, {**PLAIN, **before}, {**PLAIN, "name": "other"})
    changed = modified(definition, {"index": {"name": "a_1", **change}})
    assert changed.indexes == {"a_1": {**PLAIN, **after}, "other": {**PLAIN, "name": "other"}}
    assert changed.options == {}


def test_a_change_of_a_missing_index_is_ignored() -> None:
    assert modified(collection({}), {"index": {"name": "a_1", "hidden": True}}).indexes == {}


@pytest.mark.parametrize(
    ("change", "now"),
    [
        ({}, {}),
        ({"validator": {}, "validationAction": "warn"}, {"validator": {}, "validationAction": "warn"}),
        ({"index": {"name": "a"}, "cappedSize": 1, "cappedMax": 1, "expireAfterSeconds": 1}, {}),
        ({"validationLevel": "off", "cappedMax": 2}, {"validationLevel": "off"}),
    ],
)  # fmt: skip
def test_changes_that_take_effect_before_the_commit(
    change: dict[str, Any], now: dict[str, Any]
) -> None:
    assert immediate(change) == now
