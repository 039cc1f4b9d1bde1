"""The OpenAPI description of the sync service: one row for each endpoint, and the schemas of the answers."""

from __future__ import annotations

from functools import cache
from typing import Any

from marshmallow import fields

from syncsvc import __version__, errors
from syncsvc.desired import DesiredState
from syncsvc.limits import Limit
from syncsvc.principals.comparison import Outcome
from syncsvc.reports.namespaces import NamespacePhase
from syncsvc.reports.overview_schemas import (
    NamespacesTableSchema,
    OverviewFields,
    OverviewSchema,
)
from syncsvc.reports.progress_answer import Stage
from syncsvc.reports.report_schemas import ReportAnswer
from syncsvc.reports.standing import Role
from syncsvc.reports.verification_answer import Hashing
from syncsvc.rules.repairing import Action
from syncsvc.schemas import (
    LimitsSchema,
    MismatchesSchema,
    NamespacesSchema,
    RepairSchema,
    ResetSchema,
    StartSchema,
)
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
    DocumentMismatchLine,
)
from verifier.page.report_schemas import ReportSchema
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
    errors.CONTRADICTS_DESIRED_STATE,
    COMMAND_IN_PROGRESS,
    *_OF_CLUSTERS,
    errors.SUPERSEDED,
    errors.NOT_ACTIVE,
)
_OF_PRINCIPALS = (
    errors.USER_OR_ROLE_EXISTS,
    errors.ROLE_MISSING,
    errors.AUTH_SCHEMA_UNSUPPORTED,
)
_AT_START = (
    *_OF_PRINCIPALS,
    errors.UNKNOWN_CLUSTER,
    SAME_CLUSTER,
    errors.DESTINATION_NOT_EMPTY,
    errors.DESTINATION_NAMESPACE_EXISTS,
    errors.OTHER_SYNC_ON_DESTINATION,
    errors.WRITE_BLOCKING_WITH_EXISTING_DATA,
    errors.REVERSIBLE_WITH_EXISTING_DATA,
    errors.METADATA_LEFT_OVER,
    errors.UNKNOWN_INSTANCE,
    errors.INSTANCES_NOT_APPLICABLE,
    errors.DIFFERENT_START,
    errors.SHARDING_REQUIRED,
    errors.SHARDING_NOT_APPLICABLE,
    errors.PRESPLIT_NOT_APPLICABLE,
    errors.READ_PREFERENCE_NOT_APPLICABLE,
    errors.NO_MEMBER_TO_COPY,
    errors.INVALID_SHARDING_ENTRY,
    errors.COLLECTION_NOT_SHARDABLE,
    errors.SHARD_KEY_INDEX_MISSING,
    errors.UNIQUE_INDEX_INCOMPATIBLE,
    errors.INVALID_DOCUMENT_FILTER,
    errors.DOCUMENT_FILTER_NOT_APPLICABLE,
    errors.DOCUMENT_FILTER_FAILED,
    errors.WRITE_BLOCKING_WITH_FILTER,
    errors.WRITE_BLOCKING_NEEDS_NEWER_SOURCE,
    errors.REVERSIBLE_NEEDS_WRITE_BLOCKING,
    errors.REVERSIBLE_WITH_FILTER,
    errors.REMAP_WITH_USERS_AND_ROLES,
    errors.REMAP_NEEDS_NEWER_SOURCE,
    errors.NAMESPACE_COLLISION,
    errors.NOT_RENAMABLE,
    errors.REVERSIBLE_WITHOUT_INDEXES,
    errors.REVERSIBLE_NEEDS_NEWER_SOURCE,
    errors.REVERSIBLE_NEEDS_EQUAL_VERSIONS,
    errors.REVERSIBLE_NEEDS_EQUAL_SHARDS,
    errors.INSUFFICIENT_MEMORY,
    errors.INSUFFICIENT_DISK_SPACE,
    errors.UNSUPPORTED_TOPOLOGY,
    errors.UNSUPPORTED_VERSION,
    errors.SERVER_FEATURE_MISSING,
    errors.UNSUPPORTED_COLLECTION,
    errors.TTL_NOT_VERIFIABLE,
)


