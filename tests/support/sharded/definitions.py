"""Commands of the stand-in for mongos that create, change and drop databases, collections and indexes."""

from __future__ import annotations

from tests.support.sharded.call import Call
from tests.support.sharded.servers import MAJORITY, Handler, Servers
from tests.support.sharded.wire import NAMESPACE_NOT_FOUND, Document, Refused, refusal

_ILLEGAL_OPERATION = 20
_COORDINATED = {
    "drop": "_shardsvrDropCollection",
    "collMod": "_shardsvrCollMod",
    "dropIndexes": "_shardsvrDropIndexes",
}


def _enable_sharding(servers: Servers, call: Call) -> Document:
    servers.catalog.create_database(call.target, call.body.get("primaryShard"))
    return {"ok": 1.0}


def _move_primary(servers: Servers, call: Call) -> Document:
    return servers.definition(call.called("_shardsvrMovePrimary"), call.target)


def _create(servers: Servers, call: Call) -> Document:
    servers.catalog.create_database(call.database)
    return servers.definition(call)


def _create_indexes(servers: Servers, call: Call) -> Document:
    servers.catalog.create_database(call.database)

    def run() -> Document:
        reply: Document = {}
        for owner in servers.owners(call):
            reply = servers.owner(owner, call.having(writeConcern=MAJORITY))
        return reply

    return servers.until_fresh(call, run)


def _drop_database(servers: Servers, call: Call) -> Document:
    try:
        return servers.definition(call.called("_shardsvrDropDatabase"))
    except Refused as error:
        if error.code != NAMESPACE_NOT_FOUND:
            raise
        return {"ok": 1.0}


def _coordinated(servers: Servers, call: Call) -> Document:
    return servers.definition(call.called(_COORDINATED[call.name]))


def _rename(servers: Servers, call: Call) -> Document:
    return servers.definition(_of_its_database(call, "_shardsvrRenameCollection"))


def _shard(servers: Servers, call: Call) -> Document:
    servers.catalog.create_database(call.target.partition(".")[0])
    return servers.definition(_of_its_database(call, "_shardsvrCreateCollection", "shardKey"))


def _refine(servers: Servers, call: Call) -> Document:
    name = "_shardsvrRefineCollectionShardKey"
    return servers.definition(_of_its_database(call, name, "newShardKey"))


def _of_its_database(call: Call, name: str, key: str | None = None) -> Call:
    """Turn an `admin` command whose target is a namespace into the command `name` on the database of the namespace.

    `key` is the new name of the command's field "key"; None if the command has no such field.
    """
    database, _, collection = call.target.partition(".")
    given = dict(call.body)
    named = {} if key is None else {key: given.pop("key")}
    return Call(given).called(name, collection, **named).having(**{"$db": database})


def _reshard(servers: Servers, call: Call) -> Document:
    database = call.target.partition(".")[0]
    return servers.definition(call.called("_shardsvrReshardCollection"), database)


def _convert_to_capped(servers: Servers, call: Call) -> Document:
    if servers.catalog.collection(f"{call.database}.{call.target}") is not None:
        raise refusal(_ILLEGAL_OPERATION, "You can't convertToCapped a sharded collection")
    return servers.definition(call)


ANYWHERE: dict[str, Handler] = {
    "enableSharding": _enable_sharding,
    "movePrimary": _move_primary,
    "shardCollection": _shard,
    "refineCollectionShardKey": _refine,
    "reshardCollection": _reshard,
    "renameCollection": _rename,
}
OF_DATABASE: dict[str, Handler] = {
    "create": _create,
    "createIndexes": _create_indexes,
    "dropDatabase": _drop_database,
    "convertToCapped": _convert_to_capped,
    **dict.fromkeys(_COORDINATED, _coordinated),
}
