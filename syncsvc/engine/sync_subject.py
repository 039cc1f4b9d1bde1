"""What the check of a sync compares: all that the destination holds, with what it is to have of the source by now."""

from __future__ import annotations

from dataclasses import dataclass, replace

from syncsvc.engine.definitions.standin import stand_in
from syncsvc.engine.run.context import RunContext
from syncsvc.indexing import destined
from syncsvc.state import State
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.specification import CollectionSpec
from verifier.compare.listing import names_on, without_reserved
from verifier.compare.record import Side
from verifier.compare.scope import NamespacePair
from verifier.compare.subject import Watched
from verifier.runtime.tasks import StopToken

# How far the destination may be behind for a look at what changed, in seconds.
_MOST_LAG = 10


@dataclass(frozen=True)
class SyncSubject:
    """The subject of the check, before the cut-over."""

    context: RunContext
    stop: StopToken

    def pairs(self) -> set[NamespacePair]:
        """Whatever the filter: the destination was empty, and may hold nothing that is not of the source."""
        context = self.context
        selected = context.selection.of(names_on(context.source_client, self.stop))
        names = {*selected, *names_on(context.destination_client, self.stop)}
        return {NamespacePair(each, each) for each in names}

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """What stands in for it until commit."""
        context = self.context
        if not context.selection.selects(source.namespace):
            return None
        record = None if source.uuid is None else context.registry.get(source.uuid)
        wanted = destined(source, context.run.record.options)
        if record is not None:
            # Of a source without shards, it keeps the key that it was created with, whatever its name is by now.
            shard_key = source.shard_key or record.definition.shard_key
            wanted = replace(wanted, shard_key=shard_key)
            wanted = replace(wanted, indexes={}) if record.withheld else wanted
        return stand_in(wanted)

    def watched(self, side: Side) -> Watched:
        return Watched(without_reserved(NamespaceFilter()), _defined)

    def is_settled(self) -> bool:
        """While many changes are on their way, what is looked at is mostly one of these, and costs them time.

        So it does when a commit was asked for, which waits for all of them, and then has everything looked at.
        """
        if self.context.run.record.state is State.COMMITTING:
            return False
        lag = self.context.progress.snapshot.lag_seconds
        return lag is not None and lag <= _MOST_LAG


def _defined(name: Namespace) -> Namespace | None:
    return name if is_user_namespace(name) else None
