"""Tests the overview of a check on the web page, and the table of its namespaces."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.support.descriptions import assert_described
from tests.unit.verifier.recorder import Recorder
from tests.unit.verifier.values import FAILED, ITEMS, ORDERS, subject
from verifier.app import create_app
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import (
    CheckProgress,
    MismatchCounts,
    NamespaceProgress,
    Outcome,
    Phase,
    Verdict,
)
from verifier.overview import SortKey, TableRequest, namespaces_answer, overview_answer
from verifier.reports.report import report

RUNNING = CheckProgress(Phase.CHECK, started=1.0)
TABLE = CheckProgress(
    namespaces={
        Namespace("shop", "Apples"): NamespaceProgress(1, 10, 100, 1000),
        Namespace("shop", "pears"): NamespaceProgress(3, 30, 10, None),
    },
    mismatches=MismatchCounts(
        namespaces={Namespace("shop", "pears"): 2, Namespace("shop", "plums"): 1}
    ),
)


@pytest.mark.parametrize(
    "progress, text, command",
    [
        (CheckProgress(), "No check is running, and there is no result to show.", "check"),
        (RUNNING, "for the first time", None),
        (replace(RUNNING, phase=Phase.RECHECK), "until you end the check", "writesOff"),
        (replace(RUNNING, phase=Phase.RECHECK, writes_off=True), "the last changes", None),
        *(
            (CheckProgress(verdict=Verdict(outcome)), outcome.value, None)
            for outcome in (Outcome.PASSED, Outcome.FAILED, Outcome.INCOMPLETE)
        ),
    ],
)
def test_a_check_is_explained(progress: CheckProgress, text: str, command: str | None) -> None:
    found = overview_answer(progress, (), ())
    assert text in found["summary"]
    assert (found["next"] or {}).get("command") == command
    assert command is None or command in found["commands"]


def test_a_check_is_ended_after_the_commit_of_a_sync() -> None:
    found = overview_answer(replace(RUNNING, phase=Phase.RECHECK), (), ())
    assert found["next"]["text"].startswith(
        "If a sync is running, first wait until it is COMMITTED."
    )
    # A check of clusters without a sync can be ended during its first comparison.
    assert overview_answer(RUNNING, (), ())["commands"] == ["writesOff"]


@pytest.mark.parametrize(
    "request_, names",
    [
        (TableRequest(), ["Apples", "pears", "plums"]),
        (TableRequest(descending=True), ["plums", "pears", "Apples"]),
        (TableRequest(sort=SortKey.DOCUMENTS, descending=True), ["pears", "Apples", "plums"]),
        (TableRequest(sort=SortKey.BYTES), ["plums", "pears", "Apples"]),
        (TableRequest(sort=SortKey.MISMATCHES, descending=True), ["pears", "plums", "Apples"]),
        (TableRequest(search="APP"), ["Apples"]),
        (TableRequest(different=True), ["pears", "plums"]),
        (TableRequest(offset=1, limit=1), ["pears"]),
    ],
)
def test_the_table_is_sorted_and_filtered(request_: TableRequest, names: list[str]) -> None:
    found = namespaces_answer(TABLE, request_)
    assert [each["namespace"].removeprefix("shop.") for each in found["namespaces"]] == names


def test_the_answers_are_as_described() -> None:
    api = create_app(Recorder(FAILED)).test_client()
    for path in ("/api/v1/overview", "/api/v1/overview/namespaces"):
        answer = api.get(path)
        assert_described("verifier", "get", path, 200, answer.content_type, answer.text)
        tag = {"If-None-Match": answer.headers["ETag"]}
        assert api.get(path, headers=tag).status_code == 304


def test_the_page_and_the_files_of_both_folders_are_served() -> None:
    api = create_app(Recorder()).test_client()
    assert b"syncsvc-verifier" in api.get("/").data
    for name in ("check.js", "base.css", "rows.js"):
        assert api.get(f"/page/{name}").status_code == 200
    assert api.get("/page/page.js").status_code == 404


def test_the_overview_counts_the_rows_of_the_table() -> None:
    overview, table = overview_answer(TABLE, (), ()), namespaces_answer(TABLE, TableRequest())
    assert overview["namespaces"] == table["total"] == len(table["namespaces"]) == 3


def test_mismatches_of_one_namespace() -> None:
    recorder = Recorder()
    api = create_app(recorder).test_client()
    for path in ("docMismatches", "nsMismatches"):
        assert api.get(f"/api/v1/{path}?namespace=a.b").status_code == 200
    assert [each[-2:] for each in recorder.asked] == [("a.b", "a.system.buckets.b")] * 2


def test_the_buckets_of_a_time_series_collection_are_shown_as_the_collection() -> None:
    counts = {ORDERS.buckets: 3, ITEMS: 1}
    shown = replace(FAILED, mismatches=MismatchCounts(namespaces=counts))
    found = namespaces_answer(shown, TableRequest())["namespaces"]
    assert {each["namespace"]: each["mismatches"] for each in found} == {
        "shop.orders": 3,
        "shop.items": 1,
    }
    listed = report(subject(shown))["namespaces"]["listed"]
    assert {each["namespace"]: each["differences"] for each in listed} == {
        "shop.orders": 3,
        "shop.items": 1,
    }
