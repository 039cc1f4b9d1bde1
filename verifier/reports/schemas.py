"""The schema of the report of a check."""

from __future__ import annotations

from marshmallow import fields

from verifier.compare.check_progress import Outcome, Phase
from verifier.page.report_schemas import (
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
        fields.Enum, "The result of the check; null before its end.", Outcome, by_value=True
    )
    reasons = always(fields.List, "The reasons for the verdict.", fields.String())
    error = nullable(fields.String, "The name of the error that made the check incomplete.")
    started = known_time("When the check was started")
    ended = nullable(fields.String, "When the check ended, in UTC; null if its end is not saved.")
    seconds = always(fields.Float, "How long the check took, or has taken until now, in seconds.")
    generations = always(
        fields.Integer, "The number of generations; the first generation compares everything."
    )
    writesOff = always(Boolean, "Whether the check has received POST /api/v1/writesOff.")


class _ReportedCluster(ClusterFields):
    """A cluster, as it was when this process connected to it."""

    name = always(fields.String, "The role of the cluster: source or destination.")
    changeEvents = always(
        fields.Dict,
        "The number of change events during the check, by operation.",
        keys=fields.String(),
        values=fields.Integer(),
    )


class _ReportedOptions(Strict):
    includeNamespaces = always(
        fields.List, "The namespace filters; empty if everything is compared.", fields.Dict()
    )
    excludeNamespaces = always(
        fields.List, "The filters of namespaces that are not compared.", fields.Dict()
    )
    renamed = always(
        fields.Dict,
        "The names on the destination that differ, by the name on the source.",
        keys=fields.String(),
        values=fields.String(),
    )
    docCompareMethod = always(fields.String, "How documents are compared.")
    filter = nullable(
        fields.String,
        "The filter of the documents that are compared, cut to 2,000 characters; null if all are.",
    )


class _ReportedCommand(SenderFields):
    """A command that the check has accepted."""

    command = always(fields.String, "The name of the command: check or writesOff.")
    at = known_time("When the command was sent")
    address = nullable(
        fields.String,
        "The address of the client; null if an option of the process sent the command.",
    )


class _ReportedProcess(Strict):
    began = known_time("When the process began to run the check")
    version = always(fields.String, "The version of syncsvc-verifier that the process ran.")
    host = always(fields.String, "The host of the process.")


class _ReportedComparison(Strict):
    """The first generation, and the documents that later generations have compared again."""

    namespaces = always(fields.Integer, "The number of collections and views compared.")
    documents = always(
        fields.Integer, "The number of documents that the first generation has compared."
    )
    bytes = always(fields.Integer, "The size of these documents on the source, in bytes.")
    seconds = nullable(
        fields.Float,
        "How long the first generation took, or has taken until now, in seconds, with interruptions; null if unknown.",
    )
    documentsPerSecond = nullable(
        fields.Float, "The average number of documents compared per second."
    )
    bytesPerSecond = nullable(fields.Float, "The average number of bytes compared per second.")
    rechecked = always(
        fields.Integer, "How many times changed or different documents were compared again."
    )
    recentRecheckSeconds = always(
        fields.List, "The durations of the last generations, in seconds.", fields.Float()
    )


class _ReportedDifferences(Strict):
    """The differences that the check knows now. Before its end, they may be changes that are still being copied."""

    documents = always(fields.Integer, "The number of documents that differ.")
    byType = always(
        fields.Dict,
        "The number of documents that differ, by type.",
        keys=fields.String(),
        values=fields.Integer(),
    )
    definitions = always(fields.Integer, "The number of differences in definitions and counts.")
    listed = always(
        fields.List,
        "The first 100 differences, as sentences, each cut to 2,000 characters.",
        fields.String(),
    )


class _ReportedNamespace(Strict):
    namespace = always(fields.String, "The name of the collection or view.")
    documents = nullable(
        fields.Integer, "The number of documents compared; null if this process does not know it."
    )
    bytes = nullable(
        fields.Integer, "The number of bytes compared; null if this process does not know it."
    )
    differences = always(fields.Integer, "The number of documents that differ.")


class _ReportedNamespaces(Strict):
    total = always(fields.Integer, "The number of namespaces that the report knows.")
    listed = always(
        fields.List, "The first 10,000 namespaces by name.", fields.Nested(_ReportedNamespace)
    )


class _Report(Strict):
    created = always(fields.Nested, "When and where the report was made.", CreatedFields)
    headline = always(fields.Nested, "The result.", Headline)
    check = always(fields.Nested, "The check.", _ReportedCheck)
    clusters = always(
        fields.List, "The source and the destination.", fields.Nested(_ReportedCluster)
    )
    options = always(fields.Nested, "What was selected, and how it is compared.", _ReportedOptions)
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
    compared = always(fields.Nested, "How much was compared.", _ReportedComparison)
    method = always(fields.List, "How the check compares both clusters.", fields.String())
    notCompared = always(fields.List, "What is not compared, and why.", fields.String())
    differences = always(fields.Nested, "What differs now.", _ReportedDifferences)
    namespaces = always(fields.Nested, "The collections and views.", _ReportedNamespaces)
    warnings = always(fields.List, "What this process is waiting for now.", fields.String())
    notKnown = always(fields.List, "What the report does not know.", fields.String())


class ReportAnswer(SuccessAnswer):
    report = always(fields.Nested, "The report of the check.", _Report)
