"""Builds records of a run and its collections with defaults for everything that a test does not specify."""

from __future__ import annotations

from typing import Any
from uuid import UUID

from bson import Timestamp

from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.options import StartOptions
from syncsvc.reports.sync import Sync
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase, State
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.cluster.times import Position

START = Position({"_data": "8265"}, Timestamp(1700000000, 1))


def run_record(**fields: Any) -> RunRecord:
    usual: dict[str, Any] = {
        "instance": "coordinator",
        "owner": "9f8e",
        "state": State.RUNNING,
        "phase": Phase.COPYING,
        "options": StartOptions("cluster0", "cluster1"),
        "identities": ("65aa", "65bb"),
        "fence": UUID(int=7),
    }
    return RunRecord(**{**usual, **fields})


def known(
    record: RunRecord | None, snapshot: ProgressSnapshot = ProgressSnapshot(), **fields: Any
) -> Sync:
    """Return a Sync, the state of a process that runs the sync of `record`.

    If `record` is None, the process runs no sync. `snapshot` is the progress of the sync; `fields` replace fields of
    the Sync.
    """
    state = State.IDLE if record is None else record.state
    usual: dict[str, Any] = {"state": state, "can_commit": False}
    return Sync(record=record, snapshot=snapshot, **{**usual, **fields})


def collection_record(
    options: dict[str, Any] | None = None,
    *indexes: dict[str, Any],
    uuid: bytes = bytes(range(16)),
    namespace: Namespace = Namespace("shop", "orders.old"),
    **fields: Any,
) -> CollectionRecord:
    definition = CollectionSpec(
        namespace,
        Kind.COLLECTION,
        uuid,
        options or {},
        {index["name"]: index for index in indexes},
    )
    usual = {"status": CopyStatus.WAITING, "source_name": definition.namespace}
    return CollectionRecord(definition, **{**usual, **fields})
