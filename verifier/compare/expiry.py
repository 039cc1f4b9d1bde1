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

from bson.decimal128 import Decimal128
from bson.objectid import ObjectId

from verifier.cluster.specification import CollectionSpec, Document, Kind

_SECONDS = "expireAfterSeconds"
# The time that a bucket of measurements spans, in seconds, by the granularity of its collection.
_SPANS = {"seconds": 3_600, "minutes": 86_400, "hours": 2_592_000}
# How far the clocks may differ before a note says so. Reading them takes time, too.
_MOST_APART = timedelta(seconds=5)


def expires(definitions: Iterable[CollectionSpec | None]) -> bool:
    """Return whether documents can expire in a collection with any of these definitions."""
    return any(
        _SECONDS in definition.options or any(_ttl_indexes(definition))
        for definition in definitions
        if definition is not None
    )


def expired(definitions: Iterable[CollectionSpec | None], now: datetime) -> list[Document]:
    """Return queries for the documents that have expired at `now` (UTC) in a collection with any of these definitions.

    A server may already have deleted these documents.
    """
    return [query for each in definitions if each is not None for query in _deletions(each, now)]


def note_on_clocks(source: datetime, destination: datetime) -> str | None:
    """Return a note for the result of a check if the clusters' clocks differ by more than five seconds, else None.

    If the destination's clock is ahead, a document that has expired only by this clock may be reported as a mismatch.
    """
    if abs(destination - source) <= _MOST_APART:
        return None
    if destination > source:
        direction = "ahead of"
        effect = (
            ": a document that the destination itself has deleted as expired may be reported as missing (before its "
            "commit, a sync prevents such deletions)"
        )
    else:
        direction, effect = "behind", ", so this does not affect the result"
    return (
        f"The clock of the destination is more than {_MOST_APART.seconds} seconds {direction} the clock of the source. "
        f"The check used the source's clock to decide which documents have expired{effect}. Synchronize the clocks "
        "(NTP)."
    )


def _deletions(definition: CollectionSpec, now: datetime) -> Iterator[Document]:
    options = definition.options
    in_buckets = definition.kind is Kind.TIME_SERIES
    # A bucket is deleted when the last measurement that it may hold has expired.
    span = _span(options["timeseries"]) if in_buckets else 0
    if _SECONDS in options:
        newest = now - timedelta(seconds=options[_SECONDS] + span)
        if not in_buckets:
            yield {"_id": {"$lte": newest}}
        elif newest > datetime(1970, 1, 1):
            yield {"_id": {"$lte": ObjectId.from_datetime(newest)}}
    for index in _ttl_indexes(definition):
        seconds = index[_SECONDS]
        if isinstance(seconds, Decimal128):
            seconds = seconds.to_decimal()
        if not math.isnan(seconds):
            (field,) = index["key"]
            dates = {field: {"$lte": now - timedelta(seconds=int(seconds) + span)}}
            yield {"$and": [dates, index.get("partialFilterExpression", {})]}


def _span(time_series: Document) -> int:
    """Return the maximum time between two measurements in a bucket, in seconds.

    `time_series` is the option `timeseries` of the collection. If it does not contain this time, as after a change of
    the granularity, the granularity determines the time.
    """
    span = time_series.get("bucketMaxSpanSeconds")
    return int(_SPANS[time_series.get("granularity", "seconds")] if span is None else span)


def _ttl_indexes(definition: CollectionSpec) -> Iterator[Document]:
    """Yield the indexes by which a server deletes documents.

    The server ignores `expireAfterSeconds` on a compound index and on a special index, such as a hashed index, whose
    key has a string in place of the direction.
    """
    for index in definition.indexes.values():
        first, *others = index["key"].values()
        if _SECONDS in index and not others and not isinstance(first, str):
            yield index
