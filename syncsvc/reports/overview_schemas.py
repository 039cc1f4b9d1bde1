"""The schemas of the overview, from which the web page of a sync gets its data: query parameters and answers."""

from __future__ import annotations

from marshmallow import fields, validate

from syncsvc.figures.history import COLUMNS, History
from syncsvc.reports.headroom import Level
from syncsvc.reports.progress_schemas import Progress
from syncsvc.reports.verification_answer import Hashing
from syncsvc.state import Phase, State
from verifier.compare.check_progress import Outcome
from verifier.runtime.openapi import SuccessAnswer, always, nullable
from verifier.runtime.recent import RECENT_COMMANDS
from verifier.runtime.schemas import Boolean, Strict


class OverviewSchema(Strict):
    """The query parameters of `GET /api/v1/overview`."""

    history = fields.String(
        load_default=History.RANGES[0],
        validate=validate.OneOf(History.RANGES),
        metadata={
            "description": "The period that the history covers: the last 15 minutes, the last 6 hours, or all the "
            "time since the process started."
        },
    )
    since = fields.String(
        validate=validate.Length(min=1, max=100),
        metadata={
            "description": "Return only the points of the history that are newer than this `cursor` of an earlier "
            "answer."
        },
    )


class _Commit(Strict):
    possible = always(
        Boolean,
        "Whether POST /api/v1/commit is accepted now, unless users or roles cannot be copied.",
    )
    reasons = always(
        fields.List, "The reasons why a commit is not possible, as sentences.", fields.String()
    )


class _Step(Strict):
    text = always(fields.String, "The next step for the operator, as sentences.")
    command = nullable(fields.String, "The command to send next; null if no command is needed.")
    body = nullable(fields.Dict, "The request body of the command; null if no command is needed.")


class _PhaseBegin(Strict):
    phase = always(fields.Enum, "The phase.", Phase, by_value=True)
    began = always(fields.Float, "When the phase began, in UNIX seconds.")
    seconds = nullable(
        fields.Float, "The duration of the phase in seconds; null for the current phase."
    )


class _Copy(Strict):
    copiedBytes = always(fields.Integer, "The number of bytes copied; see `byThisInstance`.")
    totalBytes = nullable(
        fields.Integer,
        "The estimated number of bytes to copy; null until the collections are listed.",
    )
    copiedDocuments = always(
        fields.Integer, "The number of documents copied; see `byThisInstance`."
    )
    totalDocuments = nullable(
        fields.Integer,
        "The estimated number of documents to copy; null if no collections are known.",
    )
    byThisInstance = always(
        Boolean,
        "Whether `copiedBytes` and `copiedDocuments` are the amounts of this instance alone, while the totals are "
        "those of all instances. True during the copy in an instance that is not the coordinator.",
    )
    bytesPerSecond = nullable(
        fields.Float,
        "The number of bytes copied per second in the last minute: on the coordinator by all instances, otherwise by "
        "this instance; null if unknown or not copying.",
    )
    documentsPerSecond = nullable(
        fields.Float,
        "The number of documents copied per second in the last minute: on the coordinator by all instances, otherwise "
        "by this instance; null if unknown or not copying.",
    )
    leastSecondsLeft = nullable(
        fields.Integer,
        "The shortest estimate of the remaining time of the copy, in seconds; null if unknown or not copying.",
    )
    mostSecondsLeft = nullable(
        fields.Integer,
        "The longest estimate of the remaining time of the copy, in seconds; null if unknown or not copying.",
    )


class _Events(Strict):
    read = always(
        fields.Integer,
        "The number of change events, not counting DDL events, that this process has read.",
    )
    applied = always(
        fields.Integer,
        "The number of change events, not counting DDL events, that this process has applied.",
    )
    definitionsApplied = always(
        fields.Integer, "The number of DDL events that this process has applied."
    )
    readPerSecond = nullable(
        fields.Float,
        "The number of change events, not counting DDL events, read per second in the last minute; null if unknown.",
    )
    appliedPerSecond = nullable(
        fields.Float,
        "The number of change events, not counting DDL events, applied per second in the last minute; null if "
        "unknown.",
    )
    lagSeconds = nullable(
        fields.Integer, "How far the destination is behind the source, in seconds; null if unknown."
    )
    catchUpSeconds = nullable(
        fields.Integer,
        "The estimated number of seconds until the lag is zero; null unless the lag falls.",
    )


class _Oplog(Strict):
    level = always(
        fields.Enum,
        "The risk that the source's oplog drops changes that the sync still needs, from green (low) to red (high), or "
        "unknown.",
        Level,
        by_value=True,
    )
    secondsLeft = nullable(
        fields.Integer,
        "For how many seconds the source's oplog keeps the changes that the sync needs; null if unknown, or if nothing "
        "is written to the source.",
    )
    secondsNeeded = nullable(
        fields.Integer,
        "For how many seconds the sync still needs the changes in the source's oplog; null if unknown.",
    )
    text = always(
        fields.String,
        "A sentence that explains `level`: usually, how long the source's oplog keeps the needed changes, and how "
        "long the sync needs them.",
    )


class _Counts(Strict):
    total = always(fields.Integer, "The number of collections.")
    phases = always(
        fields.Dict, "The number of collections in each phase.", values=fields.Integer()
    )


