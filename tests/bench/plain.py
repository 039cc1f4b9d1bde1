"""The simplest copy, verification and application of change events with pymongo: the lower limit for the benchmarks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from itertools import islice, zip_longest
from typing import Any

from bson.codec_options import CodecOptions
from bson.raw_bson import RawBSONDocument
from bson.timestamp import Timestamp
from pymongo import DeleteOne, MongoClient, ReplaceOne, UpdateOne

from syncsvc.sandbox.replica_set import Client
from tests.bench.backlog import MARKER_IDS, Write
from tests.bench.data import DATABASE

_BATCH = 1000
_RAW = CodecOptions(document_class=RawBSONDocument)


def copy(source: str, destination: str) -> None:
    """Copy all collections with `find` and `insert_many`."""
    with _connect(source) as reading, _connect(destination) as writing:
        for name in reading[DATABASE].list_collection_names():
            documents = reading[DATABASE][name].find()
            while batch := list(islice(documents, _BATCH)):
                writing[DATABASE][name].insert_many(batch, ordered=False)


def verify(source: str, destination: str) -> None:
    """Compare the documents of the source's collections in the order of `_id`. Raises RuntimeError at a difference."""
    with _connect(source) as reading, _connect(destination) as other:
        for name in reading[DATABASE].list_collection_names():
            both = [
                client[DATABASE].get_collection(name, codec_options=_RAW).find().sort("_id")
                for client in (reading, other)
            ]
            if any(one is None or one != two for one, two in zip_longest(*both)):
                raise RuntimeError(f"the collection {name} differs")


def apply(source: str, destination: str, start: Timestamp) -> None:
    """Apply change events with `watch` and ordered `bulk_write`.

    The events begin at the cluster time `start`, and end with the last marker document of the backlog.
    """
    waiting: dict[str, list[Write]] = defaultdict(list)
    with _connect(source) as reading, _connect(destination) as writing:
        with reading[DATABASE].watch(start_at_operation_time=start) as events:
            for event in events:
                name = event["ns"]["coll"]
                waiting[name].append(_write(event))
                if len(waiting[name]) == _BATCH:
                    writing[DATABASE][name].bulk_write(waiting.pop(name))
                if event["documentKey"]["_id"] == MARKER_IDS[-1]:
                    break
        for name, rest in waiting.items():
            writing[DATABASE][name].bulk_write(rest)


def _connect(uri: str) -> Client:
    return MongoClient(uri, w="majority")


def _write(event: Mapping[str, Any]) -> Write:
    key = event["documentKey"]
    if event["operationType"] in ("insert", "replace"):
        # The write is idempotent, as in a real sync, where the copy may already contain the result of an event.
        return ReplaceOne(key, event["fullDocument"], upsert=True)
    if event["operationType"] == "delete":
        return DeleteOne(key)
    changes = event["updateDescription"]
    removed = dict.fromkeys(changes["removedFields"], "")
    operators = {"$set": changes["updatedFields"], "$unset": removed}
    return UpdateOne(key, {name: values for name, values in operators.items() if values})
