"""Decides whether a command is possible, where that depends on the saved records and on the data of the clusters.

Whether the state allows a command is decided by `syncsvc.state`. Nothing here changes the run.
"""

from __future__ import annotations

from collections.abc import Sequence

from syncsvc import errors
from syncsvc.engine.reversal import refuse_lost, refuse_written
from syncsvc.figures.progress import ProgressSnapshot
from syncsvc.resuming import is_damaged, may_be_lost, refuse_final
from syncsvc.running.process import ProcessContext
from syncsvc.saved.peers import Peers
from syncsvc.saved.run import Failure, RunRecord, RunStore, refuse_in_use
from syncsvc.saved.spool import saved_end, text_of
from syncsvc.state import Phase, State
from verifier.cluster.times import Position
from verifier.runtime.errors import OperationError


def can_commit(record: RunRecord, snapshot: ProgressSnapshot) -> bool:
    """Return whether a commit is accepted: the sync is running, applies change events and has caught up.

    The caller passes the snapshot, so that all figures in one answer come from the same snapshot.
    """
    applying = record.state is State.RUNNING and record.phase is Phase.APPLYING
    return applying and snapshot.caught_up


def refuse_repair(record: RunRecord) -> None:
    """Raise OperationError CannotRepair unless the verification has begun or has failed."""
    if record.state is State.FAILED and not _failed_verification(record):
        name = "an unknown error" if record.failure is None else record.failure.name
        raise OperationError(errors.CANNOT_REPAIR, f"The sync failed with {name}.")
    if not record.options.verification:
        raise OperationError(
            errors.CANNOT_REPAIR,
            "This sync was started without verification, so no differences are known.",
        )
    if record.phase is not Phase.APPLYING:
        raise OperationError(errors.CANNOT_REPAIR, "The verification has not begun.")


def _failed_verification(record: RunRecord) -> bool:
    return record.failure is not None and record.failure.name == errors.VERIFICATION_FAILED.name


class Admission:
    """The checks of commands on one run. They read from the clusters, and raise OperationError and driver's errors."""

    def __init__(self, store: RunStore, process: ProcessContext) -> None:
        self._store = store
        self._process = process

    def refuse_final(self, failure: Failure, others: Sequence[RunRecord]) -> None:
        """Raise OperationError FailureIsFinal if the run cannot be resumed after this failure.

        `others` are the records of the other instances.
        """
        record = self._store.record
        refuse_final(record, others)
        positions = [each for each in map(self._needed, (record, *others)) if each is not None]
        if may_be_lost(failure) and positions:
            oldest = min(positions, key=lambda each: each.time)
            try:
                refuse_lost(self._process.clusters[record.source], oldest, self._process.stop)
            except OperationError as error:
                raise OperationError(
                    errors.FAILURE_IS_FINAL,
                    f"The sync failed with {failure.name}, and the changes that it needs are lost. "
                    f"{error.description}",
                ) from error

    def refuse_reset(self) -> None:
        """Raise OperationError if users may write to the destination, or if the coordinator must be reset first.

        The coordinator must be reset first because only its record says for sure whether users may write; once its
        state is RESETTING, that cannot change any more.
        """
        leader = self.refuse_in_use()
        if leader is not None and leader.state is not State.RESETTING:
            raise OperationError(
                errors.INVALID_STATE,
                f"reset must be sent to the coordinator {leader.instance} first; its state is "
                f"{leader.state.value}.",
            )

    def refuse_in_use(self) -> RunRecord | None:
        """Raise OperationError DestinationInUse if users may write to the destination.

        That is decided by the record of this instance and by the coordinator's saved record. Return the latter; None
        if the coordinator was not started, or is this instance.
        """
        leader = self._coordinator()
        for each in (self._store.record, leader):
            if each is not None:
                refuse_in_use(each)
        return leader

    def refuse_to_reverse(self) -> None:
        """Raise OperationError if the sync cannot be reversed.

        It cannot if users wrote to the old source after the commit, or if the new source no longer has all change
        events. A follower asks the coordinator's saved record; otherwise it could save that it is reversed, and wait
        forever for a coordinator that refuses to reverse the sync.
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
        """Raise the errors of `refuse_to_reverse`; `committed` is the coordinator's record after the commit."""
        assert committed.reverse_start is not None and committed.position is not None
        clusters = self._process.clusters
        refuse_lost(clusters[committed.destination], committed.reverse_start, self._process.stop)
        refuse_written(clusters[committed.source], committed.position, self._process.stop)

    def _coordinator(self) -> RunRecord | None:
        """Return the coordinator's saved record; None if it was not started, or is this instance."""
        home = self._process.clusters[self._store.record.options.destination]
        return Peers(home.client, self._store).coordinator(self._process.stop)

    def _needed(self, record: RunRecord) -> Position | None:
        """Return the position after which an instance needs the source's oplog; None if it has not begun to read.

        That is the end of its event spool, if it has one, else its saved position. A damaged spool does not count: the
        resume deletes it, so its events are needed again.
        """
        position = record.position
        if position is None or is_damaged(record):
            return position
        client = self._process.clusters[self._store.record.destination].client
        end = saved_end(client, record.fence, record.reversals, self._process.stop)
        return position if end is None else max(position, end, key=text_of)