class _OverviewVerification(Strict):
    phase = always(
        fields.Enum,
        "The stage of the verification; `not started`, too, while this process has no figures of it.",
        Hashing,
        by_value=True,
    )
    comparedDocuments = always(
        fields.Integer,
        "The number of documents that the first pass of the verification has compared.",
    )
    totalDocuments = nullable(
        fields.Integer,
        "The estimated number of documents that the first pass of the verification compares; null if unknown.",
    )
    recheckedDocuments = always(
        fields.Integer,
        "The number of documents compared after the first pass, because they had changed or differed. A document "
        "that is compared several times is counted each time.",
    )
    differentDocuments = always(fields.Integer, "The number of documents that differ now.")
    differentDefinitions = always(
        fields.Integer,
        "The current number of differences in the definitions and document counts of collections.",
    )
    lastClean = nullable(
        fields.Float,
        "The last time at which the verification had completed its first pass and knew of no difference, in UNIX "
        "seconds; null if this process has seen no such time.",
    )
    verdict = nullable(
        fields.Enum,
        "The result of the verification; null until there is a result.",
        Outcome,
        by_value=True,
    )
    notes = always(
        fields.List,
        "Notes about the result, as sentences, such as which data the verification does not compare, and why.",
        fields.String(),
    )


class _Instance(Strict):
    name = always(fields.String, "The ID of the instance.")
    coordinates = always(Boolean, "Whether the instance is the coordinator.")
    state = always(fields.Enum, "The state of the sync in this instance.", State, by_value=True)
    phase = always(fields.Enum, "The phase of the instance.", Phase, by_value=True)
    appliedUntil = nullable(
        fields.Integer,
        "The cluster time of the source up to which the instance has applied all its events, in UNIX seconds; "
        "null if unknown.",
    )
    silentSeconds = always(
        fields.Integer,
        "The number of seconds without a heartbeat of the instance, in steps of five; 0 while the sync is not active.",
    )


class _Warning(Strict):
    text = always(fields.String, "The text of the warning: the problem, and what to do.")
    help = always(fields.String, "The address of the documentation about the warning.")


class _History(Strict):
    columns = always(
        fields.List,
        f"The names of the columns of `rows`: {', '.join(COLUMNS)}; the first column is in UNIX seconds.",
        fields.String(),
    )
    rows = always(
        fields.List,
        "The points of the history, each as a list with one value for each of `columns`; unknown values are null.",
        fields.List(fields.Float(allow_none=True)),
    )
    stepSeconds = always(
        fields.Float, "The interval between the points of the history, in seconds."
    )
    cursor = always(
        fields.String,
        "The value to send as `since` in the next request, to get only the newer points of the history.",
    )
    restart = always(
        Boolean,
        "Whether the points of this answer replace the points of earlier answers. If false, append the new points to "
        "the earlier points.",
    )


class _Overview(Strict):
    summary = always(
        fields.String,
        "The current activity of the sync, or how it ended, in one to three sentences.",
    )
    commit = always(
        fields.Nested, "Whether a commit is possible now, and if not, the reasons.", _Commit
    )
    next = nullable(
        fields.Nested, "The next step for the operator; null if the operator can only wait.", _Step
    )
    commands = always(
        fields.List,
        "The commands that are allowed now by the state of the sync, its options and --desiredState; empty on a "
        "standby. They can still be refused for other reasons. The copy of users and roles (POST /api/v1/users) is "
        "never listed.",
        fields.String(),
    )
    destination = nullable(
        fields.String,
        "The name of the cluster that the sync writes to; null before a start, and on a standby.",
    )
    phases = always(
        fields.List,
        "The phases of the sync until now, the oldest first; empty before a start, on a standby, or if an older "
        "version of syncsvc began the sync.",
        fields.Nested(_PhaseBegin),
    )
    copy = always(fields.Nested, "The progress of the copy.", _Copy)
    events = always(
        fields.Nested, "The numbers and rates of the change events, and the lag.", _Events
    )
    oplog = always(
        fields.Nested,
        "Whether the source's oplog keeps the changes long enough for the sync.",
        _Oplog,
    )
    namespaces = always(
        fields.Nested, "The number of collections: in total, and in each phase.", _Counts
    )
    verification = nullable(
        fields.Nested,
        "The verification; null if it is disabled, before a start, and on a standby. Only the coordinator has figures, "
        "and a process that continues a saved sync has none until it verifies again.",
        _OverviewVerification,
    )
    instances = always(
        fields.List,
        "The known instances that share the sync, this instance first; empty if the sync has only one instance, before "
        "a start, and on a standby.",
        fields.Nested(_Instance),
    )
    warnings = always(
        fields.List,
        "The warnings in the progress, with links to the documentation.",
        fields.Nested(_Warning),
    )
    recentCommands = RECENT_COMMANDS
    history = always(
        fields.Nested,
        "Values such as rates, lag and latencies at equal intervals, for charts.",
        _History,
    )
    progress = always(fields.Nested, "The field `progress` of GET /api/v1/progress.", Progress)


class OverviewAnswer(SuccessAnswer):
    overview = always(
        fields.Nested,
        "The progress of the sync, sentences that explain the progress, and the history of its figures.",
        _Overview,
    )
