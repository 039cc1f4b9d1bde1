"""Tests the answers of the verifier's API for checks in various states, and the lines that describe mismatches."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

import pytest
from bson.int64 import Int64

from tests.unit import documents
from tests.unit.verifier.values import (
    CHECKING,
    DEFINITION_MISMATCH,
    FAILED,
    INCOMPLETE,
    PASSED,
    document_mismatch,
)
from verifier.answers import progress_answer, summary_answer
from verifier.compare.check_progress import Amounts, CheckProgress, Outcome, Phase, Verdict
from verifier.compare.mismatch import Difference, DocumentMismatch
from verifier.compare.mismatch_lines import line
from verifier.runtime.waits import LongWait

NOTHING = {
    "docsCompared": 0,
    "totalDocs": None,
    "srcBytesCompared": 0,
    "totalSrcBytes": None,
    "totalNamespaces": 0,
}
NO_CHANGES: dict[str, Any] = {"eventsPerSecond": None, "lagSecs": None, "eventCounts": {}}
COUNTERS = (
    "totalTasks",
    "addedTasks",
    "processingTasks",
    "failedTasks",
    "completedTasks",
    "metadataMismatchTasks",
    "recheckTasks",
)


def test_before_any_check_everything_is_empty() -> None:
    assert progress_answer(CheckProgress()) == {
        "phase": "idle",
        "error": None,
        "verificationStatus": dict.fromkeys(COUNTERS, 0),
        "verdict": None,
        "verdictReasons": [],
        "writesOff": False,
        "generation": None,
        "generationStats": NOTHING,
        "gen0Stats": None,
        "recentRecheckSecs": [],
        "totalRechecksDone": 0,
        "docsComparedPerSecond": None,
        "srcBytesComparedPerSecond": None,
        "srcChangeStats": NO_CHANGES,
        "dstChangeStats": NO_CHANGES,
        "srcLastRecheckedTS": None,
        "dstLastRecheckedTS": None,
        "notes": [],
    }


def test_a_running_check_shows_all_fields() -> None:
    answer = progress_answer(CHECKING)
    assert answer["verificationStatus"] == dict(zip(COUNTERS, (10, 3, 2, 1, 4, 0, 1), strict=True))
    assert (answer["phase"], answer["generation"], answer["verdict"]) == ("check", 0, None)
    assert answer["generationStats"] == {
        "docsCompared": 500,
        "totalDocs": 2_000,
        "srcBytesCompared": 250_000,
        "totalSrcBytes": 1_000_000,
        "totalNamespaces": 2,
    }
    assert answer["srcChangeStats"] == {
        "eventsPerSecond": 0.25,
        "lagSecs": 2,
        "eventCounts": {"insert": 3, "update": 1},
    }
    assert answer["srcLastRecheckedTS"] == {"$timestamp": {"t": 1_700_000_001, "i": 4}}
    assert (answer["docsComparedPerSecond"], answer["srcBytesComparedPerSecond"]) == (100, 50_000)


@pytest.mark.parametrize(
    "progress, verdict, reasons, error",
    [
        (CHECKING, None, 0, None),
        (PASSED, "passed", 0, None),
        (FAILED, "failed", 2, None),
        (
            INCOMPLETE,
            "incomplete",
            1,
            "DefinitionChanged: shop.orders was dropped on the source.",
        ),
    ],
)
def test_a_verdict_is_shown_with_its_reasons(
    progress: CheckProgress, verdict: str | None, reasons: int, error: str | None
) -> None:
    for answer in (progress_answer(progress), summary_answer(progress, ())):
        assert (answer["verdict"], len(answer["verdictReasons"])) == (verdict, reasons)
    assert progress_answer(progress)["error"] == error


@pytest.mark.parametrize("phase", Phase)
def test_phases_have_the_names_of_the_interface(phase: Phase) -> None:
    names = {Phase.IDLE: "idle", Phase.CHECK: "check", Phase.RECHECK: "recheck"}
    assert progress_answer(CheckProgress(phase=phase))["phase"] == names[phase]


@pytest.mark.parametrize("outcome", Outcome)
def test_outcomes_have_the_names_of_the_interface(outcome: Outcome) -> None:
    names = {Outcome.PASSED: "passed", Outcome.FAILED: "failed", Outcome.INCOMPLETE: "incomplete"}
    answer = progress_answer(CheckProgress(verdict=Verdict(outcome)))
    assert answer["verdict"] == names[outcome]


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_null(number: float) -> None:
    odd = replace(CHECKING, documents_per_second=number, size_per_second=number)
    odd = replace(odd, source=replace(odd.source, per_second=number))
    odd = replace(odd, recent_recheck_seconds=(number,))
    answer = progress_answer(odd)
    json.dumps([answer, summary_answer(odd, ())], allow_nan=False)
    assert answer["docsComparedPerSecond"] is None and answer["recentRecheckSecs"] == [None]


def test_a_summary_counts_mismatches() -> None:
    answer = summary_answer(FAILED, [DEFINITION_MISMATCH])
    assert answer["docMismatches"] == {
        "total": 1_234,
        "byType": {"missingOnDst": 1_200, "extraOnDst": 0, "content": 34},
        "byNamespace": {"shop.orders": 1_234},
    }
    assert answer["nsMismatches"] == [line(DEFINITION_MISMATCH)]
    assert answer["nsMismatchesTotal"] == 1
    assert answer["checkStats"]["docsCompared"] == 2_000
    assert (answer["srcChangeEvents"], answer["dstChangeEvents"]) == (
        {"insert": 1_000},
        {"insert": 900},
    )
    assert answer["notes"] == ["shop.$view: not compared"]


@pytest.mark.parametrize(
    "progress, seconds",
    [
        (CHECKING, 15.0),
        (replace(CHECKING, phase=Phase.RECHECK), None),
        (replace(CHECKING, size_per_second=None), None),
        (replace(CHECKING, size_per_second=0.0), None),
        (replace(CHECKING, amounts=Amounts(1, 2, 3)), None),
        (replace(CHECKING, amounts=Amounts(1, 2, 9, 3)), 0.0),
        (PASSED, None),
    ],
)
def test_the_remaining_time_is_that_of_the_first_generation(
    progress: CheckProgress, seconds: float | None
) -> None:
    assert summary_answer(progress, ())["estCheckSecsRemaining"] == seconds


def test_a_line_names_a_document() -> None:
    assert line(document_mismatch(7)) == {
        "type": "content",
        "namespace": "shop.orders",
        "_id": 7,
        "idType": "int",
        "fields": [{"path": "a.b", "detail": "1 against 2"}],
        "generation": 3,
        "durationSecs": 12.346,
        "place": "place-7",
    }


@pytest.mark.parametrize(
    "difference, name",
    [(Difference.MISSING, "missingOnDst"), (Difference.EXTRA, "extraOnDst")],
)
def test_the_type_says_which_side_lacks_the_document(difference: Difference, name: str) -> None:
    told = line(document_mismatch(7, difference, ()))
    assert (told["type"], told["fields"]) == (name, [])


@pytest.mark.parametrize(
    "key, name", [(7, "int"), (Int64(7), "long"), (7.0, "double"), ("7", "string"), ({}, "object")]
)
def test_a_line_shows_the_type_of_the_key(key: Any, name: str) -> None:
    assert line(document_mismatch(key))["idType"] == name


def test_a_key_that_cannot_be_decoded_is_shown_as_bytes() -> None:
    stored = document_mismatch(7)
    assert isinstance(stored.mismatch, DocumentMismatch)
    # A binary of subtype 2 without its inner length.
    key = documents.key(0x05, documents.int32(2) + b"\2xy")
    told = line(replace(stored, mismatch=replace(stored.mismatch, key=key)))
    assert (told["_id"], told["idType"]) == ("binData 02000000027879", "binData")


def test_a_line_names_a_definition() -> None:
    assert line(DEFINITION_MISMATCH) == {
        "type": "content",
        "namespace": "shop.items",
        "aspect": "index",
        "component": "sku_1",
        "detail": "unique expected",
        "generation": 3,
        "durationSecs": 0.0,
        "place": "place-1",
    }


def test_long_waits_are_warnings() -> None:
    wait = LongWait("No answer yet to find of d.c at host:1 (source)", "Check the server.", 20.0)
    (warning,) = progress_answer(CheckProgress(), [wait])["warnings"]
    assert warning == wait.text
    assert "warnings" not in progress_answer(CheckProgress())
