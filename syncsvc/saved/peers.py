"""Reads the run records of the other instances; finds missing commands, differing options and the cut-over in them.

Several instances (processes) can run one sync: for a sharded source, one instance for each shard; for a replica set,
the instances that the start option `instances` lists. Each instance has its own run record, which it alone saves, and
which the other instances read. The record shows which commands its instance has received, the progress of the instance,
and its heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from syncsvc.metadata import Metadata
from syncsvc.options import StartOptions
from syncsvc.saved.run import RunRecord
from syncsvc.saved.run_documents import load_runs
from syncsvc.saved.run_store import RunStore
from syncsvc.saved.stored import StoredOptions
from syncsvc.state import State
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken


class Peers:
    """The other instances that share the run. Every call reads their saved records again.

    Every method raises the driver's errors, OperationError IncompatibleMetadata, and `Cancelled`.

    The records include all saves that were acknowledged before this process last updated its own record. So an instance
    that is started or resumed after its coordinator never reads an older record of the coordinator, not even right
    after an election.
    """

    def __init__(self, metadata: Metadata, run: RunStore) -> None:
        self._metadata = metadata
        self._run = run

    def others(self, stop: StopToken) -> list[RunRecord]:
        """Return the saved records of the other started instances; empty if this instance runs alone."""
        own = self._run.record
        names = [each for each in own.instances if each != own.instance]
        return self._load(stop, *names) if names else []

    def all_others(self, stop: StopToken) -> list[RunRecord]:
        """Return all other saved records, including those of instances that do not belong to this instance's run.

        Such records exist if two instances were started at the same moment with different options.
        """
        own = self._run.record.instance
        return [each for each in self._load(stop) if each.instance != own]

    def coordinator(self, stop: StopToken) -> RunRecord | None:
        """Return the coordinator's saved record; None if the coordinator was not started yet, or is this instance."""
        own = self._run.record
        return None if own.coordinates else next(iter(self._load(stop, own.coordinator)), None)

    def _load(self, stop: StopToken, *instances: str) -> list[RunRecord]:
        since = self._run.saved_time
        return read(lambda: load_runs(self._metadata, *instances, since=since), stop)


def awaited(instances: Iterable[str], records: Collection[RunRecord]) -> Iterator[tuple[str, str]]:
    """Yield (instance ID, command) for each instance that needs this command before all instances can continue.

    They continue the sync or, if one of them is being reset, the reset. `instances` are the IDs of all instances.
    `records` are the run records of the started instances; there must be at least one.
    """
    by_instance = {each.instance: each for each in records}
    reversals = max(each.reversals for each in records)
    resetting = any(each.state is State.RESETTING for each in records)
    committing = any(
        each.reversals == reversals and each.state in (State.COMMITTING, State.COMMITTED)
        for each in records
    )
    for name in instances:
        record = by_instance.get(name)
        if resetting:
            if record is not None and record.state is not State.RESETTING:
                yield name, "reset"
        elif record is None:
            yield name, "start"
        elif record.state in (State.PAUSED, State.FAILED):
            yield name, "resume"
        elif record.reversals < reversals:
            yield name, "reverse"
        elif committing and record.state is State.RUNNING:
            yield name, "commit"


def is_cut_over(record: RunRecord, others: Collection[RunRecord]) -> bool:
    """Return whether users may write to the destination of `record`, according to the records of all instances.

    `others` are the records of the other instances. They count, too, because `record` may not show the cut-over yet. A
    record with more reversals than `record` is from after the cut-over.
    """
    return record.can_write or any(
        other.reversals > record.reversals
        or (other.reversals == record.reversals and other.can_write)
        for other in others
    )


def described(different: Mapping[str, Sequence[str]]) -> str:
    """Return an error text with one sentence for each instance in `different`, the result of `differences`."""
    return " ".join(
        f"The start of the instance {name} differs in: {', '.join(fields)}."
        for name, fields in different.items()
    )


def differences(
    options: StartOptions, instances: Sequence[str], others: Iterable[RunRecord]
) -> dict[str, list[str]]:
    """Return the names of the start options in which each other instance differs from `options`.

    The keys are the IDs of the differing instances. The lists of instances in the run records must equal `instances`,
    too, because the instances divide the events among themselves. If these lists differ but the start option
    `instances` is equal, the instances found different shards of the source: the result then contains "shards of the
    source".
    """
    own = StoredOptions().dump(options)
    found = {}
    for each in others:
        theirs = StoredOptions().dump(each.options)
        names = [name for name in own if own[name] != theirs[name]]
        if tuple(instances) != each.instances and "instances" not in names:
            names.append("shards of the source")
        if names:
            found[each.instance] = names
    return found
