"""The change events to be applied: a base that both clusters hold, and the writes after it.

Half are small updates, three in ten inserts, one in ten replaces, one in ten deletes, mixed as users would mix them.
Markers come last; so many that each applying thread meets some.
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from random import Random
from typing import Any

from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

from syncsvc.sandbox.replica_set import Client
from tests.bench.data import DATABASE, DataSet, fields, load

# As bulk_write takes them.
Write = InsertOne[dict[str, Any]] | UpdateOne | ReplaceOne[dict[str, Any]] | DeleteOne

BASE = DataSet("base", collections=4, documents=25_000, size=500)
MARKERS = "markers"
MARKER_IDS = [f"marker-{number:02}" for number in range(64)]
_BULK = 1000


def load_base(client: Client) -> None:
    load(client, BASE)
    # Made now, so that the backlog holds nothing but writes.
    client[DATABASE].create_collection(MARKERS)


def write(client: Client, events: int) -> None:
    """Write the backlog, one thread a collection."""
    share = events // BASE.collections

    def write_to(name: str) -> None:
        writes = _writes(Random(name))
        for first in range(0, share, _BULK):
            bulk = list(islice(writes, min(_BULK, share - first)))
            client[DATABASE][name].bulk_write(bulk)

    with ThreadPoolExecutor(BASE.collections) as pool:
        list(pool.map(write_to, BASE.names))
    client[DATABASE][MARKERS].insert_many([{"_id": marker} for marker in MARKER_IDS])


def is_applied(client: Client) -> bool:
    """Whether the last of the backlog has come."""
    return client[DATABASE][MARKERS].count_documents({}) == len(MARKER_IDS)


def _writes(random: Random) -> Iterator[Write]:
    """Writes that all find their document, so that each makes one event."""
    there = list(range(BASE.documents))
    following = BASE.documents
    while True:
        kind = random.choices(("update", "insert", "replace", "delete"), (5, 3, 1, 1))[0]
        place = random.randrange(len(there))
        if kind == "insert":
            yield InsertOne({"_id": following} | fields(random, BASE.size))
            there.append(following)
            following += 1
        elif kind == "update":
            yield UpdateOne({"_id": there[place]}, _small_update(random))
        elif kind == "replace":
            yield ReplaceOne({"_id": there[place]}, fields(random, BASE.size))
        else:
            yield DeleteOne({"_id": there[place]})
            there[place] = there[-1]
            there.pop()


def _small_update(random: Random) -> dict[str, Any]:
    return {"$inc": {"quantity": 1}, "$set": {"place.x": random.random()}}
