"""Commands of the stand-in for mongos that read documents, or information about databases and collections."""

from __future__ import annotations

import os
from collections.abc import Iterable
from datetime import UTC, datetime

import bson

from tests.support.sharded.call import Call
from tests.support.sharded.catalog import Owner
from tests.support.sharded.servers import ON_CONFIG_SERVER, Handler, Servers
from tests.support.sharded.streams import MergedStream
from tests.support.sharded.wire import (
    NAMESPACE_NOT_FOUND,
    NO_SUCH_COMMAND,
    Document,
    Refused,
    refusal,
)

_INVALID_NAMESPACE = 73
_EXPLAINED = {"find": "clusterFind", "aggregate": "clusterAggregate"}
# Fields of statistics that have no meaning as sums over shards.
_NOT_ADDED_UP = frozenset({"ok", "scaleFactor", "avgObjSize", "fsUsedSize", "fsTotalSize"})


def _find(servers: Servers, call: Call) -> Document:
    if call.body.get("tailable"):
        # Capped collections are never sharded; a shard that forwards a tailable cursor crashes.
        return servers.opening(servers.catalog.primary(call.database).shard.address, call)
    return servers.until_fresh(call, lambda: servers.any_shard(call.called("clusterFind")))


def _aggregate(servers: Servers, call: Call) -> Document:
    stages = call.body["pipeline"]
    if stages and "$changeStream" in stages[0]:
        servers.catalog.shards  # reads from a server, which sets the clock
        stream = MergedStream(servers.catalog.shards, servers.clock, call.body)
        return stream.first(servers.cursors.add(stream))
    if call.database in ON_CONFIG_SERVER and call.target != 1:
        return servers.opening(servers.config, call)
    return servers.until_fresh(call, lambda: servers.any_shard(call.called("clusterAggregate")))


def _explain(servers: Servers, call: Call) -> Document:
    explained = Call(dict(call.target))
    if explained.name not in _EXPLAINED:
        raise refusal(NO_SUCH_COMMAND, f"explain of {explained.name}")
    inner = explained.called(_EXPLAINED[explained.name])
    return servers.any_shard(call.called("explain", inner.body))


def _count(servers: Servers, call: Call) -> Document:
    if "limit" in call.body or "skip" in call.body:
        raise refusal(NO_SUCH_COMMAND, "count with limit or skip: aggregate")

    def run() -> Document:
        # A count without a query runs without versions, as in mongos: it includes orphaned documents.
        counts = (
            servers.owner(owner, call) if asked else servers.run(owner.shard.address, call)
            for owner in servers.owners(call)
        )
        return {"n": sum(each["n"] for each in counts), "ok": 1.0}

    asked = bool(call.body.get("query"))
    try:
        return servers.until_fresh(call, run)
    except Refused as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        return {"n": 0, "ok": 1.0}


def _distinct(servers: Servers, call: Call) -> Document:
    def run() -> Document:
        # Values of two shards are the same if their bytes are equal.
        values = {
            bson.encode({"": value}): value
            for owner in servers.owners(call)
            for value in servers.owner(owner, call)["values"]
        }
        return {"values": [*values.values()], "ok": 1.0}

    try:
        return servers.until_fresh(call, run)
    except Refused as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        return {"values": [], "ok": 1.0}


def _list_collections(servers: Servers, call: Call) -> Document:
    try:
        owner = servers.catalog.primary(call.database)
    except Refused as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        name = f"{call.database}.$cmd.listCollections"
        return {"cursor": {"firstBatch": [], "id": bson.Int64(0), "ns": name}, "ok": 1.0}
    return servers.opening(owner.shard.address, call)


def _list_indexes(servers: Servers, call: Call) -> Document:
    if not isinstance(call.target, str):
        raise refusal(_INVALID_NAMESPACE, "collection name has invalid type")

    def run() -> Document:
        owner, *_ = servers.owners(call)
        # Send the versions, so that the shard makes the command wait during a rename, as for a mongos.
        return servers.opening(owner.shard.address, call.having(**owner.versions))

    return servers.until_fresh(call, run)


def _list_databases(servers: Servers, call: Call) -> Document:
    sizes: dict[str, int] = {}
    addresses = [each.address for each in servers.catalog.shards]
    for address in [servers.config, *addresses]:
        for row in servers.run(address, call)["databases"]:
            name = row["name"]
            if name != "local" and (name in ON_CONFIG_SERVER) == (address == servers.config):
                sizes[name] = sizes.get(name, 0) + row.get("sizeOnDisk", 0)
    names_only = bool(call.body.get("nameOnly"))
    rows = [
        {"name": name} if names_only else {"name": name, "sizeOnDisk": size, "empty": False}
        for name, size in sorted(sizes.items())
    ]
    return {"databases": rows, "ok": 1.0}


def _list_shards(servers: Servers, call: Call) -> Document:
    return {"shards": servers.catalog.rows("shards", {}, {"_id": 1}), "ok": 1.0}


def _database_statistics(servers: Servers, call: Call) -> Document:
    replies = [servers.run(each.address, call) for each in servers.catalog.shards]
    return {"db": call.database, **_sums(replies), "ok": 1.0}


def _collection_statistics(servers: Servers, call: Call) -> Document:
    owners: Iterable[Owner] = servers.owners(call)
    shards = {each.shard.name: servers.owner(each, call) for each in owners}
    sharded = servers.catalog.collection(f"{call.database}.{call.target}") is not None
    capped = any(each.get("capped") for each in shards.values())
    named = {"ns": f"{call.database}.{call.target}", "sharded": sharded, "capped": capped}
    return {**_sums([*shards.values()]), **named, "shards": shards, "ok": 1.0}


def _sums(replies: list[Document]) -> Document:
    sums: Document = {}
    for reply in replies:
        for name, value in reply.items():
            if isinstance(value, (int, float)) and name not in _NOT_ADDED_UP:
                sums[name] = sums.get(name, 0) + value
    return sums


def _server_status(servers: Servers, call: Call) -> Document:
    """Return the status of the process of the stand-in, which has no oplog and no data."""
    built = servers.run(servers.config, Call({"buildInfo": 1, "$db": "admin"}))
    return {
        "version": built["version"],
        "process": "mongos",
        "pid": bson.Int64(os.getpid()),
        "localTime": datetime.now(UTC),
        "ok": 1.0,
    }


ANYWHERE: dict[str, Handler] = {
    "listDatabases": _list_databases,
    "listShards": _list_shards,
    "serverStatus": _server_status,
    "aggregate": _aggregate,
}
OF_DATABASE: dict[str, Handler] = {
    "find": _find,
    "explain": _explain,
    "count": _count,
    "distinct": _distinct,
    "listCollections": _list_collections,
    "listIndexes": _list_indexes,
    "dbStats": _database_statistics,
    "collStats": _collection_statistics,
}
