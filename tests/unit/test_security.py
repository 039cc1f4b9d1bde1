"""Every endpoint requires a token, except the public ones listed here.

Addresses other than loopback need tokens and TLS, or `--insecureRemote`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from flask import Flask
from flask.testing import FlaskClient

import syncsvc.app
import syncsvc.cli
import syncsvc.settings
import verifier.app
import verifier.cli
import verifier.settings
from syncsvc.service import Service
from tests.support.tokens import OPERATOR, READER, bearer, write_tokens
from tests.unit.verifier.recorder import Recorder
from verifier.runtime.access import HARMLESS, TokenFile
from verifier.runtime.protection import ProtectionOptions
from verifier.runtime.sites import LOCALHOST

# The answers of these paths reveal nothing about a sync.
PAGE = {"/", "/page/index.html"}
PUBLIC = {"syncsvc": {"/livez", "/readyz", *PAGE}, "verifier": PAGE}
METHODS = ("GET", "HEAD", "OPTIONS", "POST", "PUT", "PATCH", "DELETE")


def app_of(service: str, tokens: TokenFile | None) -> Flask:
    if service == "verifier":
        return verifier.app.create_app(Recorder(), LOCALHOST, tokens)
    # The service is not initialized: requests that call its methods fail with InternalError.
    return syncsvc.app.create_app(object.__new__(Service), LOCALHOST, tokens)


@pytest.fixture(params=PUBLIC)
def service(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def client(service: str, tmp_path: Path) -> FlaskClient:
    return app_of(service, TokenFile(write_tokens(tmp_path))).test_client()


def requests_to(app: Flask) -> Iterator[tuple[str, str]]:
    """Yield every pair of an HTTP method and a path of the app, including methods that a path does not accept.

    An unknown path is yielded with every method, too.
    """
    paths = {rule.rule.replace("<name>", "index.html") for rule in app.url_map.iter_rules()}
    assert {"/metrics", "/api/v1/progress", "/api/v1/openapi.json"} < paths
    for path in sorted({*paths, "/nowhere"}):
        assert "<" not in path, "give a value for the variable part of this path"
        for method in METHODS:
            yield method, path


def is_public(service: str, method: str, path: str) -> bool:
    return method in HARMLESS and path in PUBLIC[service]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        bearer("wrong"),
        bearer(f"{OPERATOR}x"),
        {"Authorization": f"Basic {OPERATOR}"},
        {"X-Forwarded-For": "127.0.0.1", "X-Original-URL": "/livez"},
    ],
    ids=str,
)
def test_every_endpoint_requires_a_token(
    service: str, client: FlaskClient, headers: dict[str, str]
) -> None:
    for method, path in requests_to(client.application):
        answer = client.open(path, method=method, headers=headers)
        if is_public(service, method, path):
            assert answer.status_code not in (401, 403), (method, path)
        else:
            assert answer.status_code == 401, (method, path)
            assert answer.headers["WWW-Authenticate"].startswith("Bearer realm=")
            if method != "HEAD":
                assert answer.get_json()["error"] == "InvalidToken"


def test_a_reader_can_only_read(service: str, client: FlaskClient) -> None:
    for method, path in requests_to(client.application):
        answer = client.open(path, method=method, headers=bearer(READER))
        if method in HARMLESS:
            assert answer.status_code not in (401, 403), (method, path)
        elif path in PUBLIC[service]:
            assert answer.status_code == 403, (method, path)
        else:
            assert (answer.status_code, answer.get_json()["error"]) == (403, "RoleNotAllowed")


def test_an_operator_can_do_everything(client: FlaskClient) -> None:
    for method, path in requests_to(client.application):
        answer = client.open(path, method=method, data=b"[", headers=bearer(OPERATOR))
        assert answer.status_code not in (401, 403), (method, path)


def test_a_token_does_not_replace_the_check_of_host_and_origin(client: FlaskClient) -> None:
    """Requests for a foreign host, and commands of a foreign origin, must be refused even with a valid token.

    Otherwise a page of another site could use a token that the browser has.
    """
    for method, path in requests_to(client.application):
        headers = {**bearer(OPERATOR), "Host": "evil.example"}
        assert client.open(path, method=method, headers=headers).status_code == 403
        headers = {**bearer(OPERATOR), "Origin": "http://evil.example"}
        answer = client.open(path, method=method, data=b"[", headers=headers)
        assert (answer.status_code == 403) == (method not in HARMLESS), (method, path)


URIS = {
    "syncsvc": ["--cluster0", "mongodb://a", "--cluster1", "mongodb://b"],
    "verifier": ["--srcURI", "mongodb://a", "--destURI", "mongodb://b", "--verifyAll"],
}
READ: dict[str, Callable[[list[str]], Any]] = {
    "syncsvc": syncsvc.settings.read_settings,
    "verifier": verifier.settings.read_settings,
}


def test_other_addresses_are_refused_at_start(
    service: str, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = [*URIS[service], "--bindAddress", "0.0.0.0"]
    with pytest.raises(SystemExit) as raised:
        READ[service](arguments)
    assert raised.value.code == 2
    message = capsys.readouterr().err
    assert "'0.0.0.0' is not a loopback address" in message and "insecureRemote" in message
    files = ["--tokenFile", "/t", "--tlsCertFile", "/c", "--tlsKeyFile", "/k"]
    protection = READ[service]([*arguments, *files]).protection
    assert protection == ProtectionOptions(Path("/t"), Path("/c"), Path("/k"))
    exposed = READ[service]([*arguments, "--insecureRemote"]).protection
    assert exposed == ProtectionOptions(exposed="0.0.0.0")


def test_a_check_without_the_api_needs_no_protection() -> None:
    arguments = [*URIS["verifier"], "--checkOnce", "--bindAddress", "0.0.0.0"]
    assert verifier.settings.read_settings(arguments).protection == ProtectionOptions()


def test_a_wrong_token_file_ends_the_process(
    own_handlers: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_tokens(tmp_path, f"operator {OPERATOR}\n{READER}\n")
    options = ["--port", "0", "--tokenFile", str(path), "--logPath", str(tmp_path / "log")]
    assert syncsvc.cli.main([*URIS["syncsvc"], *options]) == 1
    message = capsys.readouterr().err
    assert message.startswith(
        f"syncsvc: InvalidTokenFile: Line 2 of the token file {path} is wrong"
    )
    log = (tmp_path / "log" / syncsvc.cli.LOG_FILE).read_text()
    assert "InvalidTokenFile" in log
    assert READER not in message + log and OPERATOR not in message + log


@pytest.mark.parametrize(
    "module, misspelt",
    [(syncsvc.cli, "SYNCSVC_TOKENFILE"), (verifier.cli, "SYNCSVC_VERIFIER_TOKEN")],
)
def test_the_log_names_misspelt_variables(
    own_handlers: None,
    clean_environment: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    module: ModuleType,
    misspelt: str,
) -> None:
    """A misspelt variable of the token file disables access control, so the log must name the variable."""
    service = module.__name__.partition(".")[0]
    for name in (misspelt, "SYNCSVC_MONGOD"):
        monkeypatch.setenv(name, "S3cr3t")
    secret = ["--webhook", "http://localhost:1/", "--webhookSecretFile", str(tmp_path / "none")]
    assert module.main([*URIS[service], *secret, "--logPath", str(tmp_path)]) == 1
    log = (tmp_path / module.LOG_FILE).read_text()
    assert f'"variables": ["{misspelt}"]' in log and "S3cr3t" not in log


@pytest.mark.parametrize("service, module", [("syncsvc", syncsvc.cli), ("verifier", verifier.cli)])
def test_a_wrong_webhook_secret_ends_the_process(
    own_handlers: None,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    service: str,
    module: ModuleType,
) -> None:
    path = tmp_path / "secret"
    path.touch(mode=0o644)
    path.write_text("0123456789abcdef")
    path.chmod(0o644)
    options = ["--webhook", "http://localhost:1/T0k3n", "--webhookSecretFile", str(path)]
    assert module.main([*URIS[service], *options, "--logPath", str(tmp_path / "log")]) == 1
    message = capsys.readouterr().err
    assert (
        f"InvalidWebhookSecret: The webhook's secret file {path} cannot be used: the file can be accessed"
        in message
    )
    with pytest.raises(SystemExit):
        READ[service]([*URIS[service], "--webhook", "localhost/T0k3n"])
    message = capsys.readouterr().err
    assert "the URL must begin with http:// or https://" in message and "T0k3n" not in message
    log = (tmp_path / "log" / module.LOG_FILE).read_text()
    assert "T0k3n" not in log and "0123456789abcdef" not in log
