"""The phases of a follower, an instance that does not coordinate: it copies and applies its share of the data.

The coordinator does all work that is done once for the whole run; the coordinator's saved record shows when that work
is done.
"""

from __future__ import annotations

from collections.abc import Callable

from syncsvc.engine.copying.copy import copy_claimed
from syncsvc.engine.events.application import Application
from syncsvc.engine.phases import Phases
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.run import RunRecord, refuse_stopped
from syncsvc.state import ACTIVE, Phase, State, Trigger, next_state
from verifier.compare.feed import Feed
from verifier.runtime.tasks import SLOW_POLL, StopToken, TaskGroup, wait_until


class Follower(Phases):
    """Runs the phases of a follower, which waits wherever the coordinator has to act first."""

    def _read(self, stop: StopToken) -> None:
        run = self._context.run
        if run.record.phase is Phase.APPLYING and self._is_cut_over(stop):
            # All events were applied before this instance was restarted or resumed. Neither the oplog nor the event
            # spool is needed any more, so they are not read: a sync must not fail because they are damaged or lost.
            self._begin_cut_over()
        super()._read(stop)

    def _initialize(self, stop: StopToken) -> Phase:
        self._begin_at(self._wait_for_long_work(_has_start, stop))
        self._wait_for_long_work(lambda other: other.phase is not Phase.INITIALIZING, stop)
        self._context.registry.reload(stop)
        return Phase.COPYING

    def _begin_at(self, leader: RunRecord) -> None:
        """Save the start position of the coordinator as the start and the position of this instance.

        `leader` is the coordinator's record. From then on, this instance can spool change events, even during a pause.
        """
        self._context.run.update(start=leader.start, position=leader.start)

    def _copy(self, stop: StopToken) -> Phase:
        copy_claimed(self._context, stop)
        return Phase.INDEXING

    def _index(self, stop: StopToken) -> Phase:
        leader = self._wait_for_long_work(_is_applying, stop)
        self._context.run.update(copy_end=leader.copy_end)
        self._context.registry.reload(stop)
        return Phase.APPLYING

    def _withdraw(self, stop: StopToken) -> Phase:
        self._wait(_is_applying, stop)
        # The record that showed a withdrawal may have been outdated, because a newly elected primary returned it. Then
        # this instance must not write, because users may already write.
        return self._begin_cut_over() if self._is_cut_over(stop) else Phase.APPLYING

    def _reverse(self, stop: StopToken) -> Phase:
        context = self._context
        context.observe(Point.REVERSING, "")
        self._begin_at(self._wait(_has_start, stop))
        leader = self._wait(_is_applying, stop)
        context.registry.reload(stop)
        context.observe(Point.REVERSED, "")
        # Change both in one update: the state REVERSING belongs to the phase REVERSING, and to no other.
        context.run.update(
            state=next_state(context.run.record.state, Trigger.REVERSED),
            phase=Phase.APPLYING,
            copy_end=leader.copy_end,
        )
        return Phase.APPLYING

    def _apply(self, stop: StopToken) -> Phase:
        with TaskGroup("apply", stop) as group:
            feed = Feed(self._context.tuning.check.feed_bytes)
            application = Application(self._context, self._spooler, feed, group)
            self._oplog.follow(application.held_after)
            wait_until(lambda: self._is_cut_over(group.stop), group.stop, SLOW_POLL)
            self._oplog.let_go()
            group.stop.stop("commit")
        return self._begin_cut_over()

    def _begin_cut_over(self) -> Phase:
        """Save the phase CUTTING_OVER together with the state COMMITTING, and return this phase.

        The state of this instance can still be RUNNING: if it refused the commit command because the save of the
        command was not acknowledged, the coordinator may have read the saved command all the same. Raises
        OperationError InvalidState if the sync was paused or reset in the meantime.
        """
        self._context.destination_writer.settle()
        self._context.run.update_unless(
            refuse_stopped, state=State.COMMITTING, phase=Phase.CUTTING_OVER
        )
        return Phase.CUTTING_OVER

    def _is_cut_over(self, stop: StopToken) -> bool:
        """Return whether the coordinator has finished change event application, or has begun to reverse the sync.

        Also take part in the coordinator's newest repair, and publish whether the coordinator has found a commit
        possible.
        """
        leader = self._wait(_any, stop)
        self._join(leader)
        self._context.progress.set(caught_up=leader.caught_up and leader.state in ACTIVE)
        return leader.reversals > self._context.run.record.reversals or leader.phase.applied

    def _join(self, leader: RunRecord) -> None:
        """Take part in the coordinator's newest repair if the coordinator has already applied its own share."""
        run = self._context.run
        # The coordinator must apply its share first, because it creates the missing collections. Check that in this
        # thread: the thread that applies events must not wait for the coordinator, which may itself wait for that
        # thread at a DDL event.
        if leader.repaired > run.record.repair:
            run.update(repair=leader.repaired)

    def _cut_over(self, stop: StopToken) -> Phase:
        run = self._context.run
        leader = self._wait(lambda other: other.can_write or _is_withdrawn(other), stop)
        if leader.reversals == run.record.reversals and _is_withdrawn(leader):
            return Phase.WITHDRAWING
        run.update(can_write=True)
        # The coordinator has built all withheld indexes, including those that this instance withheld.
        self._context.progress.end_warning(WarningKind.INDEXES_WITHHELD)
        self._wait(lambda other: other.state is State.COMMITTED, stop)
        return Phase.DONE

    def _wait(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> RunRecord:
        """Wait until `holds(record)` is true for the coordinator's saved record, and return this record.

        Also return the record once it shows that a reversal has begun.
        """
        return self._context.instances.wait_for_coordinator(self._unless_reversed(holds), stop)

    def _wait_for_long_work(self, holds: Callable[[RunRecord], bool], stop: StopToken) -> RunRecord:
        """Wait like `_wait`, but for work that may take hours: check less often, and do not warn of a long wait."""
        return self._context.instances.wait_for_long_work(self._unless_reversed(holds), stop)

    def _unless_reversed(self, holds: Callable[[RunRecord], bool]) -> Callable[[RunRecord], bool]:
        """Return a predicate like `holds` that is also True for a record that shows that a reversal has begun.

        The predicate is False for an outdated record from before this instance's last reversal.
        """
        reversals = self._context.run.record.reversals
        return (
            lambda other: other.reversals > reversals
            or other.reversals == reversals
            and holds(other)
        )


def _any(other: RunRecord) -> bool:
    return True


def _has_start(other: RunRecord) -> bool:
    """Return whether `other`, the coordinator's record, shows where the change events of the sync begin."""
    return other.start is not None


def _is_applying(other: RunRecord) -> bool:
    """Return whether the instance with the record `other` is in change event application, or has finished it."""
    return other.phase is Phase.APPLYING or other.phase.applied


def _is_withdrawn(other: RunRecord) -> bool:
    """Return whether `other`, the coordinator's record, shows that the coordinator has withdrawn its cut-over.

    Call this only after the cut-over has begun: before it, the phase is also APPLYING.
    """
    return other.phase in (Phase.WITHDRAWING, Phase.APPLYING)
