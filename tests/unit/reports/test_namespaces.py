"""Tests the list of all collections with their progress, and how a long list is divided into pages."""

from __future__ import annotations

from typing import Any

import pytest

from syncsvc.figures.collections import CollectionFigures
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.options import BuildIndexes, StartOptions
from syncsvc.reports.namespaces import namespaces_report
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.saved.run import RunRecord
from syncsvc.state import Phase
from tests.unit.syncsvc.records import collection_record, known, run_record
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import CheckProgress, MismatchCounts, NamespaceProgress

UUID = bytes(range(16))
INDEX = {"name": "a_1", "key": {"a": 1}}


def shown(
    collection: CollectionRecord,
    record: RunRecord | None = None,
    snapshot: ProgressSnapshot = ProgressSnapshot(),
    figures: CollectionFigures = CollectionFigures(),
) -> dict[str, Any]:
    sync = known(
        record or run_record(),
        snapshot,
        collections=(collection,),
        figures={UUID: figures},
        now=110.0,
    )
    (line,) = namespaces_report(sync, None, None, 10)["namespaces"]
    assert isinstance(line, dict)
    return line


def test_without_a_sync_the_list_is_empty() -> None:
    assert namespaces_report(known(None), None, None, 10) == {"namespaces": [], "next": None}


def test_a_collection_being_copied_shows_everything() -> None:
    collection = collection_record(
        {},
        INDEX,
        status=CopyStatus.COPYING,
        total=1000,
        total_documents=10,
        copied=400,
        documents=4,
    )
    figures = CollectionFigures(events=2, began=100.0, documents=3, size=300)
    assert shown(collection, figures=figures) == {
        "namespace": "shop.orders.old",
        "phase": "copying",
        "copiedDocuments": 4,
        "estimatedTotalDocuments": 10,
        "copiedBytes": 400,
        "estimatedTotalBytes": 1000,
        "documentsPerSecond": 0.3,
        "bytesPerSecond": 30.0,
        "eventsApplied": 2,
        "indexesBuilt": 1,
        "totalIndexes": 1,
        "verification": None,
    }


@pytest.mark.parametrize(
    "fields, figures, phase",
    [
        ({"status": CopyStatus.WAITING}, CollectionFigures(), "waiting"),
        ({"status": CopyStatus.WAITING}, CollectionFigures(began=1.0), "copying"),
        ({"status": CopyStatus.COPYING}, CollectionFigures(began=1.0), "copying"),
        ({"status": CopyStatus.DONE}, CollectionFigures(began=1.0), "copied"),
        ({"status": CopyStatus.DONE}, CollectionFigures(indexing=True), "indexing"),
        ({"status": CopyStatus.DONE}, CollectionFigures(indexed=True), "copied"),
        ({"status": CopyStatus.DONE, "withheld": True}, CollectionFigures(), "withheld"),
        (
            {"status": CopyStatus.DONE, "withheld": True},
            CollectionFigures(indexing=True),
            "withheld",
        ),
    ],
)
def test_the_phase(fields: dict[str, Any], figures: CollectionFigures, phase: str) -> None:
    assert shown(collection_record(**fields), figures=figures)["phase"] == phase


@pytest.mark.parametrize(
    "status, estimate, copied, total",
    [
        (CopyStatus.WAITING, 10, 0, 10),
        (CopyStatus.COPYING, 10, 12, 12),
        (CopyStatus.DONE, 10, 8, 8),
        (CopyStatus.DONE, 10, 12, 12),
    ],
)
def test_totals_are_estimates_until_all_is_copied(
    status: CopyStatus, estimate: int, copied: int, total: int
) -> None:
    line = shown(
        collection_record(
            status=status,
            total=100 * estimate,
            total_documents=estimate,
            copied=100 * copied,
            documents=copied,
        )
    )
    assert (line["estimatedTotalDocuments"], line["estimatedTotalBytes"]) == (total, 100 * total)


def test_a_rate_is_shown_only_during_the_copy() -> None:
    figures = CollectionFigures(began=109.9, documents=5, size=500)
    for status, rates in ((CopyStatus.COPYING, (5.0, 500.0)), (CopyStatus.DONE, (None, None))):
        line = shown(collection_record(status=status), figures=figures)
        assert (line["documentsPerSecond"], line["bytesPerSecond"]) == rates


