"""Saves the record of a new run, and takes over the record of a saved one.

Both functions compare the options with the options of the other instances of the sync.
"""

from __future__ import annotations

import logging

from syncsvc import errors
from syncsvc.running.process import ProcessContext
from syncsvc.saved.other_syncs import other_syncs, sharing_violations
from syncsvc.saved.peers import Peers, described, differences
from syncsvc.saved.run import RunRecord, RunStore
from syncsvc.state import State
from verifier.cluster.reading import read
from verifier.runtime.errors import OperationError, raise_all

_log = logging.getLogger(__name__)


def begin(process: ProcessContext, record: RunRecord) -> RunStore:
    """Save the record of a new run, and return its store.

    Raises OperationError: MetadataLeftOver if another process began a sync first, or if the other instances are being
    reset; OtherSyncOnDestination if this sync cannot share the destination with another sync; DifferentStart if another
    instance was started with other options. After these errors, the new run is not saved. Also raises the driver's
    errors; after these, the new run may be saved.
    """
    home = record.options.destination
    store = RunStore.begin(process.metadata(home), process.saver(home), record)
    # Another sync may have begun since the check: then at least one of the two sees the other one's record.
    others = read(
        lambda: [*other_syncs(process.clusters[home].client, process.database)], process.stop
    )
    violations = [*sharing_violations(record.options, others)]
    if violations:
        store.withdraw()
        raise_all(violations)
    different = _differences(process, store)
    if different:
        store.withdraw()
        raise OperationError(errors.DIFFERENT_START, described(different))
    # The coordinator no longer waits for instances that it did not find when it was reset.
    peers = _peers(process, store).others(process.stop)
    if any(each.state is State.RESETTING for each in peers):
        store.withdraw()
        raise OperationError(
            errors.METADATA_LEFT_OVER,
            "The sync of the other instances is being reset: send the start request again when their state is "
            "IDLE.",
        )
    if any(each.attempt for each in peers):
        # They have been resumed. A failure of this instance must not look like one of an earlier attempt.
        store.update(attempt=max(each.attempt for each in peers))
    return store


def take_over(process: ProcessContext, saved: RunRecord) -> RunStore | None:
    """Take over a saved run, and return its store. Return None if the saved run was deleted instead.

    The saved run is deleted if it has no saved start position and its options differ from those of other instances. Its
    start would have been refused for that reason, but its process was killed first.

    Raises OperationError Superseded if another process took the run over, and the driver's errors.
    """
    home = saved.options.destination
    store = RunStore.take_over(process.metadata(home), process.saver(home), saved)
    if store.record.start is None and _differences(process, store):
        _log.warning(
            "The start was withdrawn, because other instances were started with other options. Send the same "
            "start request to all instances."
        )
        store.withdraw()
        return None
    return store


def _differences(process: ProcessContext, store: RunStore) -> dict[str, list[str]]:
    """Return the names of the start options that differ from this instance's, by the ID of the other instance."""
    record = store.record
    others = _peers(process, store).all_others(process.stop)
    return differences(record.options, record.instances, others)


def _peers(process: ProcessContext, store: RunStore) -> Peers:
    return Peers(process.metadata(store.record.options.destination), store)
