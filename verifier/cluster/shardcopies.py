"""Tells what only comes of documents that move from shard to shard from what users do to definitions."""

from __future__ import annotations

from verifier.cluster import failures
from verifier.cluster.connect import Client
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.facts import ClusterFacts, Topology
from verifier.cluster.inventory import is_sharded
from verifier.runtime.retry import retry
from verifier.runtime.tasks import StopToken

# What a shard tells of chunks that come first or go last.
_OF_CHUNKS = frozenset({"migrateChunkToNewShard", "migrateLastChunkFromShard"})


class ShardCopies:
    """A shard to which the first documents of a collection move makes its copy of the collection and its indexes.

    When users shard a collection, more comes than that.
    """

    def __init__(self, client: Client, facts: ClusterFacts, stop: StopToken) -> None:
        self._client = client
        self._possible = facts.topology is Topology.SHARDED
        self._stop = stop
        # The collections of which shards have made copies.
        self._copied: set[bytes] = set()

    def is_one(self, event: DefinitionEvent) -> bool:
        """Whether the event tells of such a copy; all events are asked about, in their order."""
        uuid = event.collection
        if uuid is None or not self._possible:
            return False
        if event.operation == "create" and retry(
            lambda: is_sharded(self._client, uuid), failures.is_transient, self._stop
        ):
            self._copied.add(uuid)
        copied = uuid in self._copied and event.operation in ("create", "createIndexes")
        return copied or event.operation in _OF_CHUNKS