class _CollectionCopy(Strict):
    estimatedTotalBytes = nullable(
        fields.Integer,
        "The estimated number of bytes that all instances together have to copy; 0 before the start, and 1 until the "
        "collections are listed.",
    )
    estimatedCopiedBytes = always(
        fields.Integer, "The number of bytes copied. With several instances, by this instance."
    )
    estimatedCopiedBytesInAll = sometimes(
        fields.Integer,
        "The number of bytes that all instances have copied; only with several instances. Until all instances have "
        "finished the copy, only the coordinator knows it, and it is null in the others.",
        allow_none=True,
    )


class _Lag(Strict):
    overallLagSeconds = nullable(
        fields.Integer, "The lag of the destination behind the source, in seconds."
    )
    crudLagSeconds = nullable(
        fields.Integer,
        "The lag of inserts, updates and deletes, in seconds; null until this process has read such an event.",
    )
    ddlLagSeconds = nullable(
        fields.Integer,
        "The lag of DDL events, in seconds; null until this process has applied such an event.",
    )


class _Ping(Strict):
    pingLatencyMs = sometimes(
        fields.Integer,
        "The latency of the last ping, in milliseconds, at least 1; -1 if it failed, omitted before the first ping.",
    )


class _IndexBuilding(Strict):
    indexesBuilt = always(fields.Integer, "The number of indexes built.")
    totalIndexesToBuild = always(fields.Integer, "The number of indexes to build.")
    collectionsFinished = always(
        fields.Integer, "The number of collections whose indexes are all built."
    )
    collectionsTotal = always(
        fields.Integer, "The number of collections that have indexes to build."
    )


class _EventSpool(Strict):
    active = always(Boolean, "Whether change events are being saved in the event spool.")
    bytes = always(fields.Integer, "The compressed size of the events in the spool, in bytes.")
    limitBytes = always(
        fields.Integer, "The size limit of the event spool: --eventSpoolMB, in bytes."
    )
    seconds = always(
        fields.Integer, "The time between the oldest and the newest event in the spool, in seconds."
    )
    bytesPerSecond = always(
        fields.Integer,
        "The number of compressed bytes of events saved per second, on average over the last minute.",
    )


class _VerificationSide(Strict):
    phase = always(
        fields.Enum, "The stage of the verification on this cluster.", Hashing, by_value=True
    )
    estimatedDocumentCount = nullable(
        fields.Integer, "The estimated number of documents to compare."
    )
    hashedDocumentCount = always(fields.Integer, "The number of documents compared.")
    totalCollectionCount = nullable(fields.Integer, "The number of collections to compare.")
    scannedCollectionCount = always(
        fields.Integer, "The number of collections whose documents have all been compared once."
    )
    lagTimeSeconds = nullable(
        fields.Integer,
        "The lag of the verification behind the change events of this cluster, in seconds.",
    )


class _VerificationProgress(Strict):
    source = always(
        fields.Nested, "The progress of the verification on the source.", _VerificationSide
    )
    destination = always(
        fields.Nested, "The progress of the verification on the destination.", _VerificationSide
    )


class _Repairs(Strict):
    inProgress = always(Boolean, "Whether a repair is requested or running.")
    documents = always(fields.Integer, "The number of repaired documents.")
    definitions = always(fields.Integer, "The number of repaired differences in definitions.")


class _CopiedPrincipals(Strict):
    copied = always(
        Boolean,
        "Whether the newest copy of users and roles, by a commit or on request, is complete. Each commit and each copy "
        "on request first sets this field to false. While it is false, the counts are 0.",
    )
    users = always(fields.Integer, "The number of users copied.")
    roles = always(fields.Integer, "The number of custom roles copied.")
    equal = always(
        fields.Integer,
        "The number of users and roles that the destination already had with an equal definition.",
    )
    kept = always(
        fields.Integer,
        "The number of users and roles that differ, for which the definition of the destination was kept.",
    )


