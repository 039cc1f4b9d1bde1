"""If there is a token file, requests must have a token whose role allows them, except reads of public pages.

Invalid token files are refused without showing a token.
"""

from __future__ import annotations

import hmac
import os
import re
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from tests.support.tokens import OPERATOR, READER, bearer, write_tokens
from verifier.runtime.access import (
    INVALID_TOKEN_FILE,
    Caller,
    Role,
    TokenFile,
    public,
    require_tokens,
)
from verifier.runtime.errors import OperationError
from verifier.runtime.httpd import install_error_handlers

RITA, OTTO = Caller("rita", Role.READER), Caller("otto", Role.OPERATOR)
SECRET = "S3cr3t-0123456789-abcdef"


def make_app(tokens: TokenFile | None) -> Flask:
    app = Flask("test")
    install_error_handlers(app)
    require_tokens(app, tokens)

    @app.route("/command", methods=["GET", "POST", "PATCH", "DELETE"])
    def command() -> dict[str, Any]:
        return {"success": True}

    @app.route("/open", methods=["GET", "POST"])
    @public
    def opened() -> dict[str, Any]:
        return {"success": True}

    return app


@pytest.fixture
def client(tmp_path: Path) -> FlaskClient:
    return make_app(TokenFile(write_tokens(tmp_path))).test_client()


@pytest.mark.parametrize(
    "header",
    [
        *("Bearer", "Bearer ", "Bearer x", f"Bearer {OPERATOR}x", f"Bearer {OPERATOR[:-1]}"),
        *(f"Basic {OPERATOR}", OPERATOR, f"Bearer{OPERATOR}", f"Bearer {OPERATOR} {OPERATOR}"),
        *("Bearer operator", "Bearer otto", f"Bearer {OPERATOR},Bearer {OPERATOR}", "", "Bearer ä"),
    ],
)
def test_a_wrong_token_is_refused(client: FlaskClient, header: str) -> None:
    for method in ("GET", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD"):
        for path in ("/command", "/nowhere"):
            answer = client.open(path, method=method, headers={"Authorization": header})
            assert answer.status_code == 401
            assert (
                answer.headers["WWW-Authenticate"] == 'Bearer realm="test", error="invalid_token"'
            )
            if method != "HEAD":
                assert answer.get_json()["error"] == "InvalidToken"
                assert OPERATOR not in answer.text


def test_a_missing_token_is_refused(client: FlaskClient) -> None:
    answer = client.post("/command")
    assert (answer.status_code, answer.get_json()["error"]) == (401, "InvalidToken")
    assert answer.headers["WWW-Authenticate"] == 'Bearer realm="test"'
    assert client.post("/open").status_code == 401, "only reading needs no token"


def test_a_reader_may_only_read(client: FlaskClient) -> None:
    headers = bearer(READER)
    assert client.get("/command", headers=headers).status_code == 200
    for method in ("POST", "PATCH", "DELETE"):
        answer = client.open("/command", method=method, headers=headers)
        assert (answer.status_code, answer.get_json()["error"]) == (403, "RoleNotAllowed")
        assert READER not in answer.text


def test_an_operator_may_do_everything(client: FlaskClient) -> None:
    for scheme in ("Bearer", "bearer", "BEARER"):
        for method in ("GET", "POST", "PATCH", "DELETE"):
            headers = {"Authorization": f"{scheme} {OPERATOR}"}
            assert client.open("/command", method=method, headers=headers).status_code == 200


def test_public_views_need_no_token(client: FlaskClient) -> None:
    for headers in ({}, bearer("wrong")):
        assert client.get("/open", headers=headers).status_code == 200


def test_without_a_token_file_everything_is_allowed() -> None:
    client = make_app(None).test_client()
    assert client.post("/command", headers=bearer("wrong")).status_code == 200


def test_every_token_is_compared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A token must be compared with all known tokens: otherwise, the time of an answer would say which one matches."""
    tokens = TokenFile(write_tokens(tmp_path))
    compared = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append(one)
        return one == other

    monkeypatch.setattr(hmac, "compare_digest", compare)
    assert [tokens.find(READER), tokens.find(OPERATOR), tokens.find("wrong")] == [RITA, OTTO, None]
    assert len(compared) == 6 and all(len(each) == 32 for each in compared)


def test_comments_blank_lines_and_missing_names(tmp_path: Path) -> None:
    text = (
        f"# tokens of the team\n\n  operator\t{OPERATOR}\r\n #x\nreader {READER}= rita@example.com"
    )
    tokens = TokenFile(write_tokens(tmp_path, text))
    assert tokens.find(OPERATOR) == Caller("operator", Role.OPERATOR)
    assert tokens.find(f"{READER}=") == Caller("rita@example.com", Role.READER)
    assert tokens.find(READER) is None


@pytest.mark.parametrize(
    "line, reason",
    [
        (f"admin {SECRET}", "reader or operator"),
        (f"{SECRET} operator", "reader or operator"),
        (SECRET, "reader or operator"),
        (f"operator:{SECRET}", "reader or operator"),
        ("operator", "words, not 1"),
        (f"operator {SECRET} a b", "words, not 4"),
        ("operator S3cr3t", "fewer than 16 characters"),
        (f"operator {SECRET}ä", "characters other than"),
        (f"operator {SECRET}\xff", "characters other than"),
        (f'operator "{SECRET}"', "characters other than"),
        (f"operator {SECRET} {'a' * 65}", "longer than 64"),
        (f"operator {SECRET} a:b", "longer than 64 characters, or contains characters other"),
        (f"reader {OPERATOR}", "repeats the token of line 1"),
    ],
)
def test_a_wrong_line_is_named_but_not_shown(tmp_path: Path, line: str, reason: str) -> None:
    path = write_tokens(tmp_path, "")
    path.write_bytes(f"operator {OPERATOR}\n\n{line}\n".encode("latin-1"))
    with pytest.raises(
        OperationError, match=re.escape(f"Line 3 of the token file {path}")
    ) as raised:
        TokenFile(path)
    assert raised.value.kind is INVALID_TOKEN_FILE
    assert reason in str(raised.value)
    assert "S3cr3t" not in str(raised.value) and OPERATOR not in str(raised.value)


@pytest.mark.parametrize("text", ["", "\n \n", "# only a comment"])
def test_an_empty_file_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(OperationError, match="contains no token"):
        TokenFile(write_tokens(tmp_path, text))


@pytest.mark.parametrize("mode", [0o604, 0o602, 0o660, 0o666, 0o777, 0o644])
def test_a_file_that_others_can_access_is_refused(tmp_path: Path, mode: int) -> None:
    path = write_tokens(tmp_path)
    path.chmod(mode)
    with pytest.raises(OperationError, match=f"its mode is {mode:04o}"):
        TokenFile(path)


def test_a_file_that_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match="No such file"):
        TokenFile(tmp_path / "missing")
    with pytest.raises(OperationError, match="not a regular file|Is a directory"):
        TokenFile(tmp_path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    with pytest.raises(OperationError, match="not a regular file"):
        TokenFile(tmp_path / "pipe")


def test_a_reload_replaces_the_tokens_or_keeps_them(tmp_path: Path) -> None:
    path = write_tokens(tmp_path)
    tokens = TokenFile(path)
    path.write_text("operator")
    with pytest.raises(OperationError):
        tokens.reload()
    assert tokens.find(OPERATOR) == OTTO
    path.write_text(f"operator {SECRET}")
    tokens.reload()
    assert (tokens.find(OPERATOR), tokens.find(SECRET)) == (None, Caller("operator", Role.OPERATOR))
