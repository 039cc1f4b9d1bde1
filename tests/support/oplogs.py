"""Creates replica sets with a small oplog, and makes an oplog drop its old entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from syncsvc.sandbox import ReplicaSet
from tests.support.pair import Pair, Side
from tests.support.waiting import wait_for
from tests.support.writes import AnyClient

_NOTE = "n" * 4_000_000


def small_oplog() -> ReplicaSet:
    """Return a replica set, not started, with an oplog of 16 MB and without periodic no-ops."""
    return ReplicaSet(name="small", oplog_size_mb=16, parameters={"writePeriodicNoops": "false"})


@contextmanager
def emptied(source: ReplicaSet, destination: Side) -> Iterator[Pair]:
    """Drop the databases of a source and a destination, except the system databases, and yield both as a pair."""
    with source.client() as client:
        pair = Pair(Side(source.uri, client), destination)
        pair.empty()
        yield pair


def note(client: AnyClient) -> None:
    """Write an oplog entry of 4 MB, which causes no change event."""
    client.admin.command({"appendOplogNote": 1, "data": {"note": _NOTE}})


def roll_over(client: AnyClient) -> None:
    """Write to the oplog until the primary has dropped all entries that existed at the call."""
    now = client.admin.command("ping")["operationTime"]

    def is_over() -> bool:
        note(client)
        # Do not query the oplog instead: a query fails if the entry that it is about to return is dropped.
        status = client.admin.command({"serverStatus": 1, "oplog": True})
        return bool(status["oplog"]["earliestOptime"] > now)

    wait_for(is_over, "the oplog has rolled over")
