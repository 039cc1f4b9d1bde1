"""Answers a request for a report, as JSON or as a page."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from flask import Response, jsonify, request

from verifier.page.report_fields import Format, ReportSchema
from verifier.page.report_page import HEADERS, ReportPage
from verifier.runtime.httpd import Readers, parameters
from verifier.runtime.schemas import load

HTML = "text/html; charset=utf-8"


def report_view(
    make: Callable[[], dict[str, Any]], page: ReportPage, readers: Readers
) -> Callable[[], Response]:
    """Return the view function of `GET /api/v1/report`.

    `make` returns the report, and may raise OperationError. `page` renders the report as HTML. `readers` limits
    the concurrent requests that read from a cluster; each call of `make` counts as one of them.
    """

    def report() -> Response:
        kind = load(ReportSchema(), parameters()).get("format") or _accepted_format()
        with readers.one():
            found = make()
        if kind is Format.HTML:
            return Response(page.html(found), content_type=HTML, headers=HEADERS)
        answer = jsonify({"success": True, "report": found})
        answer.headers["Cache-Control"] = "no-store"
        answer.vary.add("Accept")
        return answer

    return report


def _accepted_format() -> Format:
    """Return HTML if the `Accept` header of the request prefers HTML, as that of a browser does; otherwise JSON."""
    preferred = request.accept_mimetypes.best_match(("application/json", "text/html"))
    return Format.HTML if preferred == "text/html" else Format.JSON
