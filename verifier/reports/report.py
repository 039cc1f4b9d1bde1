"""The answer to `GET /api/v1/report`: what was compared, when, by whom, and the result.

The functions here have no side effects. The report is for readers who did not watch the check, such as a manager or an
auditor. Therefore, it also lists the facts that are missing from it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from verifier.cluster import rawbson
from verifier.cluster.document_filters import rows_of
from verifier.cluster.facts import ClusterFacts
from verifier.compare.check_progress import Amounts, Changes, CheckProgress, Outcome, Verdict
from verifier.compare.documents import Mode
from verifier.compare.mismatch import Difference, StoredMismatch
from verifier.compare.record import MOST_PROCESSES, CheckProcess, CheckRecord, SentCommand
from verifier.overview import compared_nothing, summary
from verifier.page.report_page import COUNTED, PROXIES, UNKNOWN_CALLERS, Level, moment, rate

# The maximum numbers of differences and of namespaces that a report lists.
MOST_LISTED = 100
MOST_NAMESPACES = 10_000
# The maximum length of a text in the report, in characters: an _id or a filter may have megabytes.
_LONGEST = 2_000

_LEVELS = {
    Outcome.PASSED: Level.GOOD,
    Outcome.FAILED: Level.BAD,
    Outcome.INCOMPLETE: Level.WARNING,
}
_MODES = {
    Mode.BINARY: "Every selected document of both clusters is read and compared byte by byte, including the order of "
    "its fields.",
    Mode.IGNORE_FIELD_ORDER: "Every selected document of both clusters is read and compared, regardless of the order "
    "of its fields.",
}
_METHOD = (
    COUNTED,
    "The definitions of all selected collections and views are compared, with all options and indexes. Shard keys are "
    "compared if both clusters are sharded.",
    "Documents that change or differ are compared again, until all changes before the end of the writes are compared.",
)
_NOT_COMPARED = (
    "System collections (system.*) are not compared, except the buckets of time-series collections.",
    "Users and roles are not compared.",
    "Neither the distribution of chunks on shards nor orphaned documents are compared.",
    "Writes to either cluster after the end of the check are not compared.",
)


@dataclass(frozen=True)
class Subject:
    """The input of a report: the saved record of a check, and its progress.

    `clusters` are the facts about the source and the destination. `mismatches` are the first mismatches; `unread`
    contains a sentence if they could not be read. `creator` describes this process, with the time of the report.
    `waits` are the warnings about the long waits of this process (`verifier.runtime.waits`).
    """

    record: CheckRecord
    progress: CheckProgress
    clusters: tuple[ClusterFacts, ClusterFacts]
    mismatches: tuple[StoredMismatch, ...]
    unread: tuple[str, ...]
    waits: tuple[str, ...]
    creator: CheckProcess


def report(subject: Subject) -> dict[str, Any]:
    """Return the fields of the answer to `GET /api/v1/report`, except `success`."""
    record, progress, creator = subject.record, subject.progress, subject.creator
    return {
        "created": {
            "at": moment(creator.at),
            "version": creator.version,
            "host": creator.host,
        },
        "headline": _headline(progress),
        "check": _check(record, progress, creator.at),
        "clusters": [
            _cluster(*each)
            for each in zip(
                ("source", "destination"),
                record.identities,
                subject.clusters,
                (progress.source, progress.destination),
                strict=True,
            )
        ],
        "options": _options(record),
        "commands": [_command(each) for each in record.commands],
        "processes": [_process(each) for each in record.processes],
        "compared": _compared(record, progress, creator.at),
        "method": [_MODES[record.request.mode], *_METHOD],
        "notCompared": [*_NOT_COMPARED, *progress.notes],
        "differences": _differences(subject),
        "namespaces": _namespaces(progress),
        "warnings": [*subject.waits],
        "notKnown": [*_not_known(subject)],
    }


def _headline(progress: CheckProgress) -> dict[str, str]:
    verdict = progress.verdict
    if verdict is None:
        return {
            "level": Level.INFO.value,
            "text": f"{summary(progress)} This report is preliminary.",
        }
    level = Level.WARNING if compared_nothing(progress) else _LEVELS[verdict.outcome]
    return {"level": level.value, "text": summary(progress)}


def _check(record: CheckRecord, progress: CheckProgress, now: float) -> dict[str, Any]:
    verdict = progress.verdict or Verdict(Outcome.INCOMPLETE)
    return {
        "phase": progress.phase.value,
        "verdict": None if progress.verdict is None else verdict.outcome.value,
        "reasons": [_cut(each) for each in verdict.reasons],
        "error": verdict.error,
        "started": moment(record.started),
        "ended": moment(record.ended),
        "seconds": round((record.ended or now) - record.started, 1),
        "generations": record.generation + 1,
        "writesOff": record.writes_off,
    }


def _cluster(name: str, identity: str, facts: ClusterFacts, changes: Changes) -> dict[str, Any]:
    return {
        "name": name,
        "address": facts.address,
        "topology": facts.topology.value,
        "shards": len(facts.shards),
        "version": facts.dotted_version,
        "identity": identity,
        "changeEvents": dict(changes.seen),
    }


def _options(record: CheckRecord) -> dict[str, Any]:
    request = record.request
    scope, document_filter = request.scope, request.document_filter
    return {
        "includeNamespaces": list(scope.namespaces.include),
        "excludeNamespaces": list(scope.namespaces.exclude),
        "renamed": {
            str(name).rstrip("."): str(other).rstrip(".") for name, other in scope.renamed.items()
        },
        "docCompareMethod": request.mode.value,
        "filter": None if document_filter is None else _cut(str(rawbson.decode(document_filter))),
        "documentFilter": [
            {**row, "filter": _cut(row["filter"])} for row in rows_of(request.source_filters)
        ],
    }


def _command(command: SentCommand) -> dict[str, Any]:
    return {
        "command": command.name,
        "at": moment(command.at),
        "caller": command.caller,
        "address": command.address,
    }


def _process(process: CheckProcess) -> dict[str, Any]:
    return {"began": moment(process.at), "version": process.version, "host": process.host}


def _compared(record: CheckRecord, progress: CheckProgress, now: float) -> dict[str, Any]:
    amounts = record.first or (progress.amounts if record.generation == 0 else Amounts())
    seconds = _first_seconds(record, now)
    return {
        "namespaces": amounts.namespaces,
        "documents": amounts.documents,
        "bytes": amounts.size,
        "seconds": None if seconds is None else round(seconds, 1),
        "documentsPerSecond": rate(amounts.documents, seconds),
        "bytesPerSecond": rate(amounts.size, seconds),
        "rechecked": record.rechecked,
        "recentRecheckSeconds": list(record.recheck_seconds),
    }


def _first_seconds(record: CheckRecord, now: float) -> float | None:
    """Return how long generation 0 took in seconds; while it runs, the seconds so far.

    If the check ended before generation 0 was complete, return the duration of the check, or the seconds until now if
    the end of the check was not saved. Return None if generation 0 has ended, but the time of its end was not saved.
    """
    if record.first_ended is not None:
        return record.first_ended - record.started
    if record.first is not None:
        return None
    return (record.ended or now) - record.started


def _differences(subject: Subject) -> dict[str, Any]:
    counts = subject.progress.mismatches
    return {
        "documents": sum(counts.documents.values()),
        "byType": {each.value: counts.documents.get(each, 0) for each in Difference},
        "definitions": counts.definitions,
        "listed": [_cut(str(each.mismatch)) for each in subject.mismatches],
    }


def _namespaces(progress: CheckProgress) -> dict[str, Any]:
    counts = progress.mismatches.by_owner
    names = progress.listed
    return {
        "total": len(names),
        "listed": [
            {
                "namespace": str(name),
                "documents": None if known is None else known.documents,
                "bytes": None if known is None else known.size,
                "differences": counts.get(name, 0),
            }
            for name in names[:MOST_NAMESPACES]
            for known in (progress.namespaces.get(name),)
        ],
    }


def _not_known(subject: Subject) -> Iterator[str]:
    """Yield a sentence for each gap of the report: a fact that is unknown, uncertain or left out."""
    record, progress = subject.record, subject.progress
    yield from subject.unread
    if not record.processes:
        yield (
            "The senders of the commands and the processes that ran the check are unknown, because an older version "
            "did not save them."
        )
    elif any(each.caller is None and each.address for each in record.commands):
        yield UNKNOWN_CALLERS
    yield PROXIES
    if progress.writes_off:
        yield (
            "It is unknown whether applications wrote to either cluster after writesOff: the check assumes that all "
            "writes had ended when this command was sent."
        )
    yield (
        "The versions of the servers may have changed during the check: the report shows the versions at the start of "
        "the check, or at the start of this process if that was later."
    )
    yield "The report shows only the current warnings; earlier warnings are in the log."
    if record.first is None and progress.verdict is not None:
        yield (
            "The reported number of compared documents may be too small, because the last comparisons before the end "
            "of the check may not have been saved."
        )
    if record.first is not None and record.first.namespaces and not progress.namespaces:
        yield (
            "The compared amount of each collection is unknown, because the older version that ran the check did not "
            "save it."
        )
    if progress.verdict is not None and record.ended is None:
        yield (
            "The end of the check was not saved, so its time is unknown, and a restarted process continues the check."
        )
    if len(progress.listed) > MOST_NAMESPACES:
        yield f"Only the first {MOST_NAMESPACES:,} namespaces are listed."
    if len(subject.mismatches) == MOST_LISTED:
        yield f"At most {MOST_LISTED} differences are listed."
    if len(record.processes) == MOST_PROCESSES:
        yield f"At most the first process and the last {MOST_PROCESSES - 1} processes that ran the check are listed."


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
