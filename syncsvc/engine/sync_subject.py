"""The subject of a sync's verification: the namespaces to compare, and their expected definitions.

The whole destination is compared with the state that it must have according to the source and the start options. If
the option `preExistingDestinationData` allows other data there, only the source's namespaces and those that the sync
has created are compared.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from bson.timestamp import Timestamp

from syncsvc.engine.commit_end import CommitEnd
from syncsvc.engine.definitions.created import created
from syncsvc.engine.definitions.standin import stand_in
from syncsvc.engine.run.context import RunContext
from syncsvc.figures.progress import MOST_LAG, ProgressSnapshot
from syncsvc.rules.indexing import destined, is_renamable
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, State
from verifier.cluster.filters import NamespaceFilter
from verifier.cluster.namespace import Namespace, is_user_namespace
from verifier.cluster.specification import CollectionSpec
from verifier.compare.listing import names_on, without_reserved
from verifier.compare.record import Side
from verifier.compare.scope import NamespacePair
from verifier.compare.subject import Watched
from verifier.runtime.tasks import StopToken


@dataclass(frozen=True)
class SyncSubject:
    """The `Subject` of a sync's verification: it determines what is compared, and when, until the cut-over."""

    context: RunContext
    commit_end: CommitEnd
    stop: StopToken

    def pairs(self) -> set[NamespacePair]:
        """Return the namespaces to compare: those of the source that the filter selects, and all of the destination.

        Each namespace is paired with its name on the other cluster. With `preExistingDestinationData`, only those
        namespaces of the destination are included that the sync has created.
        """
        context = self.context
        selected = context.selection.of(names_on(context.source_client, self.stop))
        names = {*selected, *map(context.names.to_source, self._on_destination())}
        return {NamespacePair(each, context.names.to_destination(each)) for each in names}

    def _on_destination(self) -> Iterable[Namespace]:
        context = self.context
        if not self._is_shared:
            return names_on(context.destination_client, self.stop)
        return [each.namespace for each in created(context, context.views.load(), self.stop)]

    @property
    def _is_shared(self) -> bool:
        return self.context.run.record.options.pre_existing_destination_data

    def expected(self, source: CollectionSpec) -> CollectionSpec | None:
        """Return the definition that a collection or view must have on the destination until the commit.

        `source` is its definition on the source. Until the commit, some options are relaxed, for example uniqueness,
        and withheld indexes are absent. Return None if the destination must not have the collection or view: the filter
        excludes it, or the renames of `namespaceRemap` prevent its sync. In the second case, the change event that
        created or renamed it fails the sync, unless the source has dropped or renamed it again.
        """
        context = self.context
        if not context.selection.selects(source.namespace):
            return None
        if not is_renamable(source, context.target):
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
        watched = Watched(
            without_reserved(NamespaceFilter()),
            self._defined,
            is_awaited=self._is_committing,
            # Do not wait for a member with a longer oplog, which may be down for good and would block the commit: the
            # check can start again instead.
            awaits_oplog=False,
        )
        if side is Side.DESTINATION and self._is_shared:
            return replace(watched, defined=self._own, is_fixed=False)
        return watched

    def _own(self, name: Namespace) -> Namespace | None:
        return None if self.context.registry.at(name) is None else self._defined(name)

    def is_settled(self, read_until: Timestamp) -> bool:
        snapshot = self.context.progress.snapshot
        if snapshot.adopted_until is not None and read_until < snapshot.adopted_until:
            # A collection that joined the sync after the start was copied, and the check has not read all
            # change events of that copy yet. After it has compared the whole collection, these events would make it
            # compare the documents one by one.
            return False
        return is_settled(self.context.run.record, snapshot)

    def _is_committing(self) -> bool:
        return self.context.run.record.state is State.COMMITTING

    def later_end(self, differs: bool) -> Timestamp | None:
        """Postpone the commit if users have written since the commit time, or if differences were repaired.

        Return the new commit time; None if the commit is not postponed. `differs` is True if the check has found
        differences. See `CommitEnd.later`.
        """
        return self.commit_end.later(differs)

    def _defined(self, name: Namespace) -> Namespace | None:
        return self.context.names.to_source(name) if is_user_namespace(name) else None


def is_settled(record: RunRecord, snapshot: ProgressSnapshot) -> bool:
    """Return whether to compare changed documents now: if all instances run, and lag by at most `MOST_LAG` seconds.

    Otherwise, many documents would differ only because their changes are not applied yet. For the same reason, return
    False while a collection that joined the sync after the start is being copied, and once the commit time is saved:
    changed documents are then compared when all changes up to that time are applied. `record` is the run record of
    the coordinator; the other instances must not lag by more than `MOST_LAG` seconds behind its saved position.
    """
    # Once the commit time is saved, all changed documents are compared as soon as the last change is applied. The state
    # COMMITTING is not enough: the coordinator may wait long for the commit commands of other instances, and these
    # commands are accepted only while the rechecks have little lag.
    ends = record.state is State.COMMITTING and record.commit_time is not None
    if ends or snapshot.adopts_collection:
        return False
    lag = snapshot.lag_seconds
    if lag is None or lag > MOST_LAG or record.position is None:
        return False
    applied = {each.name: each.applied_until for each in snapshot.others if each.state in ACTIVE}
    least = record.position.time.time - MOST_LAG
    others = (applied.get(name) for name in record.instances if name != record.instance)
    return all(until is not None and until >= least for until in others)
