"""Saved records are loaded unchanged; records in an older format are upgraded, or refused if it is unsupported."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from typing import Any
from uuid import UUID

import bson
import pytest
from bson import Int64, Timestamp
from hypothesis import given
from hypothesis import strategies as st

from syncsvc.errors import INCOMPATIBLE_METADATA
from syncsvc.metadata import METADATA_DATABASE
from syncsvc.options import (
    BuildIndexes,
    CopyReadPreference,
    OnConflict,
    Repair,
    StartOptions,
    UsersAndRoles,
    WriteBlocking,
)
from syncsvc.principals.comparison import PrincipalCounts
from syncsvc.saved.journal import (
    Counts,
    Direction,
    Entry,
    Journal,
    Kind,
    Process,
    Sender,
    Site,
    Verified,
    Warned,
)
from syncsvc.saved.late_findings import LateFindings
from syncsvc.saved.registry import (
    CollectionRecord,
    CopyStatus,
    _collection_document,
    _collection_record,
)
from syncsvc.saved.run import Failure, PhaseBegin, RunRecord
from syncsvc.saved.run_documents import FORMATS, run_document, run_from
from syncsvc.source.natural_scan import ResumePoint
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import START, collection_record, run_record
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.namespace import Namespace, is_user_database
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError


def saved(document: dict[str, Any]) -> dict[str, Any]:
    """Encode and decode a document, so that its values have the types that the driver returns."""
    return bson.decode(bson.encode(document))


def run_again(record: RunRecord) -> RunRecord:
    return run_from(saved(run_document(record)))


def collection_again(record: CollectionRecord) -> CollectionRecord:
    return _collection_record(saved(_collection_document(record)))


VERIFIED = Verified(1.0, 2.0, 3, 10, 2_000, 2, 4, ("A note.",))
JOURNAL = Journal(
    (Site("cluster0", "h:27017", "sharded cluster", "6.0.5", 2),),
    (Process(1.0, "0.1.0", "host"), Process(9.0, "0.1.0", "host", 4.0)),
    (
        Entry(Kind.COMMAND, 1.0, "start", Sender("alice", "::1")),
        Entry(Kind.COMMAND, 1.0, "commit", Sender()),
        Entry(Kind.WRITABLE, 2.0),
    ),
    7,
    (
        Warned("a wait", "A text.", 1.0, 1.0),
        Warned("oplog short", "A text.", 1.0, 2.0, 3.0, 2, 1.5),
    ),
    Counts(1, 2, 3),
    (Direction("cluster0", "cluster1", 5.0, Counts(1, 1, 0), VERIFIED, 1, 2),),
    VERIFIED,
    9.5,
)
RUNS = [
    run_record(),
    *(run_record(state=state) for state in State if state is not State.IDLE),
    *(run_record(phase=phase) for phase in Phase),
    run_record(start=START, position=Position({"_data": "83"}, Timestamp(2, 3))),
    run_record(copy_end=Timestamp(5, 1), commit_time=Timestamp(6, 2)),
    run_record(phases=(PhaseBegin(Phase.COPYING, 1.5), PhaseBegin(Phase.APPLYING, 2.5))),
    run_record(steps=("definitions prepared", "destination unblocked"), can_write=True),
    run_record(
        late_findings=LateFindings(
            START,
            3,
            (Namespace("d", "a.b"), Namespace("d", "c")),
            Timestamp(7, 1),
            Timestamp(8, 2),
            (Timestamp(3, 1), Timestamp(4, 1)),
            ended=True,
        )
    ),
    run_record(late_findings=LateFindings(START)),
    run_record(failure=Failure("SomeError", "Why.")),
    run_record(failure=Failure("SomeError", "Why.", elsewhere=True)),
    run_record(
        reversals=3,
        reverse_start=START,
        committed=START,
        found_blocked={"cluster0": True, "cluster1": False},
    ),
    run_record(instances=("a", "coordinator"), barrier="82", caught_up=True, beat=7),
    run_record(fence=UUID(int=2**127 + 5), epoch=3, attempt=2),
    run_record(journal=JOURNAL),
    run_record(
        options=StartOptions(
            "a",
            "b",
            BuildIndexes.NEVER,
            WriteBlocking.SOURCE_AND_DESTINATION,
            reversible=True,
            verification=False,
            include_namespaces=({"database": "d", "collectionsRegex": {"pattern": "^x"}},),
            sharding={"createSupportingIndexes": True, "shardingEntries": []},
        )
    ),
]


def test_the_first_instance_coordinates() -> None:
    alone = run_record()
    helper = run_record(instances=("a", "coordinator"))
    assert (alone.coordinator, alone.coordinates) == ("coordinator", True)
    assert (helper.coordinator, helper.coordinates) == ("a", False)
    assert [run_document(each)["only"] for each in (alone, helper)] == [True, "coordinator"]


@pytest.mark.parametrize("reversals", range(4))
def test_each_reversal_swaps_source_and_destination(reversals: int) -> None:
    record = run_record(reversals=reversals)
    names = ("cluster1", "cluster0") if reversals % 2 else ("cluster0", "cluster1")
    assert (record.source, record.destination) == names
    assert record.home == "cluster1"


@pytest.mark.parametrize("record", RUNS, ids=range(len(RUNS)))
def test_a_run_is_saved_and_loaded_unchanged(record: RunRecord) -> None:
    assert run_again(record) == record


timestamps = st.builds(Timestamp, st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
positions = st.builds(Position, st.fixed_dictionaries({"_data": st.text()}), timestamps)


@given(
    owner=st.text(),
    start=st.none() | positions,
    position=st.none() | positions,
    copy_end=st.none() | timestamps,
    steps=st.lists(st.text()).map(tuple),
    failure=st.none() | st.builds(Failure, st.text(), st.text()),
)
def test_any_run_is_saved_and_loaded_unchanged(**fields: Any) -> None:
    record = run_record(**fields)
    assert run_again(record) == record


@pytest.mark.parametrize("version", [None, 0, FORMATS.oldest - 1, str(FORMATS.current)])
def test_a_run_of_an_unsupported_format_is_refused(version: object) -> None:
    with pytest.raises(OperationError, match=f"has format {version}: ") as raised:
        run_from({**run_document(run_record()), "format": version})
    assert raised.value.kind is INCOMPATIBLE_METADATA


def test_a_run_of_a_newer_version_is_refused_by_name() -> None:
    with pytest.raises(
        OperationError, match="of a newer version.*Start the newer version"
    ) as raised:
        run_from({"_id": "coordinator", "format": FORMATS.current + 1})
    assert raised.value.kind is INCOMPATIBLE_METADATA


def test_a_run_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(OperationError, match="cannot be read.*state") as raised:
        run_from({**run_document(run_record()), "state": "UNKNOWN"})
    assert raised.value.kind is INCOMPATIBLE_METADATA


def test_unknown_fields_are_ignored_and_missing_ones_have_their_defaults() -> None:
    document = run_document(run_record())
    options = {**document["options"], "fromTheFuture": {"a": 1}}
    del options["detectRandomId"], document["caughtUp"]
    assert run_from({**document, "options": options, "more": 1}) == run_record()


def test_a_run_of_format_6_is_upgraded() -> None:
    document = run_document_of_format_6()
    assert run_from(document) == UPGRADED
    assert document == run_document_of_format_6()


def test_the_saved_shape_is_that_of_the_current_format() -> None:
    """A run record must be saved with exactly the fields in CURRENT.

    This record has format 7, because it has none of the options that only format 8 allows. A new field must have a
    default, which records of earlier versions get. WARNING: removing or renaming a field, or changing its values,
    requires a new format, with an upgrade step.
    """
    assert FORMATS.current == 8
    assert saved(run_document(UPGRADED)) == CURRENT


def test_an_earlier_version_continues_only_a_sync_that_copies_no_users() -> None:
    options = replace(UPGRADED.options, users_and_roles=UsersAndRoles(("app",), OnConflict.SKIP))
    record = replace(UPGRADED, options=options, principals=PrincipalCounts(users=2, kept=1))
    document = saved(run_document(record))
    assert document["format"] == 8
    assert document["options"]["usersAndRoles"] == {"databases": ["app"], "onConflict": "skip"}
    assert run_from(document) == record


def test_an_earlier_version_continues_only_a_sync_that_renames_nothing() -> None:
    remap = {
        "from": {"database": "a", "collection": "b"},
        "to": {"database": "c", "collection": "d"},
    }
    options = replace(UPGRADED.options, namespace_remap=(remap,))
    record = replace(UPGRADED, options=options)
    document = saved(run_document(record))
    assert document["format"] == 8
    assert document["options"]["namespaceRemap"] == [remap]
    assert run_from(document) == record
    assert record.options.names.to_destination(Namespace("a", "b")) == Namespace("c", "d")
    assert saved(run_document(UPGRADED))["format"] == 7


def test_an_earlier_version_continues_only_a_copy_from_the_primary() -> None:
    options = replace(
        UPGRADED.options,
        copy_read_preference=CopyReadPreference.SECONDARY,
        copy_read_preference_tags=({"nodeType": "ANALYTICS"},),
    )
    record = replace(UPGRADED, options=options)
    document = saved(run_document(record))
    assert document["format"] == 8
    assert document["options"]["copyReadPreference"] == "secondary"


def test_an_earlier_version_continues_no_sync_with_document_filters() -> None:
    query = bson.encode({"at": {"$gte": datetime(2024, 1, 1)}, "n": {"$in": [1, Int64(2), 3.0]}})
    filters = DocumentFilters({Namespace("d", "c"): query})
    record = replace(UPGRADED, options=replace(UPGRADED.options, document_filters=filters))
    document = saved(run_document(record))
    assert document["format"] == 8


def test_an_earlier_version_continues_no_sync_to_existing_data() -> None:
    options = replace(UPGRADED.options, pre_existing_destination_data=True)
    record = replace(UPGRADED, options=options)
    document = saved(run_document(record))
    assert document["format"] == 8
    assert run_from(document) == record


def run_document_of_format_6() -> dict[str, Any]:
    position = {"token": {"_data": "8265"}, "time": Timestamp(1700000000, 1)}
    return {
        "_id": "coordinator",
        "format": 6,
        "only": True,
        "owner": "9f8e",
        "state": "REVERSING",
        "phase": "reversing",
        "options": {
            "source": "cluster0",
            "destination": "cluster1",
            "buildIndexes": "never",
            "enableUserWriteBlocking": "sourceAndDestination",
            "reversible": True,
            "verification": {"enabled": False},
            "includeNamespaces": [{"database": "d", "collections": ["c"]}],
            "excludeNamespaces": [{"databaseRegex": {"pattern": "^x"}}],
            "preExistingDestinationData": False,
            "copyInNaturalOrder": [{"database": "."}],
            "detectRandomId": False,
            "skipDiskSpaceCheck": True,
        },
        "identities": ["65aa", "65bb"],
        "start": position,
        "position": position,
        "copyEnd": Timestamp(5, 1),
        "commitTime": Timestamp(6, 2),
        "steps": ["definitions prepared", "way back prepared"],
        "canWrite": True,
        "lateFindings": None,
        "failure": {"name": "SomeError", "description": "Why."},
        "turns": 3,
        "wayBack": position,
        "foundBlocked": {"cluster0": True},
        "foundBalancing": {"cluster1": False},
        "instances": ["coordinator", "b"],
        "barrier": "82",
        "caughtUp": True,
        "beat": 9,
        "fence": "00000000000000000000000000000007",
        "epoch": 4,
    }


UPGRADED = run_record(
    state=State.REVERSING,
    phase=Phase.REVERSING,
    options=StartOptions(
        "cluster0",
        "cluster1",
        BuildIndexes.NEVER,
        WriteBlocking.SOURCE_AND_DESTINATION,
        reversible=True,
        verification=False,
        repair=Repair.NEVER,
        include_namespaces=({"database": "d", "collections": ["c"]},),
        exclude_namespaces=({"databaseRegex": {"pattern": "^x"}},),
        copy_in_natural_order=({"database": "."},),
        detect_random_id=False,
        skip_disk_space_check=True,
    ),
    start=START,
    position=START,
    copy_end=Timestamp(5, 1),
    commit_time=Timestamp(6, 2),
    steps=("definitions prepared", "way back prepared"),
    can_write=True,
    failure=Failure("SomeError", "Why."),
    reversals=3,
    reverse_start=START,
    found_blocked={"cluster0": True},
    found_balancing={"cluster1": False},
    instances=("coordinator", "b"),
    barrier="82",
    caught_up=True,
    beat=9,
    epoch=4,
)

_OF_6 = run_document_of_format_6()
CURRENT = {
    **{name: value for name, value in _OF_6.items() if name not in ("turns", "wayBack")},
    "format": 7,
    "options": {
        **_OF_6["options"],
        "verification": False,
        "repair": "never",
        "sharding": None,
        "eventSpool": "auto",
        "instances": [],
        "presplit": "sample",
        "renamedOutOfFilter": "fail",
        "usersAndRoles": None,
        "copyReadPreference": "primary",
        "copyReadPreferenceTags": [],
        "namespaceRemap": [],
        "documentFilter": [],
    },
    "failure": {**_OF_6["failure"], "elsewhere": False},
    **dict.fromkeys(("repair", "repaired", "repairDone", "commitRepairs"), 0),
    **dict.fromkeys(("repairRequests", "repairRequestsMet"), 0),
    **dict.fromkeys(("repairedDocuments", "repairedDefinitions"), 0),
    "journal": {
        "sites": [],
        "processes": [],
        "entries": [],
        "omitted": 0,
        "warnings": [],
        "counts": {"events": 0, "definitions": 0, "copiedAgain": 0},
        "directions": [],
        "verified": None,
        "savedAt": None,
    },
    "principals": None,
    "phases": [],
    "reversals": 3,
    "reverseStart": _OF_6["wayBack"],
    "committed": None,
    "fence": "00000000-0000-0000-0000-000000000007",
    "attempt": 0,
}


INDEX = {"v": 2, "key": {"b": -1, "a.c": 1, "$**": "text"}, "name": "odd"}
PARTIAL = {**INDEX, "name": "partial", "partialFilterExpression": {"x": {"$gt": Int64(1)}}}
OPTIONS = {"validator": {"$jsonSchema": {"required": ["a"]}}, "idIndex": {"key": {"_id": 1}}}
COLLECTIONS = [
    collection_record(),
    *(collection_record(status=status) for status in CopyStatus),
    collection_record(OPTIONS, PARTIAL, INDEX),
    collection_record(source_name=Namespace("shop", "orders")),
    collection_record(source_name=Namespace("another database", "orders")),
    collection_record(total=2**40, total_documents=2**36, copied=2**33, documents=2**35),
    collection_record(resume_point=ResumePoint({"$recordId": Int64(9)}, "65aa")),
    collection_record(resume_point=ResumePoint({"$recordId": b"\0\1clustered"}, "65aa")),
    collection_record(resume_point=ResumePoint({"$recordId": None}, "65aa")),
    collection_record(destination_uuid=b"d" * 16),
]


@pytest.mark.parametrize("record", COLLECTIONS, ids=range(len(COLLECTIONS)))
def test_a_collection_is_saved_and_loaded_unchanged(record: CollectionRecord) -> None:
    again = collection_again(record)
    assert again == record
    assert repr(again) == repr(record)  # repr() also shows the order of all fields


def test_a_collection_of_an_earlier_version_has_the_same_database_on_both_clusters() -> None:
    document = _collection_document(collection_record())
    del document["sourceDatabase"]
    assert _collection_record(document) == collection_record()


def test_a_collection_of_an_earlier_version_has_no_destination_uuid() -> None:
    document = _collection_document(collection_record(destination_uuid=b"d" * 16))
    del document["destinationUuid"]
    assert _collection_record(document) == collection_record()


def test_the_order_of_indexes_and_keys_is_kept() -> None:
    again = collection_again(collection_record(OPTIONS, PARTIAL, INDEX))
    assert list(again.definition.indexes) == ["partial", "odd"]
    assert list(again.definition.indexes["odd"]["key"]) == ["b", "a.c", "$**"]


def test_a_collection_is_known_by_its_uuid() -> None:
    document = _collection_document(collection_record(uuid=b"x" * 16))
    assert (bytes(document["_id"]), document["_id"].subtype) == (b"x" * 16, 4)
    assert collection_record(uuid=b"x" * 16).uuid == b"x" * 16


def test_the_metadata_database_is_no_user_namespace() -> None:
    assert not is_user_database(METADATA_DATABASE)


def test_saved_enum_values_never_change() -> None:
    """The saved values of State, Phase and CopyStatus must equal the values listed here.

    WARNING: changing a value requires a new format, with an upgrade step that replaces the old value.
    """
    words = {kind.__name__: {each.value for each in kind} for kind in (State, Phase, CopyStatus)}
    assert words == {
        "State": {
            *("INITIALIZING", "IDLE", "RUNNING", "PAUSED", "COMMITTING", "COMMITTED"),
            *("REVERSING", "FAILED", "RESETTING"),
        },
        "Phase": {
            *("initializing collections and indexes", "collection copy", "building indexes"),
            *("change event application", "waiting for commit to complete", "commit completed"),
            *("reversing", "resetting", "withdrawing the commit"),
        },
        "CopyStatus": {"waiting", "copying", "done"},
    }
