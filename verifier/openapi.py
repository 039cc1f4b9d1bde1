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
    {"$timestamp": always(fields.Nested, "In Extended JSON.", _Timestamp)}, name="ClusterTime"
)


class _Tasks(Strict):
    """The tasks of this generation."""

    totalTasks = always(fields.Integer, "All of them.")
    addedTasks = always(fields.Integer, "Not begun.")
    processingTasks = always(fields.Integer, "Being done.")
    failedTasks = always(fields.Integer, "Found a difference.")
    completedTasks = always(fields.Integer, "Found none.")
    metadataMismatchTasks = always(fields.Integer, "Failed ones with one in a definition or count.")
    recheckTasks = always(fields.Integer, "Failed ones whose findings are looked at again.")


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

    eventsPerSecond = nullable(fields.Float, "Over the last minute.")
    lagSecs = nullable(fields.Integer, "How far the verifier is behind.")
    eventCounts = _counts("By operation.")


class _Progress(Strict):
    """A check at one moment; unknown values are null."""

    phase = always(fields.Enum, "Whether a check runs, and which generation.", Phase, by_value=True)
    error = nullable(fields.String, "What made the check incomplete: its name, and what to do.")
    verificationStatus = always(fields.Nested, "The tasks.", _Tasks)
    verdict = nullable(fields.Enum, "How the check ended.", Outcome, by_value=True)
    verdictReasons = always(fields.List, "Why.", fields.String())
    writesOff = always(Boolean, "Whether the check was told that writes are off.")
    generation = nullable(fields.Integer, "The number of this generation, from 0.")
    generationStats = always(fields.Nested, "Of this generation.", _Amounts)
    gen0Stats = nullable(fields.Nested, "Of the first one, when it is over.", _Amounts)
    recentRecheckSecs = always(
        fields.List, "How long the last generations took.", fields.Float(allow_none=True)
    )
    totalRechecksDone = always(fields.Integer, "Documents that later generations looked at.")
    docsComparedPerSecond = nullable(fields.Float, "Over the last minute.")
    srcBytesComparedPerSecond = nullable(fields.Float, "Over the last minute.")
    srcChangeStats = always(fields.Nested, "Of the source.", _Changes)
    dstChangeStats = always(fields.Nested, "Of the destination.", _Changes)
    srcLastRecheckedTS = nullable(
        fields.Nested, "All changes of the source up to it were looked at.", _ClusterTime
    )
    dstLastRecheckedTS = nullable(
        fields.Nested, "All changes of the destination up to it were looked at.", _ClusterTime
    )
    notes = always(fields.List, "What was not compared, and why.", fields.String())
    warnings = sometimes(fields.List, "Long waits, and what to do about them.", fields.String())


class _DocumentMismatches(Strict):
    """The numbers of documents that differ."""

    total = always(fields.Integer, "All.")
    byType = _counts("By type.", propertyNames={"enum": [each.value for each in Difference]})
    byNamespace = _counts("By namespace.")


class _ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The check.", _Progress)


class _SummaryAnswer(SuccessAnswer):
    """The results of a check in one document."""

    verdict = nullable(fields.Enum, "How the check ended.", Outcome, by_value=True)
    verdictReasons = always(fields.List, "Why.", fields.String())
    estCheckSecsRemaining = nullable(fields.Float, "Of the first generation.")
    recentRecheckSecs = always(
        fields.List, "How long the last generations took.", fields.Float(allow_none=True)
    )
    checkStats = always(fields.Nested, "Of the first generation.", _Amounts)
    nsMismatches = always(fields.List, "The first of them.", fields.Nested(DefinitionMismatchLine))
    nsMismatchesTotal = always(fields.Integer, "How many there are.")
    docMismatches = always(fields.Nested, "How many there are.", _DocumentMismatches)
    totalRechecksDone = always(fields.Integer, "Documents that later generations looked at.")
    srcChangeEvents = _counts("Of the source, by operation.")
    dstChangeEvents = _counts("Of the destination, by operation.")
    notes = always(fields.List, "What was not compared, and why.", fields.String())


OPERATIONS = (
    Operation(
        "post",
        "/api/v1/check",
        "Begins a check.",
        SuccessAnswer(),
        body=CheckSchema(),
        parameters=EmptySchema(),
        errors=(*_OF_METADATA, *_AT_CHECK),
    ),
    Operation(
        "post",
        "/api/v1/writesOff",
        "Says that users write to neither cluster any more.",
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
        "How the check goes.",
        _ProgressAnswer(),
        parameters=EmptySchema(),
    ),
    Operation(
        "get",
        "/api/v1/summary",
        "What the check has found, in one document.",
        _SummaryAnswer(),
        parameters=EmptySchema(),
        errors=_OF_MISMATCHES,
    ),
    Operation(
        "get",
        "/api/v1/docMismatches",
        "The documents that are not the same.",
        DocumentMismatchLine(),
        parameters=DocumentMismatchesSchema(),
        content=LINES,
        errors=_OF_MISMATCHES,
    ),
    Operation(
        "get",
        "/api/v1/nsMismatches",
        "The collections, views and indexes that are not the same.",
        DefinitionMismatchLine(),
        parameters=DefinitionMismatchesSchema(),
        content=LINES,
        errors=_OF_MISMATCHES,
    ),
    Operation("get", "/metrics", "The figures, for Prometheus.", None, content=TEXT),
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
