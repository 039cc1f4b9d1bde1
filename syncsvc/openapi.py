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
    estimatedTotalBytes = nullable(fields.Integer, "How much there is to copy.")
    estimatedCopiedBytes = always(fields.Integer, "How much of that is copied.")


class _Lag(Strict):
    overallLagSeconds = nullable(fields.Integer, "How far the destination is behind the source.")
    crudLagSeconds = nullable(fields.Integer, "The same of writes, once there was one.")
    ddlLagSeconds = nullable(fields.Integer, "The same of definitions, once one was changed.")


class _Ping(Strict):
    pingLatencyMs = sometimes(
        fields.Integer, "How long the last ping took, from 1 millisecond on; -1 if it failed."
    )


class _IndexBuilding(Strict):
    indexesBuilt = always(fields.Integer, "How many indexes are built.")
    totalIndexesToBuild = always(fields.Integer, "Of how many.")
    collectionsFinished = always(fields.Integer, "How many collections have all of theirs.")
    collectionsTotal = always(fields.Integer, "Of how many that have some.")


class _VerificationSide(Strict):
    phase = always(fields.Enum, "How far it is.", Hashing, by_value=True)
    estimatedDocumentCount = nullable(fields.Integer, "How many documents there are.")
    hashedDocumentCount = always(fields.Integer, "How many of them were compared.")
    totalCollectionCount = nullable(fields.Integer, "How many collections there are.")
    scannedCollectionCount = always(fields.Integer, "Of how many of them all were compared.")
    lagTimeSeconds = nullable(fields.Integer, "How far it is behind the cluster's changes.")


class _VerificationProgress(Strict):
    source = always(fields.Nested, "On the source.", _VerificationSide)
    destination = always(fields.Nested, "On the destination.", _VerificationSide)


class _DirectionMapping(Strict):
    Source = always(fields.String, "The source, as cluster0: host:port.")
    Destination = always(fields.String, "The destination, likewise.")


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
    lag = nullable(fields.Nested, "How far the destination is behind, by kind of change.", _Lag)
    lagTimeSeconds = nullable(fields.Integer, "How far the destination is behind the source.")
    totalEventsApplied = nullable(fields.Integer, "Change events that this process applied.")
    collectionCopy = nullable(fields.Nested, "Estimates of the copy.", _CollectionCopy)
    directionMapping = nullable(fields.Nested, "Which cluster is which.", _DirectionMapping)
    source = nullable(fields.Nested, "How the source answers.", _Ping)
    destination = nullable(fields.Nested, "How the destination answers.", _Ping)
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
        fields.Nested, "How far the building of indexes after the copy is.", _IndexBuilding
    )
    verification = sometimes(
        fields.Nested,
        "How far the verification is, unless it is switched off.",
        _VerificationProgress,
    )
    warnings = sometimes(fields.List, "What endangers the sync, and what to do.", fields.String())


class _ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The sync.", _Progress)


class _Violation(Strict):
    error = always(fields.String, "The name of the error that a start would be refused with.")
    errorDescription = always(fields.String, "What speaks against it, and what to do.")


class _Estimates(Strict):
    """The estimated cost of a sync, in bytes and seconds; unknown values are null."""

    namespaces = nullable(fields.Integer, "Collections and views that would be synced.")
    documents = nullable(fields.Integer, "Documents in them.")
    bytes = nullable(fields.Integer, "The bytes of these documents.")
    indexes = nullable(fields.Integer, "Indexes that would be built, beside those on _id.")
    diskNeededBytes = nullable(fields.Integer, "What all that may take on the destination's disk.")
    diskFreeBytes = nullable(fields.Integer, "What is free there.")
    memoryNeededBytes = nullable(
        fields.Integer, "How much memory this process may take; null without verification."
    )
    memoryAvailableBytes = nullable(fields.Integer, "How much there is for it.")
    copySeconds = nullable(fields.Integer, "A cautious guess at how long the copy takes.")
    oplogWindowSeconds = nullable(
        fields.Integer, "For how long the source's oplog holds what is written to it."
    )


class _PreflightAnswer(SuccessAnswer):
    violations = always(
        fields.List, "Everything that speaks against a start now.", fields.Nested(_Violation)
    )
    warnings = always(fields.List, "What may become a trouble, and what to do.", fields.String())
    estimates = always(fields.Nested, "What the sync would take.", _Estimates)


class _NamespaceVerification(Strict):
    comparedDocuments = always(fields.Integer, "How many documents the first pass has compared.")
    estimatedTotalDocuments = nullable(fields.Integer, "Of how many.")
    mismatches = always(fields.Integer, "How many documents differ.")


class _Namespace(Strict):
    """The progress of one collection."""

    namespace = always(fields.String, "Its name on the source.")
    phase = always(fields.Enum, "How far it is.", NamespacePhase, by_value=True)
    copiedDocuments = always(fields.Integer, "How many documents are copied.")
    estimatedTotalDocuments = always(fields.Integer, "Of how many.")
    copiedBytes = always(fields.Integer, "How much is copied.")
    estimatedTotalBytes = always(fields.Integer, "Of how much.")
    documentsPerSecond = nullable(fields.Float, "How fast it is copied; null when it is not.")
    bytesPerSecond = nullable(fields.Float, "The same in bytes.")
    eventsApplied = always(fields.Integer, "Change events that this process applied.")
    indexesBuilt = nullable(fields.Integer, "How many of its indexes the destination has.")
    totalIndexes = always(fields.Integer, "Of how many, beside the one on _id.")
    verification = nullable(fields.Nested, "How its verification is.", _NamespaceVerification)


class _NamespacesAnswer(SuccessAnswer):
    namespaces = always(fields.List, "By name.", fields.Nested(_Namespace))
    next = nullable(fields.String, "What to send as after for the others; null without any.")


OPERATIONS = (
    Operation(
        "post",
        "/api/v1/start",
        "Begins a sync.",
        SuccessAnswer(),
        body=StartSchema(),
        errors=(*_ANY, *_AT_START),
    ),
    Operation(
        "post",
        "/api/v1/preflight",
        "Tells what a start with this body would meet now, and changes nothing.",
        _PreflightAnswer(),
        body=StartSchema(),
        errors=(errors.INVALID_STATE,),
    ),
    Operation(
        "post",
        "/api/v1/pause",
        "Stops a sync where it is.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=_ANY,
    ),
    Operation(
        "post",
        "/api/v1/resume",
        "Continues a sync that was paused, or that failed for a reason that can go away.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, errors.FAILURE_IS_FINAL),
    ),
    Operation(
        "post",
        "/api/v1/commit",
        "Begins the cut-over.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, errors.CANNOT_COMMIT),
    ),
    Operation(
        "post",
        "/api/v1/reverse",
        "Begins the way back of a committed sync.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(
            *_ANY,
            errors.NOT_REVERSIBLE,
            errors.OLD_SOURCE_WRITTEN,
            OPLOG_WINDOW_EXCEEDED,
        ),
    ),
    Operation("get", "/api/v1/progress", "How the sync goes.", _ProgressAnswer()),
    Operation(
        "get",
        "/api/v1/namespaces",
        "How far each collection is.",
        _NamespacesAnswer(),
        parameters=NamespacesSchema(),
    ),
    Operation(
        "get",
        "/api/v1/mismatches",
        "What the verification has found: of collections and views themselves, then documents.",
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
    Operation("get", "/metrics", "The figures, for Prometheus.", None, content=TEXT),
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
