"""The OpenAPI description of the verifier's API: one row per endpoint, and the schemas of the answers."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from verifier import __version__, errors
from verifier.cluster.cluster import SAME_CLUSTER, UNSUPPORTED_TOPOLOGY
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
    OPLOG_WINDOW_EXCEEDED,
    OTHER_CHECK_SAVED,
)


class _Timestamp(Strict):
    t = always(fields.Integer, "Seconds since 1970.")
    i = always(fields.Integer, "Number within the second.")


_ClusterTime = Strict.from_dict(
    {"$timestamp": always(fields.Nested, "A cluster time in Extended JSON.", _Timestamp)},
    name="ClusterTime",
)


class _Tasks(Strict):
    """The tasks of this generation."""

    totalTasks = always(fields.Integer, "Tasks of this generation.")
    addedTasks = always(fields.Integer, "Tasks that wait.")
    processingTasks = always(fields.Integer, "Tasks in progress.")
    failedTasks = always(fields.Integer, "Tasks that found a difference.")
    completedTasks = always(fields.Integer, "Tasks that found no difference.")
    metadataMismatchTasks = always(
        fields.Integer, "Failed tasks with a difference in a definition or a count."
    )
    recheckTasks = always(fields.Integer, "Failed tasks whose differences are compared again.")


class _Amounts(Strict):
    """How much a generation has compared, of how much; totals are estimates."""

    docsCompared = always(fields.Integer, "Documents compared.")
    totalDocs = nullable(fields.Integer, "Documents to compare.")
    srcBytesCompared = always(fields.Integer, "Bytes of the source compared.")
    totalSrcBytes = nullable(fields.Integer, "Bytes of the source to compare.")
    totalNamespaces = always(fields.Integer, "Collections and views.")


def _counts(meaning: str, **metadata: Any) -> Any:
    return always(
        fields.Dict, meaning, keys=fields.String(), values=fields.Integer(), metadata=metadata
    )


class _Changes(Strict):
    """The change events of one cluster."""

    eventsPerSecond = nullable(fields.Float, "Events per second in the last minute.")
    lagSecs = nullable(
        fields.Integer, "Seconds that the verifier is behind the changes of the cluster."
    )
    eventCounts = _counts("Change events, by operation.")


class _Progress(Strict):
    """A check at one moment; unknown values are null."""

    phase = always(fields.Enum, "Whether a check runs, and which generation.", Phase, by_value=True)
    error = nullable(fields.String, "What made the check incomplete: its name, and what to do.")
    verificationStatus = always(fields.Nested, "The tasks.", _Tasks)
    verdict = nullable(fields.Enum, "How the check ended.", Outcome, by_value=True)
    verdictReasons = always(fields.List, "Why.", fields.String())
    writesOff = always(Boolean, "Whether writesOff was sent.")
    generation = nullable(fields.Integer, "The number of this generation, from 0.")
    generationStats = always(fields.Nested, "Amounts of this generation.", _Amounts)
    gen0Stats = nullable(
        fields.Nested, "Amounts of the first generation; null until it has ended.", _Amounts
    )
    recentRecheckSecs = always(
        fields.List, "Durations of the last generations, in seconds.", fields.Float(allow_none=True)
    )
    totalRechecksDone = always(fields.Integer, "Documents compared again by later generations.")
    docsComparedPerSecond = nullable(
        fields.Float, "Documents compared per second in the last minute."
    )
    srcBytesComparedPerSecond = nullable(
        fields.Float, "Bytes of the source compared per second in the last minute."
    )
    srcChangeStats = always(fields.Nested, "Change events of the source.", _Changes)
    dstChangeStats = always(fields.Nested, "Change events of the destination.", _Changes)
    srcLastRecheckedTS = nullable(
        fields.Nested, "All changes of the source up to this time were processed.", _ClusterTime
    )
    dstLastRecheckedTS = nullable(
        fields.Nested,
        "All changes of the destination up to this time were processed.",
        _ClusterTime,
    )
    notes = always(fields.List, "What was not compared, and why.", fields.String())
    warnings = sometimes(fields.List, "Long waits, and what to do about them.", fields.String())


class _DocumentMismatches(Strict):
    """The numbers of documents that differ."""

    total = always(fields.Integer, "All.")
    byType = _counts("By type.", propertyNames={"enum": [each.value for each in Difference]})
    byNamespace = _counts("Documents that differ, by namespace.")


class _ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The check.", _Progress)


class _SummaryAnswer(SuccessAnswer):
    """The results of a check in one document."""

    verdict = nullable(fields.Enum, "How the check ended.", Outcome, by_value=True)
    verdictReasons = always(fields.List, "Why.", fields.String())
    estCheckSecsRemaining = nullable(
        fields.Float, "Estimated seconds until the first generation ends."
    )
    recentRecheckSecs = always(
        fields.List, "Durations of the last generations, in seconds.", fields.Float(allow_none=True)
    )
    checkStats = always(fields.Nested, "Amounts of the first generation.", _Amounts)
    nsMismatches = always(
        fields.List, "The first differences of definitions.", fields.Nested(DefinitionMismatchLine)
    )
    nsMismatchesTotal = always(fields.Integer, "Number of differences of definitions.")
    docMismatches = always(fields.Nested, "Numbers of documents that differ.", _DocumentMismatches)
    totalRechecksDone = always(fields.Integer, "Documents compared again by later generations.")
    srcChangeEvents = _counts("Change events of the source, by operation.")
    dstChangeEvents = _counts("Change events of the destination, by operation.")
    notes = always(fields.List, "What was not compared, and why.", fields.String())


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