class _DirectionMapping(Strict):
    Source = always(
        fields.String, "The name and address of the source, such as `cluster0: host:port`."
    )
    Destination = always(
        fields.String, "The name and address of the destination, such as `cluster1: host:port`."
    )


class _Lease(Strict):
    host = always(fields.String, "The host of the active daemon.")
    address = always(fields.String, "The address and port of the active daemon's HTTP API.")
    since = always(
        fields.String,
        "The time at which the active daemon took the lease, in UTC, by the clock of cluster1.",
    )
    expires = always(
        fields.String,
        "The time in UTC at which the lease expires and another daemon can take over, unless the lease is renewed.",
    )


class _ThrottledBy(Strict):
    what = always(fields.Enum, "The limit that slows the sync down.", Limit, by_value=True)
    reason = always(fields.String, "The reason why this limit applies.")
    since = always(
        fields.String, "The time since which this limit has slowed the sync down, in UTC."
    )


class _Progress(Strict):
    """The progress of a sync at one moment; unknown values are null."""

    state = always(fields.Enum, "The state of the sync.", State, by_value=True)
    canCommit = always(Boolean, "Whether POST /api/v1/commit is accepted now.")
    canWrite = always(Boolean, "Whether applications may write to the destination.")
    info = nullable(fields.Enum, "The phase of the sync.", Phase, by_value=True)
    ceaStage = nullable(
        fields.Enum,
        "The stage of change event application: `collection copy drain` while the changes made during the copy are "
        "applied, then `steady state`.",
        Stage,
        by_value=True,
    )
    lag = nullable(
        fields.Nested, "The lag of the destination, overall and by the kind of change.", _Lag
    )
    lagTimeSeconds = nullable(
        fields.Integer, "The lag of the destination behind the source, in seconds."
    )
    totalEventsApplied = nullable(
        fields.Integer, "The number of change events that this process has applied."
    )
    collectionCopy = always(
        fields.Nested,
        "The estimated progress of the copy; zeros before the start.",
        _CollectionCopy,
    )
    directionMapping = nullable(
        fields.Nested,
        "The names and addresses of the source and of the destination.",
        _DirectionMapping,
    )
    source = nullable(fields.Nested, "The last ping of the source.", _Ping)
    destination = nullable(fields.Nested, "The last ping of the destination.", _Ping)
    mongosyncID = always(fields.String, "The name of this instance.")
    coordinatorID = nullable(fields.String, "The name of the instance that coordinates the sync.")
    error = nullable(fields.String, "The name of the error that the sync failed with.")
    errorDescription = nullable(fields.String, "The reason why the sync failed, and the remedy.")
    throttledBy = nullable(
        fields.Nested,
        "The limit that slows the sync down; null while no work waits for a limit.",
        _ThrottledBy,
    )
    estimatedOplogTimeRemaining = sometimes(
        fields.String,
        "The time for which the source's oplog still holds the changes that the sync needs, in words; only while the "
        "sync is running or paused.",
    )
    eventSpool = sometimes(
        fields.Nested,
        "The event spool; absent while the spool is empty and no change events are being saved in it.",
        _EventSpool,
    )
    estimatedSecondsToCEACatchup = sometimes(
        fields.Integer,
        "The estimated time until the lag is zero, in seconds; only while the lag falls.",
    )
    indexBuilding = sometimes(
        fields.Nested,
        "The progress of the index builds after the copy; absent before the end of the copy, from the cut-over on, and "
        "if buildIndexes does not delay the builds until after the copy.",
        _IndexBuilding,
    )
    verification = sometimes(
        fields.Nested,
        "The progress of the verification; absent if it is disabled.",
        _VerificationProgress,
    )
    repairs = sometimes(
        fields.Nested,
        "The repairs of differences between the clusters; absent before the first repair.",
        _Repairs,
    )
    usersAndRoles = sometimes(
        fields.Nested,
        "The copy of users and roles; absent unless the start option `usersAndRoles` requests it.",
        _CopiedPrincipals,
    )
    warnings = sometimes(
        fields.List,
        "Problems that endanger or delay the sync, each with a remedy.",
        fields.String(),
    )
    role = sometimes(
        fields.Enum,
        "The role of this daemon; only with --standby. A standby shows the progress of the active daemon.",
        Role,
        by_value=True,
    )
    lease = sometimes(fields.Nested, "The lease of the active daemon; only with --standby.", _Lease)
    desiredState = sometimes(
        fields.Enum,
        "The state to which this daemon brings the sync; only with --desiredState.",
        DesiredState,
        by_value=True,
    )


