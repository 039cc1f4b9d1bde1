"""Reads the saved state of other syncs to the same destination. Each sync has its own metadata database there.

Two syncs can share a destination only if `preExistingDestinationData` is true for both, so a start checks this. For the
other sync, the option may be false once that sync is committed and cannot be reversed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from syncsvc.errors import OTHER_SYNC_ON_DESTINATION
from syncsvc.metadata import is_metadata
from syncsvc.options import StartOptions
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_documents import RUNS, load_runs
from syncsvc.state import State
from verifier.cluster.connect import Client
from verifier.runtime.errors import OperationError, Violation


@dataclass(frozen=True)
class OtherSync:
    """Another sync to the same cluster: the name of its metadata database, and its run records.

    `runs` is None if this version cannot read the run records.
    """

    database: str
    runs: tuple[RunRecord, ...] | None


def other_syncs(client: Client, own: str) -> Iterator[OtherSync]:
    """Yield the syncs that are saved on a cluster, except the sync whose metadata database is named `own`.

    Raises the driver's errors.
    """
    for name in sorted(client.list_database_names()):
        if name != own and is_metadata(name) and client[name][RUNS].find_one({}, {"_id": True}):
            try:
                yield OtherSync(name, tuple(load_runs(client[name])))
            except OperationError:
                yield OtherSync(name, None)


def sharing_violations(options: StartOptions, others: Iterable[OtherSync]) -> Iterator[Violation]:
    """Yield a violation for each sync in `others` that cannot share the destination with a sync with these options."""
    for each in others:
        reason = _conflict(options, each)
        if reason is not None:
            description = f"The database {each.database} holds the state of another sync{reason}."
            yield OTHER_SYNC_ON_DESTINATION, description


def _conflict(options: StartOptions, other: OtherSync) -> str | None:
    if not options.pre_existing_destination_data:
        return ", but preExistingDestinationData is false in this start request"
    if other.runs is None:
        return ", which this version of syncsvc cannot read"
    if any(_owns_everything(each) for each in other.runs):
        return ", which was started with preExistingDestinationData false"
    return None


def _owns_everything(record: RunRecord) -> bool:
    """Return whether a sync may still change or compare data on the destination that it has not created."""
    options = record.options
    is_over = record.state is State.COMMITTED and not options.reversible
    return not options.pre_existing_destination_data and not is_over
