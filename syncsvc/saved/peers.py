"""What the other instances of a run have saved, and what follows from that.

A sync from a sharded cluster may be carried out by several processes, one for each shard of its source. Each has a run
record of its own, which it alone saves, and which tells the others what it was told, how far it is, and that it lives.
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
    """The others that carry out the run of this instance, asked anew each time."""

    def __init__(self, client: Client, run: RunStore) -> None:
        self._client = client
        self._run = run

    def others(self, stop: StopToken) -> list[RunRecord]:
        """What those others have saved that were told to start. Raises the driver's errors."""
        own = self._run.record
        if not own.instances:
            return []
        saved = read(lambda: load_runs(self._client), stop)
        names = {*own.instances} - {own.instance}
        return [each for each in saved if each.instance in names]

    def coordinator(self, stop: StopToken) -> RunRecord | None:
        """What the one that coordinates has saved; None where it was not told to start yet."""
        name = self._run.record.coordinator
        return next((each for each in self.others(stop) if each.instance == name), None)


def awaited(instances: Iterable[str], records: Collection[RunRecord]) -> Iterator[tuple[str, str]]:
    """Which instances were not told yet what another one was: each with the command that it waits for."""
    told = {each.instance: each for each in records}
    reversals = max(each.reversals for each in records)
    committing = any(
        each.reversals == reversals and each.state in (State.COMMITTING, State.COMMITTED)
        for each in records
    )
    for name in instances:
        record = told.get(name)
        if record is None:
            yield name, "start"
        elif record.state is State.PAUSED:
            yield name, "resume"
        elif record.reversals < reversals:
            yield name, "reverse"
        elif committing and record.state is State.RUNNING:
            yield name, "commit"


def described(different: Mapping[str, Sequence[str]]) -> str:
    """Such differences, in words."""
    return " ".join(
        f"{name} was started with other {', '.join(fields)}." for name, fields in different.items()
    )


def differences(
    options: StartOptions, instances: Sequence[str], others: Iterable[RunRecord]
) -> dict[str, list[str]]:
    """What of these options is not what the other instances were started with, by instance.

    Nor may a shard have come or gone in between: by other `instances`, the events would be divided otherwise.
    """
    own = StoredOptions().dump(options)
    found = {}
    for each in others:
        told = StoredOptions().dump(each.options)
        names = [name for name in own if own[name] != told[name]]
        if tuple(instances) != each.instances:
            names.append("shards of the source")
        if names:
            found[each.instance] = names
    return found
