"""The schemas of the answers to `GET /api/v1/progress` and `GET /api/v1/summary`."""

from __future__ import annotations

from typing import Any

from marshmallow import fields

from verifier.compare.check_progress import Outcome, Phase
from verifier.compare.mismatch import Difference
from verifier.compare.schemas import DefinitionMismatchLine
from verifier.runtime.openapi import SuccessAnswer, always, nullable, sometimes
from verifier.runtime.schemas import Boolean, Strict


class _Timestamp(Strict):
    t = always(fields.Integer, "The time in seconds since 1970.")
    i = always(fields.Integer, "The ordinal of the operation within the second `t`.")


_ClusterTime = Strict.from_dict(
    {"$timestamp": always(fields.Nested, "A cluster time in Extended JSON.", _Timestamp)},
    name="ClusterTime",
)


class _Tasks(Strict):
    """The numbers of tasks of the current generation, by status."""

    totalTasks = always(fields.Integer, "The number of all tasks of the current generation.")
    addedTasks = always(fields.Integer, "The number of tasks that have not begun.")
    processingTasks = always(fields.Integer, "The number of tasks in progress.")
    failedTasks = always(
        fields.Integer,
        "The number of tasks that found a difference. If the check is incomplete, this includes the unfinished tasks, "
        "and is at least 1.",
    )
    completedTasks = always(fields.Integer, "The number of tasks that found no difference.")
    metadataMismatchTasks = always(
        fields.Integer,
        "The number of failed tasks with a difference in a definition or in a number of documents.",
    )
    recheckTasks = always(
        fields.Integer,
        "The number of failed tasks whose differences the next generation compares again.",
    )


class _Amounts(Strict):
    """The amounts that a generation has compared, and estimates of the total amounts to compare."""

    docsCompared = always(fields.Integer, "The number of documents compared.")
    totalDocs = nullable(
        fields.Integer,
        "The estimated number of documents to compare; null if no comparison of documents is planned.",
    )
    srcBytesCompared = always(
        fields.Integer, "The size of the compared documents of the source, in bytes."
    )
    totalSrcBytes = nullable(
        fields.Integer,
        "The estimated size of the source's documents to compare, in bytes; null if unknown, for example in later "
        "generations.",
    )
    totalNamespaces = always(
        fields.Integer,
        "The number of collections whose documents are compared; views are not counted.",
    )


def _counts(meaning: str, **metadata: Any) -> Any:
    return always(
        fields.Dict, meaning, keys=fields.String(), values=fields.Integer(), metadata=metadata
    )


class _Changes(Strict):
    """The rate, the lag and the numbers of the change events that are read from one cluster."""

    eventsPerSecond = nullable(
        fields.Float,
        "The number of change events per second in the last minute; null if unknown, for example while the cluster "
        "does not answer.",
    )
    lagSecs = nullable(
        fields.Integer,
        "The delay of the verifier behind the change events of the cluster, in seconds; null if unknown, for example "
        "while the cluster does not answer.",
    )
    eventCounts = _counts("The number of change events since the check began, by operation.")


