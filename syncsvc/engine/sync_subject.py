"""The subject of a sync's verification: the namespaces to compare, and their expected definitions.

The whole destination is compared with the state that it must have according to the source and the start options.
"""

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
    """The `Subject` of the check that verifies a sync before the cut-over."""

    context: RunContext
    commit_end: CommitEnd
    stop: StopToken

    def pairs(self) -> set[NamespacePair]:
        """Return the namespaces to compare: those of the source that the filter selects, and all of the destination.

        Each namespace is paired with the same name on the other cluster. The destination was empty at the start, so
        every namespace that only the destination has is a mismatch.
        """
        context = self.context
        selected = context.selection.of(names_on(context.source_client, self.stop))
        names = {*selected, *names_on(context.destination_client, self.stop)}
        return {NamespacePair(each, each) for each in names}

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """Return the stand-in definition that the destination must have for `source` until the commit.

        Return None if the filter excludes `source`, because the destination must not have it then.
        """
        context = self.context
        if not context.selection.selects(source.namespace):
            return None
        record = None if source.uuid is None else context.registry.get(source.uuid)
        wanted = destined(source, context.target)
        if record is not None:
            if not source.shard_key:
                # The collection keeps the shard key that it was created with, even after a rename.
                wanted = replace(wanted, shard_key=record.definition.shard_key)
            wanted = replace(wanted, indexes={}) if record.withheld else wanted
        return stand_in(wanted)

    def watched(self, side: Side) -> Watched:
        return Watched(without_reserved(NamespaceFilter()), _defined)

    def is_settled(self) -> bool:
        """Return whether to compare changed documents now: True while the lag is at most ten seconds.

        With a longer lag, many documents would differ only because their changes are not applied yet. Return False
        after a commit was requested, too: all changed documents are compared once the last change is applied.
        """
        if self.context.run.record.state is State.COMMITTING:
            return False
        lag = self.context.progress.snapshot.lag_seconds
        return lag is not None and lag <= _MOST_LAG

    def later_end(self, differs: bool) -> Timestamp | None:
        """Return a later commit time if users still write to the source or differences were repaired, else None."""
        return self.commit_end.later(differs)


def _defined(name: Namespace) -> Namespace | None:
    return name if is_user_namespace(name) else None
