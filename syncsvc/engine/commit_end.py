"""Postpones the commit time, up to which a commit applies changes, if users still write or a repair was needed.

A repair reads documents of the source again, and these may contain writes after the old commit time. If the commit did
not also apply all other writes up to the repair, the destination would hold only a part of the writes after the old
commit time, and no check would detect that.
"""

from __future__ import annotations

from collections.abc import Iterable

from bson.timestamp import Timestamp

from syncsvc.engine.definitions.index_builds import restore_indexes
from syncsvc.engine.repairer import Repairer
from syncsvc.engine.run.context import RunContext
from syncsvc.engine.run.points import Point
from syncsvc.figures.progress import WarningKind
from syncsvc.saved.run import RunRecord
from verifier.cluster.namespace import Namespace, some_of
from verifier.cluster.note import append_note
from verifier.compare.feed import Feed
from verifier.runtime.tasks import StopToken, wait_until
from verifier.runtime.waits import waiting

_APPLYING = "lagTimeSeconds in GET /api/v1/progress shows the lag. If the lag does not fall, see the other warnings."


class CommitEnd:
    """Decides whether a commit ends with a verdict now, or continues up to a later commit time.

    `feed` provides the cluster times of the newest changes that were read from the source.
    """

    def __init__(
        self, context: RunContext, repairer: Repairer, feed: Feed, stop: StopToken
    ) -> None:
        self._context = context
        self._repairer = repairer
        self._feed = feed
        self._stop = stop

    def later(self, differs: bool) -> Timestamp | None:
        """Postpone the commit if users still write to the source, or if differences must be repaired.

        Return the new commit time once all changes up to that time are applied; None if the commit can end now. As long
        as users write to the source, each call returns a later time. `differs` is True if the verification has found
        differences; these are repaired if the start options allow that. Raises OperationError DefinitionNotApplicable
        if a withheld index cannot be built.
        """
        if written := self._written():
            # Apply these writes before repairing differences: a document may differ only because its change events are
            # not applied yet.
            self._warn(written)
        elif not (differs and self._repairer.repair_in_commit()):
            self._context.progress.end_warning(WarningKind.SOURCE_WRITTEN)
            return None
        time = self._postpone()
        # Any instance may have withheld indexes while it applied these changes, because an index refused a document.
        self._context.registry.reload(self._stop)
        restore_indexes(self._context, self._stop)
        return time

    def _written(self) -> list[Namespace]:
        """Return some collections to which users have written on the source since the commit time.

        Deletes in collections whose documents can expire do not count: a source that deletes expired documents all the
        time would never let a commit end, and the destination's TTL monitor deletes them after the commit.
        """
        record = self._context.run.record
        # The cut-over finds the few writes that pass the block of the source, and the commit is then repeated.
        if not record.options.blocks_source:
            self._read_until_now()
        time, newest = record.commit_time, self._feed.newest_changes
        return [name for name in newest if time is not None and newest[name] > time]

    def _read_until_now(self) -> None:
        """Wait until this instance has read the change events of all writes to the source before this call."""
        now = append_note(self._context.source_client, self._stop)
        append_note(self._context.source_client, self._stop)

        def is_read() -> bool:
            return self._feed.read_until is not None and self._feed.read_until > now

        with waiting("The commit waits until the newest changes of the source are read", _APPLYING):
            wait_until(is_read, self._stop)

    def _warn(self, written: Iterable[Namespace]) -> None:
        self._context.progress.warn(
            WarningKind.SOURCE_WRITTEN,
            "Applications still write to the source although the commit was requested, for example to "
            f"{some_of(written)}. The commit applies these writes and waits until no more follow: stop the "
            "applications.",
        )

    def _postpone(self) -> Timestamp:
        """Save a new commit time, and return it once all instances have applied all changes up to that time."""
        run, source = self._context.run, self._context.source_client
        time = append_note(source, self._stop)
        run.update(commit_time=time)
        self._context.observe(Point.COMMIT_POSTPONED, "")
        # Without a second no-op, the change stream of an idle source would never pass `time`.
        append_note(source, self._stop)

        def is_past(record: RunRecord) -> bool:
            return record.position is not None and record.position.time > time

        with waiting("The commit waits until the newest changes are applied", _APPLYING):
            wait_until(lambda: is_past(run.record), self._stop)
        self._context.instances.wait_for_all(is_past, self._stop)
        return time
