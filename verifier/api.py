"""The HTTP API: parses a request, calls the service, answers. Contains no rules, no driver calls, no threads."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from time import time
from typing import Any, Protocol

from flask import Blueprint, Response, request

from verifier.answers import progress_answer, summary_answer
from verifier.cluster import extended, failures
from verifier.cluster.specification import Document
from verifier.compare.check_progress import CheckProgress
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.mismatch_lines import json_lines
from verifier.compare.record import SentCommand
from verifier.compare.schemas import DefinitionMismatchesSchema, DocumentMismatchesSchema
from verifier.overview import namespaces_answer, overview_answer
from verifier.overview_schemas import NamespacesTableSchema
from verifier.page.report_answer import report_view
from verifier.reports.rendering import PAGE
from verifier.runtime.access import caller
from verifier.runtime.httpd import Readers, json_body, parameters, tagged
from verifier.runtime.recent import RecentCommands
from verifier.runtime.schemas import EmptySchema, load
from verifier.runtime.waits import long_waits
from verifier.schemas import CheckSchema

SUCCESS = {"success": True}
# A summary is one document: it shows at most this many mismatches of definitions, and their total number.
_SUMMARIZED = 1_000


class Service(Protocol):
    """The methods of the service that the API calls. Each may raise OperationError."""

    def check(self, document_filter: Document | None, command: SentCommand) -> None: ...

    def writes_off(self, command: SentCommand) -> None: ...

    def progress(self) -> CheckProgress: ...

    def report(self) -> dict[str, Any]: ...

    def document_mismatches(
        self,
        after: str | None,
        limit: int | None,
        least_seconds: float,
        namespaces: Collection[str] = (),
    ) -> Iterator[StoredMismatch]: ...

    def definition_mismatches(
        self, after: str | None, limit: int | None, namespaces: Collection[str] = ()
    ) -> Iterator[StoredMismatch]: ...


def blueprint(service: Service, recent: RecentCommands) -> Blueprint:
    """Return the blueprint with the endpoints below /api/v1 that call the service.

    `recent` are the commands that they have answered.
    """
    api = Blueprint("api", __name__, url_prefix="/api/v1")
    _add_overview(api, service, recent)
    readers = Readers()

    @api.post("/check")
    def check() -> dict[str, Any]:
        _no_parameters()
        given = load(CheckSchema(), json_body(extended.read))
        service.check(given.get("filter") or None, _sent("check"))
        return SUCCESS

    @api.post("/writesOff")
    def writes_off() -> dict[str, Any]:
        _no_parameters()
        load(EmptySchema(), json_body())
        service.writes_off(_sent("writesOff"))
        return SUCCESS

    @api.get("/progress")
    def progress() -> dict[str, Any]:
        _no_parameters()
        return {"progress": progress_answer(service.progress(), long_waits()), **SUCCESS}

    @api.get("/summary")
    def summary() -> dict[str, Any]:
        _no_parameters()
        with readers.one(), failures.named_errors():
            definitions = [*service.definition_mismatches(None, _SUMMARIZED)]
        return {**summary_answer(service.progress(), definitions), **SUCCESS}

    _add_mismatches(api, service, readers)
    api.add_url_rule("/report", "report", report_view(service.report, PAGE))
    return api


def _add_mismatches(api: Blueprint, service: Service, readers: Readers) -> None:
    @api.get("/docMismatches")
    def document_mismatches() -> Response:
        given = load(DocumentMismatchesSchema(), parameters())
        found = service.document_mismatches(
            given.get("after"), given.get("limit"), given["minDurationSecs"], _namespaces(given)
        )
        return readers.stream(json_lines(found))

    @api.get("/nsMismatches")
    def definition_mismatches() -> Response:
        given = load(DefinitionMismatchesSchema(), parameters())
        found = service.definition_mismatches(
            given.get("after"), given.get("limit"), _namespaces(given)
        )
        return readers.stream(json_lines(found))


def _add_overview(api: Blueprint, service: Service, recent: RecentCommands) -> None:
    """Add the endpoints that the page polls. Their answers contact no cluster."""

    @api.get("/overview")
    def overview() -> Response:
        _no_parameters()
        shown = overview_answer(service.progress(), long_waits(), recent.newest)
        return tagged({"overview": shown, **SUCCESS})

    @api.get("/overview/namespaces")
    def namespaces() -> Response:
        wanted = load(NamespacesTableSchema(), parameters())
        return tagged({**namespaces_answer(service.progress(), wanted), **SUCCESS})


def _namespaces(given: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the namespaces that the parameters of a request for mismatches select; none for all namespaces."""
    return (given["namespace"],) if "namespace" in given else ()


def _sent(name: str) -> SentCommand:
    """Return the command of the current request."""
    return SentCommand(name, time(), caller().name, request.remote_addr)


def _no_parameters() -> None:
    load(EmptySchema(), parameters())
