"""Which documents a server may delete by itself at any moment, because they have expired. Pure.

Each cluster deletes them on its own, about once a minute: one that is left on one side only is no mismatch.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from datetime import datetime
from typing import Any

from bson.datetime_ms import DatetimeMS

from verifier.cluster import rawbson
from verifier.cluster.specification import CollectionSpec, Document


def expires(definitions: Iterable[CollectionSpec | None]) -> bool:
    """Whether documents of such a collection expire at all."""
    return any(
        "expireAfterSeconds" in each
        for definition in definitions
        if definition is not None
        for each in (definition.options, *definition.indexes.values())
    )


def is_expired(
    document: bytes, definitions: Iterable[CollectionSpec | None], now: datetime
) -> bool:
    """Whether one of the collections' servers may have deleted it by now."""
    decoded = rawbson.decode(document)
    return any(
        _milliseconds(now) >= date + 1000 * seconds
        for definition in definitions
        if definition is not None
        for field, seconds in _rules(definition)
        for date in _earliest(decoded, field)
    )


def _rules(definition: CollectionSpec) -> Iterator[tuple[str, int]]:
    """The field that has the date, and how long a document lives after that, in seconds."""
    if "clusteredIndex" in definition.options and "expireAfterSeconds" in definition.options:
        yield "_id", int(definition.options["expireAfterSeconds"])
    for index in definition.indexes.values():
        # Which documents a filter is about, only a server can tell; without that, nothing is excused.
        seconds = index.get("expireAfterSeconds", math.nan)
        if not math.isnan(seconds) and "partialFilterExpression" not in index:
            yield next(iter(index["key"])), int(seconds)


def _earliest(document: Document, field: str) -> list[int]:
    """The earliest date in the field, in milliseconds since 1970, if there is one."""
    dates = list(_dates(document, field.split(".")))
    return [min(dates)] if dates else []


def _dates(value: Any, path: list[str]) -> Iterator[int]:
    if isinstance(value, list):
        for each in value:
            yield from _dates(each, path)
    elif path:
        if isinstance(value, dict) and path[0] in value:
            yield from _dates(value[path[0]], path[1:])
    elif isinstance(value, datetime | DatetimeMS):
        yield _milliseconds(value)


def _milliseconds(date: datetime | DatetimeMS) -> int:
    # The driver's dates have no time zone, and are meant as UTC.
    return int(date if isinstance(date, DatetimeMS) else DatetimeMS(date))
