"""Decides from the saved records and the data of the clusters whether a command is possible.

`syncsvc.state` decides whether the state of the sync allows a command. Nothing here changes the run record.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncsvc import errors
from syncsvc.engine.reversal import refuse_lost, refuse_written
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.resuming import final, is_damaged, may_be_lost, refuse_final
from syncsvc.running.process import ProcessContext
from syncsvc.saved.peers import Peers
from syncsvc.saved.run import Failure, RunRecord, refuse_in_use
from syncsvc.saved.run_store import RunStore
from syncsvc.saved.spool import saved_end, token_text
from syncsvc.state import Phase, State
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError


def can_commit(record: RunRecord, snapshot: ProgressSnapshot) -> bool:
    """Return the value of `canCommit`: whether the sync is running, applies change events and has caught up.

    A commit can still be refused because of the users and roles to copy. The snapshot is a parameter, so that all
    figures in one answer come from the same snapshot.
    """
    applying = record.state is State.RUNNING and record.phase is Phase.APPLYING
    return applying and snapshot.caught_up


class Admission:
    """Checks for one run whether commands are possible. All methods raise OperationError and the driver's errors."""

    def __init__(self, store: RunStore, process: ProcessContext) -> None:
        self._store = store
        self._process = process

    def refuse_final(self, failure: Failure, others: Sequence[RunRecord]) -> None:
        """Raise OperationError FailureIsFinal if the run cannot be resumed after this failure.

        `others` are the records of the other instances. Raises another OperationError if it cannot find out whether the
        source still has the changes that the run needs.
        """
        record = self._store.record
        refuse_final(record, others)
        positions = [each for each in map(self._needed, (record, *others)) if each is not None]
        if may_be_lost(failure) and positions:
            oldest = min(positions, key=lambda each: each.time)
            try:
                refuse_lost(self._process.clusters[record.source], oldest, self._process.stop)
            except OperationError as error:
                if error.kind != errors.OPLOG_WINDOW_EXCEEDED:
                    raise
                raise final(
                    record,
                    f"The sync failed with {failure.name}, and the source no longer returns the changes that the "
                    f"sync needs. {error.description}",
                ) from error

    def refuse_reset(self) -> None:
        """Raise OperationError if users may write to the destination, or if the sync was reversed.

        Also raise it if the coordinator must be reset first: only its record reliably says whether users may write to
        the destination. Once the coordinator's state is RESETTING, the sync does not allow user writes there any more.
        """
        leader = self.refuse_in_use()
        if leader is not None and leader.state is not State.RESETTING:
            raise OperationError(
                errors.INVALID_STATE,
                f"The reset must be sent to the coordinator {leader.instance} first: the state of the coordinator is "
                f"still {leader.state.value}.",
            )

    def refuse_in_use(self) -> RunRecord | None:
        """Raise OperationError DestinationInUse if users may write to the destination, or if the sync was reversed.

        The records of this instance and of the coordinator decide. Return the coordinator's saved record; None if the
        coordinator was not started, or is this instance.
        """
        leader = self._coordinator()
        for each in (self._store.record, leader):
            if each is not None:
                refuse_in_use(each)
        return leader

    def refuse_to_reverse(self) -> None:
        """Raise OperationError if the sync cannot be reversed.

        A reversal is impossible if users wrote to the old source after the commit, or if the oplog of the new source no
        longer has all change events since the commit. Until the coordinator has saved its reversal, every other
        instance makes the same check, with the coordinator's saved record. Otherwise, such an instance could save its
        reversal, and then wait forever for a coordinator that refuses the command.
        """
        record = self._store.record
        if record.coordinates:
            self._refuse_unless_as_committed(record)
            return
        leader = self._coordinator()
        if (
            leader is not None
            and leader.reversals == record.reversals
            and leader.reverse_start is not None
        ):
            self._refuse_unless_as_committed(leader)

    def _refuse_unless_as_committed(self, committed: RunRecord) -> None:
        """Raise OperationError if the clusters have changed since the commit in a way that makes a reversal impossible.

        `committed` is the coordinator's record after the commit.
        """
        assert committed.reverse_start is not None and committed.position is not None
        clusters = self._process.clusters
        refuse_lost(clusters[committed.destination], committed.reverse_start, self._process.stop)
        refuse_written(clusters[committed.source], committed.position, self._process.stop)

    def _coordinator(self) -> RunRecord | None:
        """Return the coordinator's saved record; None if the coordinator was not started, or is this instance."""
        metadata = self._process.metadata(self._store.record.home)
        return Peers(metadata, self._store).coordinator(self._process.stop)

    def _needed(self, record: RunRecord) -> Position | None:
        """Return the position after which an instance needs the source's oplog; None if no position is saved yet.

        The result is the end of the instance's event spool; or its saved position if that is later, or if the instance
        has no spool or only a damaged one. A resume deletes a damaged spool, so its events are needed again.
        """
        position = record.position
        if position is None or is_damaged(record):
            return position
        metadata = self._process.metadata(self._store.record.destination)
        end = saved_end(metadata, record.fence, record.reversals, self._process.stop)
        return position if end is None else max(position, end, key=token_text)
