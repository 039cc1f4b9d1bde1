"""What the check of a sync compares: the whole destination with its expected state, derived from the source."""

from __future__ import annotations

from dataclasses import dataclass, replace

from bson.timestamp import Timestamp

from syncsvc.engine.commit_end import CommitEnd
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

# How many seconds the destination may lag behind for changed documents to be compared again.
_MOST_LAG = 10


@dataclass(frozen=True)
class SyncSubject:
    """The namespaces and definitions that the check of a sync compares, before the cut-over."""

    context: RunContext
    commit_end: CommitEnd
    stop: StopToken

    def pairs(self) -> set[NamespacePair]:
        """Return the selected namespaces of the source, and all of the destination, each paired with the same name.

        The destination was empty at the start, so it must not hold anything that does not come from the source.
        """
        context = self.context
        selected = context.selection.of(names_on(context.source_client, self.stop))
        names = {*selected, *names_on(context.destination_client, self.stop)}
        return {NamespacePair(each, each) for each in names}

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """Return the stand-in that the destination must have until the commit; None if the filter excludes `source`."""
        context = self.context
        if not context.selection.selects(source.namespace):
            return None
        record = None if source.uuid is None else context.registry.get(source.uuid)
        wanted = destined(source, context.run.record.options)
        if record is not None:
            # From a source that is not sharded, the collection keeps the shard key that it was created with, even after
            # a rename.
            shard_key = source.shard_key or record.definition.shard_key
            wanted = replace(wanted, shard_key=shard_key)
            wanted = replace(wanted, indexes={}) if record.withheld else wanted
        return stand_in(wanted)

    def watched(self, side: Side) -> Watched:
        return Watched(without_reserved(NamespaceFilter()), _defined)

    def is_settled(self) -> bool:
        """Return whether it is worth comparing changed documents now: False while the lag is long or unknown.

        While many changes are in flight, most of the compared documents would be among them, and comparing slows them
        down. False also once a commit was requested: the commit waits for all changes, and then has all changed
        documents compared.
        """
        if self.context.run.record.state is State.COMMITTING:
            return False
        lag = self.context.progress.snapshot.lag_seconds
        return lag is not None and lag <= _MOST_LAG

    def later_end(self, differs: bool) -> Timestamp | None:
        """Return a later commit time if users still write to the source, or if differences were repaired."""
        return self.commit_end.later(differs)


def _defined(name: Namespace) -> Namespace | None:
    return name if is_user_namespace(name) else None
