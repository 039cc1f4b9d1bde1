"""The schema of the answer to `GET /api/v1/progress`."""

from __future__ import annotations

from marshmallow import fields

from syncsvc.desired import DesiredState
from syncsvc.options import WriteBlocking
from syncsvc.reports.limits_schemas import ThrottledBy
from syncsvc.reports.principal_schemas import CopiedPrincipals
from syncsvc.reports.progress_answer import Stage
from syncsvc.reports.standing import Role
from syncsvc.reports.verification_answer import Hashing
from syncsvc.state import Phase, State
from verifier.runtime.openapi import SuccessAnswer, always, nullable, sometimes
from verifier.runtime.schemas import Boolean, Strict


class _CollectionCopy(Strict):
    estimatedTotalBytes = nullable(
        fields.Integer,
        "The estimated number of bytes that all instances together have to copy; 0 while this process has no sync, 1 "
        "until the collections are listed, and null if unknown.",
    )
    estimatedCopiedBytes = always(
        fields.Integer,
        "The number of bytes that this instance has copied; after a reversal, the number for all instances together.",
    )
    estimatedCopiedBytesInAll = sometimes(
        fields.Integer,
        "The number of bytes that all instances have copied; only with several instances. Until all instances have "
        "finished the copy, only the coordinator knows the number, and the other instances return null.",
        allow_none=True,
    )


class _Lag(Strict):
    overallLagSeconds = nullable(
        fields.Integer,
        "The lag of the destination behind the source, in seconds; null if unknown, for example during the copy, while "
        "the sync is paused, or after a failure.",
    )
    crudLagSeconds = nullable(
        fields.Integer,
        "The lag of inserts, updates and deletes, in seconds; null until this process has read such an event, and "
        "while the overall lag is unknown.",
    )
    ddlLagSeconds = nullable(
        fields.Integer,
        "The lag of DDL events, in seconds; null until this process has applied such an event, and while the overall "
        "lag is unknown.",
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
    active = always(
        Boolean,
        "Whether change events are being saved in the event spool, or will be as soon as a full spool has room.",
    )
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
        fields.Enum,
        "The stage of the verification on this cluster; `not started`, too, while this process has no figures of it.",
        Hashing,
        by_value=True,
    )
    estimatedDocumentCount = nullable(
        fields.Integer,
        "The estimated number of documents to compare in the first pass; null if unknown.",
    )
    hashedDocumentCount = always(
        fields.Integer, "The number of documents compared in the first pass."
    )
    totalCollectionCount = nullable(
        fields.Integer,
        "The number of collections to compare; null until they are listed, and if there are none.",
    )
    scannedCollectionCount = always(
        fields.Integer, "The number of collections whose documents have all been compared once."
    )
    lagTimeSeconds = nullable(
        fields.Integer,
        "The lag of the verification behind the change events of this cluster, in seconds; null if unknown.",
    )
    recheckLagTimeSeconds = nullable(
        fields.Integer,
        "The lag with which the verification compares changed documents of this cluster again, in seconds; null until "
        "those that changed during the first pass are compared.",
    )


class _VerificationProgress(Strict):
    source = always(
        fields.Nested, "The progress of the verification on the source.", _VerificationSide
    )
    destination = always(
        fields.Nested, "The progress of the verification on the destination.", _VerificationSide
    )


class RepairCounts(Strict):
    documents = always(
        fields.Integer,
        "The number of documents repaired since the start of the sync or its last reversal.",
    )
    definitions = always(
        fields.Integer,
        "The number of differences in definitions repaired since the start of the sync or its last reversal.",
    )


