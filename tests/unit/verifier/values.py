"""The progress of checks in various states, for tests of the answers and reports about them."""

from __future__ import annotations

from typing import Any

import bson
from bson.objectid import ObjectId
from bson.timestamp import Timestamp

from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.namespace import Namespace
from verifier.cluster.times import Position
from verifier.compare.check_progress import (
    Amounts,
    Changes,
    CheckProgress,
    MismatchCounts,
    NamespaceProgress,
    Outcome,
    Phase,
    TaskCounts,
    Verdict,
)
from verifier.compare.mismatch import (
    Aspect,
    DefinitionMismatch,
    Difference,
    DocumentMismatch,
    FieldDifference,
    StoredMismatch,
)
from verifier.compare.record import CheckProcess, CheckRecord, Request, SentCommand, SideRecord
from verifier.reports.report import Subject

ORDERS, ITEMS = Namespace("shop", "orders"), Namespace("shop", "items")

CHECKING = CheckProgress(
    phase=Phase.CHECK,
    generation=0,
    started=1_700_000_000.0,
    tasks=TaskCounts(added=3, processing=2, completed=4, failed=1, recheck=1),
    amounts=Amounts(500, 2_000, 250_000, 1_000_000, 2),
    documents_per_second=100.0,
    size_per_second=50_000.0,
    source=Changes({"insert": 3, "update": 1}, 0.25, 2, Timestamp(1_700_000_001, 4)),
    destination=Changes({"insert": 3}, None, None, None),
    namespaces={
        ORDERS: NamespaceProgress(400, 1_500, 200_000, 800_000, 7, 3),
        ITEMS: NamespaceProgress(100, 500, 50_000, 200_000, 3, 1),
    },
)
FAILED = CheckProgress(
    phase=Phase.IDLE,
    generation=3,
    started=1_700_000_000.0,
    ended=1_700_000_100.0,
    tasks=TaskCounts(completed=1, failed=2, metadata_mismatch=1),
    amounts=Amounts(1_234, 1_234, 5_000, None, 2),
    first=Amounts(2_000, 2_000, 1_000_000, 1_000_000, 2),
    first_ended=1_700_000_050.0,
    recent_recheck_seconds=(1.5, 0.25),
    rechecked=1_300,
    source=Changes({"insert": 1_000}, 0.0, 0, Timestamp(1_700_000_090, 1)),
    destination=Changes({"insert": 900}, 0.0, 0, Timestamp(1_700_000_091, 1)),
    mismatches=MismatchCounts(
        {Difference.MISSING: 1_200, Difference.CONTENT: 34}, {ORDERS: 1_234}, 1
    ),
    namespaces={
        ORDERS: NamespaceProgress(1_500, 1_500, 800_000, 800_000, 7, 7),
        ITEMS: NamespaceProgress(500, 500, 200_000, 200_000, 3, 3),
    },
    writes_off=True,
    notes=("shop.$view: not compared",),
    verdict=Verdict(Outcome.FAILED, ("1234 documents differ", "1 index differs")),
)
PASSED = CheckProgress(
    phase=Phase.IDLE,
    generation=2,
    started=1_700_000_000.0,
    ended=1_700_000_010.0,
    first=Amounts(2_000, 2_000, 1_000_000, 1_000_000, 2),
    namespaces=FAILED.namespaces,
    writes_off=True,
    verdict=Verdict(Outcome.PASSED),
)
INCOMPLETE = CheckProgress(
    phase=Phase.IDLE,
    generation=1,
    started=1_700_000_000.0,
    ended=1_700_000_010.0,
    first=Amounts(2_000, 2_000, 1_000_000, 1_000_000, 2),
    verdict=Verdict(
        Outcome.INCOMPLETE,
        ("shop.orders was dropped on the source.",),
        "DefinitionChanged",
    ),
)


