"""The HTTP API: parses a request, calls the service, answers. No rule, no driver, no thread."""

from __future__ import annotations

import logging
from typing import Any

from flask import Blueprint

from syncsvc.reports.preflight import preflight_report
from syncsvc.schemas import NamespacesSchema, StartSchema
from syncsvc.service import Service
from verifier.runtime.httpd import json_body, parameters
from verifier.runtime.schemas import EmptySchema, load

SUCCESS = {"success": True}

_log = logging.getLogger(__name__)


def blueprint(service: Service) -> Blueprint:
    """The endpoints below /api/v1."""
    api = Blueprint("api", __name__, url_prefix="/api/v1")

    @api.post("/start")
    def start() -> dict[str, Any]:
        service.start(load(StartSchema(), json_body()))
        return SUCCESS

    @api.post("/preflight")
    def preflight() -> dict[str, Any]:
        return {**SUCCESS, **preflight_report(service.preflight(load(StartSchema(), json_body())))}

    @api.post("/pause")
    def pause() -> dict[str, Any]:
        load(EmptySchema(), json_body())
        service.pause()
        return SUCCESS

    @api.post("/resume")
    def resume() -> dict[str, Any]:
        load(EmptySchema(), json_body())
        service.resume()
        return SUCCESS

    @api.post("/commit")
    def commit() -> dict[str, Any]:
        load(EmptySchema(), json_body())
        _log.info("Commit handler called")
        service.commit()
        return SUCCESS

    @api.post("/reverse")
    def reverse() -> dict[str, Any]:
        load(EmptySchema(), json_body())
        service.reverse()
        return SUCCESS

    @api.get("/progress")
    def progress() -> dict[str, Any]:
        return {"progress": service.progress(), **SUCCESS}

    @api.get("/namespaces")
    def namespaces() -> dict[str, Any]:
        given = load(NamespacesSchema(), parameters())
        shown = service.namespaces(given.get("database"), given.get("after"), given["limit"])
        return {**shown, **SUCCESS}

    return api
