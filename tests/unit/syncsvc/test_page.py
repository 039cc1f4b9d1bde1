"""Tests the web page and the answers that it reads: headers, files, ETags, parameters, and the latest commands."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from flask.testing import FlaskClient

from syncsvc.app import create_app
from syncsvc.cluster_queries import _names
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from syncsvc.service import Service
from tests.support.descriptions import assert_described
from tests.unit.syncsvc.test_api import api, service
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.page import SHARED
from verifier.runtime.httpd import MAX_BODY

__all__ = ["api", "service"]

OVERVIEW = "/api/v1/overview"


def overview(api: FlaskClient, **parameters: Any) -> dict[str, Any]:
    answer = api.get(OVERVIEW, query_string=parameters)
    assert_described("syncsvc", "get", OVERVIEW, 200, answer.content_type, answer.text)
    found: dict[str, Any] = answer.get_json()["overview"]
    return found


@pytest.mark.parametrize("path", ["/", "/page/base.css", "/page/page.js", "/page/icon.svg"])
def test_a_file_is_served_with_strict_headers(api: FlaskClient, path: str) -> None:
    answer = api.get(path)
    assert answer.status_code == 200
    policy = answer.headers["Content-Security-Policy"].split("; ")
    assert {"default-src 'none'", "script-src 'self'", "style-src 'self'"} < {*policy}
    assert "unsafe" not in str(policy)
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    again = api.get(path, headers={"If-None-Match": answer.headers["ETag"]})
    assert (again.status_code, again.data) == (304, b"")


@pytest.mark.parametrize("name", ["nothing.js", "..%2f__init__.py", "__init__.py", "../app.py"])
def test_no_other_file_is_served(api: FlaskClient, name: str) -> None:
    answer = api.get(f"/page/{name}")
    assert (answer.status_code, answer.get_json()["error"]) == (404, "NotFound")


def test_no_code_or_style_is_inline() -> None:
    page = (SHARED.parents[2] / "syncsvc" / "page" / "static" / "index.html").read_text()
    assert not re.search(r"<style|\s(style|on\w+)\s*=", page)
    assert page.count("<script") == page.count('<script type="module" src=')


def test_the_overview_of_an_idle_process(api: FlaskClient) -> None:
    found = overview(api)
    assert found["progress"]["state"] == "IDLE"
    assert found["commit"] == {"possible": False, "reasons": ["No sync was started."]}
    assert found["next"]["command"] == "start" and found["commands"] == ["start"]


def test_an_unchanged_overview_is_not_sent_again(api: FlaskClient, service: Service) -> None:
    first = api.get(OVERVIEW)
    tag = {"If-None-Match": first.headers["ETag"]}
    assert api.get(OVERVIEW, headers=tag).status_code == 304
    for _ in range(2):
        service.each_second(())
    assert api.get(OVERVIEW, headers=tag).status_code == 200
    table = api.get(f"{OVERVIEW}/namespaces")
    assert table.get_json() == {"success": True, "namespaces": [], "total": 0}
    tag = {"If-None-Match": table.headers["ETag"]}
    assert api.get(f"{OVERVIEW}/namespaces", headers=tag).status_code == 304


@pytest.mark.parametrize(
    "query", ["history=1m", "since=", "x=1", "since=" + "9" * 101, "history=all&history=6h"]
)
def test_bad_parameters_are_refused(api: FlaskClient, query: str) -> None:
    answer = api.get(f"{OVERVIEW}?{query}")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "InvalidRequest")


@pytest.mark.parametrize("query", ["sort=x", "offset=-1", "limit=0", "limit=1001", "phase=x"])
def test_bad_parameters_of_the_table_are_refused(api: FlaskClient, query: str) -> None:
    answer = api.get(f"{OVERVIEW}/namespaces?{query}")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "InvalidRequest")


def test_the_mismatches_of_a_collection_exclude_repaired_ones(api: FlaskClient) -> None:
    answer = api.get("/api/v1/mismatches?namespace=a.b&repaired=true")
    assert (answer.status_code, answer.get_json()["error"]) == (400, "InvalidRequest")


def test_the_mismatches_of_a_time_series_are_those_of_its_buckets() -> None:
    definition = CollectionSpec(
        Namespace("d", "weather"), Kind.TIME_SERIES, bytes(16), {"timeseries": {}}, {}
    )
    record = CollectionRecord(definition, CopyStatus.DONE, definition.namespace)
    assert _names("d.weather", [record]) == {"d.weather", "d.system.buckets.weather"}
    assert _names("d.other", [record]) == {"d.other"}


def test_the_last_commands_are_remembered(api: FlaskClient) -> None:
    api.post("/api/v1/pause")
    api.post("/api/v1/reset", json={"confirm": "cluster1", "dryRun": True})
    api.post("/api/v1/start", data=b" " * (MAX_BODY + 1))
    api.post("/api/v1/unknown")
    api.get("/api/v1/progress")
    found = overview(api)["recentCommands"]
    assert [(each["command"], each["error"]) for each in found] == [
        ("start", "RequestEntityTooLarge"),
        ("reset (dry run)", "InvalidState"),
        ("pause", "InvalidState"),
    ]
    assert {each["address"] for each in found} == {"127.0.0.1"}
    for _ in range(30):
        api.post("/api/v1/commit")
    assert len(overview(api)["recentCommands"]) == 20


@pytest.fixture
def foreign(service: Service) -> Iterator[FlaskClient]:
    yield create_app(service).test_client()


def test_another_host_cannot_show_the_page(foreign: FlaskClient) -> None:
    answer = foreign.get("/", headers={"Host": "evil.example"})
    assert (answer.status_code, answer.get_json()["error"]) == (403, "HostNotAllowed")
