"""The audit log: one line before each command is executed, and one with its answer.

With --logPath, the lines go to a file of their own, else to the log.
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
from verifier.runtime.request_log import shown_body

_log = logging.getLogger(AUDIT_LOGGER)


def audit_commands(app: Flask) -> None:
    """Make the app record all requests except GET, HEAD and OPTIONS.

    Must be called after `log_requests` and `require_tokens`, whose hooks set the trace ID and the caller.
    """

    @app.before_request
    def received() -> None:
        if request.method not in HARMLESS:
            # Before the command is executed: a crash must not hide who sent it.
            _log.info("Received command", extra={**_subject(), "body": shown_body(MAX_BODY)})

    @app.after_request
    def answered(response: Response) -> Response:
        if request.method not in HARMLESS:
            result = {"status": response.status_code, "error": _error_name(response)}
            _log.info("Answered command", extra={**_subject(), **result})
        return response


@contextmanager
def audited(caller: str, command: str) -> Iterator[None]:
    """Record a command that the process itself executes in the block, on behalf of `caller`."""
    subject = {"caller": caller, "command": command}
    result: dict[str, Any] = {"status": None, "error": None}
    _log.info("Received command", extra=subject)
    try:
        yield
        result["status"] = 200
    except OperationError as error:
        result = {"status": error.kind.status, "error": error.kind.name}
        raise
    finally:
        _log.info("Answered command", extra={**subject, **result})


def _subject() -> dict[str, Any]:
    sender = caller()
    return {
        "caller": sender.name,
        "role": sender.role and sender.role.value,
        "clientIP": request.remote_addr,
        "method": request.method,
        "uri": request.full_path.rstrip("?"),
        "traceID": g.trace_id,
    }


def _error_name(response: Response) -> str | None:
    body = None if response.is_streamed else response.get_json(silent=True)
    return body.get("error") if isinstance(body, dict) else None
