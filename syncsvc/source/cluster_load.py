"""Measures the load of a cluster: the latency of a small read, the queue of operations, and the replication lag."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import pymongo
from pymongo.errors import OperationFailure, PyMongoError

from verifier.cluster.connect import Client
from verifier.cluster.note import ask_all_shards

# How long one cluster may take to answer all commands of a measurement, in seconds.
_PATIENCE = 2.0
# The sections of serverStatus that cost most to produce, and are not needed.
_UNUSED = ("locks", "metrics", "opLatencies", "repl", "tcmalloc", "transactions", "wiredTiger")
_SECONDARY = 2


@dataclass(frozen=True)
class Load:
    """One measurement of the load of a cluster. None means unknown, or for the lag also: no secondary.

    `latency` is the duration of a small read from the primary, or through a mongos, from all shards, in seconds.
    `queue` is the number of operations that wait on the primary. `replication_lag` is how many seconds the slowest
    secondary is behind the newest member, not counting secondaries that are delayed by configuration.
    """

    latency: float | None = None
    queue: float | None = None
    replication_lag: float | None = None


def read_load(client: Client, database: str, collection: str) -> Load:
    """Return the load of a cluster.

    On a replica set, the latency is measured by a read from `collection` on the primary; the collection need not exist.
    Through a mongos, or without the role clusterMonitor, only the latency is known. If the cluster cannot be reached or
    does not answer all commands within two seconds, the latency is the time waited, and the other values are unknown.
    If the read fails for another reason, or the connection is lost later, all values are unknown.
    """
    began = perf_counter()
    try:
        with pymongo.timeout(_PATIENCE):
            if client.is_mongos:
                ask_all_shards(client)
                return Load(perf_counter() - began)
            client[database][collection].find_one()
            latency = perf_counter() - began
            return Load(latency, _queue(client), _replication_lag(client))
    except PyMongoError as error:
        return Load(perf_counter() - began) if error.timeout else Load()


def _queue(client: Client) -> int | None:
    """Return the number of operations that wait for a lock or for a ticket of the storage engine; None if unknown."""
    reply = _allowed(client, {"serverStatus": 1, **dict.fromkeys(_UNUSED, 0)})
    queue = reply.get("globalLock", {}).get("currentQueue", {}).get("total")
    return None if queue is None else int(queue)


def _replication_lag(client: Client) -> int | None:
    """Return how many seconds the slowest secondary is behind the newest member.

    Delayed members do not count. Return None if the lag is unknown, or if there is no secondary.
    """
    members = _allowed(client, {"replSetGetStatus": 1}).get("members", ())
    times = {each["name"]: each.get("optimeDate") for each in members}
    newest = max((each for each in times.values() if each is not None), default=None)
    if newest is None:
        return None
    delayed = _delayed(_allowed(client, {"replSetGetConfig": 1}))
    lags = [
        (newest - times[each["name"]]).total_seconds()
        for each in members
        if each.get("state") == _SECONDARY
        and times[each["name"]] is not None
        and each["name"] not in delayed
    ]
    return round(max(lags)) if lags else None


def _delayed(reply: Mapping[str, Any]) -> set[str]:
    """Return the addresses of the arbiters and delayed members (`secondaryDelaySecs`) of a replica set.

    `reply` is the reply to the command `replSetGetConfig`.
    """
    members: Iterable[Mapping[str, Any]] = reply.get("config", {}).get("members", ())
    return {
        each["host"]
        for each in members
        if each.get("secondaryDelaySecs") or each.get("slaveDelay") or each.get("arbiterOnly")
    }


def _allowed(client: Client, command: dict[str, Any]) -> Mapping[str, Any]:
    """Run a command on the admin database, and return the reply; an empty document if the server replies with an error.

    Raises the driver's errors of timeouts and lost connections.
    """
    try:
        return client.admin.command(command)
    except OperationFailure as error:
        if error.timeout:
            raise
        return {}
