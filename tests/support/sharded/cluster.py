"""A sharded cluster of temporary servers on loopback, without access control."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from types import MappingProxyType
from typing import Any, Self

from pymongo import MongoClient
from pymongo.errors import ConnectionFailure

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.reaper import keeper
from syncsvc.sandbox.replica_set import Client
from tests.support.members import ThreeMembers
from tests.support.service_process import free_port
from tests.support.waiting import wait_for

MONGOS_VARIABLE = "SYNCSVC_MONGOS"
_MAJORITY = {"w": "majority"}
# After a shutdown error of a primary, a router does not use the primary until the next heartbeat. With the default, a
# streaming monitor, heartbeats come only every 10 s.
_PARAMETERS = {"replicaSetMonitorProtocol": "sdam", "heartBeatFrequencyMs": "500"}


def find_mongos() -> str | None:
    """Return the path of a real mongos, from $SYNCSVC_MONGOS or PATH; None if there is none."""
    return os.environ.get(MONGOS_VARIABLE) or shutil.which("mongos")


def _addresses(replica_set: ReplicaSet) -> str:
    return ",".join(each.address for each in replica_set.members)


class Router:
    """A router that can be killed and restarted on the same port.

    It is a mongos if one is installed, and otherwise a stand-in for it (the module `router`). `sessions` returns the
    folder in which all stand-ins of a cluster record the transaction numbers of sessions.
    """

    def __init__(self, config: ReplicaSet, sessions: Callable[[], Path]) -> None:
        self._config = config
        self._sessions = sessions
        self._port = 0
        self._folder: Path | None = None
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def pid(self) -> int | None:
        """Return the process ID, or None if the process does not run."""
        return None if self._process is None else self._process.pid

    def start(self) -> None:
        """Start the process and wait until it answers."""
        self._folder = self._folder or keeper.make_folder(Path(tempfile.gettempdir()))
        self._port = self._port or free_port()
        with (self._folder / "router.log").open("ab") as log:
            self._process = keeper.spawn(self._command(), log)
        wait_for(self._answers, "the router answers")

    def kill(self) -> None:
        """Kill the process with SIGKILL; a no-op if it does not run."""
        if self._process is not None:
            keeper.kill(self._process)
            self._process = None

    def stop(self) -> None:
        """Kill the process and remove its files; a no-op if it was not started."""
        self.kill()
        self._port = 0
        if self._folder is not None:
            keeper.remove_folder(self._folder)
            self._folder = None

    def _command(self) -> list[str]:
        members = _addresses(self._config)
        mongos = find_mongos()
        if mongos is None:
            router = [sys.executable, "-m", "tests.support.sharded.router"]
            return [*router, members, str(self._port), str(self._sessions())]
        database = f"{self._config.name}/{members}"
        return [mongos, "--configdb", database, "--port", str(self._port), "--bind_ip", "127.0.0.1"]

    def _answers(self) -> bool:
        assert self._process is not None and self._folder is not None
        if self._process.poll() is not None:
            raise AssertionError(f"the router ended: {(self._folder / 'router.log').read_text()}")
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", self._port)):
                return False
        try:
            # No short timeout: on a busy machine, it could fail every time.
            with closing(MongoClient[dict[str, Any]](f"mongodb://{self.address}/")) as client:
                return bool(client.admin.command("ping")["ok"])
        except ConnectionFailure:
            return False


class ShardedCluster:
    """A config server, some shards, and some routers. The config server and each shard have `members` members, 1 or 3.

    A context manager. It has `uri`, `client`, `start` and `stop` like a ReplicaSet.
    """

    def __init__(
        self,
        *,
        name: str = "sharded",
        shards: int = 2,
        routers: int = 2,
        members: int = 1,
        oplog_size_mb: int | None = None,
        cache_size_gb: float = 0.25,
        parameters: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        def member(part: str, role: str) -> ReplicaSet:
            kind = ReplicaSet if members == 1 else ThreeMembers
            return kind(
                name=f"{name}-{part}",
                oplog_size_mb=oplog_size_mb,
                cache_size_gb=cache_size_gb,
                parameters={**_PARAMETERS, **parameters},
                cluster_role=role,
            )

        self.name = name
        self.config = member("config", "configsvr")
        self.shards = tuple(member(f"shard{number}", "shardsvr") for number in range(shards))
        self.routers = tuple(Router(self.config, self._shared) for _ in range(routers))
        self._folder: Path | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.stop()

    @property
    def uri(self) -> str:
        """Return the connection string that names all routers."""
        return f"mongodb://{','.join(each.address for each in self.routers)}/"

    def client(self, **options: Any) -> Client:
        """Return a new client that is connected to the routers; the caller closes it."""
        return MongoClient(self.uri, **options)

    def start(self) -> None:
        """Start the config server and the shards, then the routers, and wait until the routers answer.

        If a server does not start, stop all servers.
        """
        with ExitStack() as undo:
            undo.callback(self.stop)
            self._folder = keeper.make_folder(Path(tempfile.gettempdir()))
            with ThreadPoolExecutor() as pool:
                list(pool.map(ReplicaSet.start, (self.config, *self.shards)))
                for shard in self.shards:
                    self._add(shard)
                list(pool.map(Router.start, self.routers))
            undo.pop_all()

    def stop(self) -> None:
        """Stop all servers and remove their data; a no-op if the cluster is not started."""
        servers: tuple[Router | ReplicaSet, ...] = (*self.routers, *self.shards, self.config)
        for each in servers:
            each.stop()
        if self._folder is not None:
            keeper.remove_folder(self._folder)
            self._folder = None

    def _shared(self) -> Path:
        assert self._folder is not None
        return self._folder

    def add_shard(self, shard: ReplicaSet) -> None:
        """Add a running shard to the cluster. The routers are restarted, because a stand-in keeps the list of shards.

        The caller stops the shard.
        """
        self._add(shard)
        for each in self.routers:
            each.kill()
            each.start()

    def _add(self, shard: ReplicaSet) -> None:
        host = f"{shard.name}/{_addresses(shard)}"
        command = {"_configsvrAddShard": host, "name": shard.name, "writeConcern": _MAJORITY}
        with self.config.client() as client:
            client.admin.command(command)
