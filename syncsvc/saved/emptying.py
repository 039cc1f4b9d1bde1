"""Deletes documents of the metadata, each with its own statement.

Only such statements accept a `txnNumber`, by which servers refuse late writes (see `syncsvc.saved.fence`).
"""

from __future__ import annotations

from typing import Any

from syncsvc.metadata import Metadata
from syncsvc.saved.batches import delete_ids, newest_rows
from syncsvc.saved.run import (
    PRINCIPALS,
    REPAIRS,
    VIEWS,
    collections_of,
    partitions_of,
)
from syncsvc.saved.spool import SPOOL
from verifier.cluster import rawbson
from verifier.cluster.writer import ClusterWriter
from verifier.compare.check_reader import CHECK
from verifier.runtime.tasks import StopToken


def delete_rows(
    metadata: Metadata, writer: ClusterWriter, name: str, query: dict[str, Any], stop: StopToken
) -> None:
    """Delete all documents that match `query` from the metadata collection `name`. Raises the driver's errors."""
    rows = newest_rows(metadata, writer, name, stop, filter=query, projection={"_id": 1})
    delete_ids(writer, metadata.name, name, (rawbson.decode(each)["_id"] for each in rows))


def forget_earlier(metadata: Metadata, writer: ClusterWriter, stop: StopToken) -> None:
    """Delete the saved state of an earlier run, so that a new run does not continue the earlier copy or check.

    This state is the registry, partitions, created views and principals, check, list of repairs, and event spool.
    Raises the driver's errors.
    """
    for reversals in range(2):
        for name in (collections_of(reversals), partitions_of(reversals)):
            delete_rows(metadata, writer, name, {}, stop)
    for name in (VIEWS, PRINCIPALS, CHECK, REPAIRS, SPOOL):
        delete_rows(metadata, writer, name, {}, stop)
