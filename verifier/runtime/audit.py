"""The audit log: one line before each command is executed, and one with its answer.

With --logPath, the lines go to a file of their own, else to the log. The latest commands are also kept in memory.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from flask import Flask, Response, current_app, g, request

from verifier.runtime.access import ANYONE, HARMLESS, Caller
from verifier.runtime.httpd import MAX_BODY
from verifier.runtime.logs import AUDIT_LOGGER, redact
from verifier.runtime.request_log import shown_body

# How many commands are kept in memory.
MOST_KEPT = 100
# A longer body is cut in memory, in characters; the audit log has all of it.
_MOST_SHOWN = 1000
_EXTENSION = "audit"

_log = logging.getLogger(AUDIT_LOGGER)


@dataclass(frozen=True)
class CommandRecord:
    """A command and its answer. `caller` and `role` are those of its token; both are None without a token file.

    `error` is the name of the error in the answer; None if the command succeeded.
    """

    time: datetime
    caller: str | None
    role: str | None
    address: str | None
    method: str
    path: str
    body: str
    status: int
    error: str | None
    trace_id: str


class LatestCommands:
    """The latest commands of the process, except those refused because of a token or a web page. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._records: deque[CommandRecord] = deque(maxlen=MOST_KEPT)

    def add(self, record: CommandRecord) -> None:
        with self._lock:
            self._records.append(record)

    def newest_first(self) -> list[CommandRecord]:
        with self._lock:
            return [*reversed(self._records)]


def latest_commands() -> list[CommandRecord]:
    """Return the latest commands of the app that handles the current request, the newest first."""
    latest: LatestCommands = current_app.extensions[_EXTENSION]
    return latest.newest_first()


def audit_commands(app: Flask) -> None:
    """Make the app record all requests except GET, HEAD and OPTIONS.

    Must be called after `log_requests` and `require_tokens`, whose hooks set the trace ID and the caller.
    """
    latest = app.extensions[_EXTENSION] = LatestCommands()

    @app.before_request
    def received() -> None:
        if request.method not in HARMLESS:
            # Before the command is executed: a crash must not hide who sent it.
            g.received = datetime.now(UTC)
            _log.info("Received command", extra={**_subject(), "body": shown_body(MAX_BODY)})

    @app.after_request
    def answered(response: Response) -> Response:
        if request.method not in HARMLESS:
            error = _error_name(response)
            status = response.status_code
            _log.info("Answered command", extra={**_subject(), "status": status, "error": error})
            if "received" in g:
                latest.add(_record(status, error))
        return response


def _subject() -> dict[str, Any]:
    caller = _caller()
    return {
        "caller": caller.name,
        "role": caller.role and caller.role.value,
        "clientIP": request.remote_addr,
        "method": request.method,
        "uri": request.full_path.rstrip("?"),
        "traceID": g.trace_id,
    }


def _caller() -> Caller:
    """Return the sender of the request. A request refused before its token was checked has no known sender."""
    caller: Caller = g.get("caller", ANYONE)
    return caller


def _error_name(response: Response) -> str | None:
    body = None if response.is_streamed else response.get_json(silent=True)
    return body.get("error") if isinstance(body, dict) else None


def _record(status: int, error: str | None) -> CommandRecord:
    subject = _subject()
    return CommandRecord(
        time=g.received,
        caller=subject["caller"],
        role=subject["role"],
        address=subject["clientIP"],
        method=subject["method"],
        path=request.path,
        body=redact(shown_body(_MOST_SHOWN)),
        status=status,
        error=error,
        trace_id=g.trace_id,
    )
