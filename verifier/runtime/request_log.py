"""Logs requests and their answers with a trace ID, which the answer also contains in its header `Trace-Id`.

Log tools for mongosync expect exactly these messages and fields: `Received request` with `uri`, `method`, `body`,
`clientIP` and `traceID`; `sent response` with `status`, `body`, `traceID` and `latency`.

With the verbosity DEBUG, all requests are logged. Otherwise, successful queries for the operator's page, its files and
the overview that it polls are not logged, and other successful queries at most once in 30 seconds for each endpoint.
"""

from __future__ import annotations

import logging
import re
from math import inf
from time import monotonic, perf_counter
from uuid import uuid4

from flask import Flask, Response, g, request

# The maximum length of a logged URI, method or body, in characters. Log tools read the whole answer of /progress from
# the log.
_MOST_SHOWN = 4096

# The operator's page, its files, and the overview, which the page polls every few seconds.
_OF_PAGE = re.compile(r"/|/page/.*|/api/v1/overview(/.*)?")

# The minimum time between two logged requests of the same successful query, in seconds.
_QUERY_INTERVAL = 30.0

_log = logging.getLogger(__name__)


def log_requests(app: Flask) -> None:
    log = _RequestLog()
    app.before_request(log.received)
    app.after_request(log.sent)


class _RequestLog:
    """Logs the requests of one app; each method is called in the thread of its request."""

    def __init__(self) -> None:
        # The time of `monotonic` at which each query was logged last, by its method and endpoint.
        self._logged: dict[tuple[str, str], float] = {}

    def received(self) -> None:
        g.trace_id = str(uuid4())
        g.began = perf_counter()
        g.is_logged = _log.isEnabledFor(logging.DEBUG) or not self._is_repeated()
        if g.is_logged:
            _log_request()

    def sent(self, response: Response) -> Response:
        response.headers["Trace-Id"] = g.trace_id
        if response.status_code >= 400:
            # Log the next successful query.
            self._logged.pop(_query(), None)
        if not g.is_logged:
            if response.status_code < 400:
                return response
            _log_request()
        _log_answer(response)
        return response

    def _is_repeated(self) -> bool:
        """Return whether to skip the request: a query of the page, or one that was logged in the last 30 seconds.

        Otherwise, remember that this query is logged now.
        """
        if request.method not in ("GET", "HEAD"):
            return False
        if _OF_PAGE.fullmatch(request.path):
            return True
        query, now = _query(), monotonic()
        if now - self._logged.get(query, -inf) < _QUERY_INTERVAL:
            return True
        self._logged[query] = now
        return False


def _query() -> tuple[str, str]:
    """Return the method and the endpoint of the request. An unknown path has no endpoint, and its request fails."""
    return request.method, request.endpoint or ""


def _log_request() -> None:
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


def _log_answer(response: Response) -> None:
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


def shown_uri() -> str:
    """Return the path of the request and its query string, for a log line."""
    return request.full_path.rstrip("?")[:_MOST_SHOWN]


def shown_method() -> str:
    """Return the method of the request for a log line. It is cut, because a client may send any word as the method."""
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
