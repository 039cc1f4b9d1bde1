"""Asks the source what a collection is now, where its events do not tell."""

from __future__ import annotations

from syncsvc.engine.parts import Parts
from verifier.cluster import failures
from verifier.cluster.inventory import find_collection
from verifier.cluster.specification import CollectionSpec
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken


def find_on_source(
    parts: Parts, database: str, uuid: bytes, stop: StopToken
) -> CollectionSpec | None:
    """The collection with that UUID, under the name that it has by now; None when it is gone."""
    return retry(lambda: find_collection(parts.source, database, uuid), failures.is_transient, stop)
