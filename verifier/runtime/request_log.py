"""Logs requests and their answers with a trace ID, which the answer also contains in its header `Trace-Id`.

Log tools for mongosync expect exactly these messages and fields: `Received request` with `uri`, `method`, `body`,
`clientIP` and `traceID`; `sent response` with `status`, `body`, `traceID` and `latency`.

Requests of the operator's page are logged only with the verbosity DEBUG, because an open page sends one every few
seconds.
"""

from __future__ import annotations

import logging
import re
from time import perf_counter
from uuid import uuid4

from flask import Flask, Response, g, request

# The maximum length of a logged URI, method or body, in characters. Log tools read the whole answer of /progress from
# the log.
_MOST_SHOWN = 4096

# The page, its files, and the answers that only the page polls.
_OF_PAGE = re.compile(r"/|/page/.*|/api/v1/overview(/.*)?")

_log = logging.getLogger(__name__)


def log_requests(app: Flask) -> None:
    app.before_request(_received)
    app.after_request(_sent)


def _is_logged() -> bool:
    polled = request.method == "GET" and _OF_PAGE.fullmatch(request.path) is not None
    return not polled or _log.isEnabledFor(logging.DEBUG)


def _received() -> None:
    g.trace_id = str(uuid4())
    g.began = perf_counter()
    if not _is_logged():
        return
    _log.info(
        "Received request",
        extra={
            "uri": shown_uri(),
            "method": shown_method(),
            "body": shown_body(_MOST_SHOWN),
            "clientIP": request.remote_addr,
            "traceID": g.trace_id,
        },
    )


def _sent(response: Response) -> Response:
    response.headers["Trace-Id"] = g.trace_id
    if not _is_logged():
        return response
    _log.info(
        "sent response",
        extra={
            "status": response.status_code,
            # A streamed answer is not kept in memory.
            "body": "" if response.is_streamed else _shown(response.get_data(), _MOST_SHOWN),
            "traceID": g.trace_id,
            "latency": f"{1000 * (perf_counter() - g.began):.3f}ms",
        },
    )
    return response


def shown_uri() -> str:
    """Return the path of the request and its query string, for a log line."""
    return request.full_path.rstrip("?")[:_MOST_SHOWN]


def shown_method() -> str:
    """Return the method of the request, for a log line: a client may send any word as the method."""
    return request.method[:_MOST_SHOWN]


def shown_body(most: int) -> str:
    """Return up to `most` characters of the request's body; an empty text if the body is too long for the API.

    The endpoint refuses such a body, and its answer is logged.
    """
    limit = request.max_content_length
    read = limit is None or (request.content_length or 0) <= limit
    return _shown(request.get_data(), most) if read else ""


def _shown(body: bytes, most: int) -> str:
    return body[: 4 * most].decode(errors="replace").strip()[:most]
