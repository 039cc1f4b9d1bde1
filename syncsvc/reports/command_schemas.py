"""The schemas of the answers to a preflight, a reset and a repair."""

from __future__ import annotations

from marshmallow import fields

from syncsvc.reports.principal_schemas import PlannedPrincipals
from syncsvc.rules.repairing import Action
from verifier.runtime.openapi import SuccessAnswer, always, nullable, sometimes
from verifier.runtime.schemas import Strict


class _Violation(Strict):
    error = always(fields.String, "The name of the error with which a start would be refused.")
    errorDescription = always(
        fields.String, "The reason why the start would be refused, and the remedy."
    )


class _Estimates(Strict):
    """The estimated size and cost of a sync; unknown values are null."""

    namespaces = nullable(
        fields.Integer,
        "The number of collections and views that would be synced; null if unknown.",
    )
    documents = nullable(
        fields.Integer, "The number of documents that would be copied; null if unknown."
    )
    bytes = nullable(
        fields.Integer,
        "The size of the documents that would be copied, in bytes; null if unknown.",
    )
    indexes = nullable(
        fields.Integer,
        "The number of indexes that would be built, not counting indexes on _id; null if unknown.",
    )
    diskNeededBytes = nullable(
        fields.Integer,
        "The space that the sync may need on the disk of the destination's primary, in bytes; on a sharded cluster, "
        "on all shards together; null if unknown.",
    )
    diskFreeBytes = nullable(
        fields.Integer,
        "The free space on the disk of the destination's primary, in bytes; on a sharded cluster, on all shards "
        "together; null if unknown.",
    )
    memoryNeededBytes = nullable(
        fields.Integer,
        "The memory that this process may need, in bytes; null without verification, or if unknown.",
    )
    memoryAvailableBytes = nullable(
        fields.Integer,
        "The memory that is available to this process, in bytes; null if unknown.",
    )
    copySeconds = nullable(
        fields.Integer,
        "A cautious estimate of the duration of the copy, in seconds; null if unknown.",
    )
    oplogWindowSeconds = nullable(
        fields.Integer,
        "The time for which the source's oplog keeps an entry at the average write rate of the source, in seconds; "
        "null if unknown.",
    )


class _MissingFeature(Strict):
    cluster = always(
        fields.String, "The cluster whose servers lack the feature, such as `cluster0`."
    )
    feature = always(fields.String, "The feature that the servers of the cluster lack.")
    effect = always(fields.String, "The behavior of the sync without the feature.")


class PreflightAnswer(SuccessAnswer):
    violations = always(
        fields.List,
        "The reasons why a start would be refused now: all of them, unless a cluster cannot be read.",
        fields.Nested(_Violation),
    )
    warnings = always(
        fields.List, "Possible problems of the sync, most with a remedy.", fields.String()
    )
    missingFeatures = always(
        fields.List,
        "The features that a sync can use, but that the servers lack. If this sync cannot do without such a feature, a "
        "violation also says so.",
        fields.Nested(_MissingFeature),
    )
    estimates = always(
        fields.Nested,
        "The estimated size of the sync, and the disk space, memory and time that it needs.",
        _Estimates,
    )
    usersAndRoles = sometimes(
        fields.Nested,
        "The users and roles that would be copied; absent if the request does not ask for a copy, if the "
        "users and roles cannot be read, or if other instances have begun the sync.",
        PlannedPrincipals,
    )


class ResetAnswer(SuccessAnswer):
    """The answer to a reset: all fields for a dry run, otherwise only `success`."""

    collections = sometimes(
        fields.List,
        "The collections on the destination that the reset would drop; only for a dry run.",
        fields.String(),
    )
    views = sometimes(
        fields.List,
        "The views on the destination that the reset would drop; only for a dry run.",
        fields.String(),
    )
    kept = sometimes(
        fields.List,
        "The collections and views on the destination that the reset would keep, because the sync did not create "
        "them; only for a dry run.",
        fields.String(),
    )
    usersAndRoles = sometimes(
        fields.List,
        "The users and roles on the destination that the reset would drop; only for a dry run.",
        fields.String(),
    )
    unblocked = sometimes(
        fields.List,
        "The clusters on which the reset would unblock user writes; only for a dry run.",
        fields.String(),
    )
    balancersStarted = sometimes(
        fields.List,
        "The clusters whose balancer the reset would restart; only for a dry run.",
        fields.String(),
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


class RepairAnswer(SuccessAnswer):
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
