"""Handles collections that the servers of a sharded source recreate and fill without visible change events.

`movePrimary` recreates the unsharded collections of a database on another shard, each with a new UUID, and drops the
old ones when the new ones are complete. `convertToCapped` fills a collection with a temporary name, which then takes
the name of the original. The events of their documents are hidden: routers do not show them, just as they do not show
documents that move between shards. So such a collection is ignored until it has replaced the original, and is then
copied from the source. (A collection that users drop and create again may be copied in this way, too. The result is the
same.)

`reshardCollection` replaces a collection in this way, too. Servers before 6.0.14 send no event for this command at all:
the module `rekeying` detects the replaced collection.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from syncsvc.engine.definitions.source_lookup import find_named_on_source, find_on_source
from syncsvc.engine.events.renames import Renames
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.saved.registry import CollectionRecord, CopyStatus
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import CollectionSpec, Kind
from verifier.runtime.tasks import StopToken, wait_until
from verifier.runtime.waits import waiting

_log = logging.getLogger(__name__)
_DROPPING = (
    "The source drops the old version at the end of reshardCollection, moveCollection, unshardCollection or "
    "movePrimary: check with db.currentOp() whether such a command still runs."
)


class Recreated:
    """Handles the collections that the servers of a sharded source recreate. Any other source has none."""

    def __init__(self, context: RunContext, renames: Renames, stop: StopToken) -> None:
        self._context = context
        self._renames = renames
        self._stop = stop
        self._possible = context.source_facts.is_sharded

    def is_one(self, created: DefinitionEvent) -> bool:
        """Return whether to ignore a `create` event, because the servers fill the new collection without change events.

        This is so if the collection is an intermediate step of `convertToCapped`, or if the registry has another
        collection with this name. The second case occurs during `movePrimary`, which replaces the old collection with
        the new one: `take_over` copies the new collection when the old one is dropped.
        """
        name = created.namespace
        if not self._possible:
            return False
        # A user can choose such a name, but cannot make the server mark the collection as temporary.
        temporary = created.description.get("temp") and ".convertToCapped." in name.collection
        return bool(temporary) or bool(self._holders(name, created.collection))

    def take_over(self, name: Namespace) -> None:
        """Copy the source's collection with this name, after another collection with this name was dropped.

        No-op if the source is not sharded, no collection has the name now, the filter excludes the name, or the new
        collection is already synced. The new collection may be sharded: users can shard it as soon as `movePrimary` has
        ended, which may be before the drop event is read.
        """
        if not self._possible or not self._context.selection.selects(name):
            return
        found = find_named_on_source(self._context, name, self._stop)
        if found is not None and found.kind is not Kind.VIEW:
            self._adopt(found)

    def replace(self, record: CollectionRecord) -> None:
        """Copy the new collection that has replaced an old one on the source, and drop the old one on the destination.

        `record` is the record of the old collection. Waits first until the source has dropped the old collection.
        Nothing is copied if the source no longer has a collection with its name. Until the new collection is completely
        copied, it has a temporary name on the destination. Servers cannot rename time-series collections: an old one is
        dropped on the destination before the new one is copied under its final name. If the process is killed, the
        saved record makes the next process repeat the call.
        """
        name = record.source_name
        _log.info(
            "A collection was resharded, moved or unsharded on the source, which gives it a new UUID. The collection "
            "is copied again; other changes are applied after the copy.",
            extra={"namespace": str(name)},
        )
        with waiting(
            f"The sync waits until the source has dropped the old version of {name}, which was resharded, moved or "
            "unsharded",
            _DROPPING,
        ):
            wait_until(lambda: self._is_gone(record), self._stop)
        found = find_named_on_source(self._context, name, self._stop)
        if record.definition.kind is Kind.TIME_SERIES:
            record = self._renames.vacate(record)
        if found is not None and found.kind is not Kind.VIEW:
            self._adopt(found)
        self._context.observe(Point.COLLECTION_REPLACED, str(name))
        self._renames.drop(record)

    def forget(self, name: Namespace, uuid: bytes) -> None:
        """Drop the destination's copy of the collection that `uuid` has replaced on the source under the same name.

        `name` is this name on the source, and `uuid` is the UUID of the new collection. No-op if the source is not
        sharded, if no other synced collection has this name, or if the source still has the replaced collection.
        """
        for record in self._holders(name, uuid):
            if self._is_gone(record):
                self._renames.drop(record)

    def _is_gone(self, record: CollectionRecord) -> bool:
        database = record.source_name.database
        return find_on_source(self._context, database, record.uuid, self._stop) is None

    def _holders(self, name: Namespace, uuid: bytes | None) -> Collection[CollectionRecord]:
        """Return the records of collections with this name on the source, except the record with the UUID `uuid`.

        Return an empty collection if the source is not sharded.
        """
        if not self._possible:
            return ()
        return [
            each
            for each in self._context.registry
            if each.source_name == name and each.uuid != uuid
        ]

    def _adopt(self, found: CollectionSpec) -> None:
        assert found.uuid is not None
        record = self._context.registry.get(found.uuid)
        if record is None or record.status is not CopyStatus.DONE:
            self._renames.adopt(found.uuid, found.namespace)
