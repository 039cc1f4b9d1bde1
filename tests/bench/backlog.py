"""The backlogs of the benchmarks: documents that exist on both clusters, and later writes to the source.

The last writes insert marker documents. There are enough of them that each thread that applies events gets some, after
its part of the other events.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Any

from pymongo import DeleteOne, InsertOne, ReplaceOne, UpdateOne

from syncsvc.sandbox.replica_set import Client
from tests.bench.data import DATABASE, DataSet, fields, load

# The requests that bulk_write accepts.
Write = InsertOne[dict[str, Any]] | UpdateOne | ReplaceOne[dict[str, Any]] | DeleteOne

MARKERS = "markers"
MARKER_IDS = [f"marker-{number:02}" for number in range(64)]
_BULK = 1000
_WRITERS = 4


def _small_update(random: Random, size: int) -> dict[str, Any]:
    return {"$inc": {"quantity": 1}, "$set": {"place.x": random.random()}}


def _sometimes_large_update(random: Random, size: int) -> dict[str, Any]:
    """Return an update that replaces most of the document in one of ten cases; otherwise, it changes a few bytes."""
    if random.random() < 0.9:
        return _small_update(random, size)
    return {"$set": {"text": fields(random, size)["text"]}}


@dataclass(frozen=True)
class Backlog:
    """The writes of a backlog to the documents of `base`. `mix` maps each kind of write to its relative frequency.

    `update` returns a random update of a document of the given size. Only one in `thinned` of the requested writes is
    made, because large documents take longer. `verified` is whether the service verifies during the benchmark.
    """

    base: DataSet
    mix: dict[str, int] = field(
        default_factory=lambda: {"update": 5, "insert": 3, "replace": 1, "delete": 1}
    )
    update: Callable[[Random, int], dict[str, Any]] = _small_update
    thinned: int = 1
    verified: bool = False

    def events(self, asked: int) -> int:
        """Return the number of events in the backlog, without the markers, if `asked` events are requested."""
        return asked // self.thinned // self.base.collections * self.base.collections


BACKLOGS = {
    "mixed": Backlog(DataSet("mixed", collections=4, documents=25_000, size=500)),
    "verified": Backlog(DataSet("mixed", collections=4, documents=25_000, size=500), verified=True),
    "large": Backlog(
        DataSet("large", collections=1, documents=2_000, size=50_000),
        update=_sometimes_large_update,
        thinned=20,
    ),
    "hot": Backlog(DataSet("hot", collections=1, documents=100, size=500), mix={"update": 1}),
    "many": Backlog(DataSet("many", collections=200, documents=500, size=500)),
}


def load_base(client: Client, backlog: Backlog) -> None:
    load(client, backlog.base)
    # Create the collection now, so that the backlog contains only writes.
    client[DATABASE].create_collection(MARKERS)


def write(client: Client, backlog: Backlog, asked: int) -> None:
    """Write the backlog to the cluster with several threads; each of them writes to one collection at a time.

    `asked` is the requested number of change events; `Backlog.events` returns the number that is written.
    """
    share = backlog.events(asked) // backlog.base.collections

    def write_to(name: str) -> None:
        writes = _writes(Random(name), backlog)
        for first in range(0, share, _BULK):
            bulk = list(islice(writes, min(_BULK, share - first)))
            client[DATABASE][name].bulk_write(bulk)

    with ThreadPoolExecutor(_WRITERS) as pool:
        list(pool.map(write_to, backlog.base.names))
    client[DATABASE][MARKERS].insert_many([{"_id": marker} for marker in MARKER_IDS])


def is_applied(client: Client) -> bool:
    """Return whether the destination contains all marker documents, and therefore the whole backlog.

    Exception: over a link with latency, the service writes to several collections at once, so its last writes to the
    other collections may still be in flight.
    """
    return client[DATABASE][MARKERS].count_documents({}) == len(MARKER_IDS)


def _writes(random: Random, backlog: Backlog) -> Iterator[Write]:
    """Yield random writes to one collection without end.

    Each write causes one change event: updates, replacements and deletions always match a document.
    """
    base = backlog.base
    existing = list(range(base.documents))
    next_id = base.documents
    kinds, weights = list(backlog.mix), list(backlog.mix.values())
    while True:
        kind = random.choices(kinds, weights)[0]
        index = random.randrange(len(existing))
        if kind == "insert":
            yield InsertOne({"_id": next_id} | fields(random, base.size))
            existing.append(next_id)
            next_id += 1
        elif kind == "update":
            yield UpdateOne({"_id": existing[index]}, backlog.update(random, base.size))
        elif kind == "replace":
            yield ReplaceOne({"_id": existing[index]}, fields(random, base.size))
        else:
            yield DeleteOne({"_id": existing[index]})
            existing[index] = existing[-1]
            existing.pop()
