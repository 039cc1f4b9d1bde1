"""Reads the mismatches that the verification of a sync has saved in the metadata database.

Only the saved data is read, never the memory of a running check. So the mismatches can be read while the check runs,
after it has ended, and after a restart. Every read has a short timeout, because few threads answer requests.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncsvc import errors
from syncsvc.saved.run import METADATA_DATABASE
from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.writer import ClusterWriter
from verifier.compare.mismatch import StoredMismatch
from verifier.compare.rows import is_of_definition, read_page_token
from verifier.compare.store import CheckStore
from verifier.runtime.errors import OperationError
from verifier.runtime.schemas import INVALID_REQUEST
from verifier.runtime.tasks import StopToken

# How long one read may take, in seconds.
_PATIENCE = 10.0


def mismatches(
    client: Client,
    writer: ClusterWriter,
    after: str | None,
    limit: int | None,
    least_seconds: float,
    stop: StopToken,
) -> Iterator[StoredMismatch]:
    """Yield the mismatches of collections, views and indexes, then of documents; none without a saved check.

    `after` is the page token of the last mismatch already read; None to begin with the first. `limit` is the maximum
    number of mismatches; None for all. Documents are included if they have differed for `least_seconds` without being
    changed. Raises OperationError InvalidRequest, ClusterUnreachable, NotAuthorized, IncompatibleMetadata,
    MismatchesReplaced.
    """
    among_documents = _is_among_documents(after)
    store = CheckStore(client, writer, METADATA_DATABASE, stop, _PATIENCE)
    with _named_errors():
        if store.load() is None:
            return
        count = 0
        if not among_documents:
            for count, each in enumerate(store.definition_mismatches(after, limit), 1):
                yield each
            after = None
        left = None if limit is None else limit - count
        yield from store.document_mismatches(after, left, least_seconds)


@contextmanager
def _named_errors() -> Iterator[None]:
    try:
        with failures.named_errors():
            yield
    except OperationError as error:
        raise errors.of_sync(error) from error


def _is_among_documents(after: str | None) -> bool:
    """Return whether a page token is that of a document mismatch; False for None.

    Raises OperationError InvalidRequest.
    """
    if after is None:
        return False
    try:
        return not is_of_definition(read_page_token(after))
    except ValueError as error:
        raise OperationError(INVALID_REQUEST, f"after: {error}.") from error