class _ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The progress of the sync.", _Progress)


class _Violation(Strict):
    error = always(fields.String, "The name of the error with which a start would be refused.")
    errorDescription = always(
        fields.String, "The reason why the start would be refused, and the remedy."
    )


class _Estimates(Strict):
    """The estimated cost of a sync, in bytes and seconds; unknown values are null."""

    namespaces = nullable(
        fields.Integer, "The number of collections and views that would be synced."
    )
    documents = nullable(fields.Integer, "The number of documents that would be copied.")
    bytes = nullable(fields.Integer, "The size of the documents that would be copied, in bytes.")
    indexes = nullable(
        fields.Integer, "The number of indexes that would be built, not counting indexes on _id."
    )
    diskNeededBytes = nullable(
        fields.Integer, "The space that the sync may need on the destination's disk, in bytes."
    )
    diskFreeBytes = nullable(fields.Integer, "The free space on the destination's disk, in bytes.")
    memoryNeededBytes = nullable(
        fields.Integer,
        "The memory that this process may need, in bytes; null without verification.",
    )
    memoryAvailableBytes = nullable(
        fields.Integer, "The memory that is available to this process, in bytes."
    )
    copySeconds = nullable(
        fields.Integer, "A cautious estimate of the duration of the copy, in seconds."
    )
    oplogWindowSeconds = nullable(
        fields.Integer,
        "The time for which the source's oplog keeps an entry at its average write rate, in seconds.",
    )


class _PlannedPrincipals(Strict):
    users = always(fields.Integer, "The number of users to copy.")
    roles = always(fields.Integer, "The number of custom roles to copy.")
    equal = always(
        fields.Integer,
        "The number of users and roles that the destination already has with an equal definition.",
    )
    kept = always(
        fields.Integer,
        "The number of users and roles that differ, for which the definition of the destination would be kept.",
    )
    conflicts = always(fields.Integer, "The number of users and roles that prevent the copy.")


class _MissingFeature(Strict):
    cluster = always(
        fields.String, "The cluster whose servers lack the feature, such as `cluster0`."
    )
    feature = always(fields.String, "The feature that the servers of the cluster lack.")
    effect = always(fields.String, "The effect on the sync: its behavior without the feature.")


class _PreflightAnswer(SuccessAnswer):
    violations = always(
        fields.List,
        "All reasons why a start would be refused now.",
        fields.Nested(_Violation),
    )
    warnings = always(
        fields.List, "Possible problems of the sync, each with a remedy.", fields.String()
    )
    missingFeatures = always(
        fields.List,
        "The features that the sync would use, but that the servers lack. They do not prevent a start.",
        fields.Nested(_MissingFeature),
    )
    estimates = always(fields.Nested, "The estimated cost of the sync.", _Estimates)
    usersAndRoles = sometimes(
        fields.Nested,
        "The users and roles that would be copied; absent if the body does not request a copy, or if they are unknown.",
        _PlannedPrincipals,
    )


