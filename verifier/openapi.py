"""The OpenAPI description of the verifier's API: one row per endpoint, and the schemas of the answers."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from verifier import __version__, errors
from verifier.cluster.cluster import SAME_CLUSTER, SERVER_FEATURE_MISSING, UNSUPPORTED_TOPOLOGY
from verifier.cluster.failures import (
    CLUSTER_UNREACHABLE,
    NOT_AUTHORIZED,
    OPLOG_WINDOW_EXCEEDED,
    UNEXPECTED_SERVER_ERROR,
)
from verifier.compare.check_progress import Outcome, Phase
from verifier.compare.errors import (
    INCOMPATIBLE_METADATA,
    INVALID_FILTER,
    METADATA_BLOCKED,
    MISMATCHES_REPLACED,
    OTHER_CHECK_SAVED,
    SUPERSEDED,
)
from verifier.compare.mismatch import Difference
from verifier.compare.schemas import (
    DefinitionMismatchesSchema,
    DefinitionMismatchLine,
    DocumentMismatchesSchema,
    DocumentMismatchLine,
)
from verifier.overview_schemas import (
    NamespacesTableAnswer,
    NamespacesTableSchema,
    OverviewFields,
)
from verifier.page.report_schemas import ReportSchema
from verifier.reports.schemas import ReportAnswer
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.httpd import TOO_MANY_READERS
from verifier.runtime.openapi import (
    LINES,
    TEXT,
    Operation,
    SuccessAnswer,
    always,
    described,
    nullable,
    sometimes,
)
from verifier.runtime.schemas import Boolean, EmptySchema, Strict
from verifier.schemas import CheckSchema

# Errors of every operation that queries a cluster.
_OF_CLUSTERS = (CLUSTER_UNREACHABLE, NOT_AUTHORIZED, UNEXPECTED_SERVER_ERROR)
_OF_METADATA = (*_OF_CLUSTERS, METADATA_BLOCKED, SUPERSEDED)
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
    UNSUPPORTED_TOPOLOGY,
    errors.UNSUPPORTED_VERSION,
    SERVER_FEATURE_MISSING,
    OPLOG_WINDOW_EXCEEDED,
    OTHER_CHECK_SAVED,
)


class _Timestamp(Strict):
    t = always(fields.Integer, "Seconds since 1970.")
    i = always(fields.Integer, "The ordinal of the operation within the second.")


_ClusterTime = Strict.from_dict(
    {"$timestamp": always(fields.Nested, "A cluster time in Extended JSON.", _Timestamp)},
    name="ClusterTime",
)


class _Tasks(Strict):
    """The tasks of this generation."""

    totalTasks = always(fields.Integer, "Tasks of this generation.")
    addedTasks = always(fields.Integer, "Tasks that have not begun.")
    processingTasks = always(fields.Integer, "Tasks in progress.")
    failedTasks = always(fields.Integer, "Tasks that found a difference.")
    completedTasks = always(fields.Integer, "Tasks that found no difference.")
    metadataMismatchTasks = always(
        fields.Integer, "Failed tasks with a difference in a definition or a count."
    )
    recheckTasks = always(
        fields.Integer, "Failed tasks whose differences the next generation compares again."
    )


class _Amounts(Strict):
    """The amounts that a generation has compared and must compare; totals are estimates."""

    docsCompared = always(fields.Integer, "The number of documents compared.")
    totalDocs = nullable(fields.Integer, "The estimated number of documents to compare.")
    srcBytesCompared = always(
        fields.Integer, "The size of the compared documents of the source, in bytes."
    )
    totalSrcBytes = nullable(
        fields.Integer, "The estimated size of the source's documents to compare, in bytes."
    )
    totalNamespaces = always(fields.Integer, "The number of collections and views to compare.")


def _counts(meaning: str, **metadata: Any) -> Any:
    return always(
        fields.Dict, meaning, keys=fields.String(), values=fields.Integer(), metadata=metadata
    )


class _Changes(Strict):
    """The change events of one cluster."""

    eventsPerSecond = nullable(fields.Float, "Change events per second in the last minute.")
    lagSecs = nullable(
        fields.Integer,
        "How far the verifier is behind the change events of the cluster, in seconds.",
    )
    eventCounts = _counts("The number of change events, by operation.")


class _Progress(Strict):
    """A check at one moment; unknown values are null."""

    phase = always(
        fields.Enum,
        "`idle` without a running check, `check` in the first generation, `recheck` in later generations.",
        Phase,
        by_value=True,
    )
    error = nullable(
        fields.String,
        "The error that made the check incomplete: its name, what happened, and what to do.",
    )
    verificationStatus = always(
        fields.Nested, "The numbers of tasks of this generation, by status.", _Tasks
    )
    verdict = nullable(
        fields.Enum, "The result of the check; null before its end.", Outcome, by_value=True
    )
    verdictReasons = always(fields.List, "The reasons for the verdict.", fields.String())
    writesOff = always(Boolean, "Whether the check has received POST /api/v1/writesOff.")
    generation = nullable(
        fields.Integer, "The number of the current generation; the first one is 0."
    )
    generationStats = always(fields.Nested, "How much this generation has compared.", _Amounts)
    gen0Stats = nullable(
        fields.Nested, "How much the first generation has compared; null before its end.", _Amounts
    )
    recentRecheckSecs = always(
        fields.List,
        "The durations of the last generations, in seconds.",
        fields.Float(allow_none=True),
    )
    totalRechecksDone = always(
        fields.Integer, "The number of documents that later generations compared again."
    )
    docsComparedPerSecond = nullable(
        fields.Float, "The number of documents compared per second in the last minute."
    )
    srcBytesComparedPerSecond = nullable(
        fields.Float,
        "The size of the source's documents compared per second in the last minute, in bytes.",
    )
    srcChangeStats = always(fields.Nested, "The change events of the source.", _Changes)
    dstChangeStats = always(fields.Nested, "The change events of the destination.", _Changes)
    srcLastRecheckedTS = nullable(
        fields.Nested, "All changes of the source up to this time were processed.", _ClusterTime
    )
    dstLastRecheckedTS = nullable(
        fields.Nested,
        "All changes of the destination up to this time were processed.",
        _ClusterTime,
    )
    notes = always(fields.List, "What the check did not compare, and why.", fields.String())
    warnings = sometimes(
        fields.List, "What the check has been waiting for, and what to do.", fields.String()
    )


class _DocumentMismatches(Strict):
    """The numbers of documents that differ."""

    total = always(fields.Integer, "The number of documents that differ.")
    byType = _counts(
        "The number of documents that differ, by type.",
        propertyNames={"enum": [each.value for each in Difference]},
    )
    byNamespace = _counts("The number of documents that differ, by namespace.")


class _ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The progress of the check.", _Progress)


class _Overview(OverviewFields):
    progress = always(fields.Nested, "The document of GET /api/v1/progress.", _Progress)


class _OverviewAnswer(SuccessAnswer):
    overview = always(fields.Nested, "Everything that an operator watches.", _Overview)


class _SummaryAnswer(SuccessAnswer):
    """The results of a check in one document."""

    verdict = nullable(
        fields.Enum, "The result of the check; null before its end.", Outcome, by_value=True
    )
    verdictReasons = always(fields.List, "The reasons for the verdict.", fields.String())
    estCheckSecsRemaining = nullable(
        fields.Float, "The estimated time until the first generation ends, in seconds."
    )
    recentRecheckSecs = always(
        fields.List,
        "The durations of the last generations, in seconds.",
        fields.Float(allow_none=True),
    )
    checkStats = always(fields.Nested, "How much the first generation has compared.", _Amounts)
    nsMismatches = always(
        fields.List,
        "The first differences of collections, views and indexes.",
        fields.Nested(DefinitionMismatchLine),
    )
    nsMismatchesTotal = always(
        fields.Integer, "The number of differences of collections, views and indexes."
    )
    docMismatches = always(fields.Nested, "How many documents differ.", _DocumentMismatches)
    totalRechecksDone = always(
        fields.Integer, "The number of documents that later generations compared again."
    )
    srcChangeEvents = _counts("The number of change events of the source, by operation.")
    dstChangeEvents = _counts("The number of change events of the destination, by operation.")
    notes = always(fields.List, "What the check did not compare, and why.", fields.String())


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
        _ProgressAnswer(),
        parameters=EmptySchema(),
    ),
    Operation(
        "get",
        "/api/v1/summary",
        "Shows the results of the check in one document.",
        _SummaryAnswer(),
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
        "Lists the collections, views and indexes that differ.",
        DefinitionMismatchLine(),
        parameters=DefinitionMismatchesSchema(),
        content=LINES,
        errors=_OF_MISMATCHES,
    ),
    Operation(
        "get",
        "/api/v1/overview",
        "Shows everything that the page shows: the progress, explanations and results. The answer has an ETag.",
        _OverviewAnswer(),
        parameters=EmptySchema(),
    ),
    Operation(
        "get",
        "/api/v1/overview/namespaces",
        "Shows a part of the table of namespaces, sorted and filtered. The answer has an ETag.",
        NamespacesTableAnswer(),
        parameters=NamespacesTableSchema(),
    ),
    Operation(
        "get",
        "/api/v1/report",
        "Shows the report of the check: what was compared, when, by whom, and the result. As HTML for browsers.",
        ReportAnswer(),
        parameters=ReportSchema(),
        errors=(errors.NO_CHECK, TOO_MANY_READERS),
        page=True,
    ),
    Operation("get", "/metrics", "Shows metrics for Prometheus.", None, content=TEXT),
)


def description() -> dict[str, Any]:
    """Return the OpenAPI document of the verifier."""
    return described(
        "syncsvc-verifier",
        __version__,
        "http://localhost:27020",
        "Compares two MongoDB clusters.",
        OPERATIONS,
    )
