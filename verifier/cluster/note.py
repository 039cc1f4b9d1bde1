"""Asks a cluster for its newest cluster time, and moves its change streams on to it."""

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


def append_note(client: Client, stop: StopToken) -> Timestamp:
    """The cluster's newest time, after which nothing but newer writes can come.

    Writes a no-op to the oplog, so that change streams come to that time at once; a user without that privilege
    gets the newest time as it is, and they move when the cluster writes its own periodic no-op. So does the user of an
    old router. The stream of a router may wait for the config server's, too, of which this moves nothing.
    """

    def note() -> Timestamp:
        try:
            time = _time_of(client.admin.command(_NOTE))
            if client.is_mongos:
                # Each shard has written it at a time of its own, and the newest of these was told. An idle one stays
                # before that, and holds the stream of all back, until it writes at a later time.
                client.admin.command(_NOTE)
        except OperationFailure as error:
            unknown = error.code == failures.COMMAND_NOT_FOUND
            if not unknown and failures.named_kind(error) is not failures.NOT_AUTHORIZED:
                raise
            # Not a ping, which a router answers alone: this one asks all shards.
            time = _time_of(client.admin.command({"listDatabases": 1, "nameOnly": True}))
        return time

    return retry(note, failures.temporary, stop)


def _time_of(reply: Mapping[str, Any]) -> Timestamp:
    """Return the time of a reply. Raises NotPrimaryError if the server has none yet, just after its election."""
    if "operationTime" not in reply:
        raise NotPrimaryError("the primary does not know the cluster time yet")
    time: Timestamp = reply["operationTime"]
    return time
