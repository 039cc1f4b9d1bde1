"""The phases of a sync, in order, as run by the coordinator: the only instance, or the one that leads the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

from bson.timestamp import Timestamp

from syncsvc.engine.copying.copy import copy_all, end_copy
from syncsvc.engine.copying.partitioned import plan_copy, settle
from syncsvc.engine.cutover import Cutover
from syncsvc.engine.definitions.index_builds import build_all, build_deferred, restore_indexes
from syncsvc.engine.definitions.source_listing import SourceListing
from syncsvc.engine.definitions.views import reconcile_views
from syncsvc.engine.empty_selection import watch_selection
from syncsvc.engine.events.application import Application
from syncsvc.engine.events.definition_watch import DefinitionWatch
from syncsvc.engine.events.rekeying import ShardKeys, ShardKeyWatch
from syncsvc.engine.late_writes import SourceWritten
from syncsvc.engine.phases import Phases
from syncsvc.engine.reversal import replace_views, weaken_definitions
from syncsvc.engine.run.balancers import watch_balancers
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.engine.verification import Verification
from syncsvc.figures.progress import MOST_LAG, WarningKind
from syncsvc.resuming import withdrawn
from syncsvc.saved.created_collections import refuse_foreign, temporary_prefix
from syncsvc.saved.registry import copy_summary
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State, Trigger, next_state
from verifier.cluster.changes import ChangeStream, start_position
from verifier.cluster.namespace import some_of
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.cluster.times import Position, seconds_between
from verifier.runtime.tasks import POLL, SLOW_POLL, StopToken, TaskGroup, wait_until

_log = logging.getLogger(__name__)

# If the engine starts in one of these phases, it first blocks user writes on the destination (if the options say so),
# and stops the balancers of both clusters.
_HOLDING = (
    Phase.REVERSING,
    Phase.COPYING,
    Phase.INDEXING,
    Phase.WITHDRAWING,
    Phase.APPLYING,
)


class Coordinator(Phases):
    """Runs the phases of the coordinator, which does the one-time work of a run and its share of all other work."""

    def __init__(self, context: RunContext, stop: StopToken) -> None:
        self._definitions = DefinitionWatch(context)
        self._shard_keys = ShardKeyWatch(context)
        self._continues_copy = context.run.record.phase is Phase.COPYING
        super().__init__(context, stop)

    def _read(self, stop: StopToken) -> None:
        with TaskGroup("reading", stop) as reading:
            self._hold_clusters(reading.stop)
            reading.spawn("shard-keys", self._shard_keys.run, reading.stop)
            reading.spawn("balancers", self._watch_balancers, reading.stop)
            reading.spawn("filters", watch_selection, self._context, reading.stop)
            reading.spawn("definitions", self._definitions.run, reading.stop)
            super()._read(reading.stop)
            reading.stop.stop("all is read")

    def _reverse(self, stop: StopToken) -> Phase:
        context = self._context
        reversals = context.run.record.reversals
        context.instances.wait_for_all(lambda other: other.reversals == reversals, stop)
        context.observe(Point.REVERSING, "")
        # The saved check belongs to the other direction.
        context.checks.forget()
        context.repairs.forget()
        context.progress.set(check=None)
        replace_views(context, stop)
        weaken_definitions(context, stop)
        context.observe(Point.REVERSED, "")
        # Change both in one update: the state REVERSING belongs to the phase REVERSING, and to no other.
        context.run.update(
            state=next_state(context.run.record.state, Trigger.REVERSED), phase=Phase.APPLYING
        )
        return Phase.APPLYING

    def _initialize(self, stop: StopToken) -> Phase:
        context = self._context
        if context.run.record.options.blocks_destination:
            context.destination_block.set()
        if context.run.record.start is None:
            self._wait_for_others(stop)
        # Check again for foreign collections: the first check may have been long ago, and if the sync has failed since
        # then, the write block may have been lifted meanwhile.
        views = context.views.load()
        temporary = temporary_prefix(context.run.record)
        refuse_foreign(context.destination_client, context.registry, views, stop, temporary)
        self._keep_balancers_still(stop)
        # The start of the change stream is saved before anything is read, so that every later write arrives as an
        # event, no matter what the listing and the copy see. If it were taken later, writes in between would be lost.
        if context.run.record.start is None:
            stream = ChangeStream(context.source_client, context.source_facts)
            start = read(lambda: start_position(stream), stop)
            context.run.update(start=start, position=start)
        context.observe(Point.STARTED, "")
        SourceListing(context, stop).run()
        plan_copy(context, stop)
        context.observe(Point.LISTED, "")
        return Phase.COPYING

    def _wait_for_others(self, stop: StopToken) -> None:
        """Wait until all other instances have started, and none is paused or failed.

        Meanwhile, `Instances.watch` warns of the missing ones.

        An instance that began later would need all change events from the start of the change stream. Until it began,
        it could not save them in its event spool, so the oplog might have dropped some, and the sync would fail for
        good.
        """
        wait_until(lambda: self._context.instances.all_hold(_is_active, stop), stop, SLOW_POLL)

    def _hold_clusters(self, stop: StopToken) -> None:
        """Block user writes on the destination, if the options say so, and stop the balancers.

        Needed at every start of the engine, because a failure of the sync may have lifted the block and started the
        balancers again. A no-op in the phase INITIALIZING, which does the same itself, and after change event
        application.
        """
        record = self._context.run.record
        if record.phase in _HOLDING:
            if record.options.blocks_destination:
                self._context.destination_block.hold()
            self._keep_balancers_still(stop)

    def _keep_balancers_still(self, stop: StopToken) -> None:
        for each in self._context.balancers:
            each.keep_still(stop)

    def _watch_balancers(self, stop: StopToken) -> None:
        context = self._context
        interval = context.tuning.balancer_interval
        watch_balancers(context.balancers, context.run, context.progress, interval, stop)

    def _copy(self, stop: StopToken) -> Phase:
        context = self._context
        if self._continues_copy:
            # An earlier version of syncsvc saved no partitions for the collections of a replica set.
            plan_copy(context, stop)
            # An earlier process may have copied more than the saved totals contain.
            settle(context)
            self._show_copied()
        copy_all(context, stop)
        self._wait_for_indexes(lambda other: other.phase.copied, stop)
        self._proceed(Phase.INDEXING, copy_end=end_copy(context, stop))
        _log.info(copy_summary(tuple(context.registry)))
        return Phase.INDEXING

    def _index(self, stop: StopToken) -> Phase:
        if self._context.run.record.options.build_indexes.after_copy:
            build_all(self._context, stop)
        return Phase.APPLYING

    def _withdraw(self, stop: StopToken) -> Phase:
        """Relax all definitions on the destination again after a cut-over that failed or was withdrawn.

        Collections then have their stand-in definitions again: no unique indexes, and no expiration of documents.
        Return the next phase, change event application.
        """
        weaken_definitions(self._context, stop)
        return Phase.APPLYING

    def _apply(self, stop: StopToken) -> Phase:
        build_deferred(self._context, stop)
        with TaskGroup("apply", stop) as group:
            verification = Verification(self._context, group)
            application = Application(
                self._context,
                self._spooler,
                verification.feed,
                group,
                lambda: self._shard_keys.resharded,
                lambda: self._definitions.listing,
            )
            self._oplog.follow(application.held_after)
            self._wait_for_commit(application, verification, group.stop)
            commit_time = self._drain(application, verification, group.stop)
            self._check_definitions(group.stop)
            reconcile_views(self._context, group.stop)
            ShardKeys(self._context, group.stop).reconcile()
            restore_indexes(self._context, group.stop)
            # Save the position before the check, too: a restart that finds a verdict or a partial check must not apply
            # the verified events again.
            application.save_position()
            verification.finish(commit_time)
            if self._context.run.record.commit_time != commit_time:
                # The commit was postponed, because users have written meanwhile or differences were repaired. Users may
                # also have changed definitions or views, or resharded collections.
                self._check_definitions(group.stop)
                reconcile_views(self._context, group.stop)
            self._done("verified")
            application.save_position()
            self._oplog.let_go()
            # The stop interrupts the lanes, which are the threads that apply events. The events that they do not apply,
            # or apply only in part, are newer than the commit time.
            group.stop.stop("commit")
        return Phase.CUTTING_OVER

    def _drain(
        self, application: Application, verification: Verification, stop: StopToken
    ) -> Timestamp:
        """Return the commit time, once all instances have applied all changes up to it.

        Before taking the commit time, block user writes on the source if the options say so.
        """
        self._block_source()
        self._shard_keys.wait_until_copied(stop)
        self._definitions.wait_until_applied(application.wait_until_past, stop)
        verification.finish_repair()  # a repair reads the source, so the commit time must be later
        commit_time = self._commit_time(stop)
        application.wait_until_past(commit_time)
        self._wait_for_indexes(lambda other: other.is_past(commit_time), stop)
        self._done("drained")
        return commit_time

    def _check_definitions(self, stop: StopToken) -> None:
        self._definitions.check(stop)
        self._shard_keys.check(stop)

    def _wait_for_indexes(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> None:
        """Wait until `holds` is True for the records of all other instances; then reload the registry.

        The reloaded registry shows which indexes the other instances have withheld. A no-op if the sync has only one
        instance.
        """
        if self._context.run.record.instances:
            self._context.instances.wait_for_all(holds, stop)
            self._context.registry.reload(stop)

    def _cut_over(self, stop: StopToken) -> Phase:
        # From here on users may write to the destination, so no instance may apply changes any more. An event after the
        # commit time may have made an instance withhold indexes.
        self._wait_for_indexes(lambda other: other.phase.applied, stop)
        try:
            Cutover(self._context, stop).run()
        except SourceWritten as error:
            _log.info(
                "Users have written to the source during the cut-over, or may have done so. The sync applies "
                "their writes, and then repeats the commit by itself.",
                extra={"namespaces": some_of(error.namespaces)},
            )
            run = self._context.run
            run.update(**withdrawn(run.record.phase))
            return run.record.phase
        return Phase.DONE

    def _wait_for_commit(
        self, application: Application, verification: Verification, stop: StopToken
    ) -> None:
        """Wait until all instances have received the commit command and no requested repair is left.

        While waiting, publish whether a commit is possible, begin the verification once all instances have caught up,
        publish its progress, and run the repairs that users request.
        """
        # Clear `caught_up` of a withdrawn commit.
        self._publish(caught_up=False)
        run = self._context.run
        if run.record.state is not State.COMMITTING:
            # An earlier commit may have failed before it could end these warnings. In the state COMMITTING, they may
            # belong to a withdrawn commit, and last until this commit succeeds.
            self._context.progress.end_warning(WarningKind.SOURCE_WRITTEN)
            self._context.progress.end_warning(WarningKind.FOREIGN_BLOCK)
        while run.record.repair_requested or not self._all_committing(stop):
            verification.repair_if_asked()
            # Check this after the repair, which can take long.
            caught_up = self._have_caught_up(application)
            if caught_up:
                verification.begin()
            verification.show()
            ready = (
                verification.is_ready()
                and self._definitions.unchanged
                and not self._shard_keys.resharded
            )
            self._publish(caught_up and ready, tuple(self._hindrances(application)))
            stop.sleep(POLL)
        self._done("commit saved")

    def _all_committing(self, stop: StopToken) -> bool:
        return self._commit_requested.is_set() and self._context.instances.all_hold(
            is_committing, stop
        )

    def _have_caught_up(self, application: Application) -> bool:
        copy_end = self._context.run.record.copy_end
        assert copy_end is not None
        snapshot = self._context.progress.snapshot
        lag = snapshot.lag_seconds
        if not application.passed.is_past(copy_end) or lag is None or lag > MOST_LAG:
            return False
        # The lag does not show yet that the destination builds withheld indexes, or that a collection that joined the
        # sync after the start is being copied. Both may take hours.
        if not application.has_tried_withheld or snapshot.adopts_collection:
            return False
        # Use the records that `Instances.watch` has read: this method may run many times a second for weeks.
        return self._context.instances.all_held(is_near(application.passed, copy_end))

    def _hindrances(self, application: Application) -> Iterator[str]:
        """Yield the reasons why a commit is not possible that no other figure of the progress shows, as sentences."""
        snapshot = self._context.progress.snapshot
        warnings = snapshot.warnings
        if not application.has_tried_withheld and WarningKind.INDEXES_WITHHELD in warnings:
            yield "The indexes that are withheld from the destination are not built yet."
        if self._shard_keys.resharded:
            yield "Collections that were resharded or moved on the source are being copied again."
        listing = self._definitions.listing
        if listing is not None:
            yield (
                "New collections and changed definitions are not applied to the destination yet: "
                f"{some_of(listing.collections)}."
            )
        elif not self._definitions.unchanged and WarningKind.DEFINITIONS_CHANGED not in warnings:
            yield "The search for changed definitions on the source has not ended yet."
        if snapshot.adopts_collection and not self._shard_keys.resharded and listing is None:
            yield (
                "A collection that joined the sync after the start is being copied. Later changes are applied after "
                "this copy."
            )

    def _publish(self, caught_up: bool, hindrances: tuple[str, ...] = ()) -> None:
        """Publish whether the sync has caught up together with the reasons why not, so that no reader sees only one."""
        self._context.progress.set(caught_up=caught_up, hindrances=hindrances)
        record = self._context.run.record
        if record.instances and record.caught_up != caught_up:
            self._context.run.update(caught_up=caught_up)

    def _block_source(self) -> None:
        # Block the source before taking the commit time: every acknowledged user write is then older than the commit
        # time, and will be applied.
        if self._context.run.record.options.blocks_source:
            if self._context.source_block.keep():
                self._context.progress.end_warning(WarningKind.FOREIGN_BLOCK)
            else:
                self._warn_of_foreign_block()
            self._done("source blocked")

    def _warn_of_foreign_block(self) -> None:
        name = self._context.run.record.source
        self._context.progress.warn(
            WarningKind.FOREIGN_BLOCK,
            f"An administrator or another program has blocked user writes to {name} (the source) and given a reason, "
            "so the server refuses the write block of this sync. The commit does not need a block of its own. Stop all "
            f"applications that write to {name}: writes made after the other block is lifted may be lost.",
        )

    def _commit_time(self, stop: StopToken) -> Timestamp:
        """Return the commit time, a cluster time of the source: all changes up to it are applied before the commit.

        If no commit time is saved yet, get the newest cluster time of the source, and save it as the commit time.
        """
        if self._context.run.record.commit_time is None:
            self._context.run.update(commit_time=append_note(self._context.source_client, stop))
            self._done("commit time saved")
        commit_time = self._context.run.record.commit_time
        assert commit_time is not None
        return commit_time


def _is_active(other: RunRecord) -> bool:
    return other.state in ACTIVE


def is_committing(other: RunRecord) -> bool:
    """Return whether the instance with the run record `other` has received the commit command."""
    return other.state is State.COMMITTING


def is_near(passed: Position, copy_end: Timestamp) -> Callable[[RunRecord], bool]:
    """Return a predicate that tells, from an instance's run record, whether the instance has caught up.

    The instance must be in an `ACTIVE` state, and in the phase of change event application. Its saved position must be
    after `copy_end`, and at most `MOST_LAG` seconds behind `passed`, the coordinator's position.
    """

    def near(other: RunRecord) -> bool:
        if other.position is None or other.phase is not Phase.APPLYING:
            return False
        lag = seconds_between(other.position.time, passed.time)
        return other.state in ACTIVE and other.is_past(copy_end) and lag <= MOST_LAG

    return near
