"""Splits documents into batches that fit into one command each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import bson

# The limits of one command: the number of documents, and their total size in bytes.
MOST_SAVED = 1000
MOST_BYTES = 4 << 20


def batches(documents: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the documents in lists, each for one command.

    A list contains at most 1000 documents with a total size of at most 4 MiB, unless a single document is larger.
    """
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
