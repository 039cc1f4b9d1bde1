"""Selects documents that a server may delete by itself at any moment, because they have expired (TTL).

The functions here have no side effects. Each cluster deletes expired documents on its own, about once a minute. So an
expired document that only one cluster has is not a mismatch. The clock of the source decides whether a document has
expired. If the destination's clock decided and were ahead, a lost document would count as expired although it still
exists on the source.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from bson.objectid import ObjectId

from verifier.cluster.specification import CollectionSpec, Document, Kind

_SECONDS = "expireAfterSeconds"
# How far the clocks may differ before a note says so. Reading them takes time, too.
_MOST_APART = timedelta(seconds=5)


def expires(definitions: Iterable[CollectionSpec | None]) -> bool:
    """Return whether documents can expire in a collection with any of these definitions."""
    return any(
        _SECONDS in each
        for definition in definitions
        if definition is not None
        for each in (definition.options, *definition.indexes.values())
    )


def expired(definitions: Iterable[CollectionSpec | None], now: datetime) -> list[Document]:
    """Return queries for the documents that have expired at `now` (UTC) in a collection with any of these definitions.

    A server may already have deleted these documents.
    """
    return [query for each in definitions if each is not None for query in _deletions(each, now)]


def note_on_clocks(source: datetime, destination: datetime) -> str | None:
    """Return a note for the result of a check if the clusters' clocks differ by more than five seconds, else None.

    A document that has expired only by the destination's clock may be reported as a mismatch.
    """
    if abs(destination - source) <= _MOST_APART:
        return None
    direction = "ahead of" if destination > source else "behind"
    return (
        f"The clock of the destination is more than {_MOST_APART.seconds} seconds {direction} that of the source. "
        "The check used the source's clock to decide which documents have expired. A document that expired only by "
        "the destination's clock, and was deleted on the destination, is reported as missing. Synchronize the clocks "
        "(NTP)."
    )


def _deletions(definition: CollectionSpec, now: datetime) -> Iterator[Document]:
    options = definition.options
    if _SECONDS in options and definition.kind is Kind.TIME_SERIES:
        # A bucket is deleted when the last measurement that it may hold has expired.
        lived = options[_SECONDS] + options["timeseries"]["bucketMaxSpanSeconds"]
        newest = now - timedelta(seconds=lived)
        if newest > datetime(1970, 1, 1):
            yield {"_id": {"$lte": ObjectId.from_datetime(newest)}}
    elif _SECONDS in options:
        yield {"_id": {"$lte": now - timedelta(seconds=options[_SECONDS])}}
    for index in definition.indexes.values():
        seconds = index.get(_SECONDS, math.nan)
        if not math.isnan(seconds):
            field, *_ = index["key"]
            dates = {field: {"$lte": now - timedelta(seconds=int(seconds))}}
            yield {"$and": [dates, index.get("partialFilterExpression", {})]}
