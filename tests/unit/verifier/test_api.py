"""Tests the verifier's API: the calls to the service, the answers, and requests that are refused before a call."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import bson
import pytest
from bson.objectid import ObjectId
from flask.testing import FlaskClient
from pymongo.errors import AutoReconnect

from tests.unit.verifier.recorder import Recorder
from tests.unit.verifier.values import DEFINITION_MISMATCH, FAILED
from verifier import errors
from verifier.answers import progress_answer, summary_answer
from verifier.app import create_app
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import Document
from verifier.compare.errors import SUPERSEDED
from verifier.runtime.errors import OperationError

ID = "65a0c3f1e4b0a1b2c3d4e5f6"


@pytest.fixture
def service() -> Recorder:
    return Recorder()


@pytest.fixture
def api(service: Recorder) -> FlaskClient:
    return create_app(service).test_client()


def lines(api: FlaskClient, path: str) -> list[dict[str, Any]]:
    answer = api.get(f"/api/v1/{path}")
    assert answer.status_code == 200
    assert answer.headers["Content-Type"] == "application/x-ndjson"
    return [json.loads(line, parse_constant=pytest.fail) for line in answer.text.splitlines()]


@pytest.mark.parametrize(
    "body, document_filter",
    [
        (b"", None),
        (b" {} ", None),
        (b'{"filter": {}}', None),
        (b'{"filter": {"a": {"$gt": 1}}}', {"a": {"$gt": 1}}),
        (f'{{"filter": {{"_id": {{"$oid": "{ID}"}}}}}}'.encode(), {"_id": ObjectId(ID)}),
        (b'{"filter": {"a": {"$regex": "x", "$ne": 1}}}', {"a": {"$regex": "x", "$ne": 1}}),
    ],
)
def test_a_check_has_a_filter_in_extended_json(
    api: FlaskClient, service: Recorder, body: bytes, document_filter: Document | None
) -> None:
    answer = api.post("/api/v1/check", data=body)
    assert (answer.status_code, answer.get_json()) == (200, {"success": True})
    assert service.asked == [("check", document_filter)]


def test_a_check_has_filters_of_single_collections(api: FlaskClient, service: Recorder) -> None:
    body = (
        b'{"documentFilter": [{"database": "d", "collection": "c", '
        b'"filter": {"_id": {"$lt": {"$date": "2024-01-01T00:00:00Z"}}}}]}'
    )
    answer = api.post("/api/v1/check", data=body)
    assert (answer.status_code, answer.get_json()) == (200, {"success": True})
    query = bson.encode({"_id": {"$lt": datetime(2024, 1, 1)}})
    filters = DocumentFilters({Namespace("d", "c"): query})
    assert service.asked == [("check", None, filters)]


def test_metrics_are_read_from_progress_alone(api: FlaskClient, service: Recorder) -> None:
    answer = api.get("/metrics")
    assert answer.status_code == 200
    assert 'verifier_verdict{verdict="failed"} 1.0' in answer.text.splitlines()
    assert service.asked == []


@pytest.mark.parametrize("body", [b"", b"{}"])
def test_writes_off_is_passed_to_the_service(
    api: FlaskClient, service: Recorder, body: bytes
) -> None:
    answer = api.post("/api/v1/writesOff", data=body)
    assert (answer.status_code, answer.get_json()) == (200, {"success": True})
    assert service.asked == [("writesOff",)]


@pytest.mark.parametrize(
    "path, body, error, named",
    [
        ("check", b"{", "MalformedBody", "JSON"),
        ("check", b"[]", "MalformedBody", "not an object"),
        ("check", "{}".encode("utf-16"), "MalformedBody", "UTF-8"),
        ("writesOff", "{}".encode("utf-16"), "MalformedBody", "UTF-8"),
        ("check", b"null", "MalformedBody", "not an object"),
        ("check", f'{{"$oid": "{ID}"}}'.encode(), "MalformedBody", "not an object"),
        ("check", b'{"filter": {"_id": {"$oid": "x"}}}', "MalformedBody", "x"),
        ("check", b'{"filter": {"a": NaN}}', "MalformedBody", "NaN"),
        (
            "check",
            b'{"filter": {"a": 1, "a": 2}}',
            "MalformedBody",
            'has the field "a" twice',
        ),
        ("check", b"[" * 100_000, "MalformedBody", "JSON"),
        ("check", b'{"filter": null}', "InvalidRequest", "filter: Field may not be null"),
        ("check", b'{"filter": "a"}', "InvalidRequest", "filter: Must be a document"),
        ("check", b'{"documentFilter": {}}', "InvalidRequest", "documentFilter: Not a valid list"),
        (
            "check",
            b'{"documentFilter": [{"database": "d", "collection": "c", "filter": {"$where": "1"}}]}',
            "InvalidRequest",
            "documentFilter[0].filter: $where cannot select documents",
        ),
        (
            "check",
            b'{"documentFilter": [{"database": "my db", "collection": "c", "filter": {"a": 1}}]}',
            "InvalidRequest",
            "documentFilter[0].database: The name of a database must not contain a space",
        ),
        ("check", b'{"filter": []}', "InvalidRequest", "filter: Must be a document"),
        (
            "check",
            f'{{"filter": {{"$oid": "{ID}"}}}}'.encode(),
            "InvalidRequest",
            "filter: Must be a document",
        ),
        (
            "check",
            b'{"filter": {"a": 9223372036854775808}}',
            "InvalidRequest",
            "filter: The value cannot be written as BSON",
        ),
        (
            "check",
            b'{"filter": {"a": "\\ud800"}}',
            "InvalidRequest",
            "filter.a: Must not contain an unpaired surrogate",
        ),
        (
            "check",
            b'{"filter": {"a\\u0000b": 1}}',
            "InvalidRequest",
            "filter: The value cannot be written as BSON",
        ),
        ("check", b'{"query": {}}', "InvalidRequest", "query: Unknown field"),
        ("check?filter=x", b"", "InvalidRequest", "filter: Unknown field"),
        ("writesOff", b"1", "MalformedBody", "not an object"),
        ("writesOff", b'{"now": true}', "InvalidRequest", "now: Unknown field"),
        ("writesOff?x=1", b"", "InvalidRequest", "x: Unknown field"),
    ],
)
def test_a_bad_command_is_refused_by_name(
    api: FlaskClient, service: Recorder, path: str, body: bytes, error: str, named: str
) -> None:
    answer = api.post(f"/api/v1/{path}", data=body)
    assert (answer.status_code, answer.get_json()["error"]) == (400, error)
    assert answer.get_json()["success"] is False
    assert named in answer.get_json()["errorDescription"]
    assert service.asked == []


@pytest.mark.parametrize("path", ["check", "writesOff"])
def test_a_refusal_of_the_service_is_answered(
    api: FlaskClient, service: Recorder, path: str
) -> None:
    service.error = OperationError(errors.CHECK_IN_PROGRESS, "One runs.")
    answer = api.post(f"/api/v1/{path}")
    assert (answer.status_code, answer.get_json()["error"]) == (409, "CheckInProgress")


@pytest.mark.parametrize(
    "method, path, status, error",
    [
        ("GET", "check", 405, "MethodNotAllowed"),
        ("POST", "progress", 405, "MethodNotAllowed"),
        ("POST", "docMismatches", 405, "MethodNotAllowed"),
        ("POST", "writesOn", 404, "NotFound"),
    ],
)
def test_unknown_paths_and_methods_have_error_names(
    api: FlaskClient, method: str, path: str, status: int, error: str
) -> None:
    answer = api.open(f"/api/v1/{path}", method=method)
    assert (answer.status_code, answer.get_json()["error"]) == (status, error)


def test_progress_and_summary_are_those_of_the_check(api: FlaskClient) -> None:
    answer = api.get("/api/v1/progress")
    assert answer.get_json() == {"progress": progress_answer(FAILED), "success": True}
    answer = api.get("/api/v1/summary")
    expected = summary_answer(FAILED, [DEFINITION_MISMATCH])
    assert answer.get_json() == {**expected, "success": True}


@pytest.mark.parametrize(
    "path, asked",
    [
        ("docMismatches", ("docMismatches", None, None, 0.0)),
        ("docMismatches?limit=5&after=p&minDurationSecs=1.5", ("docMismatches", "p", 5, 1.5)),
        ("nsMismatches", ("nsMismatches", None, None)),
        ("nsMismatches?after=a%20b&limit=1", ("nsMismatches", "a b", 1)),
    ],
)
def test_mismatches_are_paged(
    api: FlaskClient, service: Recorder, path: str, asked: tuple[Any, ...]
) -> None:
    assert lines(api, path)
    assert service.asked == [asked]


def test_mismatches_are_streamed_one_per_line(api: FlaskClient) -> None:
    found = lines(api, "docMismatches")
    assert [each["_id"] for each in found] == [1, "x"]
    assert [each["place"] for each in found] == ["place-1", "place-x"]
    assert [each["component"] for each in lines(api, "nsMismatches")] == ["sku_1"]


@pytest.mark.parametrize(
    "path, named",
    [
        ("docMismatches?limit=0", "limit"),
        ("docMismatches?limit=x", "limit"),
        ("docMismatches?limit=99999999999", "limit"),
        ("docMismatches?after=", "after"),
        ("docMismatches?minDurationSecs=-1", "minDurationSecs"),
        ("docMismatches?minDurationSecs=nan", "minDurationSecs"),
        ("docMismatches?minDurationSecs=inf", "minDurationSecs"),
        ("docMismatches?limit=1&limit=2", "limit"),
        ("docMismatches?size=1", "size: Unknown field"),
        ("nsMismatches?minDurationSecs=1", "minDurationSecs: Unknown field"),
        ("nsMismatches?limit=-1", "limit"),
        ("progress?x=1", "x: Unknown field"),
        ("summary?minDurationSecs=1", "minDurationSecs: Unknown field"),
    ],
)
def test_a_bad_parameter_is_refused_by_name(
    api: FlaskClient, service: Recorder, path: str, named: str
) -> None:
    answer = api.get(f"/api/v1/{path}")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "InvalidRequest")
    assert named in answer.get_json()["errorDescription"]
    assert service.asked == []


def test_an_error_before_the_first_line_is_an_answer(api: FlaskClient, service: Recorder) -> None:
    service.error = AutoReconnect("h:1: closed")
    for path in ("nsMismatches", "summary"):
        answer = api.get(f"/api/v1/{path}")
        assert (answer.status_code, answer.get_json()["error"]) == (409, "ClusterUnreachable")


@pytest.mark.parametrize(
    "error, name",
    [
        (AutoReconnect("h:1: closed"), "ClusterUnreachable"),
        (OperationError(SUPERSEDED, "Gone."), "Superseded"),
        (KeyError("S3cr3t"), "InternalError"),
    ],
)
def test_an_error_in_mid_stream_is_the_last_line(
    api: FlaskClient, service: Recorder, error: Exception, name: str
) -> None:
    service.error = error
    *found, last = lines(api, "docMismatches")
    assert len(found) == 2
    assert last["error"] == name and "S3cr3t" not in last["errorDescription"]
