"""Makes the commands that the clients of this process send visible while their answers are awaited.

The driver reports when a command starts and ends (command monitoring). Each outstanding command is registered in
`runtime.waits`, which warns of long waits. The newest command of each thread is kept for error texts.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pymongo.monitoring import (
    CommandFailedEvent,
    CommandListener,
    CommandStartedEvent,
    CommandSucceededEvent,
)

from verifier.runtime import waits

_BUILDING = (
    "An index build takes long on a large collection, and so does making an index unique; db.currentOp() shows the "
    "operation, and the progress of a build. Index builds and this change need a majority of the voting "
    "members of the replica set (on a sharded cluster, of each shard)."
)
# Reads wait for the majority, too, if no majority has yet replicated the time from which they must read.
_ANSWERING = (
    "Check the server, its load, and the network to it, and with rs.status() that a majority of the members of the "
    "replica set (on a sharded cluster, of each shard and of the config servers) run and replicate. After a "
    "timeout, the call is repeated."
)
# The commands whose first field does not name a collection in the command's database, but a full namespace, another
# database or a shard.
_OF_OTHERS = frozenset(
    {
        *("addShardToZone", "dataSize", "enableSharding", "refineCollectionShardKey"),
        *("removeShardFromZone", "renameCollection", "shardCollection", "updateZoneKeyRange"),
    }
)


@dataclass(frozen=True)
class Call:
    """One command: its name, its namespace, and the address and cluster to which it was sent.

    `builds_indexes` is True for commands that build an index or make one unique. They may take hours although nothing
    is wrong.
    """

    name: str
    namespace: str
    address: str
    cluster: str
    builds_indexes: bool = False

    def __str__(self) -> str:
        return f"{self.name} of {self.namespace} at {self.address} ({self.cluster})"

    @property
    def unanswered(self) -> str:
        """Return a description of the wait for the answer."""
        return f"No answer yet to {self}"

    @property
    def remedy(self) -> str:
        """Return what the operator can do if the answer takes long."""
        return _BUILDING if self.builds_indexes else _ANSWERING


_thread = threading.local()


def newest() -> Call | None:
    """Return the newest command that this thread has sent; None if the thread has sent no command."""
    call: Call | None = getattr(_thread, "newest", None)
    return call


@contextmanager
def kept() -> Iterator[None]:
    """Make `newest` ignore the commands in the block: after the block, `newest` returns the same command as before."""
    call = newest()
    try:
        yield
    finally:
        _thread.newest = call


class CallListener(CommandListener):
    """Receives the driver's command events of one client, and registers its outstanding commands in `runtime.waits`.

    `cluster` is the operator's name for the cluster.
    """

    def __init__(self, cluster: str) -> None:
        self.cluster = cluster
        self._outstanding: dict[int, waits.Wait] = {}

    def started(self, event: CommandStartedEvent) -> None:
        host, port = event.connection_id
        call = Call(
            event.command_name,
            _namespace(event),
            f"{host}:{port}",
            self.cluster,
            builds_indexes(event.command),
        )
        _thread.newest = call
        wait = waits.begin(call.unanswered, call.remedy, call.builds_indexes)
        self._outstanding[event.request_id] = wait

    def succeeded(self, event: CommandSucceededEvent) -> None:
        self._end(event.request_id)

    def failed(self, event: CommandFailedEvent) -> None:
        self._end(event.request_id)

    def _end(self, request: int) -> None:
        wait = self._outstanding.pop(request, None)
        if wait is not None:
            waits.end(wait)


def builds_indexes(command: Mapping[str, Any]) -> bool:
    """Return whether a command builds an index or makes one unique, which may take hours although nothing is wrong."""
    name = next(iter(command), None)
    if name == "collMod":
        # To make an index unique, the server scans it. Other changes of an index or collection are quick.
        return bool(command.get("index", {}).get("unique"))
    return name == "createIndexes"


def _namespace(event: CommandStartedEvent) -> str:
    """Return the namespace of a command; only its database if the command names no collection.

    For a command about another database or about a shard, return the name of that database or shard; for one about a
    user or role, its database and name.
    """
    name: Any = event.command.get("collection") if event.command_name == "getMore" else None
    name = name or event.command.get(event.command_name)
    if not isinstance(name, str):
        return event.database_name
    return name if event.command_name in _OF_OTHERS else f"{event.database_name}.{name}"
