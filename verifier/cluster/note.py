"""Gets the newest cluster time of a cluster, and advances the cluster's change streams to that time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bson.timestamp import Timestamp
from pymongo.errors import NotPrimaryError, OperationFailure

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

_NOTE = {"appendOplogNote": 1, "data": {"syncsvc": "tick"}}


def append_note(
    client: Client, stop: StopToken, write_concern: Mapping[str, Any] | None = None
) -> Timestamp:
    """Write a no-op to the oplog, and return a cluster time that is not before any write acknowledged so far.

    With `write_concern`, the no-op is written again until the cluster acknowledges it as this write concern requires.

    The no-op makes change streams reach that time immediately. If the user lacks the privilege, or the server lacks the
    command, nothing is written, and `write_concern` has no effect: change streams reach that time with the cluster's
    own periodic no-op. The stream of a mongos may also wait for the config servers, which this no-op does not advance.
    Raises the driver's errors that are not temporary, and `Cancelled`.
    """
    command = _NOTE if write_concern is None else {**_NOTE, "writeConcern": write_concern}

    def note() -> Timestamp:
        try:
            reply = client.admin.command(command)
            if write_concern is not None:
                failures.refuse_unconfirmed(reply)
            time = reply_time(reply)
            if client.is_mongos:
                # Each shard has written the no-op at its own cluster time, and the reply contains the newest of these
                # times. A shard with an older time holds back the stream of all shards until it writes again. So
                # write a second no-op, which has a later time on every shard.
                client.admin.command(command)
        except OperationFailure as error:
            unknown = error.code == failures.COMMAND_NOT_FOUND
            if not unknown and failures.named_kind(error) is not failures.NOT_AUTHORIZED:
                raise
            time = reply_time(ask_all_shards(client))
        return time

    return retry(note, failures.temporary, stop)


def ask_all_shards(client: Client) -> Mapping[str, Any]:
    """Run a small command that mongos sends to every shard, and return the reply. Raises the driver's errors.

    Mongos answers other commands, such as a ping or a read from a missing database, without asking the shards.
    """
    return client.admin.command({"listDatabases": 1, "nameOnly": True})


def reply_time(reply: Mapping[str, Any]) -> Timestamp:
    """Return the cluster time in a reply. Raises NotPrimaryError if a newly elected primary does not know it yet."""
    if "operationTime" not in reply:
        raise NotPrimaryError("the primary does not know the cluster time yet")
    time: Timestamp = reply["operationTime"]
    return time
