"""Tests which collections of the destination may let documents expire at the end of a commit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from syncsvc.engine.definitions.standin import NEVER_SECONDS, expirations, stand_in
from syncsvc.saved.created_collections import to_convert, to_expire
from tests.unit.syncsvc.records import collection_record
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind

OWN, OTHER = bytes(16), bytes([1] * 16)
NAME, RENAMED = Namespace("d", "c"), Namespace("d", "renamed")
RECORD = collection_record(
    {"expireAfterSeconds": 60},
    {"name": "when", "key": {"when": 1}, "expireAfterSeconds": 60},
    namespace=NAME,
    destination_uuid=OWN,
)
OPTION = {"expireAfterSeconds": 60}
INDEX = {"index": {"name": "when", "expireAfterSeconds": 60}}


def restored(uuids: dict[Namespace, bytes], present: CollectionSpec) -> list[dict[str, Any]]:
    """Return the commands that restore the expiration of the collection of RECORD, which is `present` now."""
    found = to_expire([RECORD], uuids)
    return [each for record in found for each in expirations(record.definition, present)]


@pytest.mark.parametrize(
    ("uuids", "commands"),
    [
        ({NAME: OWN}, [{"collMod": "c", **OPTION}, {"collMod": "c", **INDEX}]),
        # Users have renamed the collection.
        (
            {RENAMED: OWN, NAME: OTHER},
            [{"collMod": "renamed", **OPTION}, {"collMod": "renamed", **INDEX}],
        ),
        # An aggregation with `$out`, or `movePrimary`, has replaced the collection, and has kept the indexes.
        ({NAME: OTHER}, [{"collMod": "c", **INDEX}]),
        # Users have dropped the collection.
        ({}, []),
    ],
)
def test_expiration_is_restored_where_the_sync_has_turned_it_off(
    uuids: dict[Namespace, bytes], commands: list[dict[str, Any]]
) -> None:
    assert restored(uuids, stand_in(RECORD.definition)) == commands


def test_no_index_is_built_in_a_time_series_that_users_have_created_again() -> None:
    definition = replace(RECORD.definition, kind=Kind.TIME_SERIES)
    series = replace(RECORD, definition=definition)
    assert [*to_convert([series], {NAME: OWN})] == [series]
    assert [*to_convert([series], {NAME: OTHER})] == []
    assert [*to_convert([RECORD], {NAME: OTHER})] == [RECORD]


@pytest.mark.parametrize("seconds", [60, NEVER_SECONDS - 1])
def test_an_index_that_users_have_created_in_another_collection_is_kept(seconds: int) -> None:
    index = {"name": "when", "key": {"when": 1}, "expireAfterSeconds": seconds}
    present = collection_record({}, index, namespace=NAME).definition
    assert restored({NAME: OTHER}, present) == []
