"""What is told of the verification within a sync. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum

from syncsvc.saved.registry import CollectionRecord
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import Amounts, CheckProgress, NamespaceProgress, Phase


class Hashing(Enum):
    """How far it is, in the words of mongosync: all documents once, then those that change."""

    NOT_STARTED = "not started"
    INITIAL = "initial hashing"
    STREAM = "stream hashing"


def hashing(check: CheckProgress | None) -> Hashing:
    if check is None or check.started is None:
        return Hashing.NOT_STARTED
    return Hashing.INITIAL if check.phase is Phase.CHECK else Hashing.STREAM


def first_amounts(check: CheckProgress | None) -> Amounts:
    """How much of the first pass over all documents is done."""
    return Amounts() if check is None else check.first or check.amounts


def documents_expected(check: CheckProgress | None) -> int | None:
    """How many documents there are by estimate, raised to what was compared where that is more already."""
    amounts = first_amounts(check)
    total = amounts.total_documents
    return None if total is None else max(total, amounts.documents)


def collections_scanned(check: CheckProgress | None) -> int:
    """Of how many collections every document was compared once."""
    if check is None:
        return 0
    if check.first is not None:
        return check.first.namespaces
    return sum(each.tasks_done >= each.tasks for each in check.namespaces.values())


def namespace_compared(check: CheckProgress, record: CollectionRecord) -> NamespaceProgress | None:
    """The first pass over one collection; None where nothing is known of it."""
    found = (check.namespaces.get(name) for name in _names(record))
    return next((each for each in found if each is not None), None)


def mismatches_of(check: CheckProgress, record: CollectionRecord) -> int:
    """How many of its documents differ."""
    return sum(check.mismatches.namespaces.get(name, 0) for name in {*_names(record)})


def _names(record: CollectionRecord) -> Iterator[Namespace]:
    """What a check may call it: a time-series collection is compared by its buckets."""
    yield record.source_storage
    yield record.source_name
