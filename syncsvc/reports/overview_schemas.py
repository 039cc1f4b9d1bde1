"""The schemas of the overview: its query parameters and its answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from marshmallow import fields, post_load, validate

from syncsvc.figures.history import COLUMNS, History
from syncsvc.reports.headroom import Level
from syncsvc.reports.namespaces import NamespacePhase, SortKey, TableRequest
from syncsvc.reports.verification_answer import Hashing
from syncsvc.state import Phase, State
from verifier.compare.check_progress import Outcome
from verifier.runtime.openapi import always, nullable
from verifier.runtime.recent import RecentCommandSchema
from verifier.runtime.schemas import Boolean, Strict, TablePart


class OverviewSchema(Strict):
    """The query parameters of `GET /api/v1/overview`."""

    history = fields.String(
        load_default=History.RANGES[0],
        validate=validate.OneOf(History.RANGES),
        metadata={"description": "The time that the history covers: 15 minutes, 6 hours, or all."},
    )
    since = fields.String(
        validate=validate.Length(min=1, max=100),
        metadata={
            "description": "Show only the points of the history after this `cursor` of an earlier answer."
        },
    )


class NamespacesTableSchema(TablePart):
    """The query parameters of `GET /api/v1/overview/namespaces`; loads into TableRequest."""

    search = fields.String(
        validate=validate.Length(max=1_000),
        metadata={"description": "Show only collections whose name contains this text."},
    )
    phase = fields.Enum(
        NamespacePhase,
        by_value=True,
        metadata={"description": "Show only collections in this phase."},
    )
    different = fields.Boolean(
        load_default=False,
        metadata={"description": "Show only collections with documents that differ."},
    )
    sort = fields.Enum(
        SortKey,
        by_value=True,
        load_default=SortKey.NAME,
        metadata={
            "description": "The order: by name, documents, bytes, the share left to copy, events or mismatches."
        },
    )

    @post_load
    def _make(self, data: Mapping[str, Any], **kwargs: Any) -> TableRequest:
        return TableRequest(**data)


class _Commit(Strict):
    possible = always(Boolean, "Whether POST /api/v1/commit is accepted now.")
    reasons = always(fields.List, "Why a commit is not possible, as sentences.", fields.String())


class _Step(Strict):
    text = always(fields.String, "What to do next.")
    command = nullable(fields.String, "The command to send; null if there is none.")
    body = nullable(fields.Dict, "The request body of the command.")


class _PhaseBegin(Strict):
    phase = always(fields.Enum, "The phase.", Phase, by_value=True)
    began = always(fields.Float, "When the phase began, in UNIX seconds.")
    seconds = nullable(fields.Float, "How long the phase took; null for the present phase.")


class _Copy(Strict):
    copiedBytes = always(fields.Integer, "The number of bytes copied.")
    totalBytes = nullable(fields.Integer, "The estimated number of bytes to copy.")
    copiedDocuments = always(fields.Integer, "The number of documents copied.")
    totalDocuments = nullable(fields.Integer, "The estimated number of documents to copy.")
    bytesPerSecond = nullable(
        fields.Float, "The rate of the last minute; null while nothing is copied."
    )
    documentsPerSecond = nullable(
        fields.Float, "The rate of the last minute; null while nothing is copied."
    )
    leastSecondsLeft = nullable(
        fields.Integer, "The shortest estimate of the remaining time of the copy."
    )
    mostSecondsLeft = nullable(
        fields.Integer, "The longest estimate of the remaining time of the copy."
    )


class _Events(Strict):
    read = always(fields.Integer, "The number of change events that this process has read.")
    applied = always(fields.Integer, "The number of change events that this process has applied.")
    definitionsApplied = always(
        fields.Integer, "The number of DDL events that this process has applied."
    )
    readPerSecond = nullable(fields.Float, "The events read per second in the last minute.")
    appliedPerSecond = nullable(fields.Float, "The events applied per second in the last minute.")
    lagSeconds = nullable(
        fields.Integer, "How far the destination is behind the source, in seconds."
    )
    catchUpSeconds = nullable(
        fields.Integer, "The estimated time until the lag is zero; only while the lag falls."
    )


class _Oplog(Strict):
    level = always(
        fields.Enum,
        "How safe the needed changes are in the source's oplog; green is safe.",
        Level,
        by_value=True,
    )
    secondsLeft = nullable(
        fields.Integer, "For how many seconds the oplog keeps the changes that the sync needs."
    )
    secondsNeeded = nullable(
        fields.Integer,
        "For how many seconds the sync still needs the changes in the source's oplog.",
    )
    text = always(
        fields.String,
        "How long the oplog keeps the changes and how long they are needed, as a sentence.",
    )


class _Counts(Strict):
    total = always(fields.Integer, "The number of collections.")
    phases = always(fields.Dict, "The numbers of collections by phase.", values=fields.Integer())


class _OverviewVerification(Strict):
    phase = always(fields.Enum, "The stage of the verification.", Hashing, by_value=True)
    comparedDocuments = always(
        fields.Integer, "The number of documents that the first pass has compared."
    )
    totalDocuments = nullable(fields.Integer, "The estimated number of documents to compare.")
    recheckedDocuments = always(
        fields.Integer, "How many times changed or different documents were compared again."
    )
    differentDocuments = always(fields.Integer, "The number of documents that differ now.")
    differentDefinitions = always(
        fields.Integer, "The number of differences in definitions and counts now."
    )
    lastClean = nullable(
        fields.Float,
        "When everything had last been compared and no difference was left, in UNIX seconds; null if this process has "
        "not observed that.",
    )
    verdict = nullable(fields.Enum, "The result of the verification.", Outcome, by_value=True)
    notes = always(fields.List, "What was not compared, and why.", fields.String())


class _Instance(Strict):
    name = always(fields.String, "The ID of the instance.")
    coordinates = always(Boolean, "Whether the instance is the coordinator.")
    state = always(fields.Enum, "The state of the sync in this instance.", State, by_value=True)
    phase = always(fields.Enum, "The phase of the instance.", Phase, by_value=True)
    appliedUntil = nullable(
        fields.Integer,
        "The source time up to which the instance has applied all events of its share, in UNIX seconds.",
    )
    silentSeconds = always(
        fields.Integer, "For how long the instance has sent no heartbeat, in steps of five seconds."
    )


class _Warning(Strict):
    text = always(fields.String, "What is wrong, and what to do.")
    help = always(fields.String, "The address of the documentation about the warning.")


class _History(Strict):
    columns = always(
        fields.List,
        f"The names of the values in a row: {', '.join(COLUMNS)}; the time is in UNIX seconds.",
        fields.String(),
    )
    rows = always(
        fields.List,
        "The points of the history; unknown values are null.",
        fields.List(fields.Float(allow_none=True)),
    )
    stepSeconds = always(fields.Float, "The distance of the points, in seconds.")
    cursor = always(
        fields.String, "The value of `since` with which the next request gets only newer points."
    )
    restart = always(
        Boolean, "Whether these points replace all earlier ones; otherwise they continue them."
    )


class OverviewFields(Strict):
    """The fields of an overview, except `progress`."""

    summary = always(fields.String, "What the sync does now, in one or two sentences.")
    commit = always(fields.Nested, "Whether a commit is possible, and why not.", _Commit)
    next = nullable(fields.Nested, "The next step; null if there is nothing to do but wait.", _Step)
    commands = always(fields.List, "The commands that the present state allows.", fields.String())
    destination = nullable(fields.String, "The name of the cluster that the sync writes to.")
    phases = always(
        fields.List,
        "The phases until now, the oldest first; empty if an older version began the sync.",
        fields.Nested(_PhaseBegin),
    )
    copy = always(fields.Nested, "The progress of the copy.", _Copy)
    events = always(fields.Nested, "The change events.", _Events)
    oplog = always(
        fields.Nested, "How long the source's oplog lasts, compared with the need.", _Oplog
    )
    namespaces = always(fields.Nested, "The numbers of collections.", _Counts)
    verification = nullable(
        fields.Nested,
        "The verification; null if it is disabled, or without a sync.",
        _OverviewVerification,
    )
    instances = always(
        fields.List,
        "The instances that share the sync, this one first; empty if it runs alone.",
        fields.Nested(_Instance),
    )
    warnings = always(
        fields.List, "The warnings in the progress, with links.", fields.Nested(_Warning)
    )
    recentCommands = always(
        fields.List,
        "The last 20 commands that this process has answered, the newest first.",
        fields.Nested(RecentCommandSchema),
    )
    history = always(fields.Nested, "Recent figures at equal intervals, for charts.", _History)
