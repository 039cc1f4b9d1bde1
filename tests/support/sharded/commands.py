"""Translates the public commands of a sharded cluster into the internal commands of its servers.

This module does not route documents itself: `clusterFind` and similar commands, sent to any shard, do the work of
`mongos`. A command without an internal equivalent is sent to the shards concerned, with the versions that they require.
Sessions are never ended. The internal commands accept no transaction numbers, so the stand-in checks the transaction
numbers of retryable writes itself (see `numbers`).
"""

from __future__ import annotations

from tests.support.sharded import chunks, definitions, opened, reading, writing
from tests.support.sharded.call import Call
from tests.support.sharded.primaries import NOT_PRIMARY
from tests.support.sharded.servers import (
    MAJORITY,
    ON_CONFIG_SERVER,
    Handler,
    Servers,
    Shared,
)
from tests.support.sharded.wire import NO_SUCH_COMMAND, Document, Refused, refusal

_HOST_UNREACHABLE = 6
# Fields of sessions, transactions and the stable API; also the cluster time, which each message gets separately.
_NOT_PASSED_ON = frozenset(
    {"lsid", "txnNumber", "apiVersion", "apiStrict", "apiDeprecationErrors", "$clusterTime"}
)
_INTERNAL_FIELDS = ("lastCommittedOpTime", "$configTime", "$topologyTime", "$gleStats")


class Commands:
    """Runs the commands that one client sends to the stand-in; `shared` is what all clients share."""

    def __init__(self, shared: Shared) -> None:
        self._clock = shared.clock
        self._numbers = shared.numbers
        self._primaries = shared.primaries
        self._servers = Servers(shared)

    def close(self) -> None:
        self._servers.close()

    def reply(self, body: Document, sequences: bytes) -> Document:
        """Run a command of the client, and return the reply. An error is returned as a reply, too.

        `sequences` are the document sequences of the command.
        """
        self._clock.observe(body)
        passed = {name: value for name, value in body.items() if name not in _NOT_PASSED_ON}
        try:
            call = Call(passed, sequences, retryable="txnNumber" in body)
            reply = self._once(call, body) if call.retryable else self._execute(call)
        except Refused as error:
            reply = error.reply
            if error.code in NOT_PRIMARY:
                self._primaries.forget()
        except OSError as error:
            # A server is gone. Close all connections: the next command opens new ones, and the server may be back then.
            self.close()
            self._primaries.forget()
            reply = refusal(_HOST_UNREACHABLE, f"a server is gone: {error}").reply
            reply["errorLabels"] = ["ResumableChangeStreamError"]
        for name in _INTERNAL_FIELDS:
            reply.pop(name, None)
        if self._clock.newest is not None:
            # Do not use the time of the server that replied: other servers have done the work.
            reply["operationTime"] = self._clock.time
            reply["$clusterTime"] = self._clock.newest
        return reply

    def _once(self, call: Call, body: Document) -> Document:
        if "autocommit" in body:
            raise refusal(NO_SUCH_COMMAND, "no transactions in this stand-in")
        number = int(body["txnNumber"])
        return self._numbers.once(body["lsid"], number, lambda: self._execute(call))

    def _execute(self, call: Call) -> Document:
        if call.name in _ANYWHERE:
            return _ANYWHERE[call.name](self._servers, call)
        if call.name in _CHANGES_OF_USERS:
            # Like mongos, wait for the majority.
            call = call.having(writeConcern=MAJORITY)
        if call.name in _OF_CONFIG_SERVER:
            return self._servers.run(self._servers.config, call)
        if call.database in ON_CONFIG_SERVER and call.name in _OF_DATABASE:
            return self._servers.opening(self._servers.config, call)
        if call.name in _OF_DATABASE:
            return _OF_DATABASE[call.name](self._servers, call)
        raise refusal(NO_SUCH_COMMAND, f"no such command in this stand-in: '{call.name}'")


def _noted(servers: Servers, call: Call) -> Document:
    for shard in servers.catalog.shards:
        servers.run(shard.address, call)
    return {"ok": 1.0}


def _listed(servers: Servers, call: Call) -> Document:
    names = (*_ANYWHERE, *_OF_CONFIG_SERVER, *_OF_DATABASE)
    return {"commands": {name: {} for name in names}, "ok": 1.0}


_CHANGES_OF_USERS = frozenset(
    {
        *("createUser", "updateUser", "dropUser", "dropAllUsersFromDatabase"),
        *("createRole", "updateRole", "dropRole", "dropAllRolesFromDatabase"),
        "_mergeAuthzCollections",
    }
)
_OF_CONFIG_SERVER = frozenset(
    {
        *("ping", "buildInfo", "buildinfo", "connectionStatus", "getDefaultRWConcern"),
        # Users and roles are stored there.
        *("saslStart", "saslContinue", "logout", "usersInfo", "rolesInfo"),
        *_CHANGES_OF_USERS,
    }
)
# Handled in the same way for all databases.
_ANYWHERE: dict[str, Handler] = {
    **dict.fromkeys(("endSessions", "killSessions"), lambda servers, call: {"ok": 1.0}),
    "appendOplogNote": _noted,
    "listCommands": _listed,
    "setUserWriteBlockMode": lambda servers, call: servers.on_config_server(
        "_configsvrSetUserWriteBlockMode", call
    ),
    "testInternalTransactions": lambda servers, call: servers.any_shard(call),
    **opened.ANYWHERE,
    **reading.ANYWHERE,
    **definitions.ANYWHERE,
    **chunks.ANYWHERE,
}
# Handled for user databases only; the config server runs the commands for the other databases.
_OF_DATABASE: dict[str, Handler] = {
    **reading.OF_DATABASE,
    **writing.OF_DATABASE,
    **definitions.OF_DATABASE,
}