class Progress(Strict):
    """The state and progress of a check at one moment. Unknown values are null."""

    phase = always(
        fields.Enum,
        "The phase: `idle` without a running check, `check` in the first generation, `recheck` in later generations.",
        Phase,
        by_value=True,
    )
    error = nullable(
        fields.String,
        "The error that made the check incomplete: its name, its description and its remedy; null without such an "
        "error.",
    )
    verificationStatus = always(
        fields.Nested, "The numbers of tasks of the current generation, by status.", _Tasks
    )
    verdict = nullable(
        fields.Enum, "The result of the check; null until the check ends.", Outcome, by_value=True
    )
    verdictReasons = always(fields.List, "The reasons for the verdict.", fields.String())
    writesOff = always(Boolean, "Whether the check has received POST /api/v1/writesOff.")
    generation = nullable(
        fields.Integer,
        "The number of the current generation (a pass of the check), or of the last one after the check; the first one "
        "is 0. Null without a check.",
    )
    generationStats = always(
        fields.Nested,
        "The numbers of documents, bytes and collections that the current or last generation compares.",
        _Amounts,
    )
    gen0Stats = nullable(
        fields.Nested,
        "The numbers of documents, bytes and collections that the first generation compared; null until this "
        "generation is complete.",
        _Amounts,
    )
    recentRecheckSecs = always(
        fields.List,
        "The durations of the most recent generations after the first, in seconds.",
        fields.Float(allow_none=True),
    )
    totalRechecksDone = always(
        fields.Integer,
        "The number of comparisons of documents in the complete generations after the first one.",
    )
    docsComparedPerSecond = nullable(
        fields.Float,
        "The number of documents compared per second in the last minute; null while a generation is being prepared, "
        "and if no check runs.",
    )
    srcBytesComparedPerSecond = nullable(
        fields.Float,
        "The size of the source's documents compared per second in the last minute, in bytes; null while a generation "
        "is being prepared, and if no check runs.",
    )
    srcChangeStats = always(fields.Nested, "The change events of the source.", _Changes)
    dstChangeStats = always(fields.Nested, "The change events of the destination.", _Changes)
    srcLastRecheckedTS = nullable(
        fields.Nested,
        "The cluster time up to which all changes of the source were processed; null until the changes made during the "
        "first generation have been compared.",
        _ClusterTime,
    )
    dstLastRecheckedTS = nullable(
        fields.Nested,
        "The cluster time up to which all changes of the destination were processed; null until the changes made "
        "during the first generation have been compared.",
        _ClusterTime,
    )
    notes = always(
        fields.List,
        "Notes about the result, for example which data the check did not compare, and why.",
        fields.String(),
    )
    warnings = sometimes(
        fields.List,
        "The long waits of the process: the cause, the duration and the remedy of each.",
        fields.String(),
    )


class _DocumentMismatches(Strict):
    """The numbers of documents that differ."""

    total = always(fields.Integer, "The number of documents that differ.")
    byType = _counts(
        "The number of documents that differ, by the type of difference.",
        propertyNames={"enum": [each.value for each in Difference]},
    )
    byNamespace = _counts("The number of documents that differ, by namespace.")


class ProgressAnswer(SuccessAnswer):
    progress = always(fields.Nested, "The progress of the check.", Progress)


class SummaryAnswer(SuccessAnswer):
    """The results of a check in one document."""

    verdict = nullable(
        fields.Enum, "The result of the check; null until the check ends.", Outcome, by_value=True
    )
    verdictReasons = always(fields.List, "The reasons for the verdict.", fields.String())
    estCheckSecsRemaining = nullable(
        fields.Float,
        "The estimated time until the first generation ends, in seconds; null if it is unknown, or if this generation "
        "is complete.",
    )
    recentRecheckSecs = always(
        fields.List,
        "The durations of the most recent generations after the first, in seconds.",
        fields.Float(allow_none=True),
    )
    checkStats = always(
        fields.Nested,
        "The numbers of documents, bytes and collections that the first generation compares.",
        _Amounts,
    )
    nsMismatches = always(
        fields.List,
        "The first 1,000 differences in definitions of collections, views and indexes, and in numbers of documents.",
        fields.Nested(DefinitionMismatchLine),
    )
    nsMismatchesTotal = always(
        fields.Integer,
        "The number of differences in definitions of collections, views and indexes, and in numbers of documents.",
    )
    docMismatches = always(
        fields.Nested, "The numbers of documents that differ.", _DocumentMismatches
    )
    totalRechecksDone = always(
        fields.Integer,
        "The number of comparisons of documents in the complete generations after the first one.",
    )
    srcChangeEvents = _counts("The number of change events of the source, by operation.")
    dstChangeEvents = _counts("The number of change events of the destination, by operation.")
    notes = always(
        fields.List,
        "Notes about the result, for example which data the check did not compare, and why.",
        fields.String(),
    )
