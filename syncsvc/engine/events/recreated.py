"""Collections that the servers of a sharded source recreate and fill without visible change events.

`movePrimary` recreates the unsharded collections of a database on another shard, each with a new UUID, and drops the
old ones when the new ones are complete. `convertToCapped` fills a collection with a temporary name, which then takes
the name of the original. The events of their documents are hidden: routers do not show them, just as they do not show
documents that move between shards. So such a collection is ignored until it has its final name, and is then copied from
the source. (A collection that users drop and create again may be copied in this way, too. The result is the same.)
"""

from __future__ import annotations

from syncsvc.engine.definitions.source_lookup import find_named_on_source
from syncsvc.engine.events.renames import Renames
from syncsvc.engine.run.context import RunContext
from syncsvc.saved.registry import CopyStatus
from verifier.cluster.events import DefinitionEvent
from verifier.cluster.namespace import Namespace
from verifier.cluster.specification import Kind
from verifier.runtime.tasks import StopToken


class Recreated:
    """Handles the collections that the servers of a sharded source recreate. Any other source has none."""

    def __init__(self, context: RunContext, renames: Renames, stop: StopToken) -> None:
        self._context = context
        self._renames = renames
        self._stop = stop
        self._possible = context.source_facts.is_sharded

    def is_one(self, created: DefinitionEvent) -> bool:
        """Return whether to ignore a `create` event, because the servers fill the new collection without change events.

        They do if the collection is an intermediate step of `convertToCapped`. They also do if the registry has another
        collection with this name: then `movePrimary` replaces that collection by the new one, and `take_over` copies
        the new one when the old one is dropped.
        """
        name = created.namespace
        if not self._possible:
            return False
        # A user can choose such a name, but cannot make the server mark the collection as temporary.
        temporary = created.description.get("temp") and ".convertToCapped." in name.collection
        return bool(temporary) or any(
            each.source_name == name and each.uuid != created.collection
            for each in self._context.registry
        )

    def take_over(self, name: Namespace) -> None:
        """Copy the collection that replaced a dropped collection with this name.

        No-op if there is none, if it is sharded or a view, or if its own events have created it already.
        """
        if not self._possible or not self._context.selection.selects(name):
            return
        found = find_named_on_source(self._context, name, self._stop)
        if found is None or found.kind is Kind.VIEW or found.sharded:
            return
        assert found.uuid is not None
        record = self._context.registry.get(found.uuid)
        if record is None or record.status is not CopyStatus.DONE:
            self._renames.adopt(found.uuid, name)