class _ResetAnswer(SuccessAnswer):
    """The answer to a reset: all fields for a dry run, otherwise only `success`."""

    collections = sometimes(
        fields.List, "The collections on the destination that would be dropped.", fields.String()
    )
    views = sometimes(
        fields.List, "The views on the destination that would be dropped.", fields.String()
    )
    kept = sometimes(
        fields.List,
        "The collections and views on the destination that would stay, because the sync did not create them.",
        fields.String(),
    )
    usersAndRoles = sometimes(
        fields.List,
        "The users and roles on the destination that would be dropped.",
        fields.String(),
    )
    unblocked = sometimes(
        fields.List, "The clusters on which user writes would be unblocked.", fields.String()
    )
    balancersStarted = sometimes(
        fields.List, "The clusters whose balancer would be restarted.", fields.String()
    )


class _Principal(Strict):
    type = always(fields.String, "`user` or `role`.")
    database = always(fields.String, "The database in which the user or role is defined.")
    name = always(fields.String, "The name of the user or role.")
    result = always(
        fields.Enum,
        "The effect of a commit: `copy` (it is copied), `equal` (the destination already has it), `kept` (the "
        "destination keeps another definition), `own` (not copied, because this daemon logs in as this user). Three "
        "values prevent the commit: `conflict` (the destination has another definition), `missing` (the role is not "
        "copied, and not on the destination), `surplus` (users or roles of the source refer to this role, but only "
        "the destination has it).",
        Outcome,
        by_value=True,
    )
    detail = always(fields.String, "The reason for `result`; empty if none is needed.")


class _UsersAnswer(SuccessAnswer):
    usersAndRoles = always(
        fields.List,
        "The users and roles that the start options select, and the other roles to which they refer, each with the "
        "effect of a copy. Roles come first.",
        fields.Nested(_Principal),
    )


class _CopyUsersAnswer(SuccessAnswer):
    usersAndRoles = always(
        fields.Nested, "The result of the copy, as in the progress.", _CopiedPrincipals
    )


class _PlannedRepair(Strict):
    difference = always(
        fields.String,
        "The document or definition that differs, and the difference, as readable text.",
    )
    action = always(
        fields.Enum,
        "The action of the repair for this difference; begins with `none` if the repair would leave the difference.",
        Action,
        by_value=True,
    )


class _RepairAnswer(SuccessAnswer):
    """The answer to a repair: all fields for a dry run, otherwise only `success`."""

    documents = sometimes(
        fields.Integer, "The number of documents that differ; only for a dry run."
    )
    definitions = sometimes(
        fields.Integer,
        "The number of differences in definitions or document counts; only for a dry run.",
    )
    repairs = sometimes(
        fields.List,
        "The first 1,000 differences with their repairs; only for a dry run.",
        fields.Nested(_PlannedRepair),
    )


class _NamespaceVerification(Strict):
    comparedDocuments = always(
        fields.Integer,
        "The number of documents of the collection that the first pass of the verification has compared.",
    )
    estimatedTotalDocuments = nullable(
        fields.Integer, "The estimated number of documents of the collection to compare."
    )
    mismatches = always(fields.Integer, "The number of documents of the collection that differ.")