def document_mismatch(
    key: Any,
    difference: Difference = Difference.CONTENT,
    fields: tuple[FieldDifference, ...] = (FieldDifference("a.b", "1 against 2"),),
) -> StoredMismatch:
    mismatch = DocumentMismatch(ORDERS, bson.encode({"_id": key}), difference, fields)
    return StoredMismatch(mismatch, 3, 1_700_000_000.0, 1_700_000_012.3456, f"place-{key}")


DEFINITION_MISMATCH = StoredMismatch(
    DefinitionMismatch(ITEMS, Difference.CONTENT, Aspect.INDEX, "sku_1", "unique expected"),
    3,
    1_700_000_000.0,
    1_700_000_000.0,
    "place-1",
)


# The failed check that the documentation shows.
EXAMPLE = CheckProgress(
    phase=Phase.IDLE,
    generation=4,
    started=1_700_000_000.0,
    ended=1_700_000_192.0,
    first=Amounts(1_204_113, 1_204_113, 611_000_000, 611_000_000, 2),
    first_ended=1_700_000_150.0,
    rechecked=20_418,
    source=Changes({"insert": 6_120, "update": 3_061, "delete": 1_020}),
    destination=Changes({"insert": 6_118, "update": 3_061, "delete": 1_020}),
    mismatches=MismatchCounts(
        {Difference.MISSING: 2, Difference.CONTENT: 1}, {ORDERS: 3}, definitions=1
    ),
    namespaces={
        ORDERS: NamespaceProgress(1_200_000, 1_200_000, 610_000_000, 610_000_000, 12, 12),
        ITEMS: NamespaceProgress(4_113, 4_113, 1_000_000, 1_000_000, 2, 2),
    },
    writes_off=True,
    verdict=Verdict(
        Outcome.FAILED,
        (
            "2 documents are missing on the destination.",
            "1 document is different.",
            "1 difference in definitions or in numbers of documents.",
        ),
    ),
)
EXAMPLE_DOCUMENTS = [
    StoredMismatch(
        DocumentMismatch(ORDERS, bson.encode({"_id": key}), difference, fields),
        4,
        1_700_000_150.0,
        1_700_000_192.0,
        place,
    )
    for key, difference, fields, place in (
        (4711, Difference.MISSING, (), "0a51"),
        (ObjectId("65a0c3f1e4b0a1b2c3d4e5f6"), Difference.MISSING, (), "3c02"),
        (
            "A-17",
            Difference.CONTENT,
            (FieldDifference("lines.0.price", "int 5 against double 5.0"),),
            "b7f0",
        ),
    )
]
EXAMPLE_DEFINITIONS = [
    StoredMismatch(
        DefinitionMismatch(ITEMS, Difference.MISSING, Aspect.INDEX, "sku_1"),
        4,
        1_700_000_000.0,
        1_700_000_192.0,
        "51d4",
    )
]


def subject(progress: CheckProgress, **fields: Any) -> Subject:
    """Return the input of a report on a check with this progress. `fields` replace fields of the input."""
    side = SideRecord(Position({"_data": "82"}, Timestamp(5, 1)))
    record = CheckRecord(
        *("me", ("rs0", "rs1"), Request(), 1_700_000_000.0, side, side),
        generation=progress.generation or 0,
        first=progress.first,
        rechecked=progress.rechecked,
        ended=progress.ended,
        first_ended=1_700_000_020.0,
        commands=(SentCommand("check", 1_700_000_000.0, "alice", "10.0.0.9"),),
        processes=(CheckProcess(1_700_000_000.0, "0.1.0", "h1"),),
    )
    facts = ClusterFacts(Topology.REPLICA_SET, "a.example:27017", (7, 0, 2), "rs0", False, None)
    usual: dict[str, Any] = {
        "record": record,
        "clusters": (facts, facts),
        "mismatches": (DEFINITION_MISMATCH, document_mismatch(1)),
        "unread": (),
        "waits": (),
        "creator": CheckProcess(1_700_000_100.0, "0.2.0", "h2"),
    }
    return Subject(progress=progress, **{**usual, **fields})
