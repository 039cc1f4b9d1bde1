"""The schema of the report of a check."""

from __future__ import annotations

from marshmallow import fields

from verifier.compare.check_progress import Outcome, Phase
from verifier.page.report_fields import (
    ClusterFields,
    CreatedFields,
    Headline,
    SenderFields,
    known_time,
)
from verifier.runtime.openapi import SuccessAnswer, always, nullable
from verifier.runtime.schemas import Boolean, Strict


class _ReportedCheck(Strict):
    phase = always(fields.Enum, "The phase of the check.", Phase, by_value=True)
    verdict = nullable(
        fields.Enum, "The result of the check; null until the check ends.", Outcome, by_value=True
    )
    reasons = always(fields.List, "The reasons for the verdict.", fields.String())
    error = nullable(
        fields.String,
        "The name of the error that made the check incomplete; null without such an error.",
    )
    started = known_time("The time at which the check was started")
    ended = nullable(
        fields.String,
        "The time at which the check ended, in UTC; null if the check has not ended, or if its end was not saved.",
    )
    seconds = always(
        fields.Float, "The duration of the check until its end or until now, in seconds."
    )
    generations = always(
        fields.Integer,
        "The number of generations (passes) that have begun; the first one compares everything.",
    )
    writesOff = always(Boolean, "Whether the check has received the command writesOff.")


class _ReportedCluster(ClusterFields):
    """A cluster as it was when the check started, or when this process started if that was later."""

    name = always(fields.String, "The role of the cluster: source or destination.")
    changeEvents = always(
        fields.Dict,
        "The number of change events of the namespaces of the check, by operation.",
        keys=fields.String(),
        values=fields.Integer(),
    )


class _ReportedOptions(Strict):
    includeNamespaces = always(
        fields.List,
        "The filters that select namespaces; empty if all namespaces are selected.",
        fields.Dict(),
    )
    excludeNamespaces = always(
        fields.List, "The filters that exclude namespaces from the check.", fields.Dict()
    )
    renamed = always(
        fields.Dict,
        "The names of renamed namespaces on the destination, by the name on the source.",
        keys=fields.String(),
        values=fields.String(),
    )
    docCompareMethod = always(fields.String, "The method by which documents are compared.")
    filter = nullable(
        fields.String,
        "The filter of the documents that are compared, cut to 2,000 characters; null without such a filter.",
    )
    documentFilter = always(
        fields.List,
        "The queries that select documents of single collections of the source, as Extended JSON, each cut to "
        "2,000 characters.",
        fields.Dict(),
    )


class _ReportedCommand(SenderFields):
    """A command that the check has accepted."""

    command = always(fields.String, "The name of the command: check or writesOff.")
    at = known_time("The time at which the command was sent")
    address = nullable(
        fields.String,
        "The address of the client; null if the process sent the command itself.",
    )


class _ReportedProcess(Strict):
    began = known_time("The time at which the process began to run the check")
    version = always(fields.String, "The version of syncsvc-verifier that the process ran.")
    host = always(fields.String, "The host of the process.")


class _ReportedComparison(Strict):
    """The first generation, and the documents that later generations have compared again."""

    namespaces = always(
        fields.Integer, "The number of collections whose documents the first generation compares."
    )
    documents = always(
        fields.Integer, "The number of documents that the first generation has compared."
    )
    bytes = always(
        fields.Integer,
        "The size of the documents that the first generation has compared, in bytes.",
    )
    seconds = nullable(
        fields.Float,
        "The duration of the first generation until its end or until now, including interruptions, in seconds; null if "
        "unknown.",
    )
    documentsPerSecond = nullable(
        fields.Float,
        "The average number of documents that the first generation compared per second; null if its duration is "
        "unknown or 0.",
    )
    bytesPerSecond = nullable(
        fields.Float,
        "The average number of bytes that the first generation compared per second; null if its duration is unknown or "
        "0.",
    )
    rechecked = always(
        fields.Integer,
        "The number of repeated comparisons of documents that changed or differed, in the complete generations.",
    )
    recentRecheckSeconds = always(
        fields.List,
        "The durations of the most recent generations after the first, in seconds.",
        fields.Float(),
    )


class _ReportedDifferences(Strict):
    """The differences that the check knows now. Before the check ends, a running sync may still remove them."""

    documents = always(fields.Integer, "The number of documents that differ.")
    byType = always(
        fields.Dict,
        "The number of documents that differ, by type.",
        keys=fields.String(),
        values=fields.Integer(),
    )
    definitions = always(
        fields.Integer, "The number of differences in definitions and in numbers of documents."
    )
    listed = always(
        fields.List,
        "The first 100 differences, as sentences, each cut to 2,000 characters.",
        fields.String(),
    )


class _ReportedNamespace(Strict):
    namespace = always(fields.String, "The name of the collection on the source.")
    documents = nullable(
        fields.Integer,
        "The number of documents that the first generation compared in the collection; null if unknown.",
    )
    bytes = nullable(
        fields.Integer,
        "The number of bytes that the first generation compared in the collection; null if unknown.",
    )
    differences = always(fields.Integer, "The number of documents of the collection that differ.")


class _ReportedNamespaces(Strict):
    total = always(fields.Integer, "The number of namespaces, including those that are not listed.")
    listed = always(
        fields.List,
        "The first 10,000 namespaces, sorted by name.",
        fields.Nested(_ReportedNamespace),
    )


class _Report(Strict):
    created = always(
        fields.Nested,
        "The time at which the report was made, and the process that made it.",
        CreatedFields,
    )
    headline = always(fields.Nested, "The result.", Headline)
    check = always(fields.Nested, "The state and the result of the check.", _ReportedCheck)
    clusters = always(
        fields.List, "The source and the destination.", fields.Nested(_ReportedCluster)
    )
    options = always(
        fields.Nested,
        "The options of the check: filters, renamed namespaces and comparison method.",
        _ReportedOptions,
    )
    commands = always(
        fields.List,
        "The accepted commands of the check, the oldest first.",
        fields.Nested(_ReportedCommand),
    )
    processes = always(
        fields.List,
        "The processes that have run the check, at most 50.",
        fields.Nested(_ReportedProcess),
    )
    compared = always(
        fields.Nested,
        "The amounts that the check has compared, and the duration of the comparison.",
        _ReportedComparison,
    )
    method = always(
        fields.List,
        "The rules by which the check compares both clusters, as sentences.",
        fields.String(),
    )
    notCompared = always(
        fields.List,
        "The data and definitions that the check does not compare, as sentences.",
        fields.String(),
    )
    differences = always(fields.Nested, "The current differences.", _ReportedDifferences)
    namespaces = always(
        fields.Nested,
        "The collections that the first generation compared, and those with documents that differ.",
        _ReportedNamespaces,
    )
    warnings = always(
        fields.List, "The warnings about the current long waits of this process.", fields.String()
    )
    notKnown = always(
        fields.List,
        "The facts that are unknown, uncertain or left out of the report, as sentences.",
        fields.String(),
    )


class ReportAnswer(SuccessAnswer):
    report = always(fields.Nested, "The report of the check.", _Report)
