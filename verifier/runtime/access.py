"""Access control of the HTTP API: bearer tokens with roles, from a file that is read again on SIGHUP.

Only the digests of the tokens in the file are kept in memory.
"""

from __future__ import annotations

import hmac
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from hashlib import sha256
from pathlib import Path
from typing import Any, TypeVar

from flask import Flask, Response, current_app, g, request

from verifier.runtime.errors import ErrorKind, OperationError
from verifier.runtime.files import access_rule, read_private

V = TypeVar("V", bound=Callable[..., Any])

INVALID_TOKEN = ErrorKind(
    "InvalidToken",
    401,
    "The request has no token, or a token that is not in the token file.",
    "Nothing was done. Send the header `Authorization: Bearer TOKEN` with a token from the file that the option "
    "--tokenFile of the process names. If that file was changed, send SIGHUP to the process: only then does it read "
    "the file again.",
)
ROLE_NOT_ALLOWED = ErrorKind(
    "RoleNotAllowed",
    403,
    "The role of the token does not allow this request: a reader may only send GET, HEAD and OPTIONS requests.",
    "Nothing was done. Use the token of an operator.",
)
INVALID_TOKEN_FILE = ErrorKind(
    "InvalidTokenFile",
    500,
    "The file in --tokenFile cannot be used.",
    "Write one token per line, as in `operator TOKEN alice`: the role (reader or operator), the token, and optionally "
    "a name for the audit log. Lines that begin with # are comments. " + access_rule("the file"),
)

# HTTP methods that change nothing. Requests with other methods count as commands.
HARMLESS = frozenset({"GET", "HEAD", "OPTIONS"})

_LEAST_LENGTH = 16
# The characters that RFC 6750 allows.
_TOKEN = re.compile(r"[A-Za-z0-9._~+/-]+=*")
_NAME = re.compile(r"[\w.@+-]{1,64}")


class Role(Enum):
    """The role of a token: a reader may only send GET, HEAD and OPTIONS requests; an operator may send any request."""

    READER = "reader"
    OPERATOR = "operator"


@dataclass(frozen=True)
class Caller:
    """The sender of a request: the name and the role of the request's token.

    Both are None if the request needs no token or has no valid one. A token without a name in the token file has the
    name of its role.
    """

    name: str | None
    role: Role | None

    def may(self, method: str) -> bool:
        return method in HARMLESS or self.role is not Role.READER


ANYONE = Caller(None, None)


@dataclass(frozen=True)
class _Entry:
    """One line of a token file: the digest of the token, and the caller that the token identifies."""

    digest: bytes
    caller: Caller


class TokenFile:
    """The tokens of a file. Raises OperationError InvalidTokenFile if the file cannot be used."""

    def __init__(self, path: Path) -> None:
        self.name = str(path)
        self._path = path
        self._entries = _read(path)

    def reload(self) -> None:
        """Read the file again. Raise OperationError, and keep the former tokens, if the file cannot be used."""
        self._entries = _read(self._path)

    def find(self, token: str) -> Caller | None:
        """Return the caller that the token identifies; None if the token is not in the file."""
        digest = _digest(token)
        # Compare with every token, so that the duration of an answer reveals nothing about the tokens.
        found = [each.caller for each in self._entries if hmac.compare_digest(each.digest, digest)]
        return found[0] if found else None


def _read(path: Path) -> tuple[_Entry, ...]:
    try:
        lines = read_private(path).splitlines()
    except ValueError as error:
        raise _invalid(f"The token file {path} cannot be used: {error}.") from error
    entries = tuple(_entries(path, lines))
    if not entries:
        raise _invalid(f"The token file {path} contains no token.")
    return entries


def _entries(path: Path, lines: list[bytes]) -> Iterator[_Entry]:
    """Yield the entries of a token file. For an invalid line, raise OperationError with its number, not its text."""
    known: dict[bytes, int] = {}
    for number, line in enumerate(lines, 1):
        words = line.decode(errors="replace").split()
        if not words or words[0].startswith("#"):
            continue
        reason = _why_malformed(words)
        if reason is not None:
            raise _invalid(f"Line {number} of the token file {path} is wrong: {reason}.")
        role, token = Role(words[0]), words[1]
        digest = _digest(token)
        if digest in known:
            raise _invalid(
                f"Line {number} of the token file {path} repeats the token of line {known[digest]}."
            )
        known[digest] = number
        yield _Entry(digest, Caller(words[2] if len(words) > 2 else role.value, role))


def _why_malformed(words: list[str]) -> str | None:
    if words[0] not in {role.value for role in Role}:
        return "the first word must be reader or operator"
    if not 2 <= len(words) <= 3:
        return f"the line must have 2 or 3 words, not {len(words)}"
    if not _TOKEN.fullmatch(words[1]):
        return (
            "the token contains characters other than letters, digits and ._~+/- (and = at its end)"
        )
    if len(words[1]) < _LEAST_LENGTH:
        return f"the token has fewer than {_LEAST_LENGTH} characters"
    if len(words) > 2 and not _NAME.fullmatch(words[2]):
        return "the name is longer than 64 characters, or contains characters other than letters, digits and ._@+-"
    return None


def _digest(token: str) -> bytes:
    return sha256(token.encode(errors="replace")).digest()


def _invalid(description: str) -> OperationError:
    return OperationError(INVALID_TOKEN_FILE, description)


def public(view: V) -> V:
    """Mark a view as public: its GET, HEAD and OPTIONS requests need no token. Its answers must not be confidential."""
    setattr(view, "is_public", True)
    return view


def require_tokens(app: Flask, tokens: TokenFile | None) -> None:
    """Make the app refuse requests without a valid token, and requests that the role of their token does not allow.

    GET, HEAD and OPTIONS requests to `public` views need no token. If `tokens` is None, every request is allowed.
    """

    @app.before_request
    def check() -> None:
        sender = ANYONE if tokens is None or _is_public() else _find_caller(tokens)
        g.caller = sender
        if not sender.may(request.method):
            raise OperationError(
                ROLE_NOT_ALLOWED,
                f"The token {sender.name!r} has the role reader, which does not allow {request.method} {request.path}.",
            )

    @app.after_request
    def challenge(response: Response) -> Response:
        if response.status_code == INVALID_TOKEN.status:
            wrong = ', error="invalid_token"' if "Authorization" in request.headers else ""
            response.headers["WWW-Authenticate"] = f'Bearer realm="{app.name}"{wrong}'
        return response


def caller() -> Caller:
    """Return the sender of the current request; ANYONE if the request needs no token or has no valid one."""
    sender: Caller = g.get("caller", ANYONE)
    return sender


def _is_public() -> bool:
    view = current_app.view_functions.get(request.endpoint or "")
    return request.method in HARMLESS and getattr(view, "is_public", False)


def _find_caller(tokens: TokenFile) -> Caller:
    """Return the sender of the request. Raise OperationError InvalidToken if it has no valid token."""
    header = request.headers.get("Authorization")
    if header is None:
        raise OperationError(INVALID_TOKEN, "The request has no token.")
    scheme, _, token = header.partition(" ")
    if scheme.lower() != "bearer":
        raise OperationError(INVALID_TOKEN, "The Authorization header has no bearer token.")
    sender = tokens.find(token.strip())
    if sender is None:
        raise OperationError(INVALID_TOKEN, "The token of the request is not in the token file.")
    return sender
