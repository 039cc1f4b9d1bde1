"""Saves the record of a new run, and takes over the record of a saved one.

Both functions compare the options with those of the other instances of the sync.
"""

from __future__ import annotations

import logging

from syncsvc import errors
from syncsvc.running.process import ProcessContext
from syncsvc.saved.peers import Peers, described, differences
from syncsvc.saved.run import RunRecord, RunStore
from syncsvc.state import State
from verifier.runtime.errors import OperationError

_log = logging.getLogger(__name__)


def begin(process: ProcessContext, record: RunRecord) -> RunStore:
    """Save a new run.

    Raises OperationError MetadataLeftOver if another process began a sync first, and DifferentStart, after deleting
    the saved run, if another instance of the sync was started with other options.
    """
    store = RunStore.begin(process.saver(record.options.destination), record)
    different = _differences(process, store)
    if different:
        store.withdraw()
        raise OperationError(errors.DIFFERENT_START, described(different))
    # The coordinator no longer waits for instances that it did not find when it was reset.
    others = _peers(process, store).others(process.stop)
    if any(each.state is State.RESETTING for each in others):
        store.withdraw()
        raise OperationError(
            errors.METADATA_LEFT_OVER,
            "The sync of the other instances is being reset: send the start again when their state is IDLE.",
        )
    if any(each.attempt for each in others):
        # They have been resumed. A failure of this instance must not look like one of an earlier attempt.
        store.update(attempt=max(each.attempt for each in others))
    return store


def take_over(process: ProcessContext, saved: RunRecord) -> RunStore | None:
    """Take a saved run over. Return None if the run was deleted.

    A run without a saved start position, whose options differ from those of other instances, is deleted: its start
    would have been refused if its process had not been killed.

    Raises OperationError Superseded if another process took the run over, and the driver's errors.
    """
    home = saved.options.destination
    store = RunStore.take_over(process.clusters[home].client, process.saver(home), saved)
    if store.record.start is None and _differences(process, store):
        _log.warning(
            "The start was withdrawn, because other instances were started with other options. Send the same "
            "start to all instances."
        )
        store.withdraw()
        return None
    return store


def _differences(process: ProcessContext, store: RunStore) -> dict[str, list[str]]:
    """Return the names of the options that differ between this instance and others, by instance; empty if none."""
    record = store.record
    others = _peers(process, store).all_others(process.stop)
    return differences(record.options, record.instances, others)


def _peers(process: ProcessContext, store: RunStore) -> Peers:
    return Peers(process.clusters[store.record.options.destination].client, store)
