"""Splits documents into batches that fit into one command each, and saves rows of the metadata in batches."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import bson

from syncsvc.saved.run import METADATA_DATABASE
from verifier.cluster.writer import ClusterWriter

# The limits of one command: the number of documents, and their total size in bytes.
MOST_SAVED = 1000
MOST_BYTES = 4 << 20


def batches(documents: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the documents in lists, each for one command.

    The number of documents in a list and their total size are limited, because a validator, view or key can be large.
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


def save_rows(writer: ClusterWriter, name: str, statements: Iterable[dict[str, Any]]) -> None:
    """Run these update statements on the metadata collection `name`.

    Raises RuntimeError if the server refuses one, and the driver's errors.
    """
    for batch in batches(statements):
        reply = writer.run(METADATA_DATABASE, {"update": name, "updates": batch})
        if reply.get("writeErrors"):
            raise RuntimeError(f"the metadata cannot be saved: {reply['writeErrors'][:3]}")