@pytest.mark.parametrize(
    "build, phase, figures, built",
    [
        (BuildIndexes.BEFORE_DATA_COPY, Phase.INITIALIZING, CollectionFigures(), None),
        (BuildIndexes.BEFORE_DATA_COPY, Phase.COPYING, CollectionFigures(), 1),
        (BuildIndexes.AFTER_DATA_COPY, Phase.INITIALIZING, CollectionFigures(), 0),
        (BuildIndexes.AFTER_DATA_COPY, Phase.COPYING, CollectionFigures(), 0),
        (BuildIndexes.AFTER_DATA_COPY, Phase.INDEXING, CollectionFigures(indexing=True), 0),
        (BuildIndexes.AFTER_DATA_COPY, Phase.INDEXING, CollectionFigures(indexed=True), 1),
        (BuildIndexes.AFTER_DATA_COPY, Phase.APPLYING, CollectionFigures(), 1),
    ],
)
def test_how_many_indexes_are_built(
    build: BuildIndexes, phase: Phase, figures: CollectionFigures, built: int | None
) -> None:
    record = run_record(options=StartOptions("a", "b", build_indexes=build), phase=phase)
    assert shown(collection_record({}, INDEX), record, figures=figures)["indexesBuilt"] == built
    withheld = collection_record({}, INDEX, withheld=True)
    assert shown(withheld, record, figures=figures)["indexesBuilt"] == 0


@pytest.mark.parametrize("phase, built", [(Phase.COPYING, 1), (Phase.APPLYING, 1), (Phase.DONE, 2)])
def test_an_index_that_only_the_commit_can_build_counts_after_it(phase: Phase, built: int) -> None:
    unique = {**INDEX, "name": "unique", "unique": True}
    record = run_record(phase=phase)
    assert shown(collection_record({}, INDEX, unique), record)["indexesBuilt"] == built


@pytest.mark.parametrize(
    "namespaces, mismatches, verification",
    [
        ({}, {}, None),
        ({"orders.old": NamespaceProgress(5, 9)}, {}, (5, 9, 0)),
        ({"orders.old": NamespaceProgress(9, 5)}, {"orders.old": 2, "other": 7}, (9, 9, 2)),
        ({"orders.old": NamespaceProgress()}, {}, (0, None, 0)),
    ],
)
def test_the_verification(
    namespaces: dict[str, NamespaceProgress],
    mismatches: dict[str, int],
    verification: tuple[int | None, ...] | None,
) -> None:
    check = CheckProgress(
        started=1.0,
        namespaces={Namespace("shop", name): each for name, each in namespaces.items()},
        mismatches=MismatchCounts(
            namespaces={Namespace("shop", name): number for name, number in mismatches.items()}
        ),
    )
    found = shown(collection_record(), snapshot=ProgressSnapshot(check=check))["verification"]
    names = ("comparedDocuments", "estimatedTotalDocuments", "mismatches")
    assert found == (None if verification is None else dict(zip(names, verification, strict=True)))


NAMES = ["a.x", "a.y", "ab.x", "b.x"]
MANY = tuple(
    collection_record(uuid=bytes([n]) * 16, namespace=Namespace(*name.split(".")))
    for n, name in enumerate(reversed(NAMES))
)


@pytest.mark.parametrize(
    "database, after, limit, names, following",
    [
        (None, None, 4, NAMES, None),
        (None, None, 3, NAMES[:3], "ab.x"),
        (None, "ab.x", 3, NAMES[3:], None),
        (None, "b.x", 3, [], None),
        (None, "a.xx", 1, ["a.y"], "a.y"),
        ("a", None, 10, NAMES[:2], None),
        ("a", None, 1, NAMES[:1], "a.x"),
        ("a", "a.x", 1, ["a.y"], None),
        ("c", None, 10, [], None),
    ],
)
def test_a_long_list_is_paged(
    database: str | None, after: str | None, limit: int, names: list[str], following: str | None
) -> None:
    sync = known(run_record(), collections=MANY)
    answer = namespaces_report(sync, database, after, limit)
    assert [each["namespace"] for each in answer["namespaces"]] == names
    assert answer["next"] == following
