"""Tells what only comes of documents that move from shard to shard from what users do to definitions."""

from __future__ import annotations

from verifier.cluster.connect import Client
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.inventory import is_sharded
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken

# What a shard tells of chunks that come first or go last.
_OF_CHUNKS = frozenset({"migrateChunkToNewShard", "migrateLastChunkFromShard"})


class Migrations:
    """Migrations of chunks: a shard that had no documents of a collection makes it there, and its indexes, first.

    When users shard a collection, more comes than that.
    """

    def __init__(self, client: Client, facts: ClusterFacts, stop: StopToken) -> None:
        self._client = client
        self._possible = facts.is_sharded
        self._stop = stop
        # The collections that were made on a further shard.
        self._made: set[bytes] = set()

    def caused(self, event: DefinitionEvent) -> bool:
        """Whether the event comes of a migration alone; all events are asked about, in their order."""
        uuid = event.collection
        if uuid is None or not self._possible:
            return False
        if event.operation == "create" and read(lambda: is_sharded(self._client, uuid), self._stop):
            self._made.add(uuid)
        made = uuid in self._made and event.operation in ("create", "createIndexes")
        return made or event.operation in _OF_CHUNKS
