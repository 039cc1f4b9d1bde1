"""Records of a run and of collections, with everything that a test does not name filled in."""

from __future__ import annotations

from typing import Any

from bson import Timestamp

from syncsvc.options import StartOptions
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
    }
    return RunRecord(**{**usual, **fields})


def collection_record(
    options: dict[str, Any] | None = None,
    *indexes: dict[str, Any],
    uuid: bytes = bytes(range(16)),
    **fields: Any,
) -> CollectionRecord:
    definition = CollectionSpec(
        Namespace("shop", "orders.old"),
        Kind.COLLECTION,
        uuid,
        options or {},
        {index["name"]: index for index in indexes},
    )
    usual = {"status": CopyStatus.WAITING, "source_name": definition.namespace}
    return CollectionRecord(definition, **{**usual, **fields})
