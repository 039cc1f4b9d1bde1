"""Makes the documents that dashboards for mongosync read in the metadata database.

This service writes these documents and never reads them. The fields that dashboards read have the names and values of
mongosync. Dashboards also read the collection `partitions`, which `syncsvc.saved.partitions` writes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from bson.timestamp import Timestamp

from syncsvc.metadata import DEFAULT_ID
from syncsvc.options import ANY_DATABASE, StartOptions
from syncsvc.reports.sync import phase_shown
from syncsvc.saved.dashboards import GLOBAL_STATE, RESUME_DATA, Document
from syncsvc.saved.run import RunRecord
from verifier.cluster.times import Position


def documents(record: RunRecord, addresses: Mapping[str, str], now: float) -> dict[str, Document]:
    """Return the documents that this instance must save for dashboards, by the name of the collection.

    `addresses` are the clusters' addresses by name, `now` is in UNIX seconds. Only the coordinator saves a document
    about the sync as a whole. Another instance whose `--id` is `coordinator` saves none, because the document of the
    real coordinator has this `_id`.
    """
    common = {"owner": record.owner, "updatedAt": datetime.fromtimestamp(now, UTC)}
    resume_data = {"_id": record.instance, **common, **_resume_data(record, addresses)}
    if record.coordinates:
        global_state = {"_id": DEFAULT_ID, **common, **_global_state(record)}
        return {RESUME_DATA: {**resume_data, "_id": DEFAULT_ID}, GLOBAL_STATE: global_state}
    return {} if record.instance == DEFAULT_ID else {RESUME_DATA: resume_data}


def _resume_data(record: RunRecord, addresses: Mapping[str, str]) -> Document:
    return {
        "state": record.state.value,
        "syncPhase": phase_shown(record).value,
        "phaseTransitions": [
            {"phase": each.phase.value, "ts": _timestamp(each.at)} for each in record.phases
        ],
        "directionMapping": {
            "source": f"{record.source}: {addresses[record.source]}",
            "destination": f"{record.destination}: {addresses[record.destination]}",
        },
        # All events are in one change stream.
        "crudChangeStreamResumeInfo": _resume_info(record.position),
        "ddlChangeStreamResumeInfo": _resume_info(record.position),
    }


def _resume_info(position: Position | None) -> Document:
    return {"lastEventTs": None if position is None else position.time}


def _timestamp(at: float) -> Timestamp:
    return Timestamp(int(at), 1)


def _global_state(record: RunRecord) -> Document:
    options = record.options
    verification = "startAtCEA" if options.verification else "disabled"
    return {
        "reversible": options.reversible,
        "writeBlockingMode": options.write_blocking.value,
        "buildIndexes": options.build_indexes.value,
        "detectRandomId": options.detect_random_id,
        "verificationMode": verification,
        # The name that some dashboards read.
        "verificationmode": verification,
        "changeStreamStartTime": None if record.start is None else record.start.time,
        "namespaceFilter": {
            "inclusionFilter": _filter(options.include_namespaces),
            "exclusionFilter": _filter(options.exclude_namespaces),
        },
        "copyInNaturalOrderFilter": _natural_order(options),
    }


def _filter(entries: Iterable[Mapping[str, Any]]) -> list[Document]:
    """Return the entries of a namespace filter, with a single `database` as a list: dashboards show only lists."""
    return [
        (
            {**each, "database": [each["database"]]}
            if isinstance(each.get("database"), str)
            else {**each}
        )
        for each in entries
    ]


def _natural_order(options: StartOptions) -> Document:
    named: dict[str, list[str]] = {}
    for each in options.copy_in_natural_order:
        named.setdefault(each["database"], []).extend(each.get("collections", ()))
    if ANY_DATABASE in named:
        return {"selectAll": True, "dbsAndColls": {}}
    return {"selectAll": False, "dbsAndColls": named}
