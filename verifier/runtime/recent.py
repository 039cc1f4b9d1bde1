"""Remembers the last commands that an API has answered, for operators: when, who, from where, and the answer."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from time import time
from typing import Any

from flask import Flask, Response, g, request
from marshmallow import fields

from verifier.runtime.access import HARMLESS, caller
from verifier.runtime.errors import OperationError
from verifier.runtime.openapi import always, nullable
from verifier.runtime.schemas import Boolean, Strict

_MOST = 20
# Longer texts are cut, in characters: the description of an error may name thousands of namespaces.
_LONGEST = 500
_API = "/api/v1/"


@dataclass(frozen=True)
class RecentCommand:
    """One command and its answer. `time` is in UNIX seconds.

    `address` is that of the client; empty if the process sent the command itself. `caller` is the name of its token,
    None without a token file. `error` and `description` are None if the command succeeded.
    """

    time: float
    command: str
    caller: str | None
    address: str
    error: str | None = None
    description: str | None = None


class RecentCommands:
    """The last commands, the newest first. Several threads add to them."""

    def __init__(self) -> None:
        self._commands: deque[RecentCommand] = deque(maxlen=_MOST)

    @property
    def newest(self) -> tuple[RecentCommand, ...]:
        return tuple(reversed(self._commands.copy()))

    @contextmanager
    def own(self, caller: str, command: str) -> Iterator[None]:
        """Remember a command that the process itself executes in the block, on behalf of `caller`.

        If it repeats the newest command, which was refused with the same error, it replaces it: a command that is
        retried for hours must not displace all others.
        """
        error, description = None, None
        try:
            yield
        except OperationError as raised:
            error, description = raised.kind.name, str(raised)[:_LONGEST]
            raise
        finally:
            now = RecentCommand(time(), command, caller, "", error, description)
            newest = self._commands[-1] if self._commands else None
            if newest is not None and error is not None:
                if replace(newest, time=now.time, description=description) == now:
                    self._commands.pop()
            self._commands.append(now)

    def watch(self, app: Flask) -> None:
        """Remember every command to a known path that this app answers from now on.

        Must be called after `refuse_other_sites` and `require_tokens`: requests that these refuse are not remembered,
        because strangers could displace the commands with them.
        """

        @app.before_request
        def begin() -> None:
            g.is_command = request.method not in HARMLESS and request.url_rule is not None

        @app.after_request
        def remember(response: Response) -> Response:
            if g.get("is_command", False):
                self._commands.append(_command(response))
            return response


def recent_answer(command: RecentCommand) -> dict[str, Any]:
    """Return the object of the API for a command."""
    return {
        "time": round(command.time, 3),
        "command": command.command,
        "caller": command.caller,
        "address": command.address,
        "success": command.error is None,
        "error": command.error,
        "errorDescription": command.description,
    }


class RecentCommandSchema(Strict):
    """One command that the process has answered."""

    time = always(fields.Float, "When the command was answered, in UNIX seconds.")
    command = always(fields.String, "The name of the command.")
    caller = nullable(
        fields.String, "The name of the token, as in the token file; null without one."
    )
    address = always(
        fields.String, "The address of the client; empty for a command of the process itself."
    )
    success = always(Boolean, "Whether the command was accepted.")
    error = nullable(fields.String, "The name of the error with which the command was refused.")
    errorDescription = nullable(fields.String, "Why the command was refused.")


def _command(response: Response) -> RecentCommand:
    error, description = None, None
    if response.status_code >= 400:
        answer = response.get_json(silent=True) or {}
        error = str(answer.get("error", response.status_code))
        description = str(answer.get("errorDescription", ""))[:_LONGEST]
    name = request.path.removeprefix(_API)
    return RecentCommand(
        time(),
        # A body that was too large cannot be read.
        f"{name} (dry run)" if response.status_code != 413 and _is_dry_run() else name,
        caller().name,
        request.remote_addr or "",
        error,
        description,
    )


def _is_dry_run() -> bool:
    """Return whether the request only asks what the command would do."""
    with suppress(ValueError, RecursionError, AttributeError):
        return json.loads(request.get_data()).get("dryRun") is True
    return False
