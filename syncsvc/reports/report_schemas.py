"""The schemas of the report: its query parameters and its answer."""

from __future__ import annotations

from marshmallow import fields, validate

from syncsvc.reports.past import Outcome
from syncsvc.reports.report import RESULTS
from syncsvc.state import Phase, State
from verifier.page.report_schemas import (
    ClusterFields,
    CreatedFields,
    Headline,
    SenderFields,
    known_time,
)
from verifier.runtime.openapi import SuccessAnswer, always, nullable
from verifier.runtime.schemas import Boolean, Strict


class _Created(CreatedFields):
    instance = always(fields.String, "The name of this instance.")


class _ReportedSync(Strict):
    state = always(fields.Enum, "The state of the sync.", State, by_value=True)
    phase = always(fields.Enum, "The phase of the sync.", Phase, by_value=True)
    source = always(fields.String, "The name of the cluster that is read.")
    destination = always(fields.String, "The name of the cluster that is written.")
    reversals = always(fields.Integer, "How often the sync was reversed.")
    canWrite = always(Boolean, "Whether applications may write to the destination.")
    started = known_time("When the sync was started")
    seconds = nullable(fields.Float, "The total duration of the phases, in seconds.")
    error = nullable(fields.String, "The name of the error that the sync failed with.")
    errorDescription = nullable(fields.String, "Why the sync failed, and what to do.")


class _ReportedCluster(ClusterFields):
    """A cluster, as it was when the sync was started."""

    name = always(fields.String, "The name of the cluster.")
    role = always(
        fields.String,
        "The role of the cluster at the start: source or destination.",
        validate=validate.OneOf(("source", "destination")),
    )
    versionNow = nullable(
        fields.String, "The version of the servers when this process connected to the cluster."
    )


class _ReportedProcess(Strict):
    began = known_time("When the process began the sync, or took it over")
    version = always(fields.String, "The version of syncsvc that the process ran.")
    host = always(fields.String, "The host of the process.")
    gapSeconds = nullable(
        fields.Float, "For how long no process had run the active sync before, in seconds."
    )


class _ReportedInstance(Strict):
    name = always(fields.String, "The name of the instance.")
    coordinates = always(Boolean, "Whether the instance is the coordinator.")
    state = always(fields.Enum, "The state of the sync in this instance.", State, by_value=True)
    processes = always(
        fields.List,
        "The processes that have run the instance, at most 50.",
        fields.Nested(_ReportedProcess),
    )


class _ReportedPhase(Strict):
    phase = always(fields.Enum, "The phase.", Phase, by_value=True)
    began = known_time("When the phase began")
    ended = nullable(fields.String, "When the phase ended, in UTC; null for the present phase.")
    seconds = always(fields.Float, "How long the phase took, or has taken until now, in seconds.")
    idleSeconds = always(
        fields.Float,
        "For how long during the phase the sync was paused, had failed, or had no running process, in seconds.",
    )


class _ReportedCopy(Strict):
    collections = always(fields.Integer, "The number of collections.")
    views = always(fields.Integer, "The number of views.")
    indexes = always(fields.Integer, "The number of indexes, without those on _id.")
    documents = always(fields.Integer, "The number of documents copied.")
    bytes = always(fields.Integer, "The number of bytes copied.")
    seconds = always(fields.Float, "How long the copy ran, in seconds, without idle times.")
    documentsPerSecond = nullable(
        fields.Float, "The average number of documents copied per second."
    )
    bytesPerSecond = nullable(fields.Float, "The average number of bytes copied per second.")
    documentsCopiedAgain = always(
        fields.Integer, "Documents that the copy read although the destination had them already."
    )


class _ReportedEvents(Strict):
    applied = always(fields.Integer, "The number of change events applied, in all directions.")
    definitionsApplied = always(fields.Integer, "The number of DDL events applied.")
    seconds = always(
        fields.Float, "How long change events were applied, in seconds, without idle times."
    )
    appliedPerSecond = nullable(fields.Float, "The average rate.")


class _Sent(SenderFields):
    address = nullable(fields.String, "The address of the client that sent the command.")


class _ReportedCommit(_Sent):
    """A commit that was requested."""

    requested = known_time("When the commit was requested")
    source = always(fields.String, "The source of the commit.")
    destination = always(fields.String, "The destination of the commit.")
    outcome = always(fields.Enum, "The outcome of the commit.", Outcome, by_value=True)
    withdrawn = always(
        fields.Integer,
        "How often the cut-over was undone and repeated, because users still wrote to the source.",
    )
    writable = known_time("When applications could write to the destination")
    committed = known_time("When the commit was complete")
    downtimeSeconds = nullable(
        fields.Float,
        "From the request until applications could write to the destination, in seconds; null if they cannot.",
    )


class _Amounts(Strict):
    started = known_time("When the verification began")
    ended = known_time("When the verification ended")
    generations = always(
        fields.Integer, "The number of generations; the first generation compares everything."
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
        fields.Integer, "How many times changed or different documents were compared again."
    )
    notes = always(fields.List, "What was not compared, and why.", fields.String())


class _ReportedVerification(_Amounts):
    outcome = always(
        fields.String, "The result of the verification.", validate=validate.OneOf(RESULTS)
    )
    reasons = always(fields.List, "Why the verification did not pass.", fields.String())
    method = always(fields.List, "How the verification compares both clusters.", fields.String())
    notCompared = always(fields.List, "What is not compared.", fields.String())
    cutOverSteps = always(
        fields.List, "The steps of the cut-over that are complete.", fields.String()
    )


