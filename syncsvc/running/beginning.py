"""Saves the record of a new run, and takes over the record of a saved one.

The options of a new run, and of a saved run without a start position, are compared with those of the other instances.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from syncsvc import errors
from syncsvc.options import StartOptions
from syncsvc.running.process import ProcessContext
from syncsvc.saved.other_syncs import other_syncs, sharing_violations
from syncsvc.saved.peers import Peers, described, differences
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_store import RunStore
from syncsvc.saved.stored import StoredOptions
from syncsvc.state import ACTIVE, Phase, State
from verifier.cluster.reading import read
from verifier.runtime.errors import OperationError, raise_all
from verifier.runtime.quantities import utc_text

_log = logging.getLogger(__name__)

T = TypeVar("T")

# How to start with other options, by whether users may write to the destination of the sync.
_TO_START_ANEW = {
    False: (
        "A start cannot change a sync. To start with other options, first reset this sync (POST /api/v1/reset), which "
        "deletes its copied data."
    ),
    True: "This sync can no longer be reset, because the destination may hold user data.",
}
# For each option that the start request calls by another name than the saved options: both names, the saved one first.
_OF_VERIFICATION = {"verification": "verification.enabled", "repair": "verification.repair"}


class Starts:
    """Begins new runs, and takes over saved ones. If a start fails after its record was saved, the record is deleted.

    If the record cannot be deleted, because the cluster with the metadata does not answer, it is deleted later: by the
    next start, by `withdraw`, or by `take_over`. Another process does not know that the start has failed: if it takes
    the record over first, it runs the sync. Only `withdraw` may be called by another thread while a method runs.
    """

    def __init__(self) -> None:
        # The record of a start that is in progress or has failed; None if there is no such start. After a failure, the
        # record may still exist in the metadata.
        self._failed: RunRecord | None = None

    def begin(
        self, process: ProcessContext, record: RunRecord, prepare: Callable[[RunStore], T]
    ) -> T:
        """Save the record of a new run, and return the result of `prepare`, which gets the store of the run.

        Raises OperationError: MetadataLeftOver if another process began a sync first, or if the other instances are
        being reset; OtherSyncOnDestination if this sync cannot share the destination with another sync; DifferentStart
        if another instance was started with other options. Also raises other errors of the store, the driver's errors,
        and the errors of `prepare`.
        """
        store = _store_of(process, record)
        self._failed = record
        with ExitStack() as undo:
            undo.callback(self.withdraw_failed, process)
            store.insert()
            _refuse_conflicts(process, store)
            _join_attempt(process, store)
            prepared = prepare(store)
            undo.pop_all()
            self._failed = None
        return prepared

    def withdraw_failed(self, process: ProcessContext) -> None:
        """Delete the record of a failed start if it may still exist. Raises the driver's errors."""
        if self._failed is not None:
            self.withdraw(process, self._failed.owner)
            self._failed = None

    def withdraw(self, process: ProcessContext, owner: str) -> bool:
        """Delete the saved record with this owner if its start failed, or is in progress, in this process.

        Return whether this process has such a start. Raises the driver's errors.
        """
        failed = self._failed
        if failed is None or failed.owner != owner:
            return False
        # Keep `_failed`: a delayed insert may save the record of this start again. Use a new store, because the writer
        # of the start may belong to a term that has ended.
        _store_of(process, failed).withdraw()
        return True

    def take_over(self, process: ProcessContext, saved: RunRecord) -> RunStore | None:
        """Take over a saved run, and return its store. Return None if the saved run was deleted instead.

        The saved run is deleted if its start failed in this process. It is also deleted if it has no saved start
        position, and its options differ from those of other instances: the process that saved it was killed before it
        could refuse the start.

        Raises the errors of `RunStore.take_over`, for example OperationError Superseded, and the driver's errors.
        """
        if not self.withdraw(process, saved.owner):
            return _take_over(process, saved)
        _log.warning(
            "The record of a failed start still existed. It is now deleted, and no sync is running. Send the start "
            "request again."
        )
        return None


