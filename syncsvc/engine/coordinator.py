"""The phases of a sync, in order, as the one instance carries them out that is alone, or coordinates others."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic

from bson.timestamp import Timestamp

from syncsvc.engine.balancers import watch_balancers
from syncsvc.engine.copying.copy import copy_all
from syncsvc.engine.copying.partitioned import plan_copy
from syncsvc.engine.cutover import Cutover
from syncsvc.engine.definitions.building import build_all
from syncsvc.engine.definitions.catalog import Catalog
from syncsvc.engine.definitions.listing import Listing
from syncsvc.engine.definitions.views import reconcile_views
from syncsvc.engine.definitions.withholding import restore_indexes
from syncsvc.engine.events.application import Application
from syncsvc.engine.events.definition_watch import DefinitionWatch
from syncsvc.engine.events.rekeying import ShardKeys, ShardKeyWatch
from syncsvc.engine.observe import Point
from syncsvc.engine.parts import Parts
from syncsvc.engine.phases import Phases
from syncsvc.engine.turning import weaken_definitions
from syncsvc.engine.verification import Verification
from syncsvc.engine.watch import OplogWatch
from syncsvc.figures.progress import MOST_LAG
from syncsvc.reports.lines import partitions
from syncsvc.saved.run import RunRecord
from syncsvc.state import ACTIVE, Phase, State, Trigger, next_state
from verifier.cluster.changes import ChangeStream, start_position
from verifier.cluster.note import append_note
from verifier.cluster.reading import read
from verifier.cluster.times import Position, seconds_between
from verifier.runtime.tasks import StopToken, TaskGroup

_log = logging.getLogger(__name__)

# How long a figure of the lag is shown when no newer one comes, in seconds.
_LAG_HOLDS = 15.0
# How often a wait looks whether what it waits for has come, in seconds.
_GLANCE = 0.05


class Coordinator(Phases):
    """Does all of a run that is done once, and the share of one instance."""

    def __init__(self, parts: Parts, stop: StopToken) -> None:
        self._oplog = OplogWatch(parts)
        self._definitions = DefinitionWatch(parts)
        super().__init__(parts, stop)

    def _read(self, stop: StopToken) -> None:
        with TaskGroup("reading", stop) as reading:
            reading.spawn("oplog", self._oplog.run, reading.stop)
            reading.spawn("shard-keys", ShardKeyWatch(self._parts).run, reading.stop)
            reading.spawn("balancers", self._watch_balancers, reading.stop)
            reading.spawn("definitions", self._definitions.run, reading.stop)
            super()._read(reading.stop)
            reading.stop.stop("all is read")

    def _turn(self, stop: StopToken) -> Phase:
        parts = self._parts
        turns = parts.run.record.turns
        parts.instances.wait_for_all(lambda other: other.turns == turns, stop)
        parts.observe(Point.TURNING, "")
        self._keep_balancers_still(stop)
        # What was proved is of the other direction.
        parts.checks.forget()
        parts.progress.set(check=None)
        weaken_definitions(parts, stop)
        parts.observe(Point.TURNED, "")
        # Both at once: no other phase is one of a sync that is being reversed.
        parts.run.update(
            state=next_state(parts.run.record.state, Trigger.TURN), phase=Phase.APPLYING
        )
        return Phase.APPLYING

    def _initialize(self, stop: StopToken) -> Phase:
        parts = self._parts
        if parts.run.record.options.blocks_destination:
            parts.destination_block.set()
        self._keep_balancers_still(stop)
        # The start of the change stream is saved before anything is read: what is written from here on comes as an
        # event, whatever the listing and the copy see of it. Taken later, writes in between would be lost.
        if parts.run.record.start is None:
            stream = ChangeStream(parts.source, parts.source_facts)
            start = read(lambda: start_position(stream), stop)
            parts.run.update(start=start, position=start)
        parts.observe(Point.STARTED, "")
        Listing(parts, stop).run()
        plan_copy(parts, stop)
        parts.observe(Point.LISTED, "")
        return Phase.COPYING

    def _keep_balancers_still(self, stop: StopToken) -> None:
        for each in self._parts.balancers:
            each.keep_still(stop)

    def _watch_balancers(self, stop: StopToken) -> None:
        watch_balancers(self._parts.balancers, self._parts.run, self._parts.progress, stop)

    def _copy(self, stop: StopToken) -> Phase:
        copy_all(self._parts, stop)
        self._parts.instances.wait_for_all(lambda other: other.phase.copied, stop)
        # Any of them may have withheld indexes.
        self._parts.registry.reload(stop)
        _log.info(partitions(tuple(self._parts.registry)).message)
        self._parts.run.update(copy_end=append_note(self._parts.source, stop))
        return Phase.INDEXING

    def _index(self, stop: StopToken) -> Phase:
        if self._parts.run.record.options.build_indexes.after_copy:
            build_all(self._parts, stop)
        return Phase.APPLYING

    def _apply(self, stop: StopToken) -> Phase:
        with TaskGroup("apply", stop) as group:
            verification = Verification(self._parts, group)
            application = Application(self._parts, verification.feed, group)
            self._oplog.follow(application.held_after)
            self._wait_for_commit(application, verification, group.stop)
            self._block_source()
            commit_time = self._commit_time(group.stop)
            application.wait_until_past(commit_time)
            self._parts.instances.wait_for_all(is_past(commit_time), group.stop)
            # Any of them may have withheld indexes.
            self._parts.registry.reload(group.stop)
            self._done("drained")
            self._definitions.check(group.stop)
            reconcile_views(self._parts, group.stop)
            ShardKeys(self._parts, group.stop).reconcile()
            restore_indexes(self._parts, group.stop)
            # Also before: a restart that finds a verdict, or its beginnings, must not apply again what that is about.
            application.save_position()
            verification.finish(commit_time)
            self._done("verified")
            application.save_position()
            self._oplog.let_go()
            # What the lanes leave, or carry out in part only, is newer than the commit.
            group.stop.stop("commit")
        return Phase.CUTTING_OVER

    def _cut_over(self, stop: StopToken) -> Phase:
        # Users may write to the destination then, and no instance any more.
        self._parts.instances.wait_for_all(lambda other: other.phase.applied, stop)
        Cutover(self._parts, Catalog(self._parts, stop), stop).run()
        return Phase.DONE

    def _wait_for_commit(
        self, application: Application, verification: Verification, stop: StopToken
    ) -> None:
        """Tell whether a commit is possible, until all instances were asked for one."""
        # What an earlier process saw, others would take for the present.
        self._tell_caught_up(False)
        while not self._all_committing(stop):
            progress = self._parts.progress
            if monotonic() - progress.snapshot.lag_at > _LAG_HOLDS:
                progress.forget_lag()
            caught_up = self._have_caught_up(application, stop)
            if caught_up:
                verification.begin()
            verification.show()
            ready = verification.is_ready(MOST_LAG) and self._definitions.unchanged
            self._tell_caught_up(caught_up and ready)
            stop.sleep(_GLANCE)
        self._done("commit saved")

    def _all_committing(self, stop: StopToken) -> bool:
        return self._commit_asked.is_set() and self._parts.instances.all_hold(is_committing, stop)

    def _have_caught_up(self, application: Application, stop: StopToken) -> bool:
        copy_end = self._parts.run.record.copy_end
        assert copy_end is not None
        lag = self._parts.progress.snapshot.lag_seconds
        if not application.is_past(copy_end) or lag is None or lag > MOST_LAG:
            return False
        near = is_near(application.passed, copy_end)
        return self._parts.instances.all_hold(near, stop)

    def _tell_caught_up(self, caught_up: bool) -> None:
        self._parts.progress.set(caught_up=caught_up)
        record = self._parts.run.record
        if record.instances and record.caught_up != caught_up:
            self._parts.run.update(caught_up=caught_up)

    def _block_source(self) -> None:
        # Before the commit time is taken: what a user is told was written is older than that then, and is applied.
        if self._parts.run.record.options.blocks_source:
            self._parts.source_block.set()
            self._done("source blocked")

    def _commit_time(self, stop: StopToken) -> Timestamp:
        """The source's time when the commit was first asked for: everything up to it is applied before it is done."""
        if self._parts.run.record.commit_time is None:
            self._parts.run.update(commit_time=append_note(self._parts.source, stop))
            self._done("commit time saved")
        commit_time = self._parts.run.record.commit_time
        assert commit_time is not None
        return commit_time


def is_committing(other: RunRecord) -> bool:
    """Whether an instance was asked for a commit."""
    return other.state is State.COMMITTING


def is_past(time: Timestamp) -> Callable[[RunRecord], bool]:
    """Whether an instance has applied everything up to that time of the source."""
    return lambda other: other.position is not None and other.position.time > time


def is_near(passed: Position, copy_end: Timestamp) -> Callable[[RunRecord], bool]:
    """Whether an instance is past the copy, and not far behind that position, so that a commit is sensible."""

    def near(other: RunRecord) -> bool:
        if other.position is None or other.phase is not Phase.APPLYING:
            return False
        lag = seconds_between(other.position.time, passed.time)
        return other.state in ACTIVE and other.position.time > copy_end and lag <= MOST_LAG

    return near
