"""Reads the mismatches that the verification of a sync has saved in the metadata database.

Only the saved data is read, never the memory of a running check. So the mismatches can be read while the check runs,
after it has ended, and after a restart. Every read has a short timeout, because few threads answer requests.
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterator
from contextlib import contextmanager
from typing import NamedTuple

from syncsvc import errors
from syncsvc.metadata import Metadata
from syncsvc.rules.repairing import Action, action_of
from syncsvc.saved.repairs import listed
from verifier.cluster import failures
from verifier.cluster.namespace import Namespace
from verifier.compare.check_progress import MismatchCounts
from verifier.compare.check_reader import CheckReader
from verifier.compare.mismatch import Mismatch, StoredMismatch
from verifier.compare.rows import is_of_definition, read_page_token
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import StopToken

# How long one read may take, in seconds.
_PATIENCE = 10.0

# The maximum number of differences that a `RepairPlan` lists.
MOST_PLANNED = 1_000


class RepairPlan(NamedTuple):
    """The result of a dry run of a repair: the numbers of differences in documents and definitions, and its steps.

    `steps` contains the first differences, at most `MOST_PLANNED`, each with the action that a repair would take; some
    actions repair nothing (see `Action.repairs`).
    """

    documents: int
    definitions: int
    steps: tuple[tuple[Mismatch, Action], ...]


def mismatches(
    metadata: Metadata,
    after: str | None,
    limit: int | None,
    least_seconds: float,
    stop: StopToken,
    namespaces: Collection[str] = (),
) -> Iterator[StoredMismatch]:
    """Yield the saved mismatches: first those in definitions and in numbers of documents, then those of documents.

    They are the mismatches of the newest finished generation or, until generation 0 is finished, its mismatches so far.
    Yield nothing if no check is saved. `after` is the page token of the last mismatch already read; None to begin with
    the first. `limit` is the maximum number of mismatches; None for all. Documents are included if they have differed
    for at least `least_seconds` without being changed. With `namespaces`, only mismatches of these namespaces of the
    source are included. Raises OperationError InvalidRequest if `after` is invalid, IncompatibleMetadata,
    MismatchesReplaced, and the kinds of `failures.CLUSTER_ERRORS`.
    """
    among_documents = _is_among_documents(after)
    reader = CheckReader(metadata.client, metadata.name, stop, _PATIENCE)
    with _named_errors():
        if reader.load() is None:
            return
        count = 0
        if not among_documents:
            for count, each in enumerate(reader.definition_mismatches(after, limit, namespaces), 1):
                yield each
            after = None
        left = None if limit is None else limit - count
        yield from reader.document_mismatches(after, left, least_seconds, namespaces)


def repaired(metadata: Metadata, after: str | None, limit: int | None) -> Iterator[StoredMismatch]:
    """Yield the differences that the sync has repaired or is repairing now, in the order of their saved `_id`s.

    `after` is the page token of the last difference already read; None to begin with the first. `limit` is the maximum
    number; None for all. Raises OperationError InvalidRequest if `after` is invalid, and the kinds of
    `failures.CLUSTER_ERRORS`.
    """
    _is_among_documents(after)
    with _named_errors():
        yield from listed(metadata, after, limit, _PATIENCE)


def repair_plan(metadata: Metadata, replaced: Container[Namespace], stop: StopToken) -> RepairPlan:
    """Return the plan of a repair: the first differences with their actions, and the numbers of all differences.

    `replaced` are the collections that users have dropped on the destination and created again, under the names that
    mismatches use (see `mismatch_names`). Raises OperationError IncompatibleMetadata, MismatchesReplaced, and the kinds
    of `failures.CLUSTER_ERRORS`.
    """
    found = mismatches(metadata, None, MOST_PLANNED, 0, stop)
    steps = tuple((each.mismatch, action_of(each.mismatch, replaced)) for each in found)
    reader = CheckReader(metadata.client, metadata.name, stop, _PATIENCE)
    with _named_errors():
        counts = MismatchCounts() if reader.load() is None else reader.mismatch_counts()
    return RepairPlan(sum(counts.documents.values()), counts.definitions, steps)


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        with failures.named_errors():
            yield
    except OperationError as error:
        raise errors.of_sync(error) from error


def _is_among_documents(after: str | None) -> bool:
    """Return whether a page token stands for a document mismatch; False for None.

    Raises OperationError InvalidRequest if the token is invalid.
    """
    if after is None:
        return False
    try:
        return not is_of_definition(read_page_token(after))
    except ValueError as error:
        raise OperationError(INVALID_REQUEST, f"after: {error}.") from error
