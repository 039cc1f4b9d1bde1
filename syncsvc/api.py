"""The HTTP API under /api/v1: parses each request, calls `Service`, and returns its answer.

This module does not decide whether a command is allowed, and contacts no cluster.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from flask import Blueprint, Response, request

from syncsvc.reports.namespace_schemas import NamespacesTableSchema
from syncsvc.reports.overview_schemas import OverviewSchema
from syncsvc.reports.preflight import preflight_report
from syncsvc.reports.rendering import PAGE
from syncsvc.reports.repair import repair_report
from syncsvc.saved.journal import Sender
from syncsvc.schemas import (
    LimitsSchema,
    MismatchesSchema,
    NamespacesSchema,
    RepairSchema,
    ResetSchema,
    StartSchema,
)
from syncsvc.service import Service
from verifier.compare.mismatch_lines import json_lines
from verifier.page.report_answer import report_view
from verifier.runtime.access import caller
from verifier.runtime.httpd import Readers, json_body, parameters, tagged
from verifier.runtime.recent import RecentCommands
from verifier.runtime.schemas import EmptySchema, load

SUCCESS = {"success": True}

_log = logging.getLogger(__name__)


def blueprint(service: Service, recent: RecentCommands) -> Blueprint:
    """Return the blueprint with all endpoints below /api/v1 except openapi.json.

    `recent` holds the newest commands, which the overview shows.
    """
    api = Blueprint("api", __name__, url_prefix="/api/v1")
    readers = Readers()
    _add_starts(api, service)
    for command in (service.pause, service.resume, service.commit, service.reverse):
        name = command.__name__
        api.add_url_rule(f"/{name}", name, _handler(name, command), methods=["POST"])
    _add_reset(api, service)
    _add_repair(api, service, readers)
    _add_users(api, service, readers)
    _add_limits(api, service)
    _add_queries(api, service, readers)
    _add_overview(api, service, recent)
    _add_report(api, service, readers)
    return api


def _sender() -> Sender:
    return Sender(caller().name, request.remote_addr)


def _add_starts(api: Blueprint, service: Service) -> None:
    """Add the endpoints `/start` and `/preflight`; the body of their requests holds the options of a sync."""

    @api.post("/start")
    def start() -> dict[str, Any]:
        service.start(load(StartSchema(), json_body()), _sender())
        return SUCCESS

    @api.post("/preflight")
    def preflight() -> dict[str, Any]:
        return {**SUCCESS, **preflight_report(service.preflight(load(StartSchema(), json_body())))}


def _add_reset(api: Blueprint, service: Service) -> None:
    @api.post("/reset")
    def reset() -> dict[str, Any]:
        given = load(ResetSchema(), json_body())
        if given["dryRun"]:
            return {**SUCCESS, **service.cluster_queries.reset_plan(given["confirm"])}
        _log.info("Reset handler called")
        service.reset(given["confirm"], _sender())
        return SUCCESS


def _add_repair(api: Blueprint, service: Service, readers: Readers) -> None:
    @api.post("/repair")
    def repair() -> dict[str, Any]:
        if load(RepairSchema(), json_body())["dryRun"]:
            with readers.one():
                return {**SUCCESS, **repair_report(service.cluster_queries.repair_plan())}
        _log.info("Repair handler called")
        service.repair(_sender())
        return SUCCESS


def _handler(name: str, command: Callable[[Sender], None]) -> Callable[[], dict[str, Any]]:
    """Return the Flask view function of a command without options: it calls `command`, and logs the command's `name`.

    The request must have no body, or an empty JSON object as its body; otherwise, the view function raises
    OperationError MalformedBody or InvalidRequest. It also raises the errors of `command`.
    """

    def handler() -> dict[str, Any]:
        load(EmptySchema(), json_body())
        # In the format that log tools for mongosync read.
        _log.info("%s handler called", name.capitalize())
        command(_sender())
        return SUCCESS

    return handler


def _add_users(api: Blueprint, service: Service, readers: Readers) -> None:
    @api.get("/users")
    def users() -> dict[str, Any]:
        with readers.one():
            return {**service.cluster_queries.users(), **SUCCESS}

    @api.post("/users")
    def copy_users() -> dict[str, Any]:
        load(EmptySchema(), json_body())
        _log.info("Users handler called")
        return {**SUCCESS, **service.copy_users(_sender())}


def _add_limits(api: Blueprint, service: Service) -> None:
    @api.get("/limits")
    def limits() -> dict[str, Any]:
        return {**SUCCESS, **service.limits()}

    @api.patch("/limits")
    def change_limits() -> dict[str, Any]:
        service.change_limits(load(LimitsSchema(), json_body()), _sender())
        return {**SUCCESS, **service.limits()}


def _add_queries(api: Blueprint, service: Service, readers: Readers) -> None:
    @api.get("/progress")
    def progress() -> dict[str, Any]:
        return {"progress": service.queries.progress(), **SUCCESS}

    @api.get("/namespaces")
    def namespaces() -> dict[str, Any]:
        given = load(NamespacesSchema(), parameters())
        shown = service.queries.namespaces(
            given.get("database"), given.get("after"), given["limit"]
        )
        return {**shown, **SUCCESS}

    @api.get("/mismatches")
    def mismatches() -> Response:
        given = load(MismatchesSchema(), parameters())
        found = service.cluster_queries.mismatches(
            given.get("after"),
            given.get("limit"),
            given["minDurationSecs"],
            given["repaired"],
            given.get("namespace"),
        )
        return readers.stream(json_lines(found))


def _add_report(api: Blueprint, service: Service, readers: Readers) -> None:
    view = report_view(lambda: service.cluster_queries.report(), PAGE, readers)
    api.add_url_rule("/report", "report", view)


def _add_overview(api: Blueprint, service: Service, recent: RecentCommands) -> None:
    """Add the endpoints that the web page polls. Their answers need no call to a cluster."""

    @api.get("/overview")
    def overview() -> Response:
        given = load(OverviewSchema(), parameters())
        shown = service.queries.overview(given["history"], given.get("since"), recent.newest)
        return tagged({**SUCCESS, "overview": shown})

    @api.get("/overview/namespaces")
    def namespaces_table() -> Response:
        request = load(NamespacesTableSchema(), parameters())
        return tagged({**SUCCESS, **service.queries.namespaces_table(request)})
