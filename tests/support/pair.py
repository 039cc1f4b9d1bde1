"""The two clusters of a test: replica sets, or a sharded cluster on one or both sides."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from syncsvc.sandbox import ReplicaSet
from syncsvc.sandbox.equality import compare_clusters, differences_by_database
from syncsvc.sandbox.mongod import Mongod
from syncsvc.sandbox.replica_set import Client
from tests.support import waiting
from tests.support.daemon import Daemon
from tests.support.deaths import DeathWatch
from tests.support.sharded.cluster import Router, ShardedCluster

_KEPT = {"admin", "config", "local"}
# Databases that tests leave without collections. The servers do not list them, but keep their names until a
# dropDatabase, and refuse a database whose name differs only in case.
_EMPTIED = {"store", "Store"}
# With the first parameter, expired documents are deleted within a second instead of a minute. Without the second one,
# every index build on a set of one member waits 100 ms, so that it can be resumed.
_PARAMETERS = {"ttlMonitorSleepSecs": "1", "resumableIndexBuildMajorityOpTimeTimeoutMillis": "0"}


class Topology(Enum):
    """The topologies of a pair. The value says whether the source is sharded, then whether the destination is."""

    REPLICA_SETS = (False, False)
    TO_SHARDED = (False, True)
    SHARDED = (True, True)
    FROM_SHARDED = (True, False)

    @property
    def from_sharded(self) -> bool:
        return self.value[0]


REPLICA_SETS, TO_SHARDED = Topology.REPLICA_SETS, Topology.TO_SHARDED
SHARDED, FROM_SHARDED = Topology.SHARDED, Topology.FROM_SHARDED


def across(*topologies: object) -> pytest.MarkDecorator:
    """Return a mark that runs a test, or the tests of a module, once for each topology.

    Tests without this mark run between replica sets only.
    """
    return pytest.mark.parametrize("pair", topologies, indirect=True, ids=lambda each: each.name)


across_topologies = across(
    REPLICA_SETS, TO_SHARDED, SHARDED, pytest.param(FROM_SHARDED, marks=pytest.mark.full)
)


@dataclass(frozen=True)
class Side:
    """One cluster of a test. `shards` and `routers` are empty for a replica set."""

    uri: str
    client: Client
    shards: tuple[ReplicaSet, ...] = ()
    routers: tuple[Router, ...] = ()

    def empty(self) -> None:
        admin = self.client.admin
        admin.command({"setUserWriteBlockMode": 1, "global": False})
        names = {*self.client.list_database_names(), *_EMPTIED} - _KEPT
        # Drop the databases in parallel, because a sharded cluster takes long to drop a database.
        with ThreadPoolExecutor(max_workers=4) as executor:
            list(executor.map(self.client.drop_database, names))
        if self.shards and admin.command("balancerStatus")["mode"] != "full":
            admin.command("balancerStart")


@dataclass(frozen=True)
class Pair:
    """The source and the destination of a test. `shard_keys` maps namespaces to the shard keys for the start."""

    source: Side
    destination: Side
    shard_keys: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def is_sharded(self) -> bool:
        """Return whether at least one cluster is sharded, so that `shard` has an effect."""
        return bool(self.source.shards or self.destination.shards)

    @property
    def changes_to_shards(self) -> bool:
        """Return whether the source is a replica set and the destination is sharded.

        Such a sync does not support renames of collections to another database.
        """
        return bool(self.destination.shards) and not self.source.shards

    @property
    def has_equal_sides(self) -> bool:
        """Return whether both clusters have the same topology, so that a sync can be reversed."""
        return bool(self.destination.shards) == bool(self.source.shards)

    def shard(self, namespace: str, key: dict[str, Any] | None = None) -> None:
        """Shard a collection for a test; a no-op between replica sets.

        A sharded source gets the shard key at once. If only the destination is sharded, the start of the sync requests
        the shard key for the destination. The default key is the hashed `_id`.
        """
        key = key or {"_id": "hashed"}
        if not self.is_sharded:
            return
        if self.source.shards:
            # The server accepts only this collation, and requires it for collections with a default collation.
            collation = {"locale": "simple"}
            self.source.client.admin.command(
                "shardCollection", namespace, key=key, collation=collation
            )
        else:
            self.shard_keys[namespace] = {"key": key, "unique": False}

    def start_options(self) -> dict[str, Any]:
        """Return the start options that a sync between these clusters requires; empty if there are none."""
        if not self.changes_to_shards:
            return {}
        entries = [_entry(*each) for each in self.shard_keys.items()]
        return {"sharding": {"createSupportingIndexes": True, "shardingEntries": entries}}

    def daemon(self, folder: Path, *options: str) -> Daemon:
        """Return a daemon between these clusters. Its process is not started."""
        uris = self.source.uri, self.destination.uri
        return Daemon(*uris, folder, *options, start_options=self.start_options)

    @contextmanager
    def successor(self, daemon: Daemon) -> Iterator[Daemon]:
        """Yield a second daemon, and close it at the end of the block.

        Its process is not started. When the test starts it, the second daemon takes over the sync of `daemon`.
        """
        folder = daemon.folder / "successor"
        folder.mkdir()
        with closing(self.daemon(folder)) as successor:
            yield successor

    def assert_equal(self) -> None:
        """Fail if the clusters differ according to the sandbox's comparison, which shares no code with the product."""
        clients = self.source.client, self.destination.client
        result = compare_clusters(*clients, self.shard_keys)
        assert_none(result.differences)
        assert result.namespaces > 0

    def differences(self) -> dict[str, tuple[str, ...]]:
        """Return the differences that the sandbox's comparison finds: sentences, by database."""
        clients = self.source.client, self.destination.client
        return differences_by_database(*clients, self.shard_keys)

    def empty(self) -> None:
        self.source.empty()
        self.destination.empty()


