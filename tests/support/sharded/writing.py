"""Commands of the stand-in for mongos that write documents."""

from __future__ import annotations

from typing import Any

import bson

from tests.support.sharded.call import Call
from tests.support.sharded.servers import MAJORITY, Handler, Servers
from tests.support.sharded.wire import Document, documents, refusal

_SHARD_KEY_NOT_FOUND = 61
# The error code of an update that would move its document to another shard.
_MOVES = 20


def _write(servers: Servers, call: Call) -> Document:
    call = call.having(writeConcern=call.body.get("writeConcern") or MAJORITY)
    reply = servers.any_shard(call.called(f"cluster{call.name.capitalize()}"))
    errors = reply.get("writeErrors", [])
    if call.retryable and call.name == "update" and [each["code"] for each in errors] == [_MOVES]:
        statements = _statements(call, "updates")
        if len(statements) == 1:
            # mongos also runs such a retryable write in a transaction.
            return _in_transaction(servers, call.having(updates=statements))
    return reply


def _statements(call: Call, name: str) -> list[Any]:
    return call.body[name] if name in call.body else documents(call.sequences)


def _in_transaction(servers: Servers, call: Call) -> Document:
    command = {name: value for name, value in call.body.items() if name != "$db"}
    concern = command.pop("writeConcern")
    transaction = {
        "testInternalTransactions": 1,
        "useClusterClient": True,
        "commandInfos": [{"dbName": call.database, "command": command}],
        "writeConcern": concern,
        "$db": "admin",
    }
    (reply,) = servers.any_shard(Call(transaction))["responses"]
    return dict(reply)


def _find_and_modify(servers: Servers, call: Call) -> Document:
    call = call.having(writeConcern=call.body.get("writeConcern") or MAJORITY)
    servers.catalog.create_database(call.database)

    def run() -> Document:
        owners = servers.owners(call)
        if len(owners) > 1:
            names = _targets(servers, call)
            owners = [each for each in owners if each.shard.name in names]
        if len(owners) != 1:
            message = "Query for sharded findAndModify must contain the shard key"
            raise refusal(_SHARD_KEY_NOT_FOUND, message)
        return servers.owner(owners[0], call)

    return servers.until_fresh(call, run)


def _targets(servers: Servers, call: Call) -> set[str]:
    """Return the names of the shards to which the query of a findAndModify command is sent."""
    asked = {"clusterFind": call.target, "filter": call.body.get("query", {})}
    if "collation" in call.body:
        asked["collation"] = call.body["collation"]
    explain = {"explain": asked, "verbosity": "queryPlanner", "$db": call.database}
    plan = bson.decode(servers.any_shard(Call(explain))["queryPlanner"].raw)["winningPlan"]
    return {each["shardName"] for each in plan["shards"]}


OF_DATABASE: dict[str, Handler] = {
    **dict.fromkeys(("insert", "update", "delete"), _write),
    **dict.fromkeys(("findAndModify", "findandmodify"), _find_and_modify),
}
