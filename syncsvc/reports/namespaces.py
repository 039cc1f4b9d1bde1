"""The progress of each collection: the answer to `GET /api/v1/namespaces`, and the rows of a table on the web page."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from syncsvc.reports.sync import Sync, indexes_built
from syncsvc.reports.verification_answer import mismatches_of, namespace_compared
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.compare.check_progress import CheckProgress


class NamespacePhase(Enum):
    """The phases of a collection. WITHHELD: its indexes are not built yet, because a document or index was refused."""

    WAITING = "waiting"
    COPYING = "copying"
    COPIED = "copied"
    INDEXING = "indexing"
    WITHHELD = "withheld"


_OF_THE_COPY = {
    CopyStatus.WAITING: NamespacePhase.WAITING,
    CopyStatus.COPYING: NamespacePhase.COPYING,
    CopyStatus.DONE: NamespacePhase.COPIED,
}


def namespace_phase(sync: Sync, record: CollectionRecord) -> NamespacePhase:
    if record.withheld:
        return NamespacePhase.WITHHELD
    figures = sync.figures_of(record)
    if figures.indexing:
        return NamespacePhase.INDEXING
    if record.status is CopyStatus.WAITING and figures.began is not None:
        # The copy has begun, but its status is saved a little later.
        return NamespacePhase.COPYING
    return _OF_THE_COPY[record.status]


def namespaces_report(
    sync: Sync, database: str | None, after: str | None, limit: int
) -> dict[str, Any]:
    """Return the fields of the answer to `GET /api/v1/namespaces`, except `success`.

    `namespaces` contains at most `limit` collections, sorted by their names on the source. Only collections of
    `database` (None: of all databases) whose names sort after `after` (None: all names) are included. `next` is the
    value of `after` for the next page; None on the last page.
    """
    names = {str(each.source_name): each for each in sync.collections}
    asked = sorted(
        name
        for name, each in names.items()
        if (database is None or each.source_name.database == database)
        and (after is None or name > after)
    )
    shown = asked[:limit]
    return {
        "namespaces": [_line(sync, names[name]) for name in shown],
        "next": shown[-1] if len(asked) > limit else None,
    }


class SortKey(Enum):
    """The columns by which the table of collections can be sorted; LEFT is the share that is not copied yet."""

    NAME = "name"
    DOCUMENTS = "documents"
    BYTES = "bytes"
    LEFT = "left"
    EVENTS = "events"
    MISMATCHES = "mismatches"


@dataclass(frozen=True)
class TableRequest:
    """A request for rows of the table of collections: at most `limit`, after the first `offset` selected collections.

    A collection is selected if its name contains `search`, regardless of case, and it is in `phase` (None: any phase).
    With `different`, it must also have documents that differ.
    """

    search: str = ""
    phase: NamespacePhase | None = None
    different: bool = False
    sort: SortKey = SortKey.NAME
    descending: bool = False
    offset: int = 0
    limit: int = 100


def namespaces_table(sync: Sync, request: TableRequest) -> dict[str, Any]:
    """Return `namespaces`, the requested rows of collections, and `total`, the number of all selected collections.

    A row has the same fields as a collection in the answer to `GET /api/v1/namespaces`.
    """
    search, check = request.search.casefold(), sync.snapshot.check
    # Sorted by name first: the later sort is stable, so rows with equal values stay in the order of their names.
    chosen = sorted(
        (
            (str(each.source_name), each)
            for each in sync.collections
            if search in str(each.source_name).casefold()
        ),
        key=lambda each: each[0],
    )
    if request.phase is not None:
        chosen = [each for each in chosen if namespace_phase(sync, each[1]) is request.phase]
    if request.different:
        chosen = [each for each in chosen if check is not None and mismatches_of(check, each[1])]
    if request.sort is not SortKey.NAME:
        key = _SORTED_BY[request.sort]
        chosen.sort(key=lambda each: key(sync, each[1]), reverse=request.descending)
    elif request.descending:
        chosen.reverse()
    shown = chosen[request.offset : request.offset + request.limit]
    return {"namespaces": [_line(sync, each) for _, each in shown], "total": len(chosen)}


def _share_left(sync: Sync, record: CollectionRecord) -> float:
    done = record.status is CopyStatus.DONE
    total = _total(record.total, record.copied, done)
    if not total:
        return 0.0 if done else 1.0
    return 1 - record.copied / total


def _mismatches(sync: Sync, record: CollectionRecord) -> float:
    check = sync.snapshot.check
    return 0 if check is None else mismatches_of(check, record)


_SORTED_BY: dict[SortKey, Callable[[Sync, CollectionRecord], float]] = {
    SortKey.DOCUMENTS: lambda sync, record: max(record.total_documents, record.documents),
    SortKey.BYTES: lambda sync, record: max(record.total, record.copied),
    SortKey.LEFT: _share_left,
    SortKey.EVENTS: lambda sync, record: sync.figures_of(record).events,
    SortKey.MISMATCHES: _mismatches,
}


def _line(sync: Sync, record: CollectionRecord) -> dict[str, Any]:
    phase, figures = namespace_phase(sync, record), sync.figures_of(record)
    copying, done = phase is NamespacePhase.COPYING, record.status is CopyStatus.DONE
    return {
        "namespace": str(record.source_name),
        **renamed_to(sync, record),
        "phase": phase.value,
        "copiedDocuments": record.documents,
        "estimatedTotalDocuments": _total(record.total_documents, record.documents, done),
        "copiedBytes": record.copied,
        "estimatedTotalBytes": _total(record.total, record.copied, done),
        "documentsPerSecond": _rate(figures.documents_per_second(sync.now)) if copying else None,
        "bytesPerSecond": _rate(figures.bytes_per_second(sync.now)) if copying else None,
        "eventsApplied": figures.events,
        "indexesBuilt": indexes_built(sync, record),
        "totalIndexes": len(record.definition.indexes),
        "verification": _verification(sync.snapshot.check, record),
    }


def renamed_to(sync: Sync, record: CollectionRecord) -> dict[str, str]:
    """Return the field `destinationNamespace`; an empty dict if the collection has the same name on both clusters."""
    assert sync.record is not None
    there = sync.record.names.to_destination(record.source_name)
    return {} if there == record.source_name else {"destinationNamespace": str(there)}


def _total(estimate: int, copied: int, done: bool) -> int:
    """Return the total to show: `copied` if the copy is done, otherwise `estimate`, but at least `copied`."""
    return copied if done else max(estimate, copied)


def _rate(value: float | None) -> float | None:
    return None if value is None else round(value, 1)


def _verification(check: CheckProgress | None, record: CollectionRecord) -> dict[str, Any] | None:
    """Return the progress of the verification of a collection.

    Return None if no check has begun, or if the check does not know the collection.
    """
    compared = None if check is None else namespace_compared(check, record)
    if check is None or compared is None:
        return None
    total = compared.total_documents
    return {
        "comparedDocuments": compared.documents,
        "estimatedTotalDocuments": None if total is None else max(total, compared.documents),
        "mismatches": mismatches_of(check, record),
    }


def phases_of(sync: Sync) -> Iterator[NamespacePhase]:
    """Yield the phase of each collection."""
    return (namespace_phase(sync, each) for each in sync.collections)
