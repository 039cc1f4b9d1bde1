"""The HTTP API: parses requests, calls the service, and returns the answers to the requests.

The service checks whether a request is possible; this module calls no driver, and starts no threads.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from time import time
from typing import Any, Protocol

from flask import Blueprint, Response, request

from verifier.answers import progress_answer, summary_answer
from verifier.cluster import extended, failures
from verifier.cluster.document_filter_schema import filters_given
from verifier.cluster.document_filters import DocumentFilters
from verifier.cluster.namespace import Namespace
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
# The maximum number of definition mismatches that a summary lists. The summary also shows their total number.
_SUMMARIZED = 1_000


class Service(Protocol):
    """The methods of the service that the API calls. Each method may raise OperationError.

    The iterators over mismatches read from a cluster while they are used: they also raise the driver's errors.
    """

    def check(
        self,
        document_filter: Document | None,
        command: SentCommand,
        remap: Sequence[Document] = (),
        source_filters: DocumentFilters = DocumentFilters(),
    ) -> None: ...

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
    """Return the blueprint with all endpoints under /api/v1 except openapi.json. The endpoints call `service`.

    `recent` holds the newest commands, which the overview shows.
    """
    api = Blueprint("api", __name__, url_prefix="/api/v1")
    _add_overview(api, service, recent)
    readers = Readers()

    @api.post("/check")
    def check() -> dict[str, Any]:
        _no_parameters()
        given = load(CheckSchema(), json_body(extended.read))
        source_filters = filters_given(given["documentFilter"])
        service.check(
            given.get("filter") or None, _sent("check"), given["namespaceRemap"], source_filters
        )
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
    api.add_url_rule("/report", "report", report_view(service.report, PAGE, readers))
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
    """Add to `api` the endpoints that the web page polls. These endpoints contact no cluster."""

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
    """Return the namespaces that a request for mismatches selects; empty if the request selects all namespaces.

    `given` contains the parameters of the request. The name of a time-series collection also selects its buckets, which
    hold the documents.
    """
    if "namespace" not in given:
        return ()
    database, _, collection = given["namespace"].partition(".")
    return (given["namespace"], str(Namespace(database, collection).buckets))


def _sent(name: str) -> SentCommand:
    """Return a SentCommand for the current request, which sends the command `name`."""
    return SentCommand(name, time(), caller().name, request.remote_addr)


def _no_parameters() -> None:
    load(EmptySchema(), parameters())
