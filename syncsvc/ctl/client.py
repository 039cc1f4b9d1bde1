"""Sends requests to the HTTP API of a daemon or a verifier. Prints nothing."""

from __future__ import annotations

import json
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from traceback import extract_tb
from typing import Any, NoReturn
from urllib.parse import urlsplit

import requests

from syncsvc.ctl.exits import Exit

Document = Mapping[str, Any]

# The longest waits in seconds: for a connection, for the answer to a query, and for the answer to a command. The last
# one is long, because a preflight is slow.
_CONNECT, _QUERY, _COMMAND = 5.0, 30.0, 300.0


class ClientError(Exception):
    """An error that ends a command of `syncctl`, such as a failed request.

    `status` is the exit status of `syncctl`, and `answer` the JSON text that `--json` prints.
    """

    def __init__(self, status: Exit, error: str, description: str, answer: str = "") -> None:
        super().__init__(f"{error}: {description}")
        self.status = status
        self.error = error
        self.description = description
        failed = {"success": False, "error": error, "errorDescription": description}
        self.answer = answer or json.dumps(failed)


@dataclass(frozen=True)
class Answer:
    """An HTTP answer, or one line of it (see `Client.lines`): the text, the JSON object in the text, the headers."""

    text: str
    body: Document
    headers: Mapping[str, str]


