"""Tests each metric of a check: its value in a known state, and its absence if the value is unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.metrics import Shown, values
from tests.unit.verifier.values import CHECKING, FAILED, INCOMPLETE, PASSED
from verifier.compare.check_progress import (
    Amounts,
    CheckProgress,
    MismatchCounts,
    Phase,
    TaskCounts,
)
from verifier.metrics import TABLE
from verifier.runtime.metrics import families

BEGUN = CheckProgress(phase=Phase.CHECK, generation=0, started=1_700_000_000.0)
RECHECKING = replace(FAILED, phase=Phase.RECHECK, ended=None, verdict=None)


def shown(progress: CheckProgress) -> Shown:
    return values(families(TABLE, progress))


def test_without_a_check_the_phase_is_shown() -> None:
    assert shown(CheckProgress()) == {
        "verifier_phase": {("idle",): 1, ("check",): 0, ("recheck",): 0}
    }


def test_a_starting_check_shows_no_invented_values() -> None:
    assert shown(BEGUN) == {
        "verifier_phase": {("idle",): 0, ("check",): 1, ("recheck",): 0},
        "verifier_start_time_seconds": {(): 1_700_000_000},
        "verifier_writes_off": {(): 0},
        "verifier_generation": {(): 0},
        "verifier_rechecked_documents_total": {(): 0},
        "verifier_document_mismatches": {
            ("missingOnDst",): 0,
            ("extraOnDst",): 0,
            ("content",): 0,
        },
        "verifier_lasting_document_mismatches": {(): 0},
        "verifier_definition_mismatches": {(): 0},
    }


ROWS: list[tuple[str, CheckProgress, dict[tuple[str, ...], float] | None]] = [
    ("phase", CHECKING, {("idle",): 0, ("check",): 1, ("recheck",): 0}),
    ("phase", RECHECKING, {("idle",): 0, ("check",): 0, ("recheck",): 1}),
    ("verdict", PASSED, {("passed",): 1, ("failed",): 0, ("incomplete",): 0}),
    ("verdict", FAILED, {("passed",): 0, ("failed",): 1, ("incomplete",): 0}),
    ("verdict", INCOMPLETE, {("passed",): 0, ("failed",): 0, ("incomplete",): 1}),
    ("verdict", RECHECKING, None),
    ("failure", INCOMPLETE, {("DefinitionChanged",): 1}),
    ("failure", FAILED, None),
    ("start_time_seconds", FAILED, {(): 1_700_000_000}),
    ("end_time_seconds", FAILED, {(): 1_700_000_100}),
    ("end_time_seconds", CHECKING, None),
    ("writes_off", CHECKING, {(): 0}),
    ("writes_off", FAILED, {(): 1}),
    ("generation", CHECKING, {(): 0}),
    ("generation", FAILED, {(): 3}),
    (
        "tasks",
        CHECKING,
        {("added",): 3, ("processing",): 2, ("completed",): 4, ("failed",): 1},
    ),
    ("tasks", replace(CHECKING, tasks=TaskCounts()), None),
    ("compared_documents", CHECKING, {(): 500}),
    ("compared_documents", FAILED, {(): 2_000}),
    ("compared_documents", replace(CHECKING, amounts=Amounts(0, 10)), {(): 0}),
    ("compared_documents", BEGUN, None),
    ("estimated_documents", CHECKING, {(): 2_000}),
    ("estimated_documents", BEGUN, None),
    ("compared_bytes", CHECKING, {(): 250_000}),
    ("compared_bytes", FAILED, {(): 1_000_000}),
    ("compared_bytes", BEGUN, None),
    ("estimated_bytes", CHECKING, {(): 1_000_000}),
    ("estimated_bytes", replace(CHECKING, amounts=Amounts(1, 10, 5)), None),
    ("rechecked_documents_total", FAILED, {(): 1_300}),
    (
        "document_mismatches",
        FAILED,
        {("missingOnDst",): 1_200, ("extraOnDst",): 0, ("content",): 34},
    ),
    ("lasting_document_mismatches", replace(FAILED, mismatches=MismatchCounts(lasting=7)), {(): 7}),
    ("definition_mismatches", FAILED, {(): 1}),
    (
        "change_events",
        CHECKING,
        {("source", "insert"): 3, ("source", "update"): 1, ("destination", "insert"): 3},
    ),
    ("lag_seconds", CHECKING, {("source",): 2}),
    ("lag_seconds", RECHECKING, {("source",): 0, ("destination",): 0}),
    ("lag_seconds", FAILED, None),
    ("rechecked_time_seconds", CHECKING, {("source",): 1_700_000_001}),
    (
        "rechecked_time_seconds",
        FAILED,
        {("source",): 1_700_000_090, ("destination",): 1_700_000_091},
    ),
]


@pytest.mark.parametrize("name, progress, expected", ROWS)
def test_the_value_of_each_metric(
    name: str, progress: CheckProgress, expected: dict[tuple[str, ...], float] | None
) -> None:
    assert shown(progress).get(f"verifier_{name}") == expected


def test_every_row_has_a_test() -> None:
    assert {f"verifier_{name}" for name, *_ in ROWS} == {metric.name for metric in TABLE}
