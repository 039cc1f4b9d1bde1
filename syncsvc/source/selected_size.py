"""Estimates the size of the part of a collection that a document filter selects."""

from __future__ import annotations

from bson.raw_bson import RawBSONDocument
from pymongo.errors import OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.inventory import Size
from verifier.cluster.namespace import Namespace
from verifier.cluster.rawbson import RAW_LENIENT
from verifier.cluster.reading import read
from verifier.cluster.sampling import MOST_READ, largest_sample
from verifier.cluster.specification import Document
from verifier.runtime.tasks import StopToken

_SAMPLE = 1_000


def selected_size(
    client: Client,
    namespace: Namespace,
    query: RawBSONDocument | None,
    whole: Size,
    stop: StopToken,
) -> Size:
    """Return the estimated size of the documents that `query` selects; `whole` if `query` is None.

    `whole` is the size of the whole collection. The estimate assumes that the selected documents have the average size.
    Temporary errors are retried. Raises the driver's other errors.
    """
    if query is None or not whole.documents:
        return whole
    part = read(lambda: _selected_part(client, namespace, query, whole), stop)
    return Size(
        int(whole.documents * part),
        int(whole.bytes * part),
        int(whole.on_disk * part),
        {name: int(size * part) for name, size in whole.indexes.items()},
        whole.shards,
    )


def _selected_part(
    client: Client, namespace: Namespace, query: RawBSONDocument, whole: Size
) -> float:
    """Return the estimated fraction of the documents that the query selects, from 0 to 1.

    Return 1 if the server cannot draw a sample.
    """
    drawn, stages = whole.documents, list[Document]()
    if whole.bytes > MOST_READ:
        drawn = min(_SAMPLE, largest_sample(whole.documents, whole.shards))
        stages = [{"$sample": {"size": drawn}}]
    pipeline = [*stages, {"$match": query}, {"$count": "n"}]
    command = {"aggregate": namespace.collection, "pipeline": pipeline, "cursor": {}}
    try:
        # The server quotes values of documents in its errors, and these need not be valid text.
        reply = client[namespace.database].command(command, codec_options=RAW_LENIENT)
    except OperationFailure as error:
        if error.code != failures.NO_MORE_SAMPLES:
            raise
        return 1.0
    rows = reply["cursor"]["firstBatch"]
    # The number of documents comes from statistics, and may be too low.
    return min(1.0, rows[0]["n"] / drawn) if rows else 0.0
