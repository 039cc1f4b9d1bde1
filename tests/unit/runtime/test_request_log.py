"""Requests and their answers are logged with the same ID, which the answer also contains.

Without the verbosity DEBUG, successful queries that the web page polls are not logged, and other successful queries
that are repeated soon are logged once.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from flask import Flask, request
from flask.testing import FlaskClient

from verifier.runtime.httpd import MAX_BODY, install_error_handlers, json_body, streamed_lines
from verifier.runtime.request_log import log_requests


@pytest.fixture
def client() -> Iterator[FlaskClient]:
    app = Flask("test")
    install_error_handlers(app)
    log_requests(app)

    @app.post("/echo")
    def echo() -> dict[str, Any]:
        return json_body()

    @app.get("/lines")
    def lines() -> Any:
        if "fail" in request.args:
            raise ZeroDivisionError
        return streamed_lines(iter(["{}", "{}"]))

    def empty(**parts: str) -> dict[str, Any]:
        return {}

    for rule in ("/empty", "/", "/page/<name>", "/api/v1/overview", "/api/v1/overview/<part>"):
        app.add_url_rule(rule, rule, empty)

    @app.get("/broken")
    def broken() -> Any:
        raise ZeroDivisionError

    yield app.test_client()


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "verifier.runtime.request_log")


def pair(caplog: pytest.LogCaptureFixture) -> tuple[Any, Any]:
    received, sent = (
        each for each in caplog.records if each.name == "verifier.runtime.request_log"
    )
    assert (received.message, sent.message) == ("Received request", "sent response")
    return received, sent


def test_what_a_page_polls_is_logged_only_for_debugging(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    polled = ("/", "/page/base.css", "/api/v1/overview?since=x", "/api/v1/overview/namespaces")
    for path in polled:
        assert client.get(path).headers["Trace-Id"]
    assert not caplog.records
    caplog.set_level(logging.DEBUG, "verifier.runtime.request_log")
    client.get(polled[0])
    pair(caplog)


@pytest.mark.parametrize(
    "level, method, path, count",
    [
        (logging.INFO, "GET", "/lines", 1),
        (logging.INFO, "GET", "/broken", 3),
        (logging.INFO, "GET", "/nowhere", 3),
        (logging.INFO, "POST", "/echo", 3),
        (logging.DEBUG, "GET", "/lines", 3),
    ],
)
def test_a_repeated_query_is_logged_once_unless_it_fails(
    client: FlaskClient,
    caplog: pytest.LogCaptureFixture,
    level: int,
    method: str,
    path: str,
    count: int,
) -> None:
    caplog.set_level(level, "verifier.runtime.request_log")
    for _ in range(3):
        client.open(path, method=method)
    messages = [
        each.message for each in caplog.records if each.name == "verifier.runtime.request_log"
    ]
    assert messages == ["Received request", "sent response"] * count


def test_a_query_is_logged_again_after_it_has_failed(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    for path in ("/lines?fail", "/lines", "/lines"):
        client.get(path)
    sent: list[Any] = [each for each in caplog.records if each.message == "sent response"]
    assert [each.status for each in sent] == [500, 200]


def test_each_query_is_logged(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    client.get("/lines")
    client.get("/empty")
    received: list[Any] = [each for each in caplog.records if each.message == "Received request"]
    assert [each.uri for each in received] == ["/lines", "/empty"]


@pytest.mark.parametrize("path", ["/overview", "/api/v1/overviews", "/pages/x"])
def test_other_requests_are_logged(
    client: FlaskClient, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    client.get(path)
    pair(caplog)


def test_a_request_and_its_answer(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    answer = client.post("/echo", data='{"b": 2}')
    received, sent = pair(caplog)
    assert (received.uri, received.method, received.body) == ("/echo", "POST", '{"b": 2}')
    assert (received.clientIP, sent.status, sent.body) == ("127.0.0.1", 200, '{"b":2}')
    assert received.traceID == sent.traceID == answer.headers["Trace-Id"]
    assert str(UUID(sent.traceID)) == sent.traceID
    assert sent.latency.endswith("ms") and float(sent.latency[:-2]) > 0


def test_each_request_has_its_own_id(client: FlaskClient) -> None:
    ids = {client.post("/echo").headers["Trace-Id"] for _ in range(3)}
    assert len(ids) == 3


@pytest.mark.parametrize(
    "path, body, status",
    [
        ("/nowhere", b"", 404),
        ("/echo", b"no json", 400),
        ("/echo", b"\xff\xfe", 400),
        ("/echo", b"x" * (MAX_BODY + 1), 413),
    ],
)
def test_refused_requests_are_logged(
    client: FlaskClient, caplog: pytest.LogCaptureFixture, path: str, body: bytes, status: int
) -> None:
    answer = client.post(path, data=body)
    _, sent = pair(caplog)
    assert answer.status_code == sent.status == status
    assert answer.headers["Trace-Id"] == sent.traceID
    assert '"success":false' in sent.body


def test_a_fault_of_ours_is_logged(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    assert client.get("/broken").status_code == 500
    assert pair(caplog)[1].status == 500


def test_long_bodies_are_cut(client: FlaskClient, caplog: pytest.LogCaptureFixture) -> None:
    client.post("/echo", json={"a": "é" * 5000})
    received, sent = pair(caplog)
    assert len(received.body) == len(sent.body) == 4096


def test_long_uris_and_methods_are_cut(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    client.open("/echo?" + "a" * 100_000, method="X" * 100_000)
    received, _ = pair(caplog)
    assert len(received.uri) == len(received.method) == 4096


def test_streamed_answers_are_not_kept(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    assert client.get("/lines").text == "{}\n{}\n"
    assert pair(caplog)[1].body == ""
