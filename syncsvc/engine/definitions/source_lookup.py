"""Looks up the present definitions of collections on the source, for change events that do not contain them."""

from __future__ import annotations

from syncsvc.engine.run.context import RunContext
from verifier.cluster.inventory import find_collection, find_named, find_time_series
from verifier.cluster.namespace import Namespace
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec
from verifier.runtime.tasks import StopToken


def find_on_source(
    context: RunContext, database: str, uuid: bytes, stop: StopToken
) -> CollectionSpec | None:
    """Return the source's collection with this UUID, under its present name; None if it was dropped."""
    return read(lambda: find_collection(context.source_client, database, uuid), stop)


def find_named_on_source(
    context: RunContext, namespace: Namespace, stop: StopToken
) -> CollectionSpec | None:
    """Return the collection or view that has that name on the source now; None if there is none."""
    return read(lambda: find_named(context.source_client, namespace), stop)


def time_series_on_source(
    context: RunContext, namespace: Namespace, stop: StopToken
) -> bytes | None:
    """Return the UUID of the buckets of the source's time-series collection with that name; None if there is none."""
    return read(lambda: find_time_series(context.source_client, namespace), stop)
