"""The documents for dashboards of mongosync have the names and values that such dashboards read."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import bson
import pytest
from bson import CodecOptions, Timestamp

from syncsvc.options import BuildIndexes, StartOptions, WriteBlocking
from syncsvc.reports.dashboards import documents
from syncsvc.saved.run import PhaseBegin
from syncsvc.state import Phase, State
from tests.unit.syncsvc.records import START, run_record

ADDRESSES = {"cluster0": "a:27017", "cluster1": "b:27018"}
NOW = 1_700_000_100.0


def told(**fields: Any) -> dict[str, Any]:
    return documents(run_record(**fields), ADDRESSES, NOW)


def test_the_coordinator_has_a_document_of_each_kind() -> None:
    phases = (PhaseBegin(Phase.INITIALIZING, 5.9), PhaseBegin(Phase.COPYING, 7.0))
    found = told(phases=phases, start=START, position=START)
    common: dict[str, Any] = {"_id": "coordinator", "owner": "9f8e"}
    common["updatedAt"] = datetime(2023, 11, 14, 22, 15, tzinfo=UTC)
    assert found["resumeData"] == {
        **common,
        "state": "RUNNING",
        "syncPhase": "collection copy",
        "phaseTransitions": [
            {"phase": "initializing collections and indexes", "ts": Timestamp(5, 1)},
            {"phase": "collection copy", "ts": Timestamp(7, 1)},
        ],
        "directionMapping": {
            "source": "cluster0: a:27017",
            "destination": "cluster1: b:27018",
        },
        "crudChangeStreamResumeInfo": {"lastEventTs": START.time},
        "ddlChangeStreamResumeInfo": {"lastEventTs": START.time},
    }
    assert found["globalState"] == {
        **common,
        "reversible": False,
        "writeBlockingMode": "destinationOnly",
        "buildIndexes": "beforeDataCopy",
        "detectRandomId": True,
        "verificationMode": "startAtCEA",
        "verificationmode": "startAtCEA",
        "changeStreamStartTime": START.time,
        "namespaceFilter": {"inclusionFilter": [], "exclusionFilter": []},
        "copyInNaturalOrderFilter": {"selectAll": False, "dbsAndColls": {}},
    }
    aware = CodecOptions[dict[str, Any]](tz_aware=True)
    assert all(bson.decode(bson.encode(each), aware) == each for each in found.values())


def test_the_options_are_shown() -> None:
    options = StartOptions(
        "cluster1",
        "cluster0",
        BuildIndexes.NEVER,
        WriteBlocking.NONE,
        verification=False,
        include_namespaces=({"database": "shop", "collections": ["a"]}, {"database": ["b"]}),
        exclude_namespaces=({"databaseRegex": {"pattern": "^x"}},),
        copy_in_natural_order=(
            {"database": "shop", "collections": ["a"]},
            {"database": "shop", "collections": ["b"]},
            {"database": "logs"},
        ),
    )
    found = told(options=options, state=State.COMMITTING, phase=Phase.APPLYING)
    shown = found["globalState"]
    assert shown["verificationMode"] == "disabled"
    assert (shown["buildIndexes"], shown["writeBlockingMode"]) == ("never", "none")
    assert shown["namespaceFilter"] == {
        "inclusionFilter": [
            {"database": ["shop"], "collections": ["a"]},
            {"database": ["b"]},
        ],
        "exclusionFilter": [{"databaseRegex": {"pattern": "^x"}}],
    }
    assert shown["copyInNaturalOrderFilter"] == {
        "selectAll": False,
        "dbsAndColls": {"shop": ["a", "b"], "logs": []},
    }
    assert found["resumeData"]["syncPhase"] == "waiting for commit to complete"
    assert found["resumeData"]["directionMapping"]["source"] == "cluster1: b:27018"
    every = StartOptions("cluster0", "cluster1", copy_in_natural_order=({"database": "."},))
    natural = told(options=every)["globalState"]["copyInNaturalOrderFilter"]
    assert natural == {"selectAll": True, "dbsAndColls": {}}


def test_a_reversed_sync_shows_its_direction() -> None:
    mapping = told(reversals=1)["resumeData"]["directionMapping"]
    assert mapping == {"source": "cluster1: b:27018", "destination": "cluster0: a:27017"}


@pytest.mark.parametrize(
    "instance, names",
    [
        ("a", {"resumeData": "coordinator", "globalState": "coordinator"}),
        ("b", {"resumeData": "b"}),
        ("coordinator", {}),
    ],
)
def test_each_instance_has_its_own_documents(instance: str, names: dict[str, str]) -> None:
    found = told(instance=instance, instances=("a", "b", "coordinator"))
    assert {name: each["_id"] for name, each in found.items()} == names
