"""The OpenAPI description of the sync service: one row for each endpoint that it describes."""

from __future__ import annotations

from functools import cache
from typing import Any

from syncsvc import __version__, errors
from syncsvc.reports.command_schemas import PreflightAnswer, RepairAnswer, ResetAnswer
from syncsvc.reports.limits_schemas import LimitsAnswer
from syncsvc.reports.namespace_schemas import (
    NamespacesAnswer,
    NamespacesTableAnswer,
    NamespacesTableSchema,
)
from syncsvc.reports.overview_schemas import OverviewAnswer, OverviewSchema
from syncsvc.reports.principal_schemas import CopyUsersAnswer, UsersAnswer
from syncsvc.reports.progress_schemas import ProgressAnswer
from syncsvc.reports.report_schemas import ReportAnswer
from syncsvc.schemas import (
    LimitsSchema,
    MismatchesSchema,
    NamespacesSchema,
    RepairSchema,
    ResetSchema,
    StartSchema,
)
from verifier.cluster.cluster import SAME_CLUSTER
from verifier.cluster.failures import CLUSTER_ERRORS, OPLOG_WINDOW_EXCEEDED
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.schemas import DefinitionMismatchLine, DocumentMismatchLine
from verifier.page.report_fields import ReportSchema
from verifier.runtime.commands import COMMAND_IN_PROGRESS
from verifier.runtime.httpd import TOO_MANY_READERS
from verifier.runtime.openapi import LINES, TEXT, Operation, SuccessAnswer, described
from verifier.runtime.schemas import EmptySchema

# Errors of every command, except a preflight and a change of the limits.
_ANY = (
    errors.INVALID_STATE,
    errors.CONTRADICTS_DESIRED_STATE,
    COMMAND_IN_PROGRESS,
    *CLUSTER_ERRORS,
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
        PreflightAnswer(),
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
        "Repairs the differences that the verification found, even if the sync has failed with VerificationFailed. "
        "With `dryRun`, only lists the repairs.",
        RepairAnswer(),
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
        "Abandons the sync: drops what the sync created on the destination (except users and roles that have changed "
        "since, and roles that others still have), lifts its user write blocks, and restarts the balancers that it "
        "stopped. With `dryRun`, only lists these actions.",
        ResetAnswer(),
        body=ResetSchema(),
        errors=(*_ANY, errors.DESTINATION_IN_USE, errors.INCOMPATIBLE_METADATA),
    ),
    Operation(
        "post",
        "/api/v1/users",
        "Copies users and roles now. The commit compares them again, and copies those that have changed since.",
        CopyUsersAnswer(),
        body=EmptySchema(),
        errors=(*_ANY, *_OF_PRINCIPALS, errors.USER_OR_ROLE_NOT_COPIED),
    ),
    Operation("get", "/api/v1/limits", "Shows the limits of the sync's speed.", LimitsAnswer()),
    Operation(
        "patch",
        "/api/v1/limits",
        "Changes limits of the sync's speed. Limits that are not in the body stay as they are.",
        LimitsAnswer(),
        body=LimitsSchema(),
        errors=(
            errors.INVALID_STATE,
            COMMAND_IN_PROGRESS,
            *CLUSTER_ERRORS,
            errors.INCOMPATIBLE_METADATA,
        ),
    ),
    Operation("get", "/api/v1/progress", "Shows the progress of the sync.", ProgressAnswer()),
    Operation(
        "get",
        "/api/v1/namespaces",
        "Shows the progress of each collection.",
        NamespacesAnswer(),
        parameters=NamespacesSchema(),
        errors=(errors.NOT_ACTIVE,),
    ),
    Operation(
        "get",
        "/api/v1/users",
        "Shows which users and roles a commit or a copy on request would copy now, and which prevent both. Changes "
        "nothing.",
        UsersAnswer(),
        errors=(errors.INVALID_STATE, errors.NOT_ACTIVE, *CLUSTER_ERRORS, TOO_MANY_READERS),
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
            *CLUSTER_ERRORS,
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
        OverviewAnswer(),
        parameters=OverviewSchema(),
    ),
    Operation(
        "get",
        "/api/v1/overview/namespaces",
        "Shows the progress of some collections, sorted and filtered, for the table on the page at `/`. The answer "
        "has an ETag.",
        NamespacesTableAnswer(),
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
