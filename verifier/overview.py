"""Computes the API answers that the verifier's web page shows: the state of a check, and its namespaces.

The functions here have no side effects.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

from verifier.answers import progress_answer, seconds_left
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import CheckProgress, NamespaceProgress, Outcome, Phase
from verifier.runtime.recent import RecentCommand, recent_answer
from verifier.runtime.waits import LongWait

_ENDED = {
    Outcome.PASSED: "The check has passed",
    Outcome.FAILED: "The check has failed",
    Outcome.INCOMPLETE: "The check is incomplete",
}
_MEANINGS = {
    Outcome.PASSED: ": everything that was compared is equal on both clusters.",
    Outcome.FAILED: ": the clusters differ.",
    Outcome.INCOMPLETE: ": not everything could be compared, so the clusters may differ.",
}
_AFTER = {
    Outcome.PASSED: "Applications can switch to the destination, if everything that they use was compared. If a sync "
    "is running that is not COMMITTED yet, first commit it, then check again.",
    # Until its commit, a sync keeps some definitions different.
    Outcome.FAILED: "Do not switch to the destination yet. If a sync is running that is not COMMITTED yet, some "
    "differences are normal: check again when it is COMMITTED. Otherwise, fix the cause of the mismatches, and check "
    "again.",
    # After some errors, a restarted verifier continues the check: the text of the error says so.
    Outcome.INCOMPLETE: "Do not switch to the destination. Follow the remedy in the reported reason. If the check "
    "does not continue, start a new one.",
}


def overview_answer(
    progress: CheckProgress, waits: Sequence[LongWait], commands: Sequence[RecentCommand]
) -> dict[str, Any]:
    """Return the field `overview` of the answer to `GET /api/v1/overview`, in which unknown values are None.

    `waits` are the long waits of this process, and `commands` the last commands that the API has answered.
    """
    mismatches = progress.mismatches
    return {
        "progress": progress_answer(progress, waits),
        "summary": summary(progress),
        "next": _next(progress),
        "commands": _commands(progress),
        "started": progress.started,
        "ended": progress.ended,
        "secondsLeft": seconds_left(progress),
        "namespaces": len(progress.listed),
        "differentDocuments": sum(mismatches.documents.values()),
        "differentDefinitions": mismatches.definitions,
        "recentCommands": [recent_answer(each) for each in commands],
    }


def compared_nothing(progress: CheckProgress) -> bool:
    """Return whether a check has passed without comparing any document."""
    passed = progress.verdict is not None and progress.verdict.outcome is Outcome.PASSED
    amounts = progress.first or progress.amounts
    return passed and not amounts.documents and not progress.rechecked


def meaning(progress: CheckProgress, outcome: Outcome) -> str:
    """Return the end of a sentence that begins with the outcome of the check, such as `: the clusters differ.`"""
    nothing = compared_nothing(progress)
    return ", but there was no document to compare." if nothing else _MEANINGS[outcome]


def after(progress: CheckProgress, outcome: Outcome) -> str:
    """Return what the operator should do after a check with this outcome."""
    if compared_nothing(progress):
        return "Make sure that the clusters and filters are the right ones."
    return _AFTER[outcome]


def summary(progress: CheckProgress) -> str:
    if progress.verdict is not None:
        outcome = progress.verdict.outcome
        return f"{_ENDED[outcome]}{meaning(progress, outcome)}"
    if progress.phase is Phase.IDLE:
        return "No check is running, and there is no result to show."
    if progress.phase is Phase.CHECK:
        return "The check compares all documents for the first time."
    if progress.writes_off:
        return "The check compares the last changes."
    return "The check compares the documents that change, until you end the check."


def _next(progress: CheckProgress) -> dict[str, Any] | None:
    """Return the operator's next step (`text` and `command`); None if the operator only has to wait."""
    if progress.verdict is not None:
        return {"text": after(progress, progress.verdict.outcome), "command": None}
    if progress.phase is Phase.IDLE:
        return {"text": "Start a check.", "command": "check"}
    if progress.writes_off or progress.phase is Phase.CHECK:
        return None
    # Until its commit, a sync keeps some definitions different, so a check that ends before then can fail.
    return {
        "text": (
            "If a sync is running, first wait until it is COMMITTED. Then stop all writes to both clusters, and end "
            "the check."
        ),
        "command": "writesOff",
    }


def _commands(progress: CheckProgress) -> list[str]:
    if progress.phase is Phase.IDLE:
        return ["check"]
    return [] if progress.writes_off else ["writesOff"]


class SortKey(Enum):
    """The columns by which the table of namespaces can be sorted."""

    NAME = "name"
    DOCUMENTS = "documents"
    BYTES = "bytes"
    MISMATCHES = "mismatches"


@dataclass(frozen=True)
class TableRequest:
    """A request for rows of the table of namespaces: skip `offset` selected rows, then return at most `limit`.

    A namespace is selected if its name contains `search`, regardless of case. With `different`, it must also have
    documents that differ.
    """

    search: str = ""
    different: bool = False
    sort: SortKey = SortKey.NAME
    descending: bool = False
    offset: int = 0
    limit: int = 100


def namespaces_answer(progress: CheckProgress, request: TableRequest) -> dict[str, Any]:
    """Return the requested rows of the table of namespaces, and `total`, the number of selected namespaces."""
    counts, search = progress.mismatches.by_owner, request.search.casefold()
    chosen = [
        (name, progress.namespaces.get(name, NamespaceProgress()), counts.get(name, 0))
        for name in progress.listed
        if search in str(name).casefold() and (not request.different or counts.get(name))
    ]
    if request.sort is not SortKey.NAME:
        chosen.sort(key=_SORTED_BY[request.sort], reverse=request.descending)
    elif request.descending:
        chosen.reverse()
    shown = chosen[request.offset : request.offset + request.limit]
    return {"namespaces": [_line(*each) for each in shown], "total": len(chosen)}


_Row = tuple[Namespace, NamespaceProgress, int]

_SORTED_BY: dict[SortKey, Callable[[_Row], float]] = {
    SortKey.DOCUMENTS: lambda row: row[1].total_documents or row[1].documents,
    SortKey.BYTES: lambda row: row[1].total_size or row[1].size,
    SortKey.MISMATCHES: lambda row: row[2],
}


def _line(name: Namespace, progress: NamespaceProgress, mismatches: int) -> dict[str, Any]:
    return {
        "namespace": str(name),
        "comparedDocuments": progress.documents,
        "totalDocuments": progress.total_documents,
        "comparedBytes": progress.size,
        "totalBytes": progress.total_size,
        "tasksDone": progress.tasks_done,
        "tasks": progress.tasks,
        "mismatches": mismatches,
    }