class _Namespace(Strict):
    """The progress of one collection."""

    namespace = always(fields.String, "The name of the collection on the source.")
    destinationNamespace = fields.String(
        metadata={
            "description": "The name of the collection on the destination, if namespaceRemap changes it."
        }
    )
    phase = always(
        fields.Enum,
        "The phase of the collection in the copy and the index builds.",
        NamespacePhase,
        by_value=True,
    )
    copiedDocuments = always(fields.Integer, "The number of documents copied.")
    estimatedTotalDocuments = always(fields.Integer, "The estimated number of documents to copy.")
    copiedBytes = always(fields.Integer, "The number of bytes copied.")
    estimatedTotalBytes = always(fields.Integer, "The estimated number of bytes to copy.")
    documentsPerSecond = nullable(
        fields.Float,
        "The number of documents that this process copies per second, on average since it began or resumed the copy of "
        "the collection; null while the collection is not being copied.",
    )
    bytesPerSecond = nullable(
        fields.Float,
        "The number of bytes that this process copies per second, on average since it began or resumed the copy of the "
        "collection; null while the collection is not being copied.",
    )
    eventsApplied = always(
        fields.Integer,
        "The number of change events of the collection that this process has applied.",
    )
    indexesBuilt = nullable(
        fields.Integer,
        "The number of the collection's indexes that are built on the destination, not counting the index on _id; null "
        "while the indexes are being created before the copy.",
    )
    totalIndexes = always(
        fields.Integer, "The number of indexes of the collection, not counting the index on _id."
    )
    verification = nullable(
        fields.Nested, "The progress of the verification of the collection.", _NamespaceVerification
    )


class _NamespacesAnswer(SuccessAnswer):
    namespaces = always(fields.List, "The collections, sorted by name.", fields.Nested(_Namespace))
    next = nullable(
        fields.String,
        "The value of the parameter `after` that requests the next page; null on the last page.",
    )


class _Overview(OverviewFields):
    progress = always(fields.Nested, "The answer to GET /api/v1/progress.", _Progress)


class _OverviewAnswer(SuccessAnswer):
    overview = always(
        fields.Nested,
        "The progress of the sync, sentences that explain the progress, and the history of its figures.",
        _Overview,
    )


class _NamespacesTableAnswer(SuccessAnswer):
    namespaces = always(fields.List, "The requested collections.", fields.Nested(_Namespace))
    total = always(
        fields.Integer,
        "The number of all collections that the request selects, including those that `limit` and `offset` leave out.",
    )


class _CurrentRates(Strict):
    """The limits of the sync's speed. A limit that does not apply is null."""

    copyBytesPerSecond = nullable(fields.Integer, "The maximum number of bytes copied per second.")
    copyDocumentsPerSecond = nullable(
        fields.Integer, "The maximum number of documents copied per second."
    )
    eventsPerSecond = nullable(
        fields.Integer, "The maximum number of change events applied per second."
    )
    threads = nullable(
        fields.Integer,
        "The maximum number of threads in each instance that read documents or write batches.",
    )


class _LimitWindow(Strict):
    class Meta(Strict.Meta):
        include = {
            "from": always(fields.String, "The time at which the window begins each day, as HH:MM.")
        }

    to = always(
        fields.String,
        "The time at which the window ends, as HH:MM; on the next day if it is before `from`.",
    )
    timezone = always(fields.String, "The time zone of `from` and `to`.")
    limits = always(
        fields.Nested,
        "The limits during the window, in place of all limits that apply outside the window.",
        _CurrentRates,
    )


class _AutoLimit(Strict):
    """The thresholds above which the sync slows down by itself. A threshold that is not checked is null."""

    enabled = always(Boolean, "Whether the sync slows down while a cluster is overloaded.")
    maxSourceLatencyMS = nullable(
        fields.Integer,
        "The latency of a small read, in milliseconds, above which the source counts as overloaded.",
    )
    maxDestinationLatencyMS = nullable(
        fields.Integer,
        "The latency of a small read, in milliseconds, above which the destination counts as overloaded.",
    )
    maxQueue = nullable(
        fields.Integer,
        "The number of operations waiting on the primary above which a cluster counts as overloaded.",
    )
    maxReplicationLagSeconds = nullable(
        fields.Integer,
        "The lag of the slowest secondary, in seconds, above which a cluster counts as overloaded.",
    )


class _CurrentLimits(_CurrentRates):
    windows = always(
        fields.List, "The daily periods with different limits.", fields.Nested(_LimitWindow)
    )
    auto = always(
        fields.Nested, "The thresholds above which the sync slows down by itself.", _AutoLimit
    )


