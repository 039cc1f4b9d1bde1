"""Sends requests to the HTTP API of a daemon. Prints nothing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from syncsvc.ctl.exits import Exit

Document = Mapping[str, Any]

# Seconds until a connection is established, and until the answer arrives. A preflight of many collections is slow.
_CONNECT, _READ = 5.0, 300.0
_NOT_IN_STATE = ("CannotCommit", "NoCheckRunning")


class ClientError(Exception):
    """A request failed, or was not sent. `answer` is what `--json` prints."""

    def __init__(self, status: Exit, error: str, description: str, answer: str = "") -> None:
        super().__init__(f"{error}: {description}")
        self.status = status
        self.error = error
        self.description = description
        failed = {"success": False, "error": error, "errorDescription": description}
        self.answer = answer or json.dumps(failed)


@dataclass(frozen=True)
class Answer:
    """The text of an answer, unchanged, and the JSON object in it; empty if the text is not JSON."""

    text: str
    body: Document
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Client:
    """Calls the daemon at `url`, such as http://localhost:27182.

    `service` is the program that should run there, and `option` the option of `syncctl` with its address; both for
    messages. Ignores the proxies and the .netrc of the environment, and follows no redirect: a token must not reach
    another host.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    service: str = "syncsvc"
    option: str = "--url"

    def get(self, path: str, **parameters: str | int | float | bool) -> Answer:
        """Return the answer to a GET; `path` is relative to /api/v1, or absolute. Raises ClientError."""
        return self._ask("GET", path, params=parameters)

    def post(self, path: str, body: Document | None = None) -> Answer:
        """Send a command, and return its answer. Raises ClientError."""
        return self._ask("POST", path, json=body or {})

    def patch(self, path: str, body: Document) -> Answer:
        """Change settings, and return the answer. Raises ClientError."""
        return self._ask("PATCH", path, json=body)

    def progress(self) -> Document:
        """Return the progress of the sync. Raises ClientError, also if a verifier answers."""
        return progress_of(self.get("progress"), "state", f"{self.url} is not a sync service")

    def lines(self, path: str, **parameters: str | int | float | bool) -> Iterator[Answer]:
        """Yield the lines of an answer, each a JSON object. Raises ClientError, also at a line that is an error."""
        with self._named_errors(), self._stream(path, parameters) as got:
            if not got.ok:
                _check(self.url, got)
            for raw in filter(None, got.iter_lines()):
                text = raw.decode(errors="replace")
                line = _parsed(self.url, text)
                if set(line) == {"error", "errorDescription"}:
                    raise ClientError(Exit.FAILED, line["error"], line["errorDescription"])
                yield Answer(text, line, got.headers)

    def _ask(self, method: str, path: str, **arguments: Any) -> Answer:
        with self._named_errors():
            got = self._send(method, path, **arguments)
            got.encoding = "utf-8"
            body = _check(self.url, got)
        return Answer(got.text, body, got.headers)

    def _stream(self, path: str, parameters: Document) -> requests.Response:
        return self._send("GET", path, params=parameters, stream=True)

    def _send(self, method: str, path: str, **arguments: Any) -> requests.Response:
        url = self.url + (path if path.startswith("/") else f"/api/v1/{path}")
        return self._session.request(
            method, url, timeout=(_CONNECT, _READ), allow_redirects=False, **arguments
        )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except requests.exceptions.SSLError as error:
            raise ClientError(
                Exit.UNREACHABLE,
                "TLSFailed",
                f"no secure connection to {self.url}: {_cause(error)}. If the certificate is that of an authority of "
                "your own, name its file with --ca-file.",
            ) from error
        except requests.exceptions.ReadTimeout as error:
            raise ClientError(
                Exit.UNREACHABLE,
                "NoAnswer",
                f"{self.url} has not answered for {_READ:.0f} seconds. A command may still take effect: see syncctl "
                "status.",
            ) from error
        except (requests.RequestException, OSError) as error:
            raise ClientError(
                Exit.UNREACHABLE,
                "Unreachable",
                f"no answer from {self.url} ({_cause(error)}). Check that {self.service} runs there (systemctl "
                f"status {self.service}), and the address ({self.option}).",
            ) from error

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        if self.ca_file is not None:
            session.verify = str(self.ca_file)
        if self.token_file is not None:
            session.headers["Authorization"] = f"Bearer {_token(self.token_file, self.url)}"
        return session


def progress_of(answer: Answer, field: str, otherwise: str) -> Document:
    """Return the object `progress` of an answer. Raises ClientError if it lacks the field: another program answers."""
    progress = answer.body.get("progress")
    if not isinstance(progress, dict) or field not in progress:
        raise ClientError(
            Exit.UNREACHABLE,
            "UnexpectedAnswer",
            f"{otherwise}. `syncctl` talks to syncsvc, `syncctl verifier` to syncsvc-verifier; check the address.",
        )
    return progress


def checked_url(text: str) -> str:
    """Return the address of a daemon without a trailing slash; a missing scheme is http. Raises ValueError."""
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError("must be like http://localhost:27182 or https://host.example:27182")
    if parts.username is not None or parts.password is not None:
        raise ValueError("must not hold credentials; put a token into a file and use --token-file")
    return url.rstrip("/")


def _token(file: Path, url: str) -> str:
    """Return the token in a file. Raises ClientError if there is none, or if it would be sent readable for others."""
    parts = urlsplit(url)
    if parts.scheme == "http" and not _is_loopback(parts.hostname or ""):
        raise ClientError(
            Exit.USAGE,
            "TokenNotProtected",
            f"the token is not sent to {url}, because others could read it on the network. Use https://, or an SSH "
            "tunnel.",
        )
    try:
        token = file.read_text().strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ClientError(
            Exit.USAGE, "TokenNotReadable", f"{file} cannot be read: {error}."
        ) from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError(
            Exit.USAGE, "TokenNotReadable", f"{file} does not hold exactly one token."
        )
    return token


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cause(error: BaseException) -> str:
    """Return the innermost reason of a failed request in a few words, such as `Connection refused`."""
    reason: Any = error
    while (inner := getattr(reason, "reason", None) or _first(reason)) is not None:
        reason = inner
    text = str(reason).rpartition("] ")[2]
    return text.rpartition(": ")[2] or type(error).__name__


def _first(error: BaseException) -> BaseException | None:
    found = error.args[0] if error.args else None
    return found if isinstance(found, BaseException) else None


def _check(url: str, got: requests.Response) -> Document:
    """Return the JSON object of an answer. Raises ClientError if the daemon refused the request."""
    if got.ok and "json" not in got.headers.get("Content-Type", ""):
        return {}
    body = _parsed(url, got.text)
    if got.ok and body.get("success") is not False:
        return body
    error = str(body.get("error", f"status {got.status_code}"))
    description = str(body.get("errorDescription", "The daemon gave no reason."))
    raise ClientError(_status(got.status_code, error), error, description, got.text.rstrip("\n"))


def _status(code: int, error: str) -> Exit:
    if code in (401, 403):
        return Exit.DENIED
    if error in _NOT_IN_STATE:
        return Exit.NOT_YET
    return Exit.USAGE if error in ("InvalidRequest", "MalformedBody") else Exit.FAILED


def _parsed(url: str, text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise ClientError(
            Exit.UNREACHABLE,
            "UnexpectedAnswer",
            f"the answer of {url} is not that of syncsvc. Check the address.",
        )
    return body