def assert_none(differences: Sequence[str]) -> None:
    """Fail with all of these differences, one per line, if there are any. A plain assertion would shorten the list."""
    assert not differences, "\n".join([f"{len(differences)} differences:", *differences])


def _entry(namespace: str, shard_key: dict[str, Any]) -> dict[str, Any]:
    database, _, collection = namespace.partition(".")
    key = [{name: kind} for name, kind in shard_key["key"].items()]
    return {"database": database, "collection": collection, "shardCollection": {"key": key}}


_Cluster = ReplicaSet | ShardedCluster


class _Kind(NamedTuple):
    """The properties of a cluster that tests share. `members` is the size of the replica set, or of each shard."""

    name: str
    is_sharded: bool
    members: int

    def is_idle_beside(self, topology: Topology) -> bool:
        """Return whether to stop this cluster when a test needs a pair of this topology, because it would be idle.

        Replica sets of one member are never stopped early.
        """
        return self.members > 1 or (self.is_sharded and topology is REPLICA_SETS)

    def cluster(self) -> _Cluster:
        if self.is_sharded:
            return ShardedCluster(name=self.name, members=self.members, parameters=_PARAMETERS)
        # A large transaction must fit into the cache together with everything written just before.
        return ReplicaSet(
            name=self.name, members=self.members, cache_size_gb=1, parameters=_PARAMETERS
        )


class _Started(NamedTuple):
    """A running cluster; closing `stack` stops it."""

    side: Side
    cluster: _Cluster
    stack: ExitStack

    @property
    def servers(self) -> list[Mongod]:
        cluster = self.cluster
        sets = [cluster] if isinstance(cluster, ReplicaSet) else [cluster.config, *cluster.shards]
        return [member for each in sets for member in each.members]


class Clusters:
    """Clusters that many tests share.

    A cluster is started when a test first needs it, and stopped at the end of the `with` block. Some idle clusters are
    stopped earlier, because they slow down the others: a sharded cluster if a test requests two replica sets, and a set
    of three members if a test requests another pair. Each shard, and each config server, has `shard_members` members.
    If a server dies, `wait_for` raises MongodDied, and all calls to its cluster fail.
    """

    def __init__(self, shard_members: int = 1) -> None:
        self._shard_members = shard_members
        self._started: dict[_Kind, _Started] = {}
        self._deaths = DeathWatch(self._servers)

    def __enter__(self) -> Clusters:
        self._deaths.__enter__()
        waiting.refusals.append(self._deaths.refuse_dead)
        return self

    def __exit__(self, *error: object) -> None:
        waiting.refusals.remove(self._deaths.refuse_dead)
        self._deaths.__exit__()
        self._end([*self._started])

    def discard_dead(self) -> None:
        """Stop each cluster that has lost a server, so that the next pair is complete; then raise MongodDied.

        This is a no-op if no server has died.
        """
        try:
            self._deaths.refuse_dead()
        finally:
            self._end(self._deaths.forget())

    def pair(self, topology: Topology = REPLICA_SETS, members: int = 1) -> Pair:
        """Return a source and a destination of this topology; each replica set has `members` members.

        Raises MongodDied if a server has died since the last call.
        """
        self.discard_dead()
        names = ("source", "destination")
        wanted = [
            _Kind(name, is_sharded, self._shard_members if is_sharded else members)
            for name, is_sharded in zip(names, topology.value, strict=True)
        ]
        unused = {kind for kind in self._started if kind.is_idle_beside(topology)}
        self._end(unused.difference(wanted))
        missing = [each for each in wanted if each not in self._started]
        with ThreadPoolExecutor() as executor:
            list(executor.map(self._start, missing))
        source, destination = (self._started[each].side for each in wanted)
        return Pair(source, destination)

    def _servers(self) -> dict[_Kind, list[Mongod]]:
        return {kind: each.servers for kind, each in [*self._started.items()]}

    def _start(self, kind: _Kind) -> None:
        with ExitStack() as stack:
            cluster: Any = stack.enter_context(kind.cluster())
            client = stack.enter_context(cluster.client())
            parts = (getattr(cluster, name, ()) for name in ("shards", "routers"))
            side = Side(cluster.uri, client, *parts)
            self._started[kind] = _Started(side, cluster, stack.pop_all())

    def _end(self, unwanted: Iterable[_Kind]) -> None:
        with ExitStack() as ended:
            for each in unwanted:
                ended.push(self._started.pop(each).stack)


@contextmanager
def started_pair(topology: Topology = REPLICA_SETS) -> Iterator[Pair]:
    """Start two new clusters without access control, and stop them at the end of the block."""
    with Clusters() as clusters:
        yield clusters.pair(topology)
