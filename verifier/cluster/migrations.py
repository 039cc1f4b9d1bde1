"""Distinguishes the DDL events that chunk migrations cause from the DDL events of users."""

from __future__ import annotations

from verifier.cluster.connect import Client
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.inventory import is_sharded
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken

# Events for the first chunk that comes to a shard, and for the last chunk that leaves one.
_OF_CHUNKS = frozenset({"migrateChunkToNewShard", "migrateLastChunkFromShard"})


class Migrations:
    """Recognizes the DDL events that chunk migrations cause on a sharded cluster. Not thread-safe.

    Before a shard receives its first chunk of a collection, it creates the collection and its indexes. This causes DDL
    events for a collection that already exists. The `create` event of a collection that a user creates and shards can
    look the same, but a migration never causes a `shardCollection` event.
    """

    def __init__(self, client: Client, facts: ClusterFacts, stop: StopToken) -> None:
        self._client = client
        self._possible = facts.is_sharded
        self._stop = stop
        # The UUIDs of the collections whose `create` event was attributed to a migration.
        self._made: set[bytes] = set()

    def caused(self, event: DefinitionEvent) -> bool:
        """Return whether a chunk migration, and not a user, caused the event; always False on a replica set.

        Known limit: after a `create` event that is attributed to a migration, each `createIndexes` event of the same
        collection is attributed to it as well. Call this function for all DDL events, in their order. Raises the
        driver's errors, and `Cancelled`.
        """
        uuid = event.collection
        if uuid is None or not self._possible:
            return False
        if event.operation == "create" and read(lambda: is_sharded(self._client, uuid), self._stop):
            self._made.add(uuid)
        made = uuid in self._made and event.operation in ("create", "createIndexes")
        return made or event.operation in _OF_CHUNKS
