"""Replica sets behind proxies, which disturb messages as a network does."""

from __future__ import annotations

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.mongod import Mongod
from tests.bench.clusters import CACHE_GB
from tests.support.proxy import Network, Proxy


class Proxied(ReplicaSet):
    """A replica set of one member that clients reach only through a proxy."""

    def __init__(self, name: str, network: Network) -> None:
        super().__init__(name=name, cache_size_gb=CACHE_GB)
        self._network = network
        self._proxy: Proxy | None = None

    def _advertised(self, member: Mongod) -> str:
        self._proxy = self._proxy or self._network.proxy(member.port)
        return self._proxy.address
