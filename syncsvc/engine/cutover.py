"""The cut-over, which runs small steps in a fixed order. Each step is idempotent, and is recorded when done.

A restart continues with the first step that is not recorded; before the destination is unblocked, a restart also
repeats the steps that read the source. Until the cut-over, the unique indexes of the destination accept duplicates. The
first step makes them refuse new duplicates; then the source is checked for new user writes, and the destination is
unblocked and reported as writable. Users need not wait for the last steps: the indexes become unique, which can take
long, and finally documents begin to expire. Uniqueness is restored first, because it is urgent: as long as an index is
not unique again, a MongoDB 6.0 secondary can crash if users move a unique value from one document to another.

If the destination lacks, or may lack, user writes to the source after the commit time, `Cutover.run` raises
SourceWritten before it unblocks the destination: the coordinator then relaxes the definitions again, applies these
writes, and repeats the commit. The check is recorded before the destination is unblocked: once users may write to the
destination, no restart withdraws the commit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from syncsvc.engine.definitions import standin
from syncsvc.engine.definitions.catalog import Catalog, known_uuids
from syncsvc.engine.definitions.confirmation import confirmed_together
from syncsvc.engine.definitions.shared_catalog import catalog_of
from syncsvc.engine.late_writes import LateWrites, SourceWritten
from syncsvc.engine.principal_copy import PrincipalCopy
from syncsvc.engine.reversal import prepare_reversal
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.errors import UNSUPPORTED_COLLECTION
from syncsvc.figures.progress import WarningKind
from syncsvc.resuming import CHECKED, UNBLOCKED
from syncsvc.rules import hidden_measurements
from syncsvc.saved.created_collections import to_convert, to_expire
from syncsvc.saved.late_findings import LateFindings
from syncsvc.saved.registry import CollectionRecord
from syncsvc.saved.run import refuse_resetting
from verifier.cluster.inventory import hidden_time_series, list_kinds, list_uuids
from verifier.cluster.namespace import Namespace, is_user_namespace, some_of
from verifier.cluster.reading import read
from verifier.cluster.specification import CollectionSpec, is_undecodable
from verifier.cluster.times import position_after
from verifier.cluster.writer import MAJORITY, PRIMARY_ONLY
from verifier.runtime.errors import OperationError
from verifier.runtime.tasks import StopToken, for_each

Step = tuple[str, Callable[[], None]]
# A method of Catalog that changes the collection with the given definition.
Change = Callable[[Catalog, CollectionSpec], None]
# `to_convert` or `to_expire`.
Current = Callable[
    [Iterable[CollectionRecord], Mapping[Namespace, bytes]], Iterator[CollectionRecord]
]

# The name is saved, so it must never change.
_PRINCIPALS_COPIED = "users and roles copied"


@dataclass(frozen=True)
class Cutover:
    """Runs the steps of a cut-over, once the verification has passed or is disabled.

    `run` raises SourceWritten if the destination lacks, or may lack, user writes to the source after the commit time.
    It checks this before it unblocks the destination. For this check, it reads documents of the source only if a
    document filter applies to their collection.
    """

    context: RunContext
    stop: StopToken

    def run(self) -> None:
        steps: list[Step] = [
            ("definitions prepared", self._prepare),
            ("indexes of earlier versions built", self._build_earlier),
            *self._principal_steps(),
            *self._reversal_steps(),
            (CHECKED, self._check_source),
            (UNBLOCKED, self._unblock),
            ("destination writable", self._allow_writes),
            *self._balancer_steps(),
            ("indexes unique", self._convert),
            ("expiration restored", self._restore_expiration),
        ]
        run = self.context.run
        self._forget_reads()
        for name, step in steps:
            self.stop.check()
            if name not in run.record.steps:
                step()
                run.update(steps=(*run.record.steps, name))
                self.context.observe(Point.STEP_DONE, name)

    def _forget_reads(self) -> None:
        """Mark the steps that read the source as not done: the source may have changed since they were run.

        These steps check the source, and copy its users and roles. The later step that unblocks the destination is
        marked as not done, too. A no-op if the destination is already reported as writable or was unblocked, because
        users may already write to it. An earlier version of syncsvc unblocked the destination without a recorded check.
        """
        run, block = self.context.run, self.context.destination_block
        record = run.record
        if record.can_write:
            return
        if record.options.blocks_destination and (
            UNBLOCKED in record.steps or CHECKED in record.steps and not block.is_set()
        ):
            return
        undone = (_PRINCIPALS_COPIED, CHECKED, UNBLOCKED)
        steps = tuple(each for each in record.steps if each not in undone)
        run.update(steps=steps, principals=None)

    def _prepare(self) -> None:
        """Restore the definitions of all collections, except uniqueness, expiration and deferred indexes.

        Raises SourceWritten if indexes are withheld: all withheld indexes were built before the cut-over, so these
        were withheld again because of an event after the commit time.
        """
        if any(each.withheld for each in self.context.registry):
            LateWrites(self.context, self.stop).refuse()
            raise SourceWritten()
        self._confirm(self._prepare_all)

    def _prepare_all(self, write_concern: Mapping[str, Any]) -> None:
        registry, threads = self.context.registry, self.context.definition_threads
        self._change_all(Catalog.prepare, registry, self._list_uuids(), threads, write_concern)

    def _build_earlier(self) -> None:
        """Build the indexes that the destination lacks because an earlier version of syncsvc has deferred them.

        This is a step of its own for a cut-over in which an earlier version has already prepared the definitions.
        """
        if any(standin.earlier_indexes(each.definition) for each in self.context.registry):
            self._confirm(self._build_all_earlier)

    def _build_all_earlier(self, write_concern: Mapping[str, Any]) -> None:
        self._change_indexes(Catalog.build_earlier, write_concern)

    def _change_indexes(self, change: Change, write_concern: Mapping[str, Any]) -> None:
        """Call `change`, which may build or scan indexes, for all collections, at most one per reader at a time."""
        threads = min(self.context.definition_threads, self.context.load.readers)
        self._change_by_current_name(change, threads, to_convert, write_concern)

    def _principal_steps(self) -> list[Step]:
        """Return the step that copies users and roles; an empty list if the start options do not ask for that.

        The step runs before users may write, so that applications can then log in on the destination at once.
        """
        if self.context.run.record.options.users_and_roles is None:
            return []
        return [(_PRINCIPALS_COPIED, PrincipalCopy(self.context, self.stop).run)]

    def _reversal_steps(self) -> list[Step]:
        """Return the steps that prepare a reversal; an empty list if the sync is not reversible.

        The steps run after the definitions are prepared, and before users may write.
        """
        if not self.context.run.record.options.reversible:
            return []
        # Step names are saved, so they must never change.
        return [("way back prepared", self._prepare_reversal)]

    def _prepare_reversal(self) -> None:
        self.context.run.update(reverse_start=prepare_reversal(self.context, self.stop))

    def _check_source(self) -> None:
        """Raise SourceWritten if the destination lacks, or may lack, user writes to the source after the commit time.

        Also raises OperationError UnsupportedCollection for source collections whose names are not valid UTF-8. A
        warning about late writes lasts until this check passes, also while the commit is repeated.

        A write after the commit time was not verified. Even if the write is older than the saved position of this
        instance, another instance may not have applied it. A write block on the source does not make this check
        unnecessary: it does not apply to users with the role `root` or `restore`, and operators can lift it.
        """
        # An earlier version of syncsvc, which recorded no check, may have unblocked the destination.
        if UNBLOCKED not in self.context.run.record.steps:
            LateWrites(self.context, self.stop).refuse()
            # List the names only once: for 10,000 collections, this takes about a second, and users wait meanwhile.
            kinds = read(lambda: list_kinds(self.context.source_client), self.stop)
            self._refuse_unreported(filter(is_user_namespace, kinds))
            self._warn_of_hidden_measurements(hidden_time_series(kinds))
        self.context.progress.end_warning(WarningKind.SOURCE_WRITTEN)

    def _refuse_unreported(self, names: Iterable[Namespace]) -> None:
        """Raise OperationError UnsupportedCollection if the filter selects a source name that is not valid UTF-8.

        `names` are the names of the user collections and views of the source.

        Change streams do not report that a collection was created with such a name or renamed to it, so it was not
        synced. If it had existed at the start of the sync, the start would have refused it. When decoded, such a name
        contains U+FFFD. A valid name can also contain this character: if a synced collection has the name, it is not
        refused.
        """
        synced = {each.source_name for each in self.context.registry}
        odd = [each for each in names if is_undecodable(each) and each not in synced]
        unreported = self.context.selection.of(odd)
        if unreported:
            raise OperationError(
                UNSUPPORTED_COLLECTION,
                f"The names of these collections are not valid UTF-8: {some_of(unreported)}. They were "
                "created or renamed during the sync. The source does not report such changes, so these collections "
                "were not synced.",
            )

    def _warn_of_hidden_measurements(self, found: Iterable[Namespace]) -> None:
        """Warn of time series whose measurements the source hides from queries: they are not synced.

        `found` are the names of these time series. A preflight has named earlier ones. Change streams do not report
        that such a time series was created.
        """
        hidden = self.context.selection.of(found)
        kind = WarningKind.MEASUREMENTS_HIDDEN
        if hidden:
            self.context.progress.warn(kind, hidden_measurements.warning(hidden))
        else:
            # A repeated commit: the measurements have been recovered.
            self.context.progress.end_warning(kind)

    def _unblock(self) -> None:
        if self.context.run.record.options.blocks_destination:
            self.context.destination_block.lift()

    def _allow_writes(self) -> None:
        record = self.context.run.record
        assert record.commit_time is not None
        # From now on, `after_commit` watches a source that this sync does not block. It also watches a source that
        # others had blocked before the commit, because they may lift their block.
        is_blocked = record.source in record.found_blocked
        findings = None if is_blocked else LateFindings(position_after(record.commit_time))
        # If a reset is already saved, it will drop the data, so users must not be told to write.
        self.context.run.update_unless(refuse_resetting, can_write=True, late_findings=findings)

    def _balancer_steps(self) -> list[Step]:
        if not any(each.sharded for each in self.context.balancers):
            return []
        return [("balancers put back", self._put_balancers_back)]

    def _put_balancers_back(self) -> None:
        for each in self.context.balancers:
            each.put_back()

    def _convert(self) -> None:
        self._confirm(self._convert_all)

    def _convert_all(self, write_concern: Mapping[str, Any]) -> None:
        self._change_indexes(Catalog.convert, write_concern)

    def _restore_expiration(self) -> None:
        threads = self.context.definition_threads
        self._change_by_current_name(Catalog.restore_expiration, threads, to_expire, MAJORITY)

    def _confirm(self, change: Callable[[Mapping[str, Any]], None]) -> None:
        """Call `change` with the write concern for its commands; return when the majority has all their effects.

        On a replica set, the majority confirms all commands together: waiting for the majority after each command would
        take several times as long as most commands. So `change` may be called again, and must be idempotent.
        """
        if self.context.destination_facts.is_sharded:
            change(MAJORITY)
        else:
            confirmed_together(self.context, lambda: change(PRIMARY_ONLY), self.stop)

    def _change_by_current_name(
        self, change: Change, threads: int, current: Current, write_concern: Mapping[str, Any]
    ) -> None:
        """Call `change` for each collection under its current name; users may rename and drop collections meanwhile.

        A command with a former name has no effect, so `change` is called again for the collections that were renamed
        since they were listed.
        """
        names: dict[bytes, Namespace] = {}
        while True:
            uuids = self._list_uuids()
            renamed = [
                each
                for each in current(self.context.registry, uuids)
                if names.get(each.uuid) != each.definition.namespace
            ]
            if not renamed:
                return
            self._change_all(change, renamed, uuids, threads, write_concern)
            names.update((each.uuid, each.definition.namespace) for each in renamed)

    def _change_all(
        self,
        change: Change,
        records: Iterable[CollectionRecord],
        uuids: Mapping[Namespace, bytes],
        threads: int,
        write_concern: Mapping[str, Any],
    ) -> None:
        """Call `change`, a method of Catalog, for the collection of each record, in `threads` threads.

        `uuids` maps the names on the destination to UUIDs.
        """
        records = list(records)
        known = known_uuids(records, uuids)

        def run(record: CollectionRecord, stop: StopToken) -> None:
            change(catalog_of(self.context, stop, known, write_concern), record.definition)

        for_each("cut-over", records, run, threads, self.stop)

    def _list_uuids(self) -> dict[Namespace, bytes]:
        return read(lambda: list_uuids(self.context.destination_client), self.stop)
