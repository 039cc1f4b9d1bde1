"""Splits documents into batches that fit into one command each; saves, reads and deletes rows of the metadata."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import bson
from bson.timestamp import Timestamp

from syncsvc.metadata import Metadata
from verifier.cluster import rawbson
from verifier.cluster.newest import newest_time, read_after
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.runtime.tasks import StopToken

# The limits of one command: the number of documents, and their total size in bytes.
MOST_SAVED = 1000
MOST_BYTES = 4 << 20


def batches(documents: Iterable[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the documents in lists, each for one command.

    A list contains at most 1000 documents with a total size of about 4 MB, unless a single document is larger.
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


def save_rows(
    writer: ClusterWriter, database: str, name: str, statements: Iterable[dict[str, Any]]
) -> Timestamp | None:
    """Run these update statements on the collection `name` of the metadata database.

    Return a cluster time that is not before any of these updates; None if `statements` is empty. Raises RuntimeError if
    the server refuses an update, and the driver's errors.
    """
    time: Timestamp | None = None
    for batch in batches(statements):
        reply, time = writer.run_timed(database, {"update": name, "updates": batch})
        if reply.get("writeErrors"):
            raise RuntimeError(
                f"the server refused to save metadata of the sync: {reply['writeErrors'][:3]}"
            )
    return time


def newest_rows(
    metadata: Metadata, writer: ClusterWriter, name: str, stop: StopToken, **find: Any
) -> list[bytes]:
    """Return the rows of the metadata collection `name` as BSON, including all writes acknowledged before this call.

    `find` contains further fields of the find command, such as `filter`. Raises the driver's errors.
    """

    def rows() -> list[bytes]:
        time = newest_time(lambda command: writer.run(metadata.name, command), name)
        return read_after(time, metadata.client, metadata.name, name, **find)

    return read(rows, stop)


def delete_ids(writer: ClusterWriter, database: str, name: str, ids: Iterable[Any]) -> None:
    """Delete the documents with these `_id`s from the collection `name` of the metadata database.

    Raises RuntimeError if the server refuses a deletion, and the driver's errors.
    """
    # Each statement deletes one document, because a delete statement for several documents accepts no `txnNumber`, by
    # which servers refuse late writes.
    for batch in batches({"q": {"_id": each}, "limit": 1} for each in ids):
        reply = writer.run(database, {"delete": name, "deletes": batch})
        if reply.get("writeErrors"):
            raise RuntimeError(
                f"the server refused to delete metadata of the sync: {reply['writeErrors'][:3]}"
            )


def delete_rows(
    metadata: Metadata, writer: ClusterWriter, name: str, query: dict[str, Any], stop: StopToken
) -> None:
    """Delete all documents that match `query` from the metadata collection `name`. Raises the driver's errors."""
    rows = newest_rows(metadata, writer, name, stop, filter=query, projection={"_id": 1})
    delete_ids(writer, metadata.name, name, (rawbson.decode(each)["_id"] for each in rows))