class _ClusterLoad(Strict):
    """The newest measurement of the load of a cluster; unknown values are null."""

    latencyMS = nullable(
        fields.Float, "The latency of a small read on the cluster's primary, in milliseconds."
    )
    queue = nullable(fields.Integer, "The number of operations that wait on the cluster's primary.")
    replicationLagSeconds = nullable(
        fields.Integer,
        "The lag of the cluster's slowest secondary behind its primary, in seconds.",
    )


class _Measured(Strict):
    source = always(fields.Nested, "The load of the source.", _ClusterLoad)
    destination = always(fields.Nested, "The load of the destination.", _ClusterLoad)


class _LimitsAnswer(SuccessAnswer):
    limits = always(fields.Nested, "The limits of the sync, as they were set.", _CurrentLimits)
    saved = always(
        Boolean,
        "Whether all limits are saved, so that a restarted process obeys them; false if a limit was changed before the "
        "start of the sync, or if the sync was reset.",
    )
    effective = always(
        fields.Nested,
        "The limits that this process obeys now: its share of the limits for this time of day, lowered by `auto`.",
        _CurrentRates,
    )
    throttledBy = nullable(
        fields.Nested,
        "The limit that slows the sync down; null while no work waits for a limit.",
        _ThrottledBy,
    )
    measured = always(
        fields.Nested,
        "The load of the clusters; known only while `auto` is enabled, also without a sync. Standbys do not measure.",
        _Measured,
    )


