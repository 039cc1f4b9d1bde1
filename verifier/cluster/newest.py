"""Reads saved documents in their newest state, even right after an election.

A majority read alone may return older documents, if the primary was just elected, or does not know yet that another
member has replaced it as primary.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from bson.timestamp import Timestamp
from pymongo.client_session import ClientSession
from pymongo.read_concern import ReadConcern

from verifier.cluster.connect import Client, replacing_connections
from verifier.cluster.note import reply_time
from verifier.cluster.rawcursor import RawCursor

# How long the members may take to confirm that the primary is still the primary, in milliseconds.
_MOST_MS = 30_000

# An update that changes nothing, because no document has this `_id`.
_NO_CHANGE = {"q": {"_id": None}, "u": {"$set": {"unused": True}}}


def read_newest(client: Client, database: str, collection: str, key: str) -> dict[str, Any] | None:
    """Return the document with the `_id` `key`, with all writes acknowledged before this call; None if there is none.

    Raises the driver's errors, such as ExecutionTimeout if no majority confirms the primary within 30 seconds.
    """
    concern = ReadConcern("linearizable")
    found = client[database].get_collection(collection, read_concern=concern)
    return found.find_one({"_id": key}, max_time_ms=_MOST_MS)


def newest_time(run: Callable[[dict[str, Any]], dict[str, Any]], collection: str) -> Timestamp:
    """Run a no-op update, and return a cluster time at or after every acknowledged write to an unsharded collection.

    On a replica set, the time is also at or after every acknowledged write to other collections.
    `run` runs a command with write concern majority on the database of the collection, and returns the reply. Raises
    the errors of `run`, and NotPrimaryError if a newly elected primary does not know the cluster time yet.
    """
    return reply_time(run({"update": collection, "updates": [_NO_CHANGE]}))


@contextmanager
def session_after(client: Client, time: Timestamp | None) -> Iterator[ClientSession]:
    """Yield a session whose reads see all writes up to the cluster time `time`; with None, they may be outdated."""
    session = client.start_session(causal_consistency=True)
    with session, replacing_connections(client):
        if time is not None:
            session.advance_operation_time(time)
        yield session


def read_after(
    time: Timestamp, client: Client, database: str, collection: str, **find: Any
) -> list[bytes]:
    """Return the documents of a collection as BSON, read at the cluster time `time` or later.

    Raises the driver's errors. `find` contains further fields of the find command, such as `filter`.
    """
    return _results(time, client, database, {"find": collection, **find})


def aggregate_after(
    time: Timestamp, client: Client, database: str, collection: str, pipeline: list[dict[str, Any]]
) -> list[bytes]:
    """Return the results of an aggregation of a collection as BSON, read at the cluster time `time` or later.

    Raises the driver's errors.
    """
    return _results(time, client, database, {"aggregate": collection, "pipeline": pipeline})


def _results(
    time: Timestamp, client: Client, database: str, command: dict[str, Any]
) -> list[bytes]:
    concern = {"level": "majority", "afterClusterTime": time}
    with RawCursor(client, database, {**command, "readConcern": concern}) as cursor:
        return [bytes(each) for page in cursor.pages() for each in page.documents()]
