"""Replica sets of three members, with methods that cause failures: stops, restarts, rollbacks, loss of the majority.

The functions give access to the data files of single members.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from pymongo import MongoClient

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.binary import find_mongod
from syncsvc.sandbox.mongod import Mongod, MongodOptions
from syncsvc.sandbox.replica_set import Client
from tests.support.proxy import Network, Proxy
from tests.support.waiting import wait_for


class ThreeMembers(ReplicaSet):
    """A replica set of three members that elects a new primary within seconds."""

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name=name, members=3, **options)

    @contextmanager
    def stopped(self, member: Mongod) -> Iterator[None]:
        """Suspend the process of a member (SIGSTOP) during the block. Its connections stay open."""
        pid = member.pid
        assert pid is not None
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    def kill_primary(self) -> int:
        """Kill the primary with SIGKILL, and return its index."""
        index = self.members.index(self.primary())
        self.kill_member(index)
        return index

    @contextmanager
    def without_primary(self) -> Iterator[None]:
        """Kill two of the three members, including the primary, and restart them at the end of the block.

        During the block, the last member cannot become primary.
        """
        first = self.kill_primary()
        second = (first + 1) % len(self.members)
        self.kill_member(second)
        try:
            yield
        finally:
            for index in (first, second):
                self.members[index].restart()
            self.primary()
            for index in (first, second):
                self._wait_until_in_service(self.members[index])

    def restart_all(self) -> None:
        """Kill and restart the members one by one, the primary last, as in a rolling upgrade."""
        primary = self.members.index(self.primary())
        others = [index for index in range(len(self.members)) if index != primary]
        for index in (*others, primary):
            self.kill_member(index)
            self.restart_member(index)
        self.primary()

    @contextmanager
    def without_majority(self) -> Iterator[None]:
        """Stop the replication to the secondaries during the block, so that no write gets a majority."""
        primary = self.primary()
        with self.lagging(*(each for each in self.members if each is not primary)):
            yield

    @contextmanager
    def lagging(self, *secondaries: Mongod) -> Iterator[None]:
        """Stop the replication to these members during the block. They still answer."""
        clients = [self._direct_client(each) for each in secondaries]
        try:
            for each in clients:
                _set_point(each, "stopReplProducer", "alwaysOn")
            yield
        finally:
            for each in clients:
                _set_point(each, "stopReplProducer", "off")
                each.close()

    def roll_back(self, write: Any) -> None:
        """Call `write` with a direct client of the primary, and make the replica set roll back these writes.

        Returns when the former primary is a secondary again.
        """
        old = self.primary()
        with self.without_majority(), self._direct_client(old) as client:
            write(client)
            os.kill(_pid(old), signal.SIGSTOP)
        try:
            wait_for(lambda: self._primary_beside(old), "another primary")
        finally:
            os.kill(_pid(old), signal.SIGCONT)
        wait_for(lambda: self._role(old) == "secondary", "the old primary has rolled back")

    def _primary_beside(self, old: Mongod) -> bool:
        return any(self._role(each) == "primary" for each in self.members if each is not old)


class ProxiedMembers(ThreeMembers):
    """A replica set of three members that clients and the members themselves reach only through proxies."""

    def __init__(self, name: str, network: Network, **options: Any) -> None:
        super().__init__(name, **options)
        self._network = network
        self._proxies: dict[int, Proxy] = {}

    def _advertised(self, member: Mongod) -> str:
        if member.port not in self._proxies:
            self._proxies[member.port] = self._network.proxy(member.port)
        return self._proxies[member.port].address


def shut_down(member: Mongod) -> None:
    """Shut down the server of this member cleanly, so that its files contain all data."""
    os.kill(_pid(member), signal.SIGTERM)
    wait_for(lambda: member.pid is None, "the server ends")


def folder_of(member: Mongod) -> Path:
    return member._folder


@contextmanager
def standalone(member: Mongod) -> Iterator[Client]:
    """Yield a client of a standalone server that runs on the data of a member within the block.

    The member must not run, and is not started.
    """
    with closing(Mongod(find_mongod(), folder_of(member), MongodOptions(None))) as server:
        server.start()
        server.wait_until_listening()
        with MongoClient[dict[str, Any]](f"mongodb://{server.address}/") as client:
            yield client
        shut_down(server)


def _pid(member: Mongod) -> int:
    assert member.pid is not None
    return member.pid


def _set_point(client: Client, point: str, mode: str) -> None:
    client.admin.command({"configureFailPoint": point, "mode": mode})
