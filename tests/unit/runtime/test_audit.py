"""Every command is in the audit log with its sender and its answer, even if the command is refused.

If a command of the process itself is refused again and again for the same reason, it is logged only once. The list of
the latest commands leaves out commands with an unknown path, a foreign host name or an insufficient token.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.support.tokens import OPERATOR, READER, bearer, write_tokens
from verifier.runtime.access import TokenFile, require_tokens
from verifier.runtime.audit import OwnCommands, audit_commands
from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.httpd import install_error_handlers, json_body
from verifier.runtime.logs import AUDIT_LOGGER
from verifier.runtime.recent import RecentCommand, RecentCommands
from verifier.runtime.request_log import log_requests
from verifier.runtime.sites import LOCALHOST, refuse_other_sites

TEAPOT = ErrorKind("Teapot", 418, "It is a teapot.", "Do not.")


def make_app(tokens: TokenFile | None) -> Flask:
    app = Flask("test")
    install_error_handlers(app)
    log_requests(app)
    refuse_other_sites(app, LOCALHOST)
    require_tokens(app, tokens)
    audit_commands(app)
    recent = app.extensions["recent"] = RecentCommands()
    recent.watch(app)

    @app.route("/command", methods=["POST", "PATCH", "DELETE"])
    def command() -> dict[str, Any]:
        return {"success": True, **json_body()}

    @app.post("/refused")
    def refused() -> dict[str, Any]:
        raise OperationError(TEAPOT, "Short and stout.")

    @app.post("/broken")
    def broken() -> dict[str, Any]:
        raise ZeroDivisionError

    @app.get("/shown")
    def shown() -> dict[str, Any]:
        return {"commands": [each.command for each in recent.newest]}

    return app


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return make_app(TokenFile(write_tokens(tmp_path))).test_client()


@pytest.fixture(autouse=True)
def logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, AUDIT_LOGGER)


def lines(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [each for each in caplog.records if each.name == AUDIT_LOGGER]


def kept(client: FlaskClient) -> tuple[RecentCommand, ...]:
    recent: RecentCommands = client.application.extensions["recent"]
    return recent.newest


def test_long_uris_are_cut_also_if_the_command_is_refused(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise, a client without a token could soon fill the disk."""
    for headers in ({}, bearer(OPERATOR)):
        client.post("/command?" + "a" * 100_000, headers=headers)
    assert [len(each.uri) for each in lines(caplog)] == [4096] * 3


@pytest.mark.parametrize("method", ["POST", "PATCH", "DELETE"])
def test_a_command_and_its_answer(
    client: FlaskClient, caplog: pytest.LogCaptureFixture, method: str
) -> None:
    body = '{"a": "mongodb://user:S3cr3t@host"}'
    answer = client.open("/command", method=method, data=body, headers=bearer(OPERATOR))
    received, answered = lines(caplog)
    assert (received.message, answered.message) == ("Received command", "Answered command")
    for each in (received, answered):
        assert (each.caller, each.role, each.clientIP) == ("otto", "operator", "127.0.0.1")
        assert (each.method, each.uri) == (method, "/command")
        assert each.traceID == answer.headers["Trace-Id"]
    assert (received.body, answered.status, answered.error) == (body, 200, None)
    (record,) = kept(client)
    assert (record.caller, record.address) == ("otto", "127.0.0.1")
    assert (record.command, record.error) == ("/command", None)
    assert OPERATOR not in str([*map(vars, caplog.records), record])


def test_refused_and_failed_commands_are_recorded(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    for path, token in (("refused", OPERATOR), ("broken", OPERATOR), ("nowhere", OPERATOR)):
        client.post(f"/{path}", headers=bearer(token))
    client.post("/command", data="x" * 5000, headers=bearer(OPERATOR))
    client.post("/command", headers=bearer(READER))
    answers = [
        ("otto", 418, "Teapot"),
        ("otto", 500, "InternalError"),
        ("otto", 404, "NotFound"),
        ("otto", 400, "MalformedBody"),
    ]
    expected = [(who, error) for who, status, error in answers if status != 404]
    assert [(each.caller, each.error) for each in reversed(kept(client))] == expected
    audited = [each for each in lines(caplog) if each.message == "Answered command"]
    assert [(each.caller, each.status, each.error) for each in audited] == [
        *answers,
        ("rita", 403, "RoleNotAllowed"),
    ]
    bodies = [each.body for each in lines(caplog) if each.message == "Received command"]
    assert bodies == ["", "", "", "x" * 5000], "a command is logged before it is executed"


def test_unknown_callers_are_logged_but_not_kept(
    client: FlaskClient, caplog: pytest.LogCaptureFixture
) -> None:
    """Requests without a token must not displace the latest commands in the list that the page shows."""
    client.post("/command", headers={**bearer(OPERATOR), "Host": "evil.example"})
    client.post("/command", headers=bearer("wrong"))
    client.get("/shown", headers=bearer("wrong"))
    found = [(each.message, each.caller, each.error) for each in lines(caplog)]
    assert found == [
        ("Answered command", None, "HostNotAllowed"),
        ("Answered command", None, "InvalidToken"),
    ]
    assert kept(client) == ()


def test_the_latest_commands_are_kept_without_tokens_too() -> None:
    client = make_app(None).test_client()
    for number in range(25):
        client.post("/command" if number else "/refused")
    records = kept(client)
    assert {(each.command, each.caller) for each in records} == {("/command", None)}
    assert client.get("/shown").get_json()["commands"] == ["/command"] * 20


def test_a_refused_command_that_is_repeated_is_recorded_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    own = OwnCommands("desiredState")
    other = ErrorKind("Coffee", 409, "It is coffee.", "Do not.")

    def send(command: str, refusal: ErrorKind | None = None) -> None:
        with suppress(OperationError), own.record(command):
            if refusal is not None:
                raise OperationError(refusal, "No.")

    for kind in (TEAPOT, TEAPOT, TEAPOT, other, other, None):
        send("start", kind)
    send("start", TEAPOT)
    own.forget()
    send("start", TEAPOT)
    send("pause", TEAPOT)
    found = [
        (each.command, "sent" if each.message == "Received command" else each.error)
        for each in lines(caplog)
    ]
    assert found == [
        *(("start", "sent"), ("start", "Teapot"), ("start", "Coffee"), ("start", None)),
        *(("start", "sent"), ("start", "Teapot")),
        *(("start", "sent"), ("start", "Teapot")),
        *(("pause", "sent"), ("pause", "Teapot")),
    ]