def refuse_second(record: RunRecord, options: StartOptions) -> None:
    """Raise OperationError InvalidState if the sync of `record` is running, committing, reversing or paused.

    A start is impossible then. The error says when the sync was started (if that is known), and whether it was started
    with `options`. This is a no-op in other states.
    """
    if record.state not in ACTIVE and record.state is not State.PAUSED:
        return
    # The record lists only the newest phases, so the start of a long sync may be unknown.
    began = [each.at for each in record.phases if each.phase is Phase.INITIALIZING]
    when = "".join(f" at {utc_text(at)}" for at in began)
    differing = first_difference(record, options)
    if differing is not None:
        compared = (
            f"The existing sync has another value of the start option {differing} than this request. "
            f"{_TO_START_ANEW[record.in_use]}"
        )
    elif record.state is State.PAUSED:
        compared = "The existing sync has the options of this request, and is paused: POST /api/v1/resume continues it."
    else:
        compared = "The existing sync has the options of this request, and continues: do not start it again."
    raise OperationError(
        errors.INVALID_STATE,
        f"start needs state IDLE; the state is {record.state.value}. A sync was already started{when}. {compared}",
    )


def first_difference(record: RunRecord, options: StartOptions) -> str | None:
    """Return the name of the first start option that differs from those of a run; None if all are equal.

    A reversed run has the other direction, so its source differs.
    """
    if record.source != options.source:
        return "source"
    if record.options == options:
        return None
    own, given = (StoredOptions().dump(each) for each in (record.options, options))
    names = (_OF_VERIFICATION.get(name, name) for name in own if own[name] != given[name])
    return next(names, None)


def _store_of(process: ProcessContext, record: RunRecord) -> RunStore:
    return RunStore(process.metadata(record.home).name, process.saver(record.home), record)


def _refuse_conflicts(process: ProcessContext, store: RunStore) -> None:
    """Raise OperationError if other syncs or other instances rule out the run that was just saved.

    They may have begun since the preflight checks. Of two conflicting runs, at least one sees the other one's record.
    """
    record = store.record
    client = process.clusters[record.home].client
    others = read(lambda: [*other_syncs(client, process.database)], process.stop)
    raise_all(sharing_violations(record.options, others))
    different = _differences(process, store)
    if different:
        raise OperationError(errors.DIFFERENT_START, described(different))


def _join_attempt(process: ProcessContext, store: RunStore) -> None:
    """Set `RunRecord.attempt` of this instance to the highest attempt of the other instances.

    Otherwise, a later failure of this instance would look like a failure before the last resume. Raises OperationError
    MetadataLeftOver if the other instances are being reset.
    """
    peers = _peers(process, store).others(process.stop)
    # The coordinator no longer waits for instances that it did not find when it was reset.
    if any(each.state is State.RESETTING for each in peers):
        raise OperationError(
            errors.METADATA_LEFT_OVER,
            "The sync of the other instances is being reset: send the start request again when their state is "
            "IDLE.",
        )
    if any(each.attempt for each in peers):
        store.update(attempt=max(each.attempt for each in peers))


def _take_over(process: ProcessContext, saved: RunRecord) -> RunStore | None:
    """Take over a saved run, and return its store. Return None if the run was deleted because of its options."""
    store = RunStore.take_over(process.metadata(saved.home), process.saver(saved.home), saved)
    if store.record.start is None and _differences(process, store):
        _log.warning(
            "The start was withdrawn, because other instances were started with other options, or found other shards "
            "of the source. Send the same start request to all instances."
        )
        store.withdraw()
        return None
    return store


def _differences(process: ProcessContext, store: RunStore) -> dict[str, list[str]]:
    """Return how the start options of other instances differ from this instance's: the result of `differences`."""
    record = store.record
    others = _peers(process, store).all_others(process.stop)
    return differences(record.options, record.instances, others)


def _peers(process: ProcessContext, store: RunStore) -> Peers:
    return Peers(process.metadata(store.record.home), store)
