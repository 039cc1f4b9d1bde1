"""Start options are saved in a form that other versions can read, and that differs from the form of requests."""

from __future__ import annotations

from dataclasses import fields

import bson
import pytest
from hypothesis import given
from hypothesis import strategies as st
from marshmallow import ValidationError

from syncsvc.options import (
    BuildIndexes,
    CopyReadPreference,
    EventSpool,
    OnConflict,
    Presplit,
    RenamedOut,
    Repair,
    StartOptions,
    UsersAndRoles,
    WriteBlocking,
)
from syncsvc.saved.run_documents import _StoredRun
from syncsvc.saved.stored import Stored, StoredOptions, StoredPosition
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.namespace import Namespace

FILTERS = [{"database": "a"}, {"databaseRegex": {"pattern": "^a", "options": "i"}}]
KEY = [{"name": 1}, {"a.b": "hashed"}]
SHARDING = {
    "createSupportingIndexes": True,
    "shardingEntries": [{"database": "a", "collection": "b", "shardCollection": {"key": KEY}}],
}
FILTERED = DocumentFilters({Namespace("d", "c"): bson.encode({"a": {"$gt": 1}})})
start_options = st.builds(
    StartOptions,
    source=st.text(),
    destination=st.text(),
    build_indexes=st.sampled_from(BuildIndexes),
    write_blocking=st.sampled_from(WriteBlocking),
    reversible=st.booleans(),
    verification=st.booleans(),
    repair=st.sampled_from(Repair),
    include_namespaces=st.lists(st.sampled_from(FILTERS)).map(tuple),
    exclude_namespaces=st.lists(st.sampled_from(FILTERS)).map(tuple),
    sharding=st.sampled_from([None, SHARDING]),
    pre_existing_destination_data=st.booleans(),
    copy_in_natural_order=st.lists(st.just({"database": "."})).map(tuple),
    detect_random_id=st.booleans(),
    skip_disk_space_check=st.booleans(),
    instances=st.lists(st.text()).map(tuple),
    event_spool=st.sampled_from(EventSpool),
    presplit=st.sampled_from(Presplit),
    renamed_out=st.sampled_from(RenamedOut),
    users_and_roles=st.none()
    | st.builds(
        UsersAndRoles,
        databases=st.lists(st.text()).map(tuple),
        on_conflict=st.sampled_from(OnConflict),
    ),
    copy_read_preference=st.sampled_from(CopyReadPreference),
    copy_read_preference_tags=st.lists(st.just({"a": "b"})).map(tuple),
    namespace_remap=st.lists(st.just({"from": {"database": "d"}, "to": {"database": "e"}})).map(
        tuple
    ),
    document_filters=st.sampled_from([DocumentFilters(), FILTERED]),
)


@pytest.mark.parametrize("schema", [StoredOptions, StoredPosition, _StoredRun])
def test_every_field_is_saved(schema: type[Stored]) -> None:
    assert [*schema().fields] == [each.name for each in fields(schema.kind)]


@given(start_options)
def test_options_are_saved_and_loaded_unchanged(options: StartOptions) -> None:
    document = bson.decode(bson.encode(StoredOptions().dump(options)))
    assert StoredOptions().load(document) == options


def test_options_saved_by_other_versions_are_loaded() -> None:
    """Options of a later version with unknown fields, and options of an earlier version with fewer, must be loaded.

    Earlier versions repaired nothing automatically, so `repair` must be loaded as NEVER.
    """
    document = {"source": "a", "destination": "b", "reversible": True, "future": {"a": [1]}}
    expected = StartOptions("a", "b", reversible=True, repair=Repair.NEVER)
    assert StoredOptions().load(document) == expected


def test_saved_options_that_requests_may_not_have_are_loaded() -> None:
    """Saved options that a new request would not be allowed to have must be loaded.

    When the validation of requests becomes stricter, syncs that were started before must still load.
    """
    included = ({"database": "admin", "later": 1},)
    options = StartOptions("a", "b", include_namespaces=included)
    assert StoredOptions().load(StoredOptions().dump(options)) == options


@pytest.mark.parametrize(
    "document", [{}, {"source": "a"}, {"source": "a", "destination": "b", "buildIndexes": "x"}]
)
def test_invalid_saved_options_are_refused(document: dict[str, str]) -> None:
    with pytest.raises(ValidationError):
        StoredOptions().load(document)