OPERATIONS = (
    Operation(
        "post",
        "/api/v1/start",
        "Starts a sync.",
        SuccessAnswer(),
        body=StartSchema(),
        errors=(*_ANY, *_AT_START, errors.INCOMPATIBLE_METADATA),
    ),
    Operation(
        "post",
        "/api/v1/preflight",
        "Checks whether a start with the same request body would succeed now. Changes nothing.",
        _PreflightAnswer(),
        body=StartSchema(),
        errors=(errors.INVALID_STATE, COMMAND_IN_PROGRESS, errors.NOT_ACTIVE),
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
        "Resumes a sync that was paused, or that failed.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(
            *_ANY,
            errors.FAILURE_IS_FINAL,
            errors.FOREIGN_WRITE_BLOCK,
            errors.INCOMPATIBLE_METADATA,
            errors.OLD_SOURCE_WRITTEN,
            OPLOG_WINDOW_EXCEEDED,
        ),
    ),
    Operation(
        "post",
        "/api/v1/commit",
        "Commits a sync: starts the cut-over.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, errors.CANNOT_COMMIT, *_OF_PRINCIPALS),
    ),
    Operation(
        "post",
        "/api/v1/repair",
        "Repairs the differences that the verification found, even if the verification has failed. With `dryRun`, only "
        "lists the repairs.",
        _RepairAnswer(),
        body=RepairSchema(),
        errors=(
            *_ANY,
            errors.CANNOT_REPAIR,
            errors.FOREIGN_WRITE_BLOCK,
            errors.INCOMPATIBLE_METADATA,
            MISMATCHES_REPLACED,
            TOO_MANY_READERS,
        ),
    ),
    Operation(
        "post",
        "/api/v1/reverse",
        "Reverses a committed sync: the former destination becomes the source.",
        SuccessAnswer(),
        body=EmptySchema(),
        errors=(
            *_ANY,
            errors.NOT_REVERSIBLE,
            errors.FOREIGN_WRITE_BLOCK,
            errors.INCOMPATIBLE_METADATA,
            errors.OLD_SOURCE_WRITTEN,
            OPLOG_WINDOW_EXCEEDED,
        ),
    ),
    Operation(
        "post",
        "/api/v1/reset",
        "Abandons the sync: drops everything that the sync created on the destination, lifts its user write blocks, "
        "and restarts the balancers that it stopped. With `dryRun`, only lists these actions.",
        _ResetAnswer(),
        body=ResetSchema(),
        errors=(*_ANY, errors.DESTINATION_IN_USE, errors.INCOMPATIBLE_METADATA),
    ),
    Operation(
        "post",
        "/api/v1/users",
        "Copies users and roles now. The commit compares them again, and copies those that have changed since.",
        _CopyUsersAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, *_OF_PRINCIPALS, errors.USER_OR_ROLE_NOT_COPIED),
    ),
    Operation("get", "/api/v1/limits", "Shows the limits of the sync's speed.", _LimitsAnswer()),
    Operation(
        "patch",
        "/api/v1/limits",
        "Changes limits of the sync's speed. Limits that are not in the body stay as they are.",
        _LimitsAnswer(),
        body=LimitsSchema(),
        errors=(errors.INVALID_STATE, *_OF_CLUSTERS, errors.INCOMPATIBLE_METADATA),
    ),
    Operation("get", "/api/v1/progress", "Shows the progress of the sync.", _ProgressAnswer()),
    Operation(
        "get",
        "/api/v1/namespaces",
        "Shows the progress of each collection.",
        _NamespacesAnswer(),
        parameters=NamespacesSchema(),
        errors=(errors.NOT_ACTIVE,),
    ),
    Operation(
        "get",
        "/api/v1/users",
        "Shows which users and roles a commit would copy now, and which prevent a commit. Changes nothing.",
        _UsersAnswer(),
        errors=(errors.INVALID_STATE, errors.NOT_ACTIVE, *_OF_CLUSTERS, TOO_MANY_READERS),
    ),
    Operation(
        "get",
        "/api/v1/mismatches",
        "Lists the differences that the verification found: first those in definitions, then those in documents. With "
        "`repaired`, lists the repaired differences.",
        DefinitionMismatchLine(),
        parameters=MismatchesSchema(),
        other=DocumentMismatchLine(),
        content=LINES,
        errors=(
            errors.INVALID_STATE,
            errors.NOT_ACTIVE,
            *_OF_CLUSTERS,
            errors.INCOMPATIBLE_METADATA,
            MISMATCHES_REPLACED,
            TOO_MANY_READERS,
        ),
    ),
    Operation(
        "get",
        "/api/v1/overview",
        "Shows the overview that the page at `/` displays: the progress of the sync, sentences that explain the "
        "progress, and the history of its figures. The answer has an ETag.",
        _OverviewAnswer(),
        parameters=OverviewSchema(),
    ),
    Operation(
        "get",
        "/api/v1/overview/namespaces",
        "Shows the progress of some collections, sorted and filtered, for the table on the page at `/`. The answer "
        "has an ETag.",
        _NamespacesTableAnswer(),
        parameters=NamespacesTableSchema(),
        errors=(errors.NOT_ACTIVE,),
    ),
    Operation(
        "get",
        "/api/v1/report",
        "Shows the report of the sync: what was synced, when, by whom, and what was verified. Browsers get HTML.",
        ReportAnswer(),
        parameters=ReportSchema(),
        errors=(errors.INVALID_STATE, errors.NOT_ACTIVE, TOO_MANY_READERS),
        page=True,
    ),
    Operation(
        "get",
        "/livez",
        "Answers with success as long as the process runs. Supervisors can use this request.",
        SuccessAnswer(),
        public=True,
    ),
    Operation(
        "get",
        "/readyz",
        "Answers with success if the process has started, and both clusters answered the last ping.",
        SuccessAnswer(),
        errors=(errors.NOT_READY,),
        public=True,
    ),
    Operation("get", "/metrics", "Shows metrics for Prometheus.", None, content=TEXT),
)


@cache
def description() -> dict[str, Any]:
    """Return the OpenAPI document of the sync service."""
    return described(
        "syncsvc",
        __version__,
        "http://localhost:27182",
        "Syncs one MongoDB cluster to another.",
        OPERATIONS,
    )
