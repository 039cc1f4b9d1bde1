"""The audit log: one line before each command is executed, and one with its answer.

A request that is refused early, and a retry by the process itself, get at most the line with the answer. With
--logPath, the lines go to a separate file, otherwise to the log.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from flask import Flask, Response, g, request

from verifier.runtime.access import HARMLESS, caller
from verifier.runtime.errors import OperationError
from verifier.runtime.httpd import MAX_BODY
from verifier.runtime.logs import AUDIT_LOGGER
from verifier.runtime.request_log import shown_body, shown_method, shown_uri

_log = logging.getLogger(AUDIT_LOGGER)


def audit_commands(app: Flask) -> None:
    """Make the app record all requests except GET, HEAD and OPTIONS.

    Must be called after `log_requests` and `require_tokens`, whose hooks set the trace ID and the caller. A request
    that an earlier hook refuses gets only the line with its answer.
    """

    @app.before_request
    def received() -> None:
        if request.method not in HARMLESS:
            # Log the command before it is executed: a crash must not hide who sent it.
            _log.info("Received command", extra={**_subject(), "body": shown_body(MAX_BODY)})

    @app.after_request
    def answered(response: Response) -> Response:
        if request.method not in HARMLESS:
            result = {"status": response.status_code, "error": _error_name(response)}
            _log.info("Answered command", extra={**_subject(), **result})
        return response


class OwnCommands:
    """Records the commands that the process sends to itself under the name `caller`. Not thread-safe.

    The process retries refused commands. For a retry, only the answer is logged, and only if it differs from the
    previous answer.
    """

    def __init__(self, caller: str) -> None:
        self._caller = caller
        self._refused: dict[str, Any] | None = None

    def repeats(self, command: str) -> bool:
        """Return whether the last recorded command was `command`, and did not succeed."""
        return self._refused is not None and self._refused["command"] == command

    def forget(self) -> None:
        """Forget the last refused command, so that the next command is not a retry and is logged completely."""
        self._refused = None

    @contextmanager
    def record(self, command: str) -> Iterator[None]:
        """Log the command that the block executes, and its answer. See the class for retries."""
        subject = {"caller": self._caller, "command": command}
        answer: dict[str, Any] = {**subject, "status": None, "error": None}
        if not self.repeats(command):
            _log.info("Received command", extra=subject)
        try:
            yield
            answer["status"] = 200
        except OperationError as error:
            answer.update(status=error.kind.status, error=error.kind.name)
            raise
        finally:
            if answer != self._refused:
                _log.info("Answered command", extra=answer)
            self._refused = None if answer["status"] == 200 else answer


def _subject() -> dict[str, Any]:
    sender = caller()
    return {
        "caller": sender.name,
        "role": sender.role and sender.role.value,
        "clientIP": request.remote_addr,
        "method": shown_method(),
        "uri": shown_uri(),
        "traceID": g.trace_id,
    }


def _error_name(response: Response) -> str | None:
    body = None if response.is_streamed else response.get_json(silent=True)
    return body.get("error") if isinstance(body, dict) else None
