"""The OpenAPI description of the verifier's API: one row for each endpoint, except that of the description itself."""

from __future__ import annotations

from functools import cache
from typing import Any

from verifier import __version__, errors
from verifier.answer_schemas import ProgressAnswer, SummaryAnswer
from verifier.cluster.cluster import SAME_CLUSTER, SERVER_FEATURE_MISSING, UNSUPPORTED_TOPOLOGY
from verifier.cluster.failures import CLUSTER_ERRORS, OPLOG_WINDOW_EXCEEDED
from verifier.cluster.namespace_map import NAMESPACE_COLLISION
from verifier.compare.errors import (
    INCOMPATIBLE_METADATA,
    INVALID_FILTER,
    METADATA_BLOCKED,
    MISMATCHES_REPLACED,
    OTHER_CHECK_SAVED,
    SUPERSEDED,
)
from verifier.compare.schemas import (
    DefinitionMismatchesSchema,
    DefinitionMismatchLine,
    DocumentMismatchesSchema,
    DocumentMismatchLine,
)
from verifier.overview_schemas import (
    NamespacesTableAnswer,
    NamespacesTableSchema,
    OverviewAnswer,
)
from verifier.page.report_fields import ReportSchema
from verifier.reports.report_schemas import ReportAnswer
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.httpd import TOO_MANY_READERS
from verifier.runtime.openapi import LINES, TEXT, Operation, SuccessAnswer, described
from verifier.runtime.schemas import EmptySchema
from verifier.schemas import CheckSchema

_OF_METADATA = (*CLUSTER_ERRORS, METADATA_BLOCKED, SUPERSEDED)
_OF_MISMATCHES = (
    *_OF_METADATA,
    MISMATCHES_REPLACED,
    INCOMPATIBLE_METADATA,
    TOO_MANY_READERS,
)
_AT_CHECK = (
    INVALID_FILTER,
    errors.CHECK_IN_PROGRESS,
    COMMAND_IN_PROGRESS,
    SAME_CLUSTER,
    NAMESPACE_COLLISION,
    UNSUPPORTED_TOPOLOGY,
    errors.UNSUPPORTED_VERSION,
    SERVER_FEATURE_MISSING,
    OPLOG_WINDOW_EXCEEDED,
    OTHER_CHECK_SAVED,
)

OPERATIONS = (
    Operation(
        "post",
        "/api/v1/check",
        "Starts a check.",
        SuccessAnswer(),
        body=CheckSchema(),
        parameters=EmptySchema(),
        errors=(*_OF_METADATA, *_AT_CHECK),
    ),
    Operation(
        "post",
        "/api/v1/writesOff",
        "Notifies the check that users no longer write to either cluster.",
        SuccessAnswer(),
        body=EmptySchema(),
        parameters=EmptySchema(),
        errors=(
            *_OF_METADATA,
            errors.NO_CHECK_RUNNING,
            errors.WRITES_ALREADY_OFF,
            COMMAND_IN_PROGRESS,
        ),
    ),
    Operation(
        "get",
        "/api/v1/progress",
        "Shows the progress of the check.",
        ProgressAnswer(),
        parameters=EmptySchema(),
    ),
    Operation(
        "get",
        "/api/v1/summary",
        "Shows the results of the check in one document.",
        SummaryAnswer(),
        parameters=EmptySchema(),
        errors=_OF_MISMATCHES,
    ),
    Operation(
        "get",
        "/api/v1/docMismatches",
        "Lists the documents that differ.",
        DocumentMismatchLine(),
        parameters=DocumentMismatchesSchema(),
        content=LINES,
        errors=_OF_MISMATCHES,
    ),
    Operation(
        "get",
        "/api/v1/nsMismatches",
        "Lists the differences in definitions of collections, views and indexes, and in numbers of documents.",
        DefinitionMismatchLine(),
        parameters=DefinitionMismatchesSchema(),
        content=LINES,
        errors=_OF_MISMATCHES,
    ),
    Operation(
        "get",
        "/api/v1/overview",
        "Shows the overview that the web page at `/` displays: the progress, explanations in sentences, and results. "
        "The answer has an ETag.",
        OverviewAnswer(),
        parameters=EmptySchema(),
    ),
    Operation(
        "get",
        "/api/v1/overview/namespaces",
        "Shows a part of the web page's table of namespaces, sorted and filtered. The answer has an ETag.",
        NamespacesTableAnswer(),
        parameters=NamespacesTableSchema(),
    ),
    Operation(
        "get",
        "/api/v1/report",
        "Shows the report of the check: the compared data, the times, the senders of the commands, and the result. "
        "Browsers get HTML.",
        ReportAnswer(),
        parameters=ReportSchema(),
        errors=(errors.NO_CHECK, TOO_MANY_READERS),
        page=True,
    ),
    Operation("get", "/metrics", "Shows metrics for Prometheus.", None, content=TEXT),
)


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI document of the verifier."""
    return described(
        "syncsvc-verifier",
        __version__,
        "http://localhost:27020",
        "Compares two MongoDB clusters.",
        OPERATIONS,
    )
