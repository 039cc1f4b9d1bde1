"""Reads the size of a source's oplog, and the times of its oldest and newest entry."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp

from verifier.cluster.connect import Client
from verifier.cluster.note import reply_time


@dataclass(frozen=True)
class Oplog:
    """The oplog of the primary at one moment.

    `size` is the current size, and `limit` the approximate maximum size, in bytes. `oldest` is the cluster time of the
    first entry. `newest` is the newest cluster time when the oplog was read, which is about that of the last entry.
    """

    oldest: Timestamp
    newest: Timestamp
    size: int
    limit: int


def read_oplog(client: Client) -> Oplog | None:
    """Return the oplog of the primary; None for a mongos, through which the oplogs of the shards cannot be read.

    Needs the privileges find and collStats on local.oplog.rs. Raises the driver's errors, and NotPrimaryError if a
    newly elected primary does not know the cluster time yet.
    """
    if client.is_mongos:
        return None
    # Do not use serverStatus: its earliest time can belong to an entry that no longer exists.
    find = {"find": "oplog.rs", "projection": {"ts": 1}, "limit": 1, "singleBatch": True}
    reply = client.local.command(find)
    statistics = client.local.command("collStats", "oplog.rs")
    return Oplog(
        oldest=reply["cursor"]["firstBatch"][0]["ts"],
        newest=reply_time(reply),
        size=statistics["size"],
        limit=statistics["maxSize"],
    )
