"""The saved records of the other instances of a run: which commands an instance still lacks, and whose options differ.

A sync may be run by several processes: from a sharded cluster one for each shard, from a replica set those that the
start option `instances` names. Each has its own run record, which only it saves. The record shows the other instances
which commands it has received, its progress, and its heartbeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from syncsvc.options import StartOptions
from syncsvc.saved.run import RunRecord, RunStore, load_runs
from syncsvc.saved.stored import StoredOptions
from syncsvc.state import State
from verifier.cluster.connect import Client
from verifier.cluster.reading import read
from verifier.runtime.tasks import StopToken


class Peers:
    """The other instances that share the run. Every call reads their saved records again, with `client`."""

    def __init__(self, client: Client, run: RunStore) -> None:
        self._client = client
        self._run = run

    def others(self, stop: StopToken) -> list[RunRecord]:
        """Return the saved records of the other instances that have been started; empty if this one runs alone.

        Raises the driver's errors, and OperationError IncompatibleMetadata.
        """
        own = self._run.record
        if not own.instances:
            return []
        return [each for each in self.all_others(stop) if each.instance in own.instances]

    def all_others(self, stop: StopToken) -> list[RunRecord]:
        """Return all other saved records, including those of instances that do not belong to the run of this one.

        Such records exist if two instances were started at the same moment, each as part of a different run.
        Raises the driver's errors, and OperationError IncompatibleMetadata.
        """
        saved = read(lambda: load_runs(self._client), stop)
        return [each for each in saved if each.instance != self._run.record.instance]

    def coordinator(self, stop: StopToken) -> RunRecord | None:
        """Return the coordinator's saved record; None if it has not been started yet, or is this instance."""
        name = self._run.record.coordinator
        return next((each for each in self.others(stop) if each.instance == name), None)


def awaited(instances: Iterable[str], records: Collection[RunRecord]) -> Iterator[tuple[str, str]]:
    """Yield the ID of each instance that lacks a command which another instance has received, and the command.

    `instances` are the IDs of all instances, `records` are the run records of those that have been started.
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


def described(different: Mapping[str, Sequence[str]]) -> str:
    """Return the text of an error for the result of `differences`: one sentence for each instance."""
    return " ".join(
        f"The instance {name} was started with different values for: {', '.join(fields)}."
        for name, fields in different.items()
    )


def differences(
    options: StartOptions, instances: Sequence[str], others: Iterable[RunRecord]
) -> dict[str, list[str]]:
    """Return the names of the options that other instances were started with differently, by instance; empty if none.

    The `instances` of the runs must be equal too, because they divide the events among themselves. If they differ and
    the start option `instances` does not, the difference is in the shards of the source.
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