class _Repairs(RepairCounts):
    inProgress = always(
        Boolean,
        "Whether a repair is requested or running; on another instance than the coordinator, whether this instance "
        "still has to do its part.",
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


class Progress(Strict):
    """The progress of a sync at one moment. The description of each field says when it is null or absent."""

    state = always(
        fields.Enum,
        "The state of the sync; with several instances, the state of the sync in this instance.",
        State,
        by_value=True,
    )
    canCommit = always(
        Boolean,
        "Whether the sync is ready for POST /api/v1/commit; the users and roles to copy may still prevent the commit.",
    )
    canWrite = always(Boolean, "Whether applications may write to the destination.")
    info = nullable(
        fields.Enum, "The phase of the sync; null before the start.", Phase, by_value=True
    )
    ceaStage = nullable(
        fields.Enum,
        "The stage of change event application: `collection copy drain` while the changes made during the copy are "
        "applied, then `steady state`; null in other phases.",
        Stage,
        by_value=True,
    )
    lag = nullable(
        fields.Nested,
        "The lag of the destination, overall and by the kind of change; null before the start, and while the sync is "
        "paused.",
        _Lag,
    )
    lagTimeSeconds = nullable(
        fields.Integer,
        "The lag of the destination behind the source, in seconds; null if unknown, for example during the copy, while "
        "the sync is paused, or after a failure.",
    )
    totalEventsApplied = nullable(
        fields.Integer,
        "The number of change events, not counting DDL events, that this process has applied; null before the start.",
    )
    collectionCopy = always(
        fields.Nested,
        "The estimated progress of the copy; zeros while this process has no sync.",
        _CollectionCopy,
    )
    directionMapping = nullable(
        fields.Nested,
        "The names and addresses of the source and of the destination; null before the start.",
        _DirectionMapping,
    )
    enableUserWriteBlocking = nullable(
        fields.Enum,
        "The start option of this name: on which clusters the sync blocks user writes; null before the start.",
        WriteBlocking,
        by_value=True,
    )
    source = nullable(fields.Nested, "The last ping of the source; null before the start.", _Ping)
    destination = nullable(
        fields.Nested, "The last ping of the destination; null before the start.", _Ping
    )
    mongosyncID = always(fields.String, "The name of this instance.")
    coordinatorID = nullable(
        fields.String,
        "The name of the instance that coordinates the sync; null before the start, unless this instance has the "
        "default ID.",
    )
    error = nullable(
        fields.String,
        "The name of the error that the sync failed with; null unless the sync has failed.",
    )
    errorDescription = nullable(
        fields.String,
        "The reason why the sync failed, and the remedy; null unless the sync has failed.",
    )
    throttledBy = nullable(
        fields.Nested,
        "The limit that slows the sync down; null while no work waits for a limit.",
        ThrottledBy,
    )
    estimatedOplogTimeRemaining = sometimes(
        fields.String,
        "The time for which the source's oplog still holds the changes that the sync needs, in words, or `not checked "
        "yet` if it is unknown, as for a sharded source; only while the sync is running or paused.",
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
        "The progress of the index builds after the copy; only during these builds and change event application, and "
        "only if buildIndexes delays the builds until after the copy. During the builds, only the coordinator shows "
        "this. Indexes that only the commit can build are not counted.",
        _IndexBuilding,
    )
    verification = sometimes(
        fields.Nested,
        "The progress of the verification; absent before the start, and if the verification is disabled. Only the "
        "coordinator has figures, and a process that continues a saved sync has none until it verifies again.",
        _VerificationProgress,
    )
    repairs = sometimes(
        fields.Nested,
        "The repairs of differences between the clusters, by all instances; absent before the first repair, and on "
        "an instance that does not know the coordinator's figures yet.",
        _Repairs,
    )
    usersAndRoles = sometimes(
        fields.Nested,
        "The copy of users and roles; absent unless the start option `usersAndRoles` requests it.",
        CopiedPrincipals,
    )
    warnings = sometimes(
        fields.List,
        "Problems that endanger or delay the sync or its declared state, user writes after the commit, and without a "
        "sync, that this process does not belong to the saved one; most with a remedy.",
        fields.String(),
    )
    role = sometimes(
        fields.Enum,
        "The role of this daemon; only with --standby. A standby shows the progress of the active daemon.",
        Role,
        by_value=True,
    )
    lease = sometimes(
        fields.Nested,
        "The lease of the active daemon or, once it has expired, of the last active one; only with --standby, and "
        "absent while none is known.",
        _Lease,
    )
    desiredState = sometimes(
        fields.Enum,
        "The state to which this daemon brings the sync; only with --desiredState.",
        DesiredState,
        by_value=True,
    )


class ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The progress of the sync.", Progress)
