"""The stand-in's implementation of the mongos commands for chunks, zones and the balancer."""

from __future__ import annotations

from typing import Any

from tests.support.sharded.call import Call
from tests.support.sharded.servers import Handler, Servers
from tests.support.sharded.wire import BAD_VALUE, Document, refusal

_NOT_SHARDED = 118


def _move_range(servers: Servers, call: Call) -> Document:
    if "min" not in call.body:
        raise refusal(BAD_VALUE, "_configsvrMoveRange without min crashes the config server")
    return servers.on_config_server("_configsvrMoveRange", call)


def _move_chunk(servers: Servers, call: Call) -> Document:
    chunk = _chunk(servers, call, _collection(servers, call))
    given = {name: call.body[name] for name in ("moveChunk", "$db")}
    bounds = {name: chunk[name] for name in ("min", "max")}
    return _move_range(servers, Call({**given, "toShard": call.body["to"], **bounds}))


def _split(servers: Servers, call: Call) -> Document:
    collection = _collection(servers, call)
    chunk = _chunk(servers, call, collection)
    address = servers.catalog.shard(chunk["shard"]).address
    bounds = {name: chunk[name] for name in ("min", "max")}
    common = {"keyPattern": collection["key"], **bounds, "$db": "admin"}
    if "middle" in call.body:
        keys = [call.body["middle"]]
    else:
        vector = {"splitVector": call.target, **common, "force": True}
        keys = servers.run(address, Call(vector))["splitKeys"]
    command = {
        "splitChunk": call.target,
        "from": chunk["shard"],
        **common,
        "epoch": collection["lastmodEpoch"],
        "timestamp": collection["timestamp"],
        "splitKeys": keys,
    }
    servers.run(address, Call(command))
    return {"ok": 1.0}


def _collection(servers: Servers, call: Call) -> Document:
    collection = servers.catalog.collection(call.target)
    if collection is None:
        raise refusal(_NOT_SHARDED, f"collection {call.target} is not sharded")
    return collection


def _chunk(servers: Servers, call: Call, collection: Document) -> Document:
    """Return the chunk that a command identifies by a document in the chunk, by its bounds, or by its split point."""
    if "bounds" in call.body:
        key, _ = call.body["bounds"]
    elif "middle" in call.body:
        key = call.body["middle"]
    else:
        key = {
            name: (
                _hash(servers, call.body["find"][name])
                if kind == "hashed"
                else call.body["find"][name]
            )
            for name, kind in collection["key"].items()
        }
    (chunk,) = servers.catalog.rows(
        "chunks", {"uuid": collection["uuid"], "min": {"$lte": key}, "max": {"$gt": key}}
    )
    return chunk


def _hash(servers: Servers, value: Any) -> Any:
    command = {"_hashBSONElement": value, "seed": 0, "$db": "admin"}
    return servers.run(servers.config, Call(command))["out"]


def _on_config_server(name: str) -> Handler:
    return lambda servers, call: servers.on_config_server(name, call)


def _balancer(name: str) -> Handler:
    # The balancer commands do not accept a write concern.
    return lambda servers, call: servers.run(servers.config, call.called(name))


ANYWHERE: dict[str, Handler] = {
    "split": _split,
    "moveChunk": _move_chunk,
    "moveRange": _move_range,
    "balancerStart": _balancer("_configsvrBalancerStart"),
    "balancerStop": _balancer("_configsvrBalancerStop"),
    "balancerStatus": _balancer("_configsvrBalancerStatus"),
    "addShardToZone": _on_config_server("_configsvrAddShardToZone"),
    "removeShardFromZone": _on_config_server("_configsvrRemoveShardFromZone"),
    "updateZoneKeyRange": _on_config_server("_configsvrUpdateZoneKeyRange"),
}