@dataclass(frozen=True)
class Client:
    """Sends requests to the daemon or verifier at `url`, such as http://localhost:27182.

    Error messages name `service`, the program that should run there, and `option`, the option that sets the URL.
    Ignores the proxies and the .netrc of the environment, and follows no redirect: a token must not reach another host.
    """

    url: str
    token_file: Path | None = None
    ca_file: Path | None = None
    service: str = "syncsvc"
    option: str = "--url"

    def get(self, path: str, **parameters: str | int | float | bool) -> Answer:
        """Send a GET request with `parameters` as its query string, and return the answer. Raises ClientError.

        `path` begins with /, or is relative to /api/v1.
        """
        return self._ask("GET", path, params=parameters)

    def post(self, path: str, body: Document | None = None) -> Answer:
        """Send a POST request, with an empty object if `body` is None, and return the answer. Raises ClientError."""
        return self._ask("POST", path, json=body or {})

    def patch(self, path: str, body: Document) -> Answer:
        """Send a PATCH request, and return the answer. Raises ClientError."""
        return self._ask("PATCH", path, json=body)

    def text(self, path: str, **parameters: str) -> str:
        """Send a GET request whose answer need not be JSON, and return its text. Raises ClientError."""
        with self._named_errors():
            got = self._send("GET", path, params=parameters)
            if not _is_success(got):
                _refuse(self.url, got)
        return _decoded(got)

    def progress(self) -> Document:
        """Return the progress of the sync. Raises ClientError if the request fails, or if another program answers."""
        return progress_of(self.get("progress"), "state", f"{self.url} is not a sync service")

    def namespaces(self, **chosen: str) -> Iterator[Answer]:
        """Yield the pages of the list of collections; `chosen` are query parameters. Raises ClientError."""
        after: dict[str, str] = {}
        while True:
            answer = self.get("namespaces", **chosen, **after, limit=10_000)
            yield answer
            following = answer.body.get("next")
            if following is None:
                return
            if following == after.get("after") or not answer.body.get("namespaces"):
                error = ValueError(
                    f"the list of collections repeats itself, or has an empty page, at {following!r}"
                )
                raise unreadable(self.url, error)
            after = {"after": following}

    def lines(self, path: str, **parameters: str | int | float | bool) -> Iterator[Answer]:
        """Send a GET request whose answer contains a JSON object on each line, and yield an Answer for each line.

        Raises ClientError if the request fails, or if a line holds an error or is not a JSON object.
        """
        with self._named_errors(), self._stream(path, parameters) as got:
            if not _is_success(got):
                _refuse(self.url, got)
            for raw in filter(None, got.iter_lines()):
                text = raw.decode(errors="replace")
                line = _parsed(self.url, text)
                if line.get("success") is False:
                    error, description = str(line["error"]), str(line["errorDescription"])
                    raise ClientError(Exit.FAILED, error, description)
                yield Answer(text, line, got.headers)

    def _ask(self, method: str, path: str, **arguments: Any) -> Answer:
        with self._named_errors():
            got = self._send(method, path, **arguments)
            if not _is_success(got):
                _refuse(self.url, got)
            text = _decoded(got)
        body = _parsed(self.url, text)
        if method != "GET" and body.get("success") is not True:
            raise _unexpected(self.url)
        return Answer(text, body, got.headers)

    def _stream(self, path: str, parameters: Document) -> requests.Response:
        return self._send("GET", path, params=parameters, stream=True)

    def _send(self, method: str, path: str, **arguments: Any) -> requests.Response:
        url = self.url + (path if path.startswith("/") else f"/api/v1/{path}")
        seconds = _QUERY if method == "GET" else _COMMAND
        return self._session.request(
            method, url, timeout=(_CONNECT, seconds), allow_redirects=False, **arguments
        )

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        try:
            yield
        except requests.exceptions.SSLError as error:
            raise ClientError(
                Exit.UNREACHABLE,
                "TLSFailed",
                f"no secure connection to {self.url}: {_cause(error)}. If your own certificate authority has signed "
                f"the certificate of {self.service}, use --ca-file to name the file with the authority's certificate.",
            ) from error
        except requests.exceptions.ReadTimeout as error:
            raise self._unanswered("did not answer in time") from error
        except (requests.RequestException, OSError) as error:
            if _was_connected(error):
                raise self._unanswered(f"did not answer ({_cause(error)})") from error
            raise ClientError(
                Exit.UNREACHABLE,
                "Unreachable",
                f"no answer from {self.url} ({_cause(error)}). Check that {self.service} runs there (systemctl "
                f"status {self.service}), and the address ({self.option}).",
            ) from error

    def _unanswered(self, what: str) -> ClientError:
        return ClientError(
            Exit.UNREACHABLE,
            "NoAnswer",
            f"{self.url} accepted the connection, but {what}. It is unknown whether {self.service} executed the "
            "request: check the status (syncctl status, or syncctl verifier status for the verifier) before you repeat "
            "a command.",
        )

    @cached_property
    def _session(self) -> requests.Session:
        session = requests.Session()
        session.trust_env = False
        session.verify = system_authorities() if self.ca_file is None else str(self.ca_file)
        if self.token_file is not None:
            session.headers["Authorization"] = f"Bearer {_token(self.token_file, self.url)}"
        return session


def progress_of(answer: Answer, field: str, otherwise: str) -> Document:
    """Return the object `progress` of an answer.

    Raises ClientError with the text `otherwise` if this object or its field `field` is missing, because then another
    program has answered.
    """
    progress = answer.body.get("progress")
    if not isinstance(progress, dict) or field not in progress:
        raise ClientError(
            Exit.UNREACHABLE,
            "UnexpectedAnswer",
            f"{otherwise}. `syncctl` talks to syncsvc, `syncctl verifier` to syncsvc-verifier; check the address.",
        )
    return progress


def checked_url(text: str) -> str:
    """Return the URL of a daemon or verifier without a trailing slash; add `http://` if the scheme is missing.

    Raises ValueError if the URL is invalid or holds credentials.
    """
    url = text if "://" in text else f"http://{text}"
    parts = urlsplit(url)
    _ = parts.port  # raises ValueError
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ValueError(
            "the address must look like http://localhost:27182 or https://host.example:27182"
        )
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "the address must not hold credentials; put a token into a file and use --token-file"
        )
    return url.rstrip("/")


