"""Formats mismatches as lines of Extended JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from bson.errors import BSONError

from verifier.cluster import extended, failures, rawbson, values
from verifier.cluster.keys import id_element, shown
from verifier.compare.mismatch import DefinitionMismatch, StoredMismatch


def json_lines(found: Iterable[StoredMismatch]) -> Iterator[str]:
    """Yield each mismatch as a line of Extended JSON, as soon as it is read.

    Errors of the driver that have a name (`failures.named_kind`) are raised as OperationError.
    """
    with failures.named_errors():
        for each in found:
            yield extended.written(line(each))


def line(stored: StoredMismatch) -> dict[str, Any]:
    """Return the fields of a mismatch as in the API. The `_id` of a document is not yet converted to Extended JSON."""
    mismatch = stored.mismatch
    common = {"type": mismatch.difference.value, "namespace": str(mismatch.namespace)}
    if mismatch.destination is not None:
        common["destinationNamespace"] = str(mismatch.destination)
    seen = {
        "generation": stored.generation,
        "durationSecs": round(stored.last_seen - stored.first_seen, 3),
        "place": stored.page_token,
    }
    if isinstance(mismatch, DefinitionMismatch):
        return {
            **common,
            "aspect": mismatch.aspect.value,
            "component": mismatch.component,
            "detail": mismatch.detail,
            **seen,
        }
    return {
        **common,
        "_id": _id(mismatch.key),
        # Relaxed Extended JSON does not distinguish an int from a long.
        "idType": values.type_name(id_element(mismatch.key).kind),
        "fields": [{"path": each.path, "detail": each.detail} for each in mismatch.fields],
        **seen,
    }


def _id(key: bytes) -> Any:
    """Return the `_id` in a document key; if it cannot be decoded, return its type and its bytes as text."""
    try:
        return rawbson.decode(key)["_id"]
    except BSONError:
        return shown(key)
