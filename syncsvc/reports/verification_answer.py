"""Computes the figures of the verification that the answers of the API show."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import Amounts, CheckProgress, NamespaceProgress, Phase


class Hashing(Enum):
    """The stages of the verification, in mongosync's words: first all documents are compared, then the changed ones."""

    NOT_STARTED = "not started"
    INITIAL = "initial hashing"
    STREAM = "stream hashing"


def hashing(check: CheckProgress | None) -> Hashing:
    if check is None or check.started is None:
        return Hashing.NOT_STARTED
    # Without changes, the first pass can be complete long before the next generation begins.
    is_first = check.phase is Phase.CHECK and check.first is None
    return Hashing.INITIAL if is_first else Hashing.STREAM


def first_amounts(check: CheckProgress | None) -> Amounts:
    """Return the progress of the first pass over all documents; zeros before the check begins (`check` is None)."""
    return Amounts() if check is None else check.first or check.amounts


def documents_expected(check: CheckProgress | None) -> int | None:
    """Return the estimated number of documents in the first pass; None if unknown.

    The result is never less than the number of documents already compared.
    """
    amounts = first_amounts(check)
    total = amounts.total_documents
    return None if total is None else max(total, amounts.documents)


def collections_scanned(check: CheckProgress | None) -> int:
    """Return the number of collections that were compared completely in the first pass."""
    if check is None:
        return 0
    if check.first is not None:
        return check.first.namespaces
    return sum(each.tasks_done >= each.tasks for each in check.namespaces.values())


def namespace_compared(check: CheckProgress, record: CollectionRecord) -> NamespaceProgress | None:
    """Return the progress of the first pass over one collection; None if the check does not know the collection."""
    found = (check.namespaces.get(name) for name in _names(record))
    return next((each for each in found if each is not None), None)


def mismatches_of(check: CheckProgress, record: CollectionRecord) -> int:
    """Return the number of documents of the collection that differ between the clusters, as far as the check knows."""
    return sum(check.mismatches.namespaces.get(name, 0) for name in {*_names(record)})


def _names(record: CollectionRecord) -> Iterator[Namespace]:
    """Yield the names that a check may use for a collection: that of its time-series buckets, if any, then its own."""
    yield record.source_storage
    yield record.source_name