def _token(file: Path, url: str) -> str:
    """Return the token in a file.

    Raises ClientError if the file cannot be read or does not hold exactly one token, or if the token would go to
    another host without encryption.
    """
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
            Exit.USAGE,
            "TokenNotReadable",
            f"{file} cannot be read: {error}. Name another file with --token-file, or run the command as a user who "
            "may read this file.",
        ) from error
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise ClientError(
            Exit.USAGE,
            "TokenNotReadable",
            f"{file} does not hold exactly one token. Write only the token into the file, without its role and name.",
        )
    return token


def system_authorities() -> str | bool:
    """Return the file or folder with the certificates of the authorities that the system trusts.

    Return True if there is none: then requests uses the certificates of the package certifi.
    """
    paths = ssl.get_default_verify_paths()
    if paths.capath and not paths.cafile and any(Path(paths.capath).iterdir()):
        return paths.capath
    return paths.cafile or True


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def _cause(error: BaseException) -> str:
    """Return the innermost reason of a failed request in a few words, such as `Connection refused`."""
    reason = error
    while (inner := _inner(reason)) is not None:
        reason = inner
    text = str(reason).rpartition("] ")[2]
    return text.rpartition(": ")[2] or type(error).__name__


def _was_connected(error: BaseException) -> bool:
    """Return whether a failed request was lost only after the connection existed, so that it may have been sent."""
    # If there was no connection, the wrapped error is urllib3's MaxRetryError, which has a `reason`.
    return any(
        isinstance(each, BaseException) and not hasattr(each, "reason") for each in error.args
    )


def _inner(error: BaseException) -> BaseException | None:
    """Return the exception that `error`, an exception of requests or urllib3, wraps; None if it wraps none."""
    wrapped = (getattr(error, "reason", None), *error.args)
    return next((each for each in wrapped if isinstance(each, BaseException)), None)


def _is_success(got: requests.Response) -> bool:
    """Return whether the request was accepted. A redirect counts as a failure: syncsvc and its verifier send none."""
    return 200 <= got.status_code < 300


def _decoded(got: requests.Response) -> str:
    return got.content.decode(errors="replace")


def _refuse(url: str, got: requests.Response) -> NoReturn:
    """Raise a ClientError for an answer whose status is not 2xx; `url` is the URL of the client."""
    text = _decoded(got)
    body = _parsed(url, text)
    error = str(body.get("error", f"status {got.status_code}"))
    description = str(
        body.get(
            "errorDescription",
            "The answer contains no reason. Look for the cause in the log of the process at this address.",
        )
    )
    raise ClientError(_status(got.status_code, error), error, description, text.rstrip("\n"))


def _status(code: int, error: str) -> Exit:
    if code in (401, 403):
        return Exit.DENIED
    if error == "CannotCommit":
        return Exit.NOT_YET
    return Exit.USAGE if error in ("InvalidRequest", "MalformedBody") else Exit.FAILED


def _parsed(url: str, text: str) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise _unexpected(url)
    return body


def unreadable(url: str, error: Exception) -> ClientError:
    """Return the ClientError for an answer whose fields are missing or have unexpected values.

    `error` is the exception that was raised when the answer was read.
    """
    steps = extract_tb(error.__traceback__)
    place = f"{Path(steps[-1].filename).name}:{steps[-1].lineno}" if steps else "unknown"
    return ClientError(
        Exit.UNREACHABLE,
        "UnexpectedAnswer",
        f"the answer of {url} cannot be read ({type(error).__name__}: {error}; {place}). The answer comes from "
        "another program, or from a version that this syncctl does not know. Check the address, and compare the "
        "versions: syncctl --version, and syncsvc --version or syncsvc-verifier --version.",
    )


def _unexpected(url: str) -> ClientError:
    return ClientError(
        Exit.UNREACHABLE,
        "UnexpectedAnswer",
        f"{url} does not answer like syncsvc or syncsvc-verifier. Check the address, and any proxy between syncctl and "
        "this address.",
    )
