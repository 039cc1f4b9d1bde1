"""Turns the public commands of a sharded cluster into those that its servers answer among themselves.

It does not route documents itself: `clusterFind` and its like, on any shard, do what `mongos` does. What no such
command exists for is sent to the shards that are concerned, with the versions that they want to see. It has no
sessions, and of a write that is sent again it does not know that it was there before.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import bson

from tests.support.sharded.call import Call
from tests.support.sharded.catalog import NAMESPACE_NOT_FOUND, Catalog, Owner
from tests.support.sharded.cursors import Cursors, cursor_id_of
from tests.support.sharded.streams import MergedStream
from tests.support.sharded.wire import (
    Clock,
    Document,
    Refused,
    ServerConnection,
    refusal,
)

_BAD_VALUE, _HOST_UNREACHABLE, _NO_SUCH_COMMAND, _INVALID_NAMESPACE = 2, 6, 59, 73
_STALE = frozenset({249, 13388})
_MOST_TRIES = 20
_MAJORITY = {"w": "majority"}
_ON_CONFIG_SERVER = frozenset({"admin", "config"})
# What speaks of a session, a transaction or a version of the API; and the time, which each message gets anew.
_NOT_PASSED_ON = frozenset(
    {"lsid", "txnNumber", "apiVersion", "apiStrict", "apiDeprecationErrors", "$clusterTime"}
)
_INTERNAL_FIELDS = ("lastCommittedOpTime", "$configTime", "$topologyTime", "$gleStats")


class Commands:
    """Carries out the commands of one client, on connections of its own."""

    def __init__(self, config: str, clock: Clock, cursors: Cursors) -> None:
        self._clock = clock
        self._cursors = cursors
        self._config = config
        self._connections: dict[str, ServerConnection] = {}
        self._catalog = Catalog(lambda command: self._connection(config).run(command))

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    def reply(self, body: Document, sequences: bytes) -> Document:
        """The reply to a command, refused or not."""
        self._clock.observe(body)
        passed = {name: value for name, value in body.items() if name not in _NOT_PASSED_ON}
        try:
            reply = self._carry_out(Call(passed, sequences))
        except Refused as error:
            reply = error.reply
        except OSError as error:
            # A server has gone. New connections for all: it may come back.
            self.close()
            reply = refusal(_HOST_UNREACHABLE, f"a server is gone: {error}").reply
            reply["errorLabels"] = ["ResumableChangeStreamError"]
        for name in _INTERNAL_FIELDS:
            reply.pop(name, None)
        if self._clock.newest is not None:
            # Not that of the one server that was asked: others have done the work.
            reply["operationTime"] = self._clock.time
            reply["$clusterTime"] = self._clock.newest
        return reply

    def _carry_out(self, call: Call) -> Document:
        if "autocommit" in call.body:
            raise refusal(_NO_SUCH_COMMAND, "no transactions in this stand-in")
        if call.name in _OWN:
            return _OWN[call.name](self, call)
        if call.name in _OF_CONFIG_SERVER:
            return self._run(self._config, call)
        if call.name in _RENAMED_FOR_CONFIG_SERVER:
            renamed = call.called(_RENAMED_FOR_CONFIG_SERVER[call.name], writeConcern=_MAJORITY)
            return self._run(self._config, renamed)
        if call.database in _ON_CONFIG_SERVER and call.name in _OF_DATABASE:
            return self._of_server(self._config, call)
        if call.name in _OF_DATABASE:
            return _OF_DATABASE[call.name](self, call)
        raise refusal(_NO_SUCH_COMMAND, f"no such command in this stand-in: '{call.name}'")

    # Single servers

    def _connection(self, address: str) -> ServerConnection:
        if address not in self._connections:
            self._connections[address] = ServerConnection(address, self._clock)
        return self._connections[address]

    def _run(self, address: str, call: Call) -> Document:
        return self._connection(address).run(call.body, call.sequences)

    def _of_server(self, address: str, call: Call, more: str = "getMore") -> Document:
        """The reply of that server; where it opens a cursor, that one is known from now on."""
        reply = self._run(address, call)
        if "cursor" in reply:
            cursor_id = cursor_id_of(bytes(reply["cursor"].raw))
            if cursor_id:
                self._cursors.add((address, more), cursor_id)
        return reply

    def _any_shard(self, call: Call, more: str = "clusterGetMore") -> Document:
        return self._of_server(self._catalog.shards[0].address, call, more)

    def _primary(self, call: Call) -> Document:
        """Run on the primary shard of the database, with the version of that."""

        def run() -> Document:
            owner = self._catalog.primary(call.database)
            return self._run(owner.shard.address, call.having(**owner.versions))

        return _until_fresh(run)

    def _definition(self, call: Call) -> Document:
        return self._primary(call.having(writeConcern=_MAJORITY))

    def _owners(self, call: Call) -> Iterable[Owner]:
        return self._catalog.owners(call.database, call.target)

    # Commands of the cluster

    def _listed_databases(self, call: Call) -> Document:
        sizes: dict[str, int] = {}
        addresses = [each.address for each in self._catalog.shards]
        for address in [self._config, *addresses]:
            for row in self._run(address, call)["databases"]:
                name = row["name"]
                if name != "local" and (name in _ON_CONFIG_SERVER) == (address == self._config):
                    sizes[name] = sizes.get(name, 0) + row.get("sizeOnDisk", 0)
        names_only = bool(call.body.get("nameOnly"))
        rows = [
            {"name": name} if names_only else {"name": name, "sizeOnDisk": size, "empty": False}
            for name, size in sorted(sizes.items())
        ]
        return {"databases": rows, "ok": 1.0}

    def _noted(self, call: Call) -> Document:
        for shard in self._catalog.shards:
            self._run(shard.address, call)
        return {"ok": 1.0}

    def _moved(self, call: Call) -> Document:
        if "min" not in call.body:
            raise refusal(_BAD_VALUE, "without min, _configsvrMoveRange ends the config server")
        return self._run(self._config, call.called("_configsvrMoveRange", writeConcern=_MAJORITY))

    def _sharded(self, call: Call) -> Document:
        database, _, collection = call.target.partition(".")
        self._catalog.create_database(database)
        given = dict(call.body)
        key = given.pop("key")
        create = Call(given).called("_shardsvrCreateCollection", collection, shardKey=key)
        return self._definition(create.having(**{"$db": database}))

    def _refined(self, call: Call) -> Document:
        database, _, collection = call.target.partition(".")
        given = dict(call.body)
        key = given.pop("key")
        refine = Call(given).called(
            "_shardsvrRefineCollectionShardKey", collection, newShardKey=key
        )
        return self._definition(refine.having(**{"$db": database}))

    def _renamed(self, call: Call) -> Document:
        database, _, collection = call.target.partition(".")
        rename = call.called("_shardsvrRenameCollection", collection)
        return self._definition(rename.having(**{"$db": database}))

    # Cursors

    def _more(self, call: Call) -> Document:
        cursor_id = call.target
        cursor = self._cursors.find(cursor_id)
        try:
            if isinstance(cursor, MergedStream):
                return cursor.more(cursor_id, call.body)
            address, name = cursor
            reply = self._run(address, call.called(name))
        except (Refused, OSError):
            self._cursors.remove(cursor_id)
            raise
        if not cursor_id_of(bytes(reply["cursor"].raw)):
            self._cursors.remove(cursor_id)
        return reply

    def _killed(self, call: Call) -> Document:
        killed, unknown = [], []
        for cursor_id in call.body["cursors"]:
            try:
                self._kill(cursor_id, call)
                killed.append(cursor_id)
            except Refused:
                unknown.append(cursor_id)
        return {
            "cursorsKilled": killed,
            "cursorsNotFound": unknown,
            "cursorsAlive": [],
            "cursorsUnknown": [],
            "ok": 1.0,
        }

    def _kill(self, cursor_id: int, call: Call) -> None:
        cursor = self._cursors.find(cursor_id)
        self._cursors.remove(cursor_id)
        if isinstance(cursor, MergedStream):
            cursor.close()
            return
        address, name = cursor
        if name == "getMore":
            self._run(address, call.having(cursors=[cursor_id]))
            return
        try:
            # There is no command for it, but a fault that ends the cursor.
            more = {name: cursor_id, "collection": call.target, "$db": call.database}
            self._connection(address).run({**more, "maxTimeMS": 1})
        except Refused as error:
            if error.code != _BAD_VALUE:
                raise

    # Reading

    def _found(self, call: Call) -> Document:
        if call.body.get("tailable"):
            # Capped collections are never sharded; a shard that passes such a cursor on breaks down.
            return self._of_server(self._catalog.primary(call.database).shard.address, call)
        return self._any_shard(call.called("clusterFind"))

    def _aggregated(self, call: Call) -> Document:
        stages = call.body["pipeline"]
        if stages and "$changeStream" in stages[0]:
            self._catalog.shards  # asks a server, which tells the time
            stream = MergedStream(self._catalog.shards, self._clock, call.body)
            return stream.first(self._cursors.add(stream))
        if call.database in _ON_CONFIG_SERVER and call.target != 1:
            return self._of_server(self._config, call)
        return self._any_shard(call.called("clusterAggregate"))

    def _explained(self, call: Call) -> Document:
        explained = Call(dict(call.target))
        if explained.name not in _EXPLAINED:
            raise refusal(_NO_SUCH_COMMAND, f"explain of {explained.name}")
        inner = explained.called(_EXPLAINED[explained.name])
        return self._any_shard(call.called("explain", inner.body))

    def _counted(self, call: Call) -> Document:
        if "limit" in call.body or "skip" in call.body:
            raise refusal(_NO_SUCH_COMMAND, "count with limit or skip: aggregate")

        def run() -> Document:
            # Without a query, as mongos does, by what each shard has stored, documents that it does not own, too.
            counts = (
                self._run(owner.shard.address, call.having(**owner.versions) if asked else call)
                for owner in self._owners(call)
            )
            return {"n": sum(each["n"] for each in counts), "ok": 1.0}

        asked = bool(call.body.get("query"))
        try:
            return _until_fresh(run)
        except Refused as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
            return {"n": 0, "ok": 1.0}

    def _listed(self, call: Call) -> Document:
        """Rows of collections."""
        try:
            owner = self._catalog.primary(call.database)
        except Refused as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
            name = f"{call.database}.$cmd.listCollections"
            return {"cursor": {"firstBatch": [], "id": bson.Int64(0), "ns": name}, "ok": 1.0}
        return self._of_server(owner.shard.address, call)

    def _listed_indexes(self, call: Call) -> Document:
        if not isinstance(call.target, str):
            raise refusal(_INVALID_NAMESPACE, "collection name has invalid type")
        owner, *_ = self._owners(call)
        return self._of_server(owner.shard.address, call)

    # Writing

    def _written(self, call: Call) -> Document:
        concern = call.body.get("writeConcern") or _MAJORITY
        name = f"cluster{call.name.capitalize()}"
        return self._any_shard(call.called(name, writeConcern=concern))

    def _created(self, call: Call) -> Document:
        self._catalog.create_database(call.database)
        return self._definition(call)

    def _indexed(self, call: Call) -> Document:
        self._catalog.create_database(call.database)

        def run() -> Document:
            reply: Document = {}
            for owner in self._owners(call):
                versioned = call.having(writeConcern=_MAJORITY, **owner.versions)
                reply = self._run(owner.shard.address, versioned)
            return reply

        return _until_fresh(run)

    def _dropped_database(self, call: Call) -> Document:
        try:
            return self._definition(call.called("_shardsvrDropDatabase"))
        except Refused as error:
            if error.code != NAMESPACE_NOT_FOUND:
                raise
            return {"ok": 1.0}

    def _done_by_coordinator(self, call: Call) -> Document:
        return self._definition(call.called(_COORDINATED[call.name]))


def _until_fresh(run: Callable[[], Document]) -> Document:
    """Again where the metadata were read too early, or the shard had not seen them."""
    for left in reversed(range(_MOST_TRIES)):
        try:
            return run()
        except Refused as error:
            if error.code not in _STALE or not left:
                raise
    raise AssertionError("not reached")


_COORDINATED = {
    "drop": "_shardsvrDropCollection",
    "collMod": "_shardsvrCollMod",
    "dropIndexes": "_shardsvrDropIndexes",
}
_EXPLAINED = {"find": "clusterFind", "aggregate": "clusterAggregate"}
_OF_CONFIG_SERVER = frozenset(
    {"ping", "buildInfo", "buildinfo", "connectionStatus", "getDefaultRWConcern"}
)
_RENAMED_FOR_CONFIG_SERVER = {
    "setUserWriteBlockMode": "_configsvrSetUserWriteBlockMode",
}
_Handler = Callable[[Commands, Call], Document]
# Wherever they are run.
_OWN: dict[str, _Handler] = {
    "endSessions": lambda commands, call: {"ok": 1.0},
    "listDatabases": Commands._listed_databases,
    "appendOplogNote": Commands._noted,
    "shardCollection": Commands._sharded,
    "refineCollectionShardKey": Commands._refined,
    "moveRange": Commands._moved,
    "renameCollection": Commands._renamed,
    "getMore": Commands._more,
    "killCursors": Commands._killed,
    "aggregate": Commands._aggregated,
}
# Of a database of users; those of the others are the config server's.
_OF_DATABASE: dict[str, _Handler] = {
    "find": Commands._found,
    "explain": Commands._explained,
    "count": Commands._counted,
    "listCollections": Commands._listed,
    "listIndexes": Commands._listed_indexes,
    **dict.fromkeys(("insert", "update", "delete"), Commands._written),
    "create": Commands._created,
    "createIndexes": Commands._indexed,
    "dropDatabase": Commands._dropped_database,
    **dict.fromkeys(_COORDINATED, Commands._done_by_coordinator),
}
