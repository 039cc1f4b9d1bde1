"""The schemas of the report: its query parameters and its answer."""

from __future__ import annotations

from marshmallow import fields, validate

from syncsvc.reports.past import Outcome
from syncsvc.reports.progress_schemas import RepairCounts
from syncsvc.reports.report import RESULTS
from syncsvc.state import Phase, State
from verifier.page.report_fields import (
    ClusterFields,
    CreatedFields,
    Headline,
    SenderFields,
    known_time,
)
from verifier.runtime.openapi import SuccessAnswer, always, nullable, sometimes
from verifier.runtime.schemas import Boolean, Strict


class _Created(CreatedFields):
    instance = always(fields.String, "The name of the instance that made the report.")


class _ReportedSync(Strict):
    state = always(fields.Enum, "The state of the sync.", State, by_value=True)
    phase = always(fields.Enum, "The phase of the sync.", Phase, by_value=True)
    source = always(fields.String, "The name of the cluster that the sync reads.")
    destination = always(fields.String, "The name of the cluster that the sync writes to.")
    reversals = always(fields.Integer, "How many times the sync was reversed.")
    canWrite = always(Boolean, "Whether applications may write to the destination.")
    started = known_time("When the sync was started")
    seconds = nullable(
        fields.Float,
        "The total duration of the phases, in seconds; null if the phases are not known.",
    )
    error = nullable(
        fields.String,
        "The name of the error that the sync failed with; null unless the sync has failed.",
    )
    errorDescription = nullable(
        fields.String,
        "The description of the error: why the sync failed, and what to do; null unless the sync has failed.",
    )


class _ReportedCluster(ClusterFields):
    """A cluster as it was when the sync was started, and its current version."""

    name = always(fields.String, "The name of the cluster.")
    role = always(
        fields.String,
        "The role of the cluster at the start: source or destination.",
        validate=validate.OneOf(("source", "destination")),
    )
    versionNow = nullable(
        fields.String,
        "The version of the servers when this process connected to the cluster; null if unknown.",
    )


class _ReportedProcess(Strict):
    began = known_time("When the process began the sync, or took the sync over")
    version = always(fields.String, "The version of syncsvc that the process ran.")
    host = always(fields.String, "The host of the process.")
    gapSeconds = nullable(
        fields.Float,
        "How long the instance had no process before this process began, in seconds; null if unknown, or if the sync "
        "was not active.",
    )


class _ReportedInstance(Strict):
    name = always(fields.String, "The name of the instance.")
    coordinates = always(Boolean, "Whether the instance is the coordinator.")
    state = always(fields.Enum, "The state of the sync in this instance.", State, by_value=True)
    processes = always(
        fields.List,
        "The processes that have run the instance, the oldest first; after more than 50, only the first and the "
        "newest 49.",
        fields.Nested(_ReportedProcess),
    )


class _ReportedPhase(Strict):
    phase = always(fields.Enum, "The phase.", Phase, by_value=True)
    began = known_time("When the phase began")
    ended = nullable(fields.String, "When the phase ended, in UTC; null for the current phase.")
    seconds = always(
        fields.Float,
        "How long the phase took, or has taken until now, in seconds; 0 for the last phase of a sync that is committed "
        "or being reset.",
    )
    idleSeconds = always(
        fields.Float,
        "For how long during the phase the sync was paused, had failed, or had no running process, in seconds.",
    )


class _ReportedCopy(Strict):
    collections = always(fields.Integer, "The number of collections.")
    views = always(fields.Integer, "The number of views; at most 10,000 are counted.")
    indexes = always(fields.Integer, "The number of indexes, not counting indexes on _id.")
    documents = always(fields.Integer, "The number of documents copied.")
    bytes = always(fields.Integer, "The number of bytes copied.")
    seconds = always(fields.Float, "How long the copy ran, in seconds, without idle times.")
    documentsPerSecond = nullable(
        fields.Float, "The average number of documents copied per second; null if unknown."
    )
    bytesPerSecond = nullable(
        fields.Float, "The average number of bytes copied per second; null if unknown."
    )
    documentsCopiedAgain = always(
        fields.Integer,
        "The number of documents that the copy read although the destination already had them.",
    )


class _ReportedEvents(Strict):
    applied = always(
        fields.Integer,
        "The number of change events applied, not counting DDL events, but including those before a reversal.",
    )
    definitionsApplied = always(fields.Integer, "The number of DDL events applied.")
    seconds = always(
        fields.Float, "How long change events were applied, in seconds, without idle times."
    )
    appliedPerSecond = nullable(
        fields.Float,
        "The average number of change events applied per second, not counting DDL events; null if unknown.",
    )


