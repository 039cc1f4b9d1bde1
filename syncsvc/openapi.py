"""The OpenAPI description of the sync service: one row for each endpoint, and the schemas of the answers."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from syncsvc import __version__, errors
from syncsvc.reports.namespaces import NamespacePhase
from syncsvc.reports.progress_answer import Stage
from syncsvc.reports.verification_answer import Hashing
from syncsvc.schemas import NamespacesSchema, StartSchema
from syncsvc.state import Phase, State
from verifier.cluster.cluster import SAME_CLUSTER
from verifier.cluster.failures import (
    CLUSTER_UNREACHABLE,
    NOT_AUTHORIZED,
    OPLOG_WINDOW_EXCEEDED,
    UNEXPECTED_SERVER_ERROR,
)
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.schemas import (
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

# Errors of every call that contacts a cluster, and of every command.
_OF_CLUSTERS = (CLUSTER_UNREACHABLE, NOT_AUTHORIZED, UNEXPECTED_SERVER_ERROR)
_ANY = (
    errors.INVALID_STATE,
    COMMAND_IN_PROGRESS,
    *_OF_CLUSTERS,
    errors.SUPERSEDED,
)
_AT_START = (
    errors.UNKNOWN_CLUSTER,
    SAME_CLUSTER,
    errors.NOT_SUPPORTED_YET,
    errors.DESTINATION_NOT_EMPTY,
    errors.METADATA_LEFT_OVER,
    errors.UNKNOWN_INSTANCE,
    errors.DIFFERENT_START,
    errors.SHARDING_REQUIRED,
    errors.SHARDING_NOT_APPLICABLE,
    errors.INVALID_SHARDING_ENTRY,
    errors.COLLECTION_NOT_SHARDABLE,
    errors.SHARD_KEY_INDEX_MISSING,
    errors.UNIQUE_INDEX_INCOMPATIBLE,
    errors.WRITE_BLOCKING_WITH_FILTER,
    errors.WRITE_BLOCKING_NEEDS_NEWER_SOURCE,
    errors.REVERSIBLE_NEEDS_WRITE_BLOCKING,
    errors.REVERSIBLE_WITH_FILTER,
    errors.REVERSIBLE_WITHOUT_INDEXES,
    errors.REVERSIBLE_NEEDS_NEWER_SOURCE,
    errors.REVERSIBLE_NEEDS_EQUAL_VERSIONS,
    errors.REVERSIBLE_NEEDS_EQUAL_SHARDS,
    errors.INSUFFICIENT_MEMORY,
    errors.INSUFFICIENT_DISK_SPACE,
    errors.UNSUPPORTED_TOPOLOGY,
    errors.UNSUPPORTED_VERSION,
    errors.UNSUPPORTED_COLLECTION,
    errors.TTL_NOT_VERIFIABLE,
)


class _CollectionCopy(Strict):
    estimatedTotalBytes = nullable(fields.Integer, "Bytes to copy.")
    estimatedCopiedBytes = always(fields.Integer, "Bytes copied.")


class _Lag(Strict):
    overallLagSeconds = nullable(
        fields.Integer, "Seconds that the destination is behind the source."
    )
    crudLagSeconds = nullable(
        fields.Integer, "Lag of inserts, updates and deletes; null before the first one."
    )
    ddlLagSeconds = nullable(fields.Integer, "Lag of DDL events; null before the first one.")


class _Ping(Strict):
    pingLatencyMs = sometimes(
        fields.Integer, "How long the last ping took, from 1 millisecond on; -1 if it failed."
    )


class _IndexBuilding(Strict):
    indexesBuilt = always(fields.Integer, "Indexes built.")
    totalIndexesToBuild = always(fields.Integer, "Indexes to build.")
    collectionsFinished = always(fields.Integer, "Collections whose indexes are all built.")
    collectionsTotal = always(fields.Integer, "Collections that have indexes to build.")


class _VerificationSide(Strict):
    phase = always(fields.Enum, "The stage of the verification.", Hashing, by_value=True)
    estimatedDocumentCount = nullable(fields.Integer, "Documents to compare.")
    hashedDocumentCount = always(fields.Integer, "Documents compared.")
    totalCollectionCount = nullable(fields.Integer, "Collections to compare.")
    scannedCollectionCount = always(fields.Integer, "Collections compared completely.")
    lagTimeSeconds = nullable(
        fields.Integer, "Seconds that the verification is behind the changes of the cluster."
    )


class _VerificationProgress(Strict):
    source = always(fields.Nested, "Verification of the source.", _VerificationSide)
    destination = always(fields.Nested, "Verification of the destination.", _VerificationSide)


class _DirectionMapping(Strict):
    Source = always(fields.String, "The source, as cluster0: host:port.")
    Destination = always(fields.String, "The destination, as cluster1: host:port.")


class _Progress(Strict):
    """The progress of a sync at one moment; unknown values are null."""

    state = always(fields.Enum, "The state of the sync.", State, by_value=True)
    canCommit = always(Boolean, "Whether a commit is possible.")
    canWrite = always(Boolean, "Whether the destination may be written.")
    info = nullable(fields.Enum, "The phase of the sync.", Phase, by_value=True)
    ceaStage = nullable(
        fields.Enum,
        "collection copy drain while what was written during the copy is applied, then steady state.",
        Stage,
        by_value=True,
    )
    lag = nullable(fields.Nested, "The lag, by kind of change.", _Lag)
    lagTimeSeconds = nullable(fields.Integer, "Seconds that the destination is behind the source.")
    totalEventsApplied = nullable(fields.Integer, "Change events that this process applied.")
    collectionCopy = nullable(
        fields.Nested, "The progress of the copy; estimates.", _CollectionCopy
    )
    directionMapping = nullable(fields.Nested, "The clusters and their roles.", _DirectionMapping)
    source = nullable(fields.Nested, "The last ping of the source.", _Ping)
    destination = nullable(fields.Nested, "The last ping of the destination.", _Ping)
    mongosyncID = always(fields.String, "The name of this instance.")
    coordinatorID = nullable(fields.String, "The name of the instance that coordinates.")
    error = nullable(fields.String, "The name of the error that the sync failed with.")
    errorDescription = nullable(fields.String, "What happened, and what to do.")
    estimatedOplogTimeRemaining = sometimes(
        fields.String, "For how long the source's oplog still holds what the sync needs, in words."
    )
    estimatedSecondsToCEACatchup = sometimes(
        fields.Integer, "In how many seconds the lag is gone; only while it falls."
    )
    indexBuilding = sometimes(
        fields.Nested, "The progress of index builds after the copy.", _IndexBuilding
    )
    verification = sometimes(
        fields.Nested,
        "The progress of the verification; absent if it is disabled.",
        _VerificationProgress,
    )
    warnings = sometimes(fields.List, "What endangers the sync, and what to do.", fields.String())


class _ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The sync.", _Progress)


class _Violation(Strict):
    error = always(fields.String, "The name of the error with which a start would be refused.")
    errorDescription = always(fields.String, "What is wrong, and what to do.")


class _Estimates(Strict):
    """The estimated cost of a sync, in bytes and seconds; unknown values are null."""

    namespaces = nullable(fields.Integer, "Collections and views that would be synced.")
    documents = nullable(fields.Integer, "Documents in them.")
    bytes = nullable(fields.Integer, "The bytes of these documents.")
    indexes = nullable(fields.Integer, "Indexes that would be built, beside those on _id.")
    diskNeededBytes = nullable(
        fields.Integer, "Bytes that the sync may need on the destination's disk."
    )
    diskFreeBytes = nullable(fields.Integer, "Free bytes on that disk.")
    memoryNeededBytes = nullable(
        fields.Integer, "Bytes of memory that this process may need; null without verification."
    )
    memoryAvailableBytes = nullable(fields.Integer, "Bytes of memory that are available.")
    copySeconds = nullable(fields.Integer, "A cautious estimate of the duration of the copy.")
    oplogWindowSeconds = nullable(
        fields.Integer, "How many seconds of writes the source's oplog holds."
    )


class _PreflightAnswer(SuccessAnswer):
    violations = always(
        fields.List,
        "All reasons for which a start would be refused now.",
        fields.Nested(_Violation),
    )
    warnings = always(fields.List, "Possible problems, and what to do.", fields.String())
    estimates = always(fields.Nested, "The estimated cost of the sync.", _Estimates)


class _NamespaceVerification(Strict):
    comparedDocuments = always(fields.Integer, "Documents compared by the first pass.")
    estimatedTotalDocuments = nullable(fields.Integer, "Documents to compare.")
    mismatches = always(fields.Integer, "Documents that differ.")


class _Namespace(Strict):
    """The progress of one collection."""

    namespace = always(fields.String, "The name of the collection on the source.")
    phase = always(fields.Enum, "The phase of the collection.", NamespacePhase, by_value=True)
    copiedDocuments = always(fields.Integer, "Documents copied.")
    estimatedTotalDocuments = always(fields.Integer, "Documents to copy; an estimate.")
    copiedBytes = always(fields.Integer, "Bytes copied.")
    estimatedTotalBytes = always(fields.Integer, "Bytes to copy.")
    documentsPerSecond = nullable(
        fields.Float, "Documents copied per second; null when the collection is not being copied."
    )
    bytesPerSecond = nullable(
        fields.Float, "Bytes copied per second; null when the collection is not being copied."
    )
    eventsApplied = always(fields.Integer, "Change events that this process applied.")
    indexesBuilt = nullable(fields.Integer, "Indexes of the collection that the destination has.")
    totalIndexes = always(fields.Integer, "Indexes of the collection, without the one on _id.")
    verification = nullable(
        fields.Nested, "The verification of the collection.", _NamespaceVerification
    )


class _NamespacesAnswer(SuccessAnswer):
    namespaces = always(fields.List, "By name.", fields.Nested(_Namespace))
    next = nullable(fields.String, "The value of `after` for the next page; null on the last page.")


OPERATIONS = (
    Operation(
        "post",
        "/api/v1/start",
        "Starts a sync.",
        SuccessAnswer(),
        body=StartSchema(),
        errors=(*_ANY, *_AT_START),
    ),
    Operation(
        "post",
        "/api/v1/preflight",
        "Checks whether a start with this body would succeed now. Changes nothing.",
        _PreflightAnswer(),
        body=StartSchema(),
        errors=(errors.INVALID_STATE,),
    ),
    Operation(
        "post",
        "/api/v1/pause",
        "Pauses a sync.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=_ANY,
    ),
    Operation(
        "post",
        "/api/v1/resume",
        "Continues a sync that was paused, or that failed for a temporary reason.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, errors.FAILURE_IS_FINAL),
    ),
    Operation(
        "post",
        "/api/v1/commit",
        "Commits a sync: starts the cut-over.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, errors.CANNOT_COMMIT),
    ),
    Operation(
        "post",
        "/api/v1/reverse",
        "Reverses a committed sync.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(
            *_ANY,
            errors.NOT_REVERSIBLE,
            errors.OLD_SOURCE_WRITTEN,
            OPLOG_WINDOW_EXCEEDED,
        ),
    ),
    Operation("get", "/api/v1/progress", "Shows the progress of the sync.", _ProgressAnswer()),
    Operation(
        "get",
        "/api/v1/namespaces",
        "Shows the progress of each collection.",
        _NamespacesAnswer(),
        parameters=NamespacesSchema(),
    ),
    Operation(
        "get",
        "/api/v1/mismatches",
        "Lists the differences that the verification found: of definitions first, then of documents.",
        DefinitionMismatchLine(),
        parameters=DocumentMismatchesSchema(),
        other=DocumentMismatchLine(),
        content=LINES,
        errors=(
            errors.INVALID_STATE,
            *_OF_CLUSTERS,
            errors.INCOMPATIBLE_METADATA,
            MISMATCHES_REPLACED,
            TOO_MANY_READERS,
        ),
    ),
    Operation("get", "/metrics", "Shows metrics for Prometheus.", None, content=TEXT),
)


def description() -> dict[str, Any]:
    """Return the OpenAPI document of the sync service."""
    return described(
        "syncsvc",
        __version__,
        "http://localhost:27182",
        "Syncs one MongoDB cluster to another.",
        OPERATIONS,
    )
