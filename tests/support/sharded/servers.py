"""Connections to the servers behind the stand-in for mongos, and the choice of the server for a command."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path

from tests.support.sharded.call import Call
from tests.support.sharded.catalog import Catalog, Owner
from tests.support.sharded.cursors import Cursors, cursor_id_of
from tests.support.sharded.numbers import Numbers
from tests.support.sharded.primaries import Primaries
from tests.support.sharded.wire import Clock, Document, Refused, ServerConnection

MAJORITY = {"w": "majority"}
ON_CONFIG_SERVER = frozenset({"admin", "config"})
_STALE = frozenset({249, 13388})
# The maximum number of attempts while the version is stale, and the pause between them in seconds. Meanwhile, the shard
# refreshes its metadata, which takes more than two seconds if other tests use all CPUs.
_MOST_TRIES = 300
_TRIES_BEFORE_REFRESH = 20
_PAUSE = 0.05


class Shared:
    """The state of a router that all of its clients share.

    These are the newest cluster time, the cursors, the known primaries, and the transaction numbers, which the other
    routers of the cluster share through `folder`. `config` are the addresses of the members of the config server.
    """

    def __init__(self, config: tuple[str, ...], folder: Path) -> None:
        self.config = config
        self.clock = Clock()
        self.cursors = Cursors()
        self.primaries = Primaries(self.clock)
        self.numbers = Numbers(folder)


class Servers:
    """One client's connections to the config server and the shards."""

    def __init__(self, shared: Shared) -> None:
        self.clock = shared.clock
        self.cursors = shared.cursors
        self._config = shared.config
        self._primaries = shared.primaries
        self.catalog = Catalog(self._read, shared.primaries.of)
        self._connections: dict[str, ServerConnection] = {}

    def close(self) -> None:
        """Close all connections; the next command opens new ones."""
        for connection in self._connections.values():
            connection.close()
        self._connections.clear()

    @property
    def config(self) -> str:
        """Return the address of the primary of the config server."""
        return self._primaries.of(self._config)

    def _read(self, command: Document) -> Document:
        return self.connection(self.config).run(command)

    def connection(self, address: str) -> ServerConnection:
        if address in self._connections and self._connections[address].is_gone:
            # The server may have been restarted: the next command must not fail because of the old connection.
            self._connections.pop(address).close()
        if address not in self._connections:
            self._connections[address] = ServerConnection(address, self.clock)
        return self._connections[address]

    def run(self, address: str, call: Call) -> Document:
        return self.connection(address).run(call.body, call.sequences)

    def on_config_server(self, name: str, call: Call) -> Document:
        """Run a command on the config server under the internal name `name`, with write concern majority."""
        renamed = call.called(name, writeConcern=MAJORITY).having(**{"$db": "admin"})
        return self.run(self.config, renamed)

    def opening(self, address: str, call: Call, more: str = "getMore") -> Document:
        """Run a command on a server and return its reply; if the command opens a cursor, register the cursor.

        `more` is the name of the getMore command for that cursor.
        """
        reply = self.run(address, call)
        if "cursor" in reply:
            cursor_id = cursor_id_of(bytes(reply["cursor"].raw))
            if cursor_id:
                self.cursors.add((address, more), cursor_id)
        return reply

    def any_shard(self, call: Call) -> Document:
        return self.opening(self.catalog.shards[0].address, call, "clusterGetMore")

    def owner(self, owner: Owner, call: Call) -> Document:
        """Run a command on the shard `owner`, with the version fields that the shard requires; return the reply."""
        return self.run(owner.shard.address, call.having(**owner.versions))

    def owners(self, call: Call) -> list[Owner]:
        return self.catalog.owners(call.database, call.target)

    def primary(self, call: Call, database: str | None = None) -> Document:
        """Run a command on the primary shard of `database` (by default, the database of the command).

        The command carries the database version that the shard requires.
        """
        name = database or call.database
        return self.until_fresh(call, lambda: self.owner(self.catalog.primary(name), call))

    def definition(self, call: Call, database: str | None = None) -> Document:
        return self.primary(call.having(writeConcern=MAJORITY), database)

    def until_fresh(self, call: Call, run: Callable[[], Document]) -> Document:
        """Call `run`, which runs `call`, until it succeeds, and return its reply.

        Raise any error other than a stale metadata version. After 15 seconds, raise the error about the stale version,
        too.
        """
        for tried in range(1, _MOST_TRIES + 1):
            try:
                return run()
            except Refused as error:
                if error.code not in _STALE or tried == _MOST_TRIES:
                    raise
            if tried % _TRIES_BEFORE_REFRESH == 0 and isinstance(call.target, str):
                self._refresh(f"{call.database}.{call.target}")
            _pause.wait(_PAUSE)
        raise AssertionError("not reached")

    def _refresh(self, namespace: str) -> None:
        """Make each shard read the metadata of a collection again, for its own documents and for its use as a router.

        A shard that is used as a router can keep old metadata of a collection that was dropped and created again.
        """
        owned = {"_flushRoutingTableCacheUpdates": namespace, "syncFromConfig": True}
        for shard in self.catalog.shards:
            for command in ({"flushRouterConfig": namespace}, owned):
                self.run(shard.address, Call({**command, "$db": "admin"}))


_pause = threading.Event()
Handler = Callable[[Servers, Call], Document]