class _Sent(SenderFields):
    address = nullable(
        fields.String,
        "The address of the client that sent the command; null if this is not a command, or if the process itself sent "
        "the command (--desiredState).",
    )


class _ReportedCommit(_Sent):
    """A commit that was requested."""

    requested = known_time("When the commit was requested")
    source = always(fields.String, "The cluster that was the source at the commit.")
    destination = always(fields.String, "The cluster that was the destination at the commit.")
    outcome = always(fields.Enum, "The outcome of the commit.", Outcome, by_value=True)
    withdrawn = always(
        fields.Integer,
        "How many times the cut-over was undone, because users wrote to the source or may have, or because the sync "
        "was resumed after a failure in the cut-over.",
    )
    writable = nullable(
        fields.String,
        "The time from which applications could write to the destination, in UTC; null if they cannot write there "
        "yet.",
    )
    committed = nullable(
        fields.String, "When the commit was complete, in UTC; null if it is not complete."
    )
    downtimeSeconds = nullable(
        fields.Float,
        "The time from the commit request until applications could write to the destination, in seconds; null if "
        "applications cannot write there yet.",
    )


class _Amounts(Strict):
    started = nullable(
        fields.String,
        "When the verification began, in UTC; null if it has not begun, or if this is not known.",
    )
    ended = nullable(
        fields.String,
        "When the verification ended, in UTC; null if it has not ended, or if this is not known.",
    )
    generations = always(
        fields.Integer,
        "The number of generations of the verification; the first one compares everything.",
    )
    documents = always(
        fields.Integer, "The number of documents that the first generation has compared."
    )
    bytes = always(
        fields.Integer,
        "The size of the documents that the first generation has compared, in bytes on the source.",
    )
    collections = always(
        fields.Integer, "The number of collections that the first generation has compared."
    )
    rechecked = always(
        fields.Integer,
        "The number of documents compared after the first generation, because they had changed or differed. A document "
        "that is compared several times is counted each time.",
    )
    notes = always(
        fields.List,
        "Notes about the result, as sentences, such as which data the verification does not compare, and why.",
        fields.String(),
    )


class _ReportedVerification(_Amounts):
    outcome = always(
        fields.String, "The result of the verification.", validate=validate.OneOf(RESULTS)
    )
    reasons = always(
        fields.List, "The reasons why the verification did not pass, as sentences.", fields.String()
    )
    method = always(
        fields.List,
        "The method by which the verification compares both clusters, as sentences; empty if it has not begun, was "
        "disabled, or its result is not known.",
        fields.String(),
    )
    notCompared = always(
        fields.List,
        "The data that the verification does not compare, as sentences; empty if it has not begun, was disabled, or "
        "its result is not known.",
        fields.String(),
    )
    cutOverSteps = always(
        fields.List, "The steps of the cut-over that are complete.", fields.String()
    )


class _ReportedDirection(Strict):
    """An earlier direction of the sync, which ended with a reversal."""

    source = always(fields.String, "The name of the cluster that was read in this direction.")
    destination = always(
        fields.String, "The name of the cluster that was written in this direction."
    )
    ended = known_time("When the sync was reversed")
    eventsApplied = always(
        fields.Integer,
        "The number of change events applied in this direction, not counting DDL events.",
    )
    verification = nullable(
        fields.Nested,
        "The verification before the commit in this direction; null if there was none.",
        _Amounts,
    )
    repairedDocuments = always(
        fields.Integer, "The number of documents repaired in this direction."
    )
    repairedDefinitions = always(
        fields.Integer, "The number of differences in definitions repaired in this direction."
    )


class _Differences(Strict):
    """The differences that the verification knows. Before the commit, they may be changes not applied yet."""

    documents = always(fields.Integer, "The number of documents that differ.")
    definitions = always(
        fields.Integer,
        "The number of differences in the definitions and document counts of collections.",
    )
    listed = always(fields.List, "The first 100 differences, as sentences.", fields.String())


class _ReportedRepairs(RepairCounts):
    requested = always(
        fields.Integer,
        "The number of repairs that operators have requested since the start of the sync or its last reversal.",
    )
    inCommit = always(fields.Integer, "The number of rounds of repairs in the last commit.")
    listed = always(
        fields.List,
        "The first 100 repaired differences, including those being repaired now, as sentences.",
        fields.String(),
    )


class _ReportedFailure(Strict):
    at = known_time("When the sync failed")
    instance = always(fields.String, "The name of the instance.")
    text = always(fields.String, "The name and the description of the error.")


