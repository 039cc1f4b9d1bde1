"""Which documents a server may delete by itself at any moment, because they have expired. Pure.

Each cluster deletes them on its own, about once a minute: one that is left on one side only is no mismatch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from bson.objectid import ObjectId

from verifier.cluster.specification import CollectionSpec, Document, Kind

_SECONDS = "expireAfterSeconds"


def expires(definitions: Iterable[CollectionSpec | None]) -> bool:
    """Whether documents of such a collection expire at all."""
    return any(
        _SECONDS in each
        for definition in definitions
        if definition is not None
        for each in (definition.options, *definition.indexes.values())
    )


def expired(definitions: Iterable[CollectionSpec | None], now: datetime) -> list[Document]:
    """The queries with which one of the collections' servers may have found what it deleted by now, in UTC."""
    return [query for each in definitions if each is not None for query in _deletions(each, now)]


def _deletions(definition: CollectionSpec, now: datetime) -> Iterator[Document]:
    options = definition.options
    if _SECONDS in options and definition.kind is Kind.TIME_SERIES:
        # A bucket goes when the last measurement that it may hold has expired.
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
