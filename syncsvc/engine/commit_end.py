"""Postpones the commit time, up to which a commit applies changes, if users write after it or a repair is run.

A repair reads documents of the source again, and these may contain writes after the old commit time. If the commit did
not also apply all other writes up to the repair, the destination would hold only a part of the writes after the old
commit time, and no check would detect that.
"""

from __future__ import annotations

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.index_builds import restore_indexes
from syncsvc.engine.events.application import LOOK_AT_LAG
from syncsvc.engine.late_writes import LateWrites, SourceWritten
from syncsvc.engine.repairer import Repairer
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from verifier.cluster.note import append_note
from verifier.runtime.tasks import StopToken, wait_until
from verifier.runtime.waits import waiting


class CommitEnd:
    """Decides whether a commit ends now, or continues up to a later commit time."""

    def __init__(self, context: RunContext, repairer: Repairer, stop: StopToken) -> None:
        self._context = context
        self._repairer = repairer
        self._late_writes = LateWrites(context, stop)
        self._stop = stop

    def later(self, differs: bool) -> Timestamp | None:
        """Postpone the commit if the destination lacks, or may lack, late user writes, or if a repair was run.

        Late means: after the commit time. `differs` is True if the verification has found differences. They are
        repaired if that is possible and allowed, but not if late writes are found: these may be the cause. If the
        source is blocked and nothing differs, late writes are not searched for. Return the new commit time once all
        changes up to that time are applied; None if the commit is not postponed. Raises OperationError
        DefinitionNotApplicable if a withheld index cannot be built.
        """
        # Apply late writes before repairing differences: a document may differ only because its change events are not
        # applied yet.
        if not (self._is_written(differs) or (differs and self._repairer.repair_in_commit())):
            return None
        time = self._postpone()
        # Any instance may have withheld indexes while it applied these changes, because an index refused a document.
        self._context.registry.reload(self._stop)
        restore_indexes(self._context, self._stop)
        return time

    def _is_written(self, differs: bool) -> bool:
        """Return whether the destination lacks, or may lack, user writes to the source after the commit time.

        If the source is blocked and nothing differs, return False without searching: the cut-over finds the few writes
        that pass the block, and the commit is then repeated.
        """
        if self._context.run.record.options.blocks_source and not differs:
            return False
        try:
            self._late_writes.refuse()
        except SourceWritten:
            return True
        return False

    def _postpone(self) -> Timestamp:
        """Save a new commit time, and return it once all instances have applied all changes up to that time."""
        run, source = self._context.run, self._context.source_client
        time = append_note(source, self._stop)
        run.update(commit_time=time)
        self._context.observe(Point.COMMIT_POSTPONED, "")
        # Without a second no-op, the change stream of an idle source would never pass `time`.
        append_note(source, self._stop)

        with waiting("The commit waits until the newest changes are applied", LOOK_AT_LAG):
            wait_until(lambda: run.record.is_past(time), self._stop)
        self._context.instances.wait_for_all(lambda other: other.is_past(time), self._stop)
        return time
