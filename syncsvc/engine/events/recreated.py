"""Collections that the servers of a sharded source make anew, and fill without a word in the change stream.

`movePrimary` makes the unsharded collections of a database anew on another shard, each with another UUID, and drops the
old ones when all is there; `convertToCapped` fills a collection of a temporary name, which then takes the name. The
events of their documents are hidden: routers refuse to show them, as they would show what moves from shard to shard.
So such a collection is left alone until it has the name, and then copied from the source as it is. (A collection that
users drop and create anew may be copied by this, too, which is as good.)
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
    """Of a source that is no sharded cluster, there are none."""

    def __init__(self, context: RunContext, renames: Renames, stop: StopToken) -> None:
        self._context = context
        self._renames = renames
        self._stop = stop
        self._possible = context.source_facts.is_sharded

    def is_one(self, created: DefinitionEvent) -> bool:
        """Whether what is created there is filled without events, or gone since."""
        name = created.namespace
        if not self._possible:
            return False
        # A user may choose such a name, but cannot have the server take it for temporary.
        temporary = created.description.get("temp") and ".convertToCapped." in name.collection
        return bool(temporary) or any(
            each.source_name == name and each.uuid != created.collection
            for each in self._context.registry
        )

    def take_over(self, name: Namespace) -> None:
        """A collection of that name was dropped: copy what has taken its place, if no event has told of that."""
        if not self._possible or not self._context.selection.selects(name):
            return
        found = find_named_on_source(self._context, name, self._stop)
        if found is None or found.kind is Kind.VIEW or found.sharded:
            return
        assert found.uuid is not None
        record = self._context.registry.get(found.uuid)
        if record is None or record.status is not CopyStatus.DONE:
            self._renames.adopt(found.uuid, name)
