"""Documents in commands of a size that servers take."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import bson

# How many documents are saved by one command, and of what size together, in bytes.
MOST_SAVED = 1000
MOST_BYTES = 4 << 20


def batches(documents: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The documents, each command's in a list; a validator, view or key can be large."""
    batch: list[dict[str, Any]] = []
    size = 0
    for document in documents:
        length = len(bson.encode(document))
        if batch and (len(batch) == MOST_SAVED or size + length > MOST_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(document)
        size += length
    if batch:
        yield batch
