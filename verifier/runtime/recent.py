"""Remembers the last commands that this process answered: time, name, caller, client address and error of each."""

from __future__ import annotations

import json
import threading
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
# The maximum length of an error description, in characters: it may name thousands of namespaces.
_LONGEST = 500
_API = "/api/v1/"


@dataclass(frozen=True)
class RecentCommand:
    """One command and its answer. `time` is in UNIX seconds.

    `address` is the address of the client; empty if the process sent the command itself. `caller` is the name of the
    client's token (None without a token file), or the name under which the process sent the command itself. `error` and
    `description` are None if the command succeeded.
    """

    time: float
    command: str
    caller: str | None
    address: str
    error: str | None = None
    description: str | None = None


class RecentCommands:
    """The newest commands: those that the API has answered, and those that the process itself has sent (see `own`).

    Older ones are forgotten. Thread-safe.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()  # guards _commands
        self._commands: deque[RecentCommand] = deque(maxlen=_MOST)

    @property
    def newest(self) -> tuple[RecentCommand, ...]:
        with self._lock:
            return tuple(reversed(self._commands))

    @contextmanager
    def own(self, caller: str, command: str) -> Iterator[None]:
        """Remember a command that the process itself executes in the block, with the name `caller` as its sender.

        If the newest remembered command is the same and was refused with the same error, replace it: a command that is
        retried for hours must not displace all other commands. A command that raises an exception other
        than OperationError has no answer, and is not remembered.
        """
        try:
            yield
        except OperationError as error:
            name, text = error.kind.name, str(error)[:_LONGEST]
            self._add_own(RecentCommand(time(), command, caller, "", name, text))
            raise
        self._add_own(RecentCommand(time(), command, caller, ""))

    def _add(self, command: RecentCommand) -> None:
        with self._lock:
            self._commands.append(command)

    def _add_own(self, command: RecentCommand) -> None:
        with self._lock:
            newest = self._commands[-1] if self._commands else None
            if newest is not None and command.error is not None:
                if replace(newest, time=command.time, description=command.description) == command:
                    self._commands.pop()
            self._commands.append(command)

    def watch(self, app: Flask) -> None:
        """Make the app remember every command to a known path.

        Must be called after `refuse_other_sites` and `require_tokens`: requests that these functions refuse are not
        remembered, because a stranger could send many of them to displace the real commands.
        """

        @app.before_request
        def begin() -> None:
            g.is_command = request.method not in HARMLESS and request.url_rule is not None

        @app.after_request
        def remember(response: Response) -> Response:
            if g.get("is_command", False):
                self._add(_command(response))
            return response


def recent_answer(command: RecentCommand) -> dict[str, Any]:
    """Return the JSON object that describes a command in the API."""
    return {
        "time": round(command.time, 3),
        "command": command.command,
        "caller": command.caller,
        "address": command.address,
        "success": command.error is None,
        "error": command.error,
        "errorDescription": command.description,
    }


class _RecentCommand(Strict):
    """One command that the process has answered."""

    time = always(fields.Float, "The time at which the command was answered, in UNIX seconds.")
    command = always(fields.String, "The name of the command.")
    caller = nullable(
        fields.String,
        "The name of the client's token (its role, if the token file gives no name), or the name under which the "
        "process itself sent the command; null if neither exists.",
    )
    address = always(
        fields.String, "The address of the client; empty if the process sent the command itself."
    )
    success = always(Boolean, "Whether the command was accepted.")
    error = nullable(
        fields.String,
        "The name of the error with which the command was refused; null if it was accepted.",
    )
    errorDescription = nullable(
        fields.String,
        f"The reason why the command was refused, cut after {_LONGEST} characters; null if it was accepted.",
    )


# The field `recentCommands` of the overviews.
RECENT_COMMANDS = always(
    fields.List,
    f"The last {_MOST} commands that this process has answered, the newest first. Requests without a sufficient token, "
    "with a Host header that is not allowed, or from another website, are left out.",
    fields.Nested(_RecentCommand),
)


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
    """Return whether the request body contains `"dryRun": true`."""
    with suppress(ValueError, RecursionError, AttributeError):
        return json.loads(request.get_data()).get("dryRun") is True
    return False