class _ReportedWarning(Strict):
    """All warnings of one kind, or all long waits for the same thing, in one instance."""

    instance = always(fields.String, "The name of the instance.")
    text = always(fields.String, "The newest text of the warning.")
    first = known_time("When the warning first began")
    last = known_time("When the warning last began")
    ended = nullable(
        fields.String, "When the warning last ended, in UTC; null while the warning is active."
    )
    times = always(fields.Integer, "How many times the warning has begun.")
    seconds = always(fields.Float, "The total time for which the warning was active, in seconds.")


class _ReportedCollection(Strict):
    namespace = always(fields.String, "The name of the collection on the source.")
    destinationNamespace = sometimes(
        fields.String,
        "The name of the collection on the destination, if namespaceRemap changes the name.",
    )
    documents = always(fields.Integer, "The number of documents copied.")
    bytes = always(fields.Integer, "The number of bytes copied.")
    indexes = always(
        fields.Integer, "The number of indexes of the collection, not counting the index on _id."
    )
    sharded = always(Boolean, "Whether the collection is sharded on the destination.")
    comparedDocuments = nullable(
        fields.Integer,
        "The number of documents compared; null if this process does not know the number.",
    )
    differences = nullable(
        fields.Integer,
        "The number of documents that differ; null if this process does not know the number.",
    )


class _ReportedNamespaces(Strict):
    total = always(fields.Integer, "The number of collections.")
    collections = always(
        fields.List,
        "The first 10,000 collections, in the order of their names.",
        fields.Nested(_ReportedCollection),
    )
    views = always(fields.List, "The names of the first 10,000 views.", fields.String())


class _Moment(_Sent):
    at = known_time("When the event happened")
    instance = always(fields.String, "The name of the instance.")
    what = always(
        fields.String, "The kind of the event, such as command, state, phase, failure or process."
    )
    text = always(fields.String, "The description of the event.")


class _Report(Strict):
    created = always(
        fields.Nested,
        "The time at which the report was made, and the process that made it.",
        _Created,
    )
    headline = always(
        fields.Nested,
        "The state of the sync and the result of its verification, in a few sentences.",
        Headline,
    )
    sync = always(
        fields.Nested, "The state of the sync, its clusters, and its error, if any.", _ReportedSync
    )
    clusters = always(
        fields.List,
        "Both clusters, the source at the start first.",
        fields.Nested(_ReportedCluster),
    )
    options = always(fields.Dict, "The start options of the sync, as they are saved.")
    instances = always(
        fields.List, "The instances, the coordinator first.", fields.Nested(_ReportedInstance)
    )
    phases = always(
        fields.List,
        "The phases of the coordinator, the oldest first.",
        fields.Nested(_ReportedPhase),
    )
    copy = always(
        fields.Nested, "The amounts, the duration and the rates of the copy.", _ReportedCopy
    )
    events = always(
        fields.Nested,
        "The numbers of the applied change events, and how long and how fast they were applied.",
        _ReportedEvents,
    )
    commits = always(
        fields.List, "The requested commits, the oldest first.", fields.Nested(_ReportedCommit)
    )
    directions = always(
        fields.List,
        "The earlier directions of the sync, each ended by a reversal, the oldest first; only the last 20 are kept.",
        fields.Nested(_ReportedDirection),
    )
    verification = always(
        fields.Nested,
        "The verification in the current direction of the sync.",
        _ReportedVerification,
    )
    differences = always(
        fields.Nested,
        "The differences that the verification knows now, or, after the commit, knew at its end; zeros if it has "
        "compared nothing, or if its results are not known.",
        _Differences,
    )
    repairs = always(fields.Nested, "The repaired differences.", _ReportedRepairs)
    failures = always(
        fields.List, "The failures, the oldest first.", fields.Nested(_ReportedFailure)
    )
    warnings = always(
        fields.List,
        "All warnings, including those that have ended.",
        fields.Nested(_ReportedWarning),
    )
    limits = always(fields.Dict, "The limits of the sync's speed, as in GET /api/v1/limits.")
    namespaces = always(fields.Nested, "The collections and views.", _ReportedNamespaces)
    timeline = always(
        fields.List,
        "The process starts, phases, commands, states, failures and other entries of the timeline, the oldest first.",
        fields.Nested(_Moment),
    )
    notKnown = always(
        fields.List,
        "The facts that are missing from the report because they are not known, as sentences.",
        fields.String(),
    )


class ReportAnswer(SuccessAnswer):
    report = always(fields.Nested, "The report of the sync.", _Report)
