"""Deletes many documents of the metadata, each by its own statement: a multi-document delete accepts no `txnNumber`."""

from __future__ import annotations

from typing import Any

from syncsvc.saved.batches import delete_ids
from syncsvc.saved.run import (
    METADATA_DATABASE,
    PRINCIPALS,
    REPAIRS,
    VIEWS,
    collections_of,
    partitions_of,
)
from syncsvc.saved.spool import SPOOL
from verifier.cluster import rawbson
from verifier.cluster.connect import Client
from verifier.cluster.newest import newest_time, read_after
from verifier.cluster.reading import read
from verifier.cluster.writer import ClusterWriter
from verifier.compare.store import CHECK
from verifier.runtime.tasks import StopToken


def delete_rows(
    client: Client, writer: ClusterWriter, name: str, query: dict[str, Any], stop: StopToken
) -> None:
    """Delete the documents of the metadata collection `name` that match the query now. Raises the driver's errors."""
    time = newest_time(lambda command: writer.run(METADATA_DATABASE, command), name)
    find = {"filter": query, "projection": {"_id": 1}}
    rows = read(lambda: read_after(time, client, METADATA_DATABASE, name, **find), stop)
    delete_ids(writer, name, (rawbson.decode(each)["_id"] for each in rows))


def forget_earlier(client: Client, writer: ClusterWriter, stop: StopToken) -> None:
    """Delete the saved state of an earlier run.

    It consists of its registry, partitions, created views and principals, check, list of repairs, and event spool.

    Otherwise, the new run would skip collections that the earlier run had copied, and continue its check.
    """
    for reversals in range(2):
        for name in (collections_of(reversals), partitions_of(reversals)):
            delete_rows(client, writer, name, {}, stop)
    for name in (VIEWS, PRINCIPALS, CHECK, REPAIRS, SPOOL):
        delete_rows(client, writer, name, {}, stop)
