"""Reads what the report of a sync needs from the saved state.

A part that cannot be read raises no error: the report names it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import pymongo
from pymongo.errors import PyMongoError

from syncsvc.saved.repairs import listed
from syncsvc.saved.run import METADATA_DATABASE, VIEWS, RunRecord, load_runs
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check_progress import MismatchCounts
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.record import CheckRecord
from verifier.compare.store import CheckStore
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken

T = TypeVar("T")

# How many differences and repairs a report lists.
MOST_LISTED = 100
# The most views that are named.
MOST_VIEWS = 10_000
# How long each part may take to read, in seconds.
_PATIENCE = 5.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class Evidence:
    """The saved state beyond the run record of this instance.

    `check` is the newest check of the present direction; `counts` and `mismatches` are the differences that it knows,
    `mismatches` the first of them. `unread` are sentences about the parts that could not be read.
    """

    others: tuple[RunRecord, ...] = ()
    views: tuple[str, ...] = ()
    check: CheckRecord | None = None
    counts: MismatchCounts = MismatchCounts()
    mismatches: tuple[StoredMismatch, ...] = ()
    repaired: tuple[StoredMismatch, ...] = ()
    unread: tuple[str, ...] = ()


class _Checked(NamedTuple):
    """The fields of Evidence about the verification."""

    check: CheckRecord | None = None
    counts: MismatchCounts = MismatchCounts()
    mismatches: tuple[StoredMismatch, ...] = ()


_UNCHECKED = _Checked()


def gather(client: Client, writer: ClusterWriter, own: RunRecord, stop: StopToken) -> Evidence:
    """Return the saved state on the cluster of `client`, for the report of the run `own`."""
    unread: list[str] = []

    def part(name: str, read: Callable[[], T]) -> T | None:
        try:
            with (
                failures.named_errors(),
                impatient(_PATIENCE, in_total=_PATIENCE),
                pymongo.timeout(_PATIENCE),
            ):
                return read()
        except (OperationError, PyMongoError) as error:
            unread.append(f"{name} could not be read: {error}")
            return None

    store = CheckStore(client, writer, METADATA_DATABASE, stop, _PATIENCE)
    others = part("The records of the other instances", lambda: _others(client, own)) or ()
    views = part("The list of views", lambda: _views(client)) or ()
    check, counts, found = part("The verification", lambda: _checked(store)) or _UNCHECKED
    repaired = part("The list of repairs", lambda: _repaired(client)) or ()
    return Evidence(others, views, check, counts, found, repaired, tuple(unread))


def _others(client: Client, own: RunRecord) -> tuple[RunRecord, ...]:
    saved = load_runs(client, with_journals=True) if own.instances else []
    return tuple(
        each for each in saved if each.instance != own.instance and each.instance in own.instances
    )


def _views(client: Client) -> tuple[str, ...]:
    rows = client[METADATA_DATABASE][VIEWS].find({}, {"_id": 1}, sort={"_id": 1}, limit=MOST_VIEWS)
    return tuple(each["_id"] for each in rows)


def _checked(store: CheckStore) -> _Checked:
    """Return the saved check, and the differences that it knows. Read again if the check replaces them meanwhile."""
    for attempts_left in reversed(range(_ATTEMPTS)):
        check = store.load()
        if check is None:
            break
        try:
            counts = store.mismatch_counts()
            definitions = [*store.definition_mismatches(None, MOST_LISTED)]
            documents = store.document_mismatches(None, MOST_LISTED - len(definitions), 0)
            return _Checked(check, counts, (*definitions, *documents))
        except OperationError as error:
            if error.kind is not MISMATCHES_REPLACED or not attempts_left:
                raise
    return _UNCHECKED


def _repaired(client: Client) -> tuple[StoredMismatch, ...]:
    return tuple(listed(client, None, MOST_LISTED, _PATIENCE))
