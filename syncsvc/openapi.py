"""The OpenAPI description of the sync service: one row for each endpoint, and the schemas of the answers."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from syncsvc import __version__, errors
from syncsvc.limits import Limit
from syncsvc.principals.comparison import Outcome
from syncsvc.repair_rules import Action
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
from syncsvc.schemas import (
    LimitsSchema,
    MismatchesSchema,
    NamespacesSchema,
    RepairSchema,
    ResetSchema,
    StartSchema,
)
from syncsvc.settings import DesiredState
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
    errors.NOT_SUPPORTED_YET,
    errors.DESTINATION_NOT_EMPTY,
    errors.METADATA_LEFT_OVER,
    errors.UNKNOWN_INSTANCE,
    errors.INSTANCES_NOT_APPLICABLE,
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
    errors.SERVER_FEATURE_MISSING,
    errors.UNSUPPORTED_COLLECTION,
    errors.TTL_NOT_VERIFIABLE,
)


class _CollectionCopy(Strict):
    estimatedTotalBytes = nullable(fields.Integer, "The number of bytes to copy.")
    estimatedCopiedBytes = always(fields.Integer, "The number of bytes copied.")


class _Lag(Strict):
    overallLagSeconds = nullable(
        fields.Integer, "How far the destination is behind the source, in seconds."
    )
    crudLagSeconds = nullable(
        fields.Integer,
        "The lag of inserts, updates and deletes, in seconds; null before the first one.",
    )
    ddlLagSeconds = nullable(
        fields.Integer, "The lag of DDL events, in seconds; null before the first one."
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
    active = always(Boolean, "Whether change events are being saved in the spool.")
    bytes = always(fields.Integer, "The compressed size of the saved events.")
    limitBytes = always(fields.Integer, "The size limit of the spool: --eventSpoolMB, in bytes.")
    seconds = always(
        fields.Integer, "The time between the oldest and the newest saved event, in seconds."
    )
    bytesPerSecond = always(
        fields.Integer, "How many bytes are saved per second, on average over the last minute."
    )


class _VerificationSide(Strict):
    phase = always(fields.Enum, "The stage of the verification.", Hashing, by_value=True)
    estimatedDocumentCount = nullable(
        fields.Integer, "The estimated number of documents to compare."
    )
    hashedDocumentCount = always(fields.Integer, "The number of documents compared.")
    totalCollectionCount = nullable(fields.Integer, "The number of collections to compare.")
    scannedCollectionCount = always(
        fields.Integer, "The number of collections that are compared completely."
    )
    lagTimeSeconds = nullable(
        fields.Integer,
        "How far the verification is behind the change events of the cluster, in seconds.",
    )


class _VerificationProgress(Strict):
    source = always(fields.Nested, "The verification of the source.", _VerificationSide)
    destination = always(fields.Nested, "The verification of the destination.", _VerificationSide)


class _Repairs(Strict):
    inProgress = always(Boolean, "Whether a repair is requested or running.")
    documents = always(fields.Integer, "The number of documents repaired.")
    definitions = always(fields.Integer, "The number of differences in definitions repaired.")


class _CopiedPrincipals(Strict):
    copied = always(
        Boolean, "Whether the commit has copied users and roles; until then, the counts are 0."
    )
    users = always(fields.Integer, "The number of users copied.")
    roles = always(fields.Integer, "The number of custom roles copied.")
    equal = always(
        fields.Integer, "The number of users and roles that the destination already had."
    )
    kept = always(
        fields.Integer,
        "The number of users and roles that differ, for which the destination kept its own definition.",
    )


class _DirectionMapping(Strict):
    Source = always(fields.String, "The source, as cluster0: host:port.")
    Destination = always(fields.String, "The destination, as cluster1: host:port.")


class _Lease(Strict):
    host = always(fields.String, "The host of the active daemon.")
    address = always(fields.String, "The address and port of its HTTP API on that host.")
    since = always(
        fields.String, "When this daemon became active, in UTC, by the clock of the destination."
    )
    expires = always(
        fields.String,
        "When the lease expires, in UTC, unless it is renewed; then another daemon takes over.",
    )


class _ThrottledBy(Strict):
    what = always(fields.Enum, "The limit that slows the sync down.", Limit, by_value=True)
    reason = always(fields.String, "Why this limit applies.")
    since = always(fields.String, "Since when this limit has slowed the sync down, in UTC.")


class _Progress(Strict):
    """The progress of a sync at one moment; unknown values are null."""

    state = always(fields.Enum, "The state of the sync.", State, by_value=True)
    canCommit = always(Boolean, "Whether POST /api/v1/commit is accepted now.")
    canWrite = always(Boolean, "Whether applications may write to the destination.")
    info = nullable(fields.Enum, "The phase of the sync.", Phase, by_value=True)
    ceaStage = nullable(
        fields.Enum,
        "`collection copy drain` while the changes made during the copy are applied, then `steady state`.",
        Stage,
        by_value=True,
    )
    lag = nullable(fields.Nested, "The lag by kind of change.", _Lag)
    lagTimeSeconds = nullable(
        fields.Integer, "How far the destination is behind the source, in seconds."
    )
    totalEventsApplied = nullable(
        fields.Integer, "The number of change events that this process has applied."
    )
    collectionCopy = always(
        fields.Nested,
        "The estimated progress of the copy; zeros before the start.",
        _CollectionCopy,
    )
    directionMapping = nullable(fields.Nested, "The clusters and their roles.", _DirectionMapping)
    source = nullable(fields.Nested, "The last ping of the source.", _Ping)
    destination = nullable(fields.Nested, "The last ping of the destination.", _Ping)
    mongosyncID = always(fields.String, "The name of this instance.")
    coordinatorID = nullable(fields.String, "The name of the instance that coordinates the sync.")
    error = nullable(fields.String, "The name of the error that the sync failed with.")
    errorDescription = nullable(fields.String, "Why the sync failed, and what to do.")
    throttledBy = nullable(
        fields.Nested,
        "The limit that slows the sync down; null while no work waits for a limit.",
        _ThrottledBy,
    )
    estimatedOplogTimeRemaining = sometimes(
        fields.String,
        "How long the source's oplog still holds the changes that the sync needs, in words. Only while the sync is "
        "running or paused.",
    )
    eventSpool = sometimes(
        fields.Nested,
        "The event spool; absent while no change events are saved in it.",
        _EventSpool,
    )
    estimatedSecondsToCEACatchup = sometimes(
        fields.Integer,
        "The estimated time until the lag is zero, in seconds; only while the lag falls.",
    )
    indexBuilding = sometimes(
        fields.Nested, "The progress of index builds after the copy.", _IndexBuilding
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
        fields.List, "Problems that endanger or delay the sync, and what to do.", fields.String()
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
    errorDescription = always(fields.String, "What is wrong, and what to do.")


class _Estimates(Strict):
    """The estimated cost of a sync, in bytes and seconds; unknown values are null."""

    namespaces = nullable(
        fields.Integer, "The number of collections and views that would be synced."
    )
    documents = nullable(fields.Integer, "The number of documents that would be copied.")
    bytes = nullable(fields.Integer, "The size of the documents that would be copied, in bytes.")
    indexes = nullable(
        fields.Integer, "The number of indexes that would be built, without those on _id."
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
        "How long the source's oplog keeps an entry, in seconds, at its average write rate.",
    )


class _PlannedPrincipals(Strict):
    users = always(fields.Integer, "The number of users to copy.")
    roles = always(fields.Integer, "The number of custom roles to copy.")
    equal = always(
        fields.Integer, "The number of users and roles that the destination already has."
    )
    kept = always(
        fields.Integer,
        "The number of users and roles that differ, for which the destination would keep its own definition.",
    )
    conflicts = always(fields.Integer, "The number of users and roles that prevent the copy.")


class _MissingFeature(Strict):
    cluster = always(fields.String, "The cluster, such as `cluster0`.")
    feature = always(fields.String, "The feature that the servers of the cluster lack.")
    effect = always(fields.String, "What the sync does instead.")


class _PreflightAnswer(SuccessAnswer):
    violations = always(
        fields.List,
        "All reasons why a start would be refused now.",
        fields.Nested(_Violation),
    )
    warnings = always(fields.List, "Possible problems, and what to do.", fields.String())
    missingFeatures = always(
        fields.List,
        "The features that the servers lack and that a sync uses if they exist. None of them prevents a start.",
        fields.Nested(_MissingFeature),
    )
    estimates = always(fields.Nested, "The estimated cost of the sync.", _Estimates)
    usersAndRoles = sometimes(
        fields.Nested,
        "The users and roles that would be copied; absent if the body does not request a copy, or if they are unknown.",
        _PlannedPrincipals,
    )


class _ResetAnswer(SuccessAnswer):
    """The answer of a reset: all fields for a dry run, otherwise only `success`."""

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
        fields.List, "The clusters whose users would be unblocked.", fields.String()
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
        "copied, and not on the destination), `surplus` (users or roles of the source name this role, but only the "
        "destination has it).",
        Outcome,
        by_value=True,
    )
    detail = always(fields.String, "The reason for `result`; empty if none is needed.")


class _UsersAnswer(SuccessAnswer):
    usersAndRoles = always(
        fields.List,
        "First the roles, then the users: those to copy, and the roles that they have.",
        fields.Nested(_Principal),
    )


class _PlannedRepair(Strict):
    difference = always(
        fields.String, "Which document or definition differs, and how, as readable text."
    )
    action = always(
        fields.Enum,
        "What the repair would do; none if it cannot repair the difference.",
        Action,
        by_value=True,
    )


class _RepairAnswer(SuccessAnswer):
    """The answer of a repair: all fields for a dry run, otherwise only `success`."""

    documents = sometimes(
        fields.Integer, "The number of documents that differ; only for a dry run."
    )
    definitions = sometimes(
        fields.Integer, "The number of differences in definitions or counts; only for a dry run."
    )
    repairs = sometimes(
        fields.List,
        "The first 1,000 differences with their repairs; only for a dry run.",
        fields.Nested(_PlannedRepair),
    )


class _NamespaceVerification(Strict):
    comparedDocuments = always(
        fields.Integer, "The number of documents that the first pass has compared."
    )
    estimatedTotalDocuments = nullable(
        fields.Integer, "The estimated number of documents to compare."
    )
    mismatches = always(fields.Integer, "The number of documents that differ.")


class _Namespace(Strict):
    """The progress of one collection."""

    namespace = always(fields.String, "The name of the collection on the source.")
    phase = always(fields.Enum, "The phase of the collection.", NamespacePhase, by_value=True)
    copiedDocuments = always(fields.Integer, "The number of documents copied.")
    estimatedTotalDocuments = always(fields.Integer, "The estimated number of documents to copy.")
    copiedBytes = always(fields.Integer, "The number of bytes copied.")
    estimatedTotalBytes = always(fields.Integer, "The number of bytes to copy.")
    documentsPerSecond = nullable(
        fields.Float,
        "The number of documents copied per second; null while the collection is not being copied.",
    )
    bytesPerSecond = nullable(
        fields.Float,
        "The number of bytes copied per second; null while the collection is not being copied.",
    )
    eventsApplied = always(
        fields.Integer, "The number of change events that this process has applied."
    )
    indexesBuilt = nullable(
        fields.Integer,
        "How many of the collection's indexes are built on the destination, without the one on _id.",
    )
    totalIndexes = always(
        fields.Integer, "The number of indexes of the collection, without the one on _id."
    )
    verification = nullable(
        fields.Nested, "The verification of the collection.", _NamespaceVerification
    )


class _NamespacesAnswer(SuccessAnswer):
    namespaces = always(fields.List, "The collections, sorted by name.", fields.Nested(_Namespace))
    next = nullable(fields.String, "The value of `after` for the next page; null on the last page.")


class _Overview(OverviewFields):
    progress = always(fields.Nested, "The document of GET /api/v1/progress.", _Progress)


class _OverviewAnswer(SuccessAnswer):
    overview = always(fields.Nested, "Everything that an operator watches.", _Overview)


class _NamespacesTableAnswer(SuccessAnswer):
    namespaces = always(fields.List, "The requested rows.", fields.Nested(_Namespace))
    total = always(fields.Integer, "The number of collections that fit the request, on all pages.")


class _CurrentRates(Strict):
    """Limits; one that does not apply is null."""

    copyBytesPerSecond = nullable(fields.Integer, "How many bytes may be copied per second.")
    copyDocumentsPerSecond = nullable(
        fields.Integer, "How many documents may be copied per second."
    )
    eventsPerSecond = nullable(fields.Integer, "How many change events may be applied per second.")
    threads = nullable(
        fields.Integer,
        "How many threads of each instance may read pages and write batches at the same time.",
    )


class _LimitWindow(Strict):
    class Meta(Strict.Meta):
        include = {"from": always(fields.String, "When the window begins each day, as HH:MM.")}

    to = always(fields.String, "When the window ends, as HH:MM.")
    timezone = always(fields.String, "The time zone of `from` and `to`.")
    limits = always(
        fields.Nested, "The limits in the window, in place of those outside of it.", _CurrentRates
    )


class _AutoLimit(Strict):
    """When the sync slows down by itself; a threshold that is not checked is null."""

    enabled = always(Boolean, "Whether the sync slows down while a cluster is overloaded.")
    maxSourceLatencyMS = nullable(
        fields.Integer, "The latency above which the source is overloaded."
    )
    maxDestinationLatencyMS = nullable(
        fields.Integer, "The latency above which the destination is overloaded."
    )
    maxQueue = nullable(
        fields.Integer, "How many operations may wait on the primary of either cluster."
    )
    maxReplicationLagSeconds = nullable(
        fields.Integer, "How far the secondaries of either cluster may lag behind, in seconds."
    )


class _CurrentLimits(_CurrentRates):
    windows = always(
        fields.List, "Periods of the day with other limits.", fields.Nested(_LimitWindow)
    )
    auto = always(fields.Nested, "When the sync slows down by itself.", _AutoLimit)


class _ClusterLoad(Strict):
    """The newest measurement of a cluster; unknown values are null."""

    latencyMS = nullable(fields.Float, "The latency of a small read, in milliseconds.")
    queue = nullable(fields.Integer, "How many operations wait on the primary.")
    replicationLagSeconds = nullable(
        fields.Integer, "How far the slowest secondary lags behind, in seconds."
    )


class _Measured(Strict):
    source = always(fields.Nested, "The load of the source.", _ClusterLoad)
    destination = always(fields.Nested, "The load of the destination.", _ClusterLoad)


class _LimitsAnswer(SuccessAnswer):
    limits = always(fields.Nested, "The limits of the sync, as they were set.", _CurrentLimits)
    saved = always(
        Boolean,
        "Whether a restarted process knows all limits; false if some were changed before the start of a sync, or if "
        "the sync was reset.",
    )
    effective = always(
        fields.Nested,
        "The limits that this process obeys now: its share, for this time of day, lowered by `auto`.",
        _CurrentRates,
    )
    throttledBy = nullable(
        fields.Nested,
        "The limit that slows the sync down; null while no work waits for a limit.",
        _ThrottledBy,
    )
    measured = always(
        fields.Nested, "The load of the clusters; known only while `auto` is at work.", _Measured
    )


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
        errors=(errors.INVALID_STATE, errors.NOT_ACTIVE),
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
        errors=(*_ANY, errors.FAILURE_IS_FINAL),
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
        "Repairs the differences that the verification found, also after a failed verification; or only lists the "
        "repairs.",
        _RepairAnswer(),
        body=RepairSchema(),
        errors=(
            *_ANY,
            errors.CANNOT_REPAIR,
            errors.INCOMPATIBLE_METADATA,
            MISMATCHES_REPLACED,
        ),
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
    Operation(
        "post",
        "/api/v1/reset",
        "Abandons the sync: drops everything that it created on the destination, and lifts its user write blocks.",
        _ResetAnswer(),
        body=ResetSchema(),
        errors=(*_ANY, errors.DESTINATION_IN_USE),
    ),
    Operation("get", "/api/v1/limits", "Shows the limits of the sync's speed.", _LimitsAnswer()),
    Operation(
        "patch",
        "/api/v1/limits",
        "Changes limits of the sync's speed: those in the body, and no others.",
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
        "Shows which users and roles a commit would copy now, and which prevent it. Changes nothing.",
        _UsersAnswer(),
        errors=(errors.INVALID_STATE, errors.NOT_ACTIVE, *_OF_CLUSTERS),
    ),
    Operation(
        "get",
        "/api/v1/mismatches",
        "Lists the differences that the verification found, first the definitions, then the documents; or those that "
        "were repaired.",
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
        "Shows everything that the page shows: the progress, explanations, and the history. The answer has an ETag.",
        _OverviewAnswer(),
        parameters=OverviewSchema(),
    ),
    Operation(
        "get",
        "/api/v1/overview/namespaces",
        "Shows a part of the table of collections, sorted and filtered. The answer has an ETag.",
        _NamespacesTableAnswer(),
        parameters=NamespacesTableSchema(),
        errors=(errors.NOT_ACTIVE,),
    ),
    Operation(
        "get",
        "/api/v1/report",
        "Shows the report of the sync: what was synced, when, by whom, and what was verified. As HTML for browsers.",
        ReportAnswer(),
        parameters=ReportSchema(),
        errors=(errors.INVALID_STATE, errors.NOT_ACTIVE, TOO_MANY_READERS),
        page=True,
    ),
    Operation(
        "get",
        "/livez",
        "Answers with success as long as the process runs. For supervisors.",
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


def description() -> dict[str, Any]:
    """Return the OpenAPI document of the sync service."""
    return described(
        "syncsvc",
        __version__,
        "http://localhost:27182",
        "Syncs one MongoDB cluster to another.",
        OPERATIONS,
    )
