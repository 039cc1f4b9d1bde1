"""Reads how full the oplog of a source is."""

from __future__ import annotations

from dataclasses import dataclass

from bson.timestamp import Timestamp

from verifier.cluster.connect import Client


@dataclass(frozen=True)
class Oplog:
    """The oplog of the primary at one moment: from `oldest` to `newest`, `size` of about `limit` bytes."""

    oldest: Timestamp
    newest: Timestamp
    size: int
    limit: int


def read_oplog(client: Client) -> Oplog | None:
    """None for a router, which has none: those of the shards cannot be asked through it.

    Needs find and collStats on local.oplog.rs. Raises the driver's errors.
    """
    if client.is_mongos:
        return None
    # Not serverStatus: its earliest time can be that of an entry which is gone.
    find = {"find": "oplog.rs", "projection": {"ts": 1}, "limit": 1, "singleBatch": True}
    reply = client.local.command(find)
    statistics = client.local.command("collStats", "oplog.rs")
    return Oplog(
        oldest=reply["cursor"]["firstBatch"][0]["ts"],
        newest=reply["operationTime"],
        size=statistics["size"],
        limit=statistics["maxSize"],
    )
