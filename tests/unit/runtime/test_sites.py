"""Commands that a web page of another site sends, and requests for foreign host names, are refused.

Requests of programs, and of pages of the same host, are accepted.
"""

from __future__ import annotations

import socket
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

from verifier.runtime.httpd import install_error_handlers
from verifier.runtime.sites import own_names, refuse_other_sites

NAMES = own_names("127.0.0.1", ["Sync.Example.com.", "sync"])
URL = "http://127.0.0.1:27182/command"

OWN_HOSTS = [
    *("127.0.0.1", "127.0.0.1:27182", "10.1.2.3", "[::1]", "[::1]:27182", "[fe80::1%25eth0]:1"),
    *("localhost", "localhost:1", "LocalHost", "localhost.", "localhost:"),
    *("sync.example.com", "SYNC.example.com:443", "sync:27182", socket.gethostname()),
]
FOREIGN_HOSTS = [
    *("evil.example", "evil.example:27182", "127.0.0.1.evil.example", "localhost.evil.example"),
    *(
        "example.com",
        "a.sync.example.com",
        "127.0.0.1, evil.example",
        "localhost:1:2",
        "localhost:x",
    ),
    *("[evil.example]", "[::1", "::1", "user@localhost", "localhost/", "1.2.3", ".", "127.0.0.256"),
]


@pytest.fixture(scope="module")
def client() -> FlaskClient:
    app = Flask("test")
    install_error_handlers(app)
    refuse_other_sites(app, NAMES)

    @app.route("/command", methods=["GET", "POST"])
    def command() -> dict[str, Any]:
        return {"success": True}

    return app.test_client()


@pytest.mark.parametrize("host", OWN_HOSTS)
def test_own_hosts(client: FlaskClient, host: str) -> None:
    for method in ("GET", "POST"):
        assert client.open(URL, method=method, headers={"Host": host}).status_code == 200


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("host", FOREIGN_HOSTS)
def test_foreign_hosts_are_refused(client: FlaskClient, method: str, host: str) -> None:
    answer = client.open(URL, method=method, headers={"Host": host})
    assert (answer.status_code, answer.get_json()["error"]) == (403, "HostNotAllowed")
    assert "--allowedHosts" in answer.get_json()["errorDescription"]


def test_a_foreign_host_is_refused_on_unknown_paths(client: FlaskClient) -> None:
    assert client.get("/nowhere", headers={"Host": "evil.example"}).status_code == 403


def test_a_program_may_leave_the_host_out(client: FlaskClient) -> None:
    """A request without a Host header, as health checks with HTTP/1.0 send it, must be accepted."""
    assert client.get(URL, environ_overrides={"HTTP_HOST": ""}).status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": ""},
        {"Origin": "http://127.0.0.1"},
        {"Origin": "http://127.0.0.1:80"},
        {"Origin": "http://localhost:27182"},
        {"Origin": "http://evil.example@127.0.0.1:27182"},
        {"Origin": "http://[::1"},
        {"Origin": "127.0.0.1:27182"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "Same-Site"},
        {"Origin": "http://127.0.0.1:27182", "Sec-Fetch-Site": "cross-site"},
    ],
    ids=str,
)
def test_commands_of_foreign_pages_are_refused(
    client: FlaskClient, headers: dict[str, str]
) -> None:
    answer = client.post(URL, data=b"{}", content_type="text/plain", headers=headers)
    assert (answer.status_code, answer.get_json()["error"]) == (403, "OriginNotAllowed")
    # A GET request is answered, but the answer allows no foreign page to read it.
    answer = client.get(URL, headers=headers)
    assert answer.status_code == 200
    assert not [name for name in answer.headers.keys() if name.startswith("Access-Control")]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://127.0.0.1:27182"},
        {"Origin": "http://127.0.0.1:27182", "Sec-Fetch-Site": "same-origin"},
        {"Sec-Fetch-Site": "none"},
        {"Host": "sync.example.com", "Origin": "https://Sync.example.com"},
    ],
    ids=str,
)
@pytest.mark.parametrize("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_commands_of_programs_and_own_pages_pass(
    client: FlaskClient, headers: dict[str, str], kind: str | None
) -> None:
    assert client.post(URL, data=b"{}", content_type=kind, headers=headers).status_code == 200


@pytest.mark.parametrize("address", ["127.0.0.1", "::1", "localhost"])
def test_the_full_name_is_not_looked_up_for_loopback(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(socket, "getfqdn", pytest.fail)
    assert own_names(address, []) == {"localhost", address, socket.gethostname().lower()}


@pytest.mark.parametrize("address", ["0.0.0.0", "10.1.2.3", "Db1.internal"])
def test_the_full_name_and_the_address_are_own_names(
    monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    monkeypatch.setattr(socket, "getfqdn", lambda: "db1.Example.com")
    assert {"db1.example.com", address.lower()} < own_names(address, [])
