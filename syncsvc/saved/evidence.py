"""Reads the parts of the saved state that the report of a sync needs.

If a part cannot be read, no error is raised; the report names the missing part.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import pymongo
from pymongo.errors import PyMongoError

from syncsvc.metadata import Metadata
from syncsvc.saved.repairs import listed
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_documents import load_runs
from syncsvc.saved.views import VIEWS
from verifier.cluster import failures
from verifier.compare.check_progress import MismatchCounts
from verifier.compare.check_reader import CheckReader
from verifier.compare.errors import MISMATCHES_REPLACED
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.record import CheckRecord
from verifier.runtime.errors import OperationError
from verifier.runtime.retry import impatient
from verifier.runtime.tasks import StopToken

T = TypeVar("T")

# The maximum number of differences, and of repairs, that a report lists.
MOST_LISTED = 100
# The maximum number of views that a report names.
MOST_VIEWS = 10_000
# How long each part may take to read, in seconds.
_PATIENCE = 5.0
_ATTEMPTS = 3


@dataclass(frozen=True)
class Evidence:
    """The saved state that a report needs in addition to the run record of this instance.

    `others` are the run records of the other instances, and `views` the names of the synced views, at most
    `MOST_VIEWS`. `check` is the newest check of the current direction of the sync (None if no check is saved, or if it
    could not be read), `counts` contains the numbers of its differences, and `mismatches` the first of these
    differences. `repaired` contains the first differences that the sync has repaired or is repairing. `unread` contains
    a sentence about each part that could not be read; `is_check_read` is whether the check is not among them.
    """

    others: tuple[RunRecord, ...] = ()
    views: tuple[str, ...] = ()
    check: CheckRecord | None = None
    counts: MismatchCounts = MismatchCounts()
    mismatches: tuple[StoredMismatch, ...] = ()
    repaired: tuple[StoredMismatch, ...] = ()
    unread: tuple[str, ...] = ()
    is_check_read: bool = True


class _Checked(NamedTuple):
    """The fields of Evidence about the verification."""

    check: CheckRecord | None = None
    counts: MismatchCounts = MismatchCounts()
    mismatches: tuple[StoredMismatch, ...] = ()


_UNCHECKED = _Checked()


def gather(metadata: Metadata, own: RunRecord, stop: StopToken) -> Evidence:
    """Read the saved state in `metadata` that the report of a sync needs, and return it.

    `own` is the run record of this instance. If a part cannot be read, no error is raised; `Evidence.unread` names that
    part.
    """
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

    reader = CheckReader(metadata.client, metadata.name, stop, _PATIENCE)
    others = (
        part("The records of the other instances of the sync", lambda: _others(metadata, own)) or ()
    )
    views = part("The list of views", lambda: _views(metadata)) or ()
    checked = part("The results of the verification", lambda: _checked(reader))
    check, counts, found = checked or _UNCHECKED
    repaired = part("The list of repairs", lambda: _repaired(metadata)) or ()
    is_check_read = checked is not None
    return Evidence(others, views, check, counts, found, repaired, tuple(unread), is_check_read)


def _others(metadata: Metadata, own: RunRecord) -> tuple[RunRecord, ...]:
    saved = load_runs(metadata, with_journals=True) if own.instances else []
    return tuple(
        each for each in saved if each.instance != own.instance and each.instance in own.instances
    )


def _views(metadata: Metadata) -> tuple[str, ...]:
    rows = metadata[VIEWS].find({}, {"_id": 1}, sort={"_id": 1}, limit=MOST_VIEWS)
    return tuple(each["_id"] for each in rows)


def _checked(reader: CheckReader) -> _Checked:
    """Return the saved check with at most `MOST_LISTED` of its differences; an empty result if no check is saved.

    If the check replaces its list of differences during the read, read everything again. After several attempts, raise
    OperationError MismatchesReplaced. Also raises the other errors of CheckReader.
    """
    for attempts_left in reversed(range(_ATTEMPTS)):
        check = reader.load()
        if check is None:
            break
        try:
            counts = reader.mismatch_counts()
            definitions = [*reader.definition_mismatches(None, MOST_LISTED)]
            documents = reader.document_mismatches(None, MOST_LISTED - len(definitions), 0)
            return _Checked(check, counts, (*definitions, *documents))
        except OperationError as error:
            if error.kind is not MISMATCHES_REPLACED or not attempts_left:
                raise
    return _UNCHECKED


def _repaired(metadata: Metadata) -> tuple[StoredMismatch, ...]:
    return tuple(listed(metadata, None, MOST_LISTED, _PATIENCE))
