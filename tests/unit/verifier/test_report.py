"""Tests the report of a check: what was compared, who requested it, what is unknown, and that the page escapes text."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import bson
import pytest

from tests.unit.verifier.recorder import Recorder
from tests.unit.verifier.values import (
    CHECKING,
    FAILED,
    INCOMPLETE,
    PASSED,
    document_mismatch,
    subject,
)
from verifier import errors
from verifier.app import create_app
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import Amounts, CheckProgress, NamespaceProgress
from verifier.compare.record import CheckRecord, Request, SentCommand
from verifier.compare.scope import Scope
from verifier.page.report_page import HEADERS
from verifier.reports.rendering import PAGE
from verifier.reports.report import MOST_LISTED, MOST_NAMESPACES, report
from verifier.reports.report_schemas import ReportAnswer
from verifier.runtime.errors import OperationError

HOSTILE = "<img src=x onerror=alert(1)>\u202e\u2028{{7*7}}"


@pytest.mark.parametrize(
    "progress, level, verdict",
    [
        (CHECKING, "info", None),
        (PASSED, "good", "passed"),
        (FAILED, "bad", "failed"),
        (INCOMPLETE, "warning", "incomplete"),
    ],
)
def test_the_result(progress: CheckProgress, level: str, verdict: str | None) -> None:
    found = report(subject(progress))
    assert ReportAnswer().validate({"success": True, "report": found}) == {}
    assert (found["headline"]["level"], found["check"]["verdict"]) == (level, verdict)
    assert found["commands"][0]["caller"] == "alice"
    assert found["processes"] == [
        {"began": "2023-11-14T22:13:20Z", "version": "0.1.0", "host": "h1"}
    ]
    assert found["headline"]["text"] in PAGE.html(found)


def test_amounts_and_rates() -> None:
    found = report(subject(FAILED))
    assert found["compared"]["documents"] == 2_000
    assert (found["compared"]["seconds"], found["compared"]["documentsPerSecond"]) == (20.0, 100.0)
    assert found["differences"]["documents"] == 1_234
    assert len(found["differences"]["listed"]) == 2
    assert [each["differences"] for each in found["namespaces"]["listed"]] == [0, 1_234]


def test_a_check_of_an_earlier_version_has_gaps() -> None:
    given = subject(FAILED)
    record = replace(given.record, first_ended=None, commands=(), processes=())
    found = report(replace(given, record=record))
    assert found["compared"]["documentsPerSecond"] is None
    assert any(each.startswith("The senders of the commands") for each in found["notKnown"])
    assert "No command is recorded." in PAGE.html(found)


def test_a_check_of_nothing_is_no_success() -> None:
    nothing = replace(PASSED, first=Amounts(), namespaces={})
    found = report(subject(nothing))
    assert found["headline"]["level"] == "warning" and found["check"]["verdict"] == "passed"
    assert "there was no document to compare" in found["headline"]["text"]
    assert "No documents were compared." in PAGE.html(found)
    assert not any("each collection" in each for each in found["notKnown"])
    assert report(subject(replace(nothing, rechecked=1)))["headline"]["level"] == "good"


def test_an_unfinished_comparison_has_the_saved_amounts() -> None:
    given = subject(
        replace(INCOMPLETE, generation=0, first=None, amounts=Amounts(500, 2_000, 9_000))
    )
    found = report(given)
    assert found["compared"]["documents"] == 500
    assert any("may not have been saved" in each for each in found["notKnown"])


def test_an_option_of_the_process_is_no_stranger() -> None:
    given = subject(PASSED)
    found = report(
        replace(given, record=replace(given.record, commands=(SentCommand("check", 5.0),)))
    )
    assert "the process itself" in PAGE.html(found)
    assert not any("without a token" in each for each in found["notKnown"])


def test_only_a_check_that_was_ended_assumes_that_writes_had_ended() -> None:
    for progress in (CHECKING, PASSED):
        said = any("after writesOff" in each for each in report(subject(progress))["notKnown"])
        assert said is progress.writes_off


def test_before_the_end_differences_can_be_normal() -> None:
    differing = replace(CHECKING, mismatches=FAILED.mismatches)
    hint = "a sync keeps some definitions different on purpose"
    assert hint in PAGE.html(report(subject(differing)))
    assert hint not in PAGE.html(report(subject(FAILED)))


def hostile(record: CheckRecord) -> CheckRecord:
    scope = Scope(
        NamespaceFilter(({"database": HOSTILE},), ()),
        {Namespace("d", HOSTILE): Namespace("d", "x")},
    )
    request = Request(scope, document_filter=bson.encode({HOSTILE: HOSTILE * 10_000}))
    return replace(record, request=request, commands=(SentCommand("check", 1.0, HOSTILE, HOSTILE),))


def test_names_are_text() -> None:
    given = subject(
        replace(
            FAILED, namespaces={Namespace("d", HOSTILE): NamespaceProgress()}, notes=(HOSTILE,)
        ),
        mismatches=(document_mismatch(HOSTILE * 10_000),),
        unread=(HOSTILE,),
        waits=(HOSTILE,),
    )
    html = PAGE.html(report(replace(given, record=hostile(given.record))))
    assert "<img" not in html and not {"\u202e", "\u2028"} & {*html} and "{{7*7}}" in html
    assert html.count("&lt;img src=x") >= 8
    assert not re.search(r"<[^>]*\b(src|href)=", html) and " style=" not in html
    assert len(html) < 100_000


def test_the_size_is_bounded() -> None:
    names = {Namespace("d", f"c{n:06}"): NamespaceProgress() for n in range(2 * MOST_NAMESPACES)}
    listed = tuple(document_mismatch("x" * 100_000) for _ in range(MOST_LISTED))
    found = report(subject(replace(FAILED, namespaces=names), mismatches=listed))
    assert found["namespaces"]["total"] == 2 * MOST_NAMESPACES + 1
    assert len(found["namespaces"]["listed"]) == MOST_NAMESPACES
    assert f"At most {MOST_LISTED} differences are listed." in found["notKnown"]
    assert any("10,000 namespaces" in each for each in found["notKnown"])
    assert len(json.dumps(found)) < 2_000_000


@pytest.mark.parametrize(
    "path, headers, content",
    [
        ("report", {}, "application/json"),
        ("report", {"Accept": "text/html,*/*;q=0.8"}, "text/html; charset=utf-8"),
        ("report?format=html", {}, "text/html; charset=utf-8"),
        ("report?format=json", {"Accept": "text/html"}, "application/json"),
    ],
)
def test_the_format(path: str, headers: dict[str, Any], content: str) -> None:
    answer = create_app(Recorder()).test_client().get(f"/api/v1/{path}", headers=headers)
    assert (answer.status_code, answer.headers["Content-Type"]) == (200, content)
    assert answer.headers["Cache-Control"] == "no-store"
    if "html" in content:
        policy = HEADERS["Content-Security-Policy"]
        assert answer.headers["Content-Security-Policy"] == policy


def test_refusals() -> None:
    service = Recorder()
    api = create_app(service).test_client()
    for path in ("report?format=pdf", "report?x=1"):
        assert api.get(f"/api/v1/{path}").get_json()["error"] == "InvalidRequest"
    assert service.asked == []
    service.error = OperationError(errors.NO_CHECK, "None.")
    answer = api.get("/api/v1/report", headers={"Accept": "text/html"})
    assert (answer.status_code, answer.get_json()["error"]) == (404, "NoCheck")