class _ReportedDirection(Strict):
    """A direction of the sync that a reversal has ended."""

    source = always(fields.String, "The cluster that was read.")
    destination = always(fields.String, "The cluster that was written.")
    ended = known_time("When the sync was reversed")
    eventsApplied = always(fields.Integer, "The number of change events applied.")
    verification = nullable(
        fields.Nested,
        "The verification before the commit in this direction; null if there was none.",
        _Amounts,
    )
    repairedDocuments = always(fields.Integer, "The number of documents repaired.")
    repairedDefinitions = always(
        fields.Integer, "The number of differences in definitions repaired."
    )


class _Differences(Strict):
    """The differences that the verification knows now. Before the commit, they may be unsynced changes."""

    documents = always(fields.Integer, "The number of documents that differ.")
    definitions = always(fields.Integer, "The number of differences in definitions and counts.")
    listed = always(fields.List, "The first 100 differences, as sentences.", fields.String())


class _ReportedRepairs(Strict):
    requested = always(fields.Integer, "How many repairs operators have requested.")
    inCommit = always(fields.Integer, "How many rounds of repairs the last commit has run.")
    documents = always(fields.Integer, "The number of documents repaired.")
    definitions = always(fields.Integer, "The number of differences in definitions repaired.")
    listed = always(fields.List, "The first 100 repairs, as sentences.", fields.String())


class _ReportedFailure(Strict):
    at = known_time("When the sync failed")
    instance = always(fields.String, "The name of the instance.")
    text = always(fields.String, "The name of the error, and why.")


class _ReportedWarning(Strict):
    """All warnings of one kind."""

    instance = always(fields.String, "The name of the instance.")
    text = always(fields.String, "The text of the newest warning.")
    first = known_time("When the first warning began")
    last = known_time("When the newest warning began")
    ended = nullable(
        fields.String, "When the newest warning ended, in UTC; null while it is active."
    )
    times = always(fields.Integer, "The number of warnings of this kind.")
    seconds = always(fields.Float, "The total duration of the warnings of this kind, in seconds.")


class _ReportedCollection(Strict):
    namespace = always(fields.String, "The name of the collection.")
    documents = always(fields.Integer, "The number of documents copied.")
    bytes = always(fields.Integer, "The number of bytes copied.")
    indexes = always(
        fields.Integer, "The number of indexes of the collection, without the one on _id."
    )
    sharded = always(Boolean, "Whether the collection is sharded on the destination.")
    comparedDocuments = nullable(
        fields.Integer, "The number of documents compared; null if this process does not know it."
    )
    differences = nullable(
        fields.Integer,
        "The number of documents that differ; null if this process does not know it.",
    )


class _ReportedNamespaces(Strict):
    total = always(fields.Integer, "The number of collections.")
    collections = always(
        fields.List, "The first 10,000 collections by name.", fields.Nested(_ReportedCollection)
    )
    views = always(fields.List, "The names of the first 10,000 views.", fields.String())


class _Moment(_Sent):
    at = known_time("When this happened")
    instance = always(fields.String, "The name of the instance.")
    what = always(
        fields.String, "The kind of the entry, such as command, state, phase, failure or process."
    )
    text = always(fields.String, "What happened.")


class _Report(Strict):
    created = always(fields.Nested, "When and where the report was made.", _Created)
    headline = always(fields.Nested, "The result.", Headline)
    sync = always(fields.Nested, "The sync.", _ReportedSync)
    clusters = always(fields.List, "Both clusters.", fields.Nested(_ReportedCluster))
    options = always(fields.Dict, "The options of the start, as they are saved.")
    instances = always(
        fields.List, "The instances, the coordinator first.", fields.Nested(_ReportedInstance)
    )
    phases = always(fields.List, "The phases of the coordinator.", fields.Nested(_ReportedPhase))
    copy = always(fields.Nested, "The copy.", _ReportedCopy)
    events = always(fields.Nested, "The change events.", _ReportedEvents)
    commits = always(
        fields.List, "All requested commits, the oldest first.", fields.Nested(_ReportedCommit)
    )
    directions = always(
        fields.List,
        "The directions that reversals have ended, the oldest first.",
        fields.Nested(_ReportedDirection),
    )
    verification = always(
        fields.Nested, "The verification of the present direction.", _ReportedVerification
    )
    differences = always(fields.Nested, "What differs now.", _Differences)
    repairs = always(fields.Nested, "What was repaired.", _ReportedRepairs)
    failures = always(
        fields.List, "The failures, the oldest first.", fields.Nested(_ReportedFailure)
    )
    warnings = always(
        fields.List, "The warnings, also those that have ended.", fields.Nested(_ReportedWarning)
    )
    limits = always(fields.Dict, "The limits, as in GET /api/v1/limits.")
    namespaces = always(fields.Nested, "The collections and views.", _ReportedNamespaces)
    timeline = always(
        fields.List, "Everything that has happened, the oldest first.", fields.Nested(_Moment)
    )
    notKnown = always(fields.List, "What the report does not know.", fields.String())


class ReportAnswer(SuccessAnswer):
    report = always(fields.Nested, "The report of the sync.", _Report)
