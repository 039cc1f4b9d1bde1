"""Looks up the current definitions and sizes of collections on the source, which change events do not contain."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymongo.errors import OperationFailure

from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CollectionRecord
from syncsvc.source.selected_size import selected_size
from verifier.cluster.document_filters import judging
from verifier.cluster.inventory import Size, extent, find_collection, find_named, find_time_series
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.renamed import CollectionGone
from verifier.cluster.specification import CollectionSpec
from verifier.runtime.tasks import StopToken


def find_on_source(
    context: RunContext, database: str, uuid: bytes, stop: StopToken
) -> CollectionSpec | None:
    """Return the source's collection with this UUID, under its current name; None if `database` does not have it."""
    return read(lambda: find_collection(context.source_client, database, uuid), stop)


def has_name_on_source(context: RunContext, uuid: bytes, name: Namespace, stop: StopToken) -> bool:
    """Return whether the source's collection with this UUID has this name now."""
    found = find_on_source(context, name.database, uuid, stop)
    return found is not None and found.namespace == name


def find_named_on_source(
    context: RunContext, namespace: Namespace, stop: StopToken
) -> CollectionSpec | None:
    """Return the collection or view that has this name on the source now; None if there is none."""
    return read(lambda: find_named(context.source_client, namespace), stop)


def time_series_on_source(
    context: RunContext, namespace: Namespace, stop: StopToken
) -> bytes | None:
    """Return the UUID of the buckets of the source's time-series collection with this name; None if there is none."""
    return read(lambda: find_time_series(context.source_client, namespace), stop)


def size_on_source(context: RunContext, definition: CollectionSpec, stop: StopToken) -> Size:
    """Return the estimated size of the documents to copy from a collection of the source with this `definition`.

    With a document filter, only the selected documents count. Raises OperationError DocumentFilterFailed, and the
    driver's errors.
    """
    client, filters = context.source_client, context.document_filters
    whole = read(lambda: extent(client, definition.storage), stop)
    with judging(filters, definition.namespace):
        query = filters.of(definition.namespace)
        return selected_size(client, definition.storage, query, whole, stop)


@contextmanager
def reading_by_name(
    context: RunContext, record: CollectionRecord, stop: StopToken
) -> Iterator[None]:
    """Turn a read error in the `with` block into CollectionGone if the collection no longer has its recorded name.

    This is for sources that accept only names, not UUIDs: there, reads fail if the name now belongs to a view or to
    another kind of collection. The caller can ignore the collection, because a change event of its rename or drop
    follows. If the source accepts UUIDs, or the collection still has its name, the read error is raised unchanged.
    """
    try:
        yield
    except OperationFailure as error:
        if context.source_uuid(record) is not None:
            raise
        if has_name_on_source(context, record.uuid, record.source_name, stop):
            raise
        raise CollectionGone from error
