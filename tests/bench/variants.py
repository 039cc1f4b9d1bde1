"""Measures variants of a sync against each other, such as other topologies, start options or links.

Only the service is measured: `copying` and `applying` compare it with other programs. Each run has its own clusters.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any

from syncsvc.sandbox.replica_set import Client
from tests.bench import backlog
from tests.bench.backlog import BACKLOGS, Backlog
from tests.bench.clusters import Cluster, check_equal, cluster, servers
from tests.bench.daemon import Daemon, running, wait_for
from tests.bench.data import DataSet, load
from tests.bench.measure import Measurement, Stopwatch, turns
from tests.bench.report import Result

# How often to check whether the whole backlog has reached the destination, in seconds.
_POLL_INTERVAL = 0.02

Run = Callable[[Cluster, Cluster], AbstractContextManager[list[Daemon]]]


@contextmanager
def instances(
    source: Cluster, destination: Cluster, names: Sequence[str] = (), **settings: Any
) -> Iterator[list[Daemon]]:
    """Run one instance of the service for each ID in `names` or, if `names` is empty, a single one without an ID.

    `settings` are keyword arguments of `running`.
    """
    identities: list[tuple[str, ...]] = [("--id", name) for name in names] or [()]
    with ExitStack() as stack:
        yield [
            stack.enter_context(running(source, destination, *each, **settings))
            for each in identities
        ]


def nothing(client: Client, data_set: DataSet) -> None:
    """Prepare nothing on the source."""


@dataclass(frozen=True)
class Variant:
    """A variant of a sync. The defaults are those of the other benchmarks: two replica sets, and one instance.

    `source` and `destination` create the clusters with the given names, `prepare` prepares the empty source for a data
    set, and `run` runs the service. `options` returns the start options for a data set. The context manager `during`
    surrounds the measured time.
    """

    name: str
    source: Callable[[str], Cluster] = cluster
    destination: Callable[[str], Cluster] = cluster
    prepare: Callable[[Client, DataSet], None] = nothing
    run: Run = instances
    options: Callable[[DataSet], Mapping[str, Any]] = lambda data_set: {}
    during: Callable[[], AbstractContextManager[object]] = nullcontext


def copy(
    title: str,
    data_set: DataSet,
    variants: Sequence[Variant],
    rounds: int,
    say: Callable[[str], None],
) -> Result:
    """Measure the copy of the data set in each variant, and compare the rates with that of the first variant."""
    names = [each.name for each in variants]
    result = Result(title, "document", data_set.count, names[0], names, data_set.bytes)
    return _measured(result, variants, rounds, lambda each: _copy(each, data_set), say)


def events(
    title: str,
    name: str,
    asked: int,
    variants: Sequence[Variant],
    rounds: int,
    say: Callable[[str], None],
) -> Result:
    """Measure the application of the backlog `name` in each variant; compare the rates with that of the first variant.

    `asked` is the requested number of events in the backlog.
    """
    chosen = BACKLOGS[name]
    names = [each.name for each in variants]
    result = Result(title, "event", chosen.events(asked), names[0], names)
    return _measured(result, variants, rounds, lambda each: _apply(each, chosen, asked), say)


def _measured(
    result: Result,
    variants: Sequence[Variant],
    rounds: int,
    measure: Callable[[Variant], Measurement],
    say: Callable[[str], None],
) -> Result:
    for turn in turns(variants, rounds):
        for each in turn:
            measurement = measure(each)
            result.add(each.name, measurement)
            say(f"{result.title}: {each.name}: {measurement.seconds:.2f} s")
    return result


def _copy(variant: Variant, data_set: DataSet) -> Measurement:
    with (
        variant.source("source") as source,
        variant.destination("destination") as destination,
    ):
        with source.client() as client:
            variant.prepare(client, data_set)
            load(client, data_set)
        with variant.run(source, destination) as daemons, variant.during():
            stopwatch = _Stopwatches(daemons, servers(source, destination))
            for each in daemons:
                each.start(**variant.options(data_set))
            for each in daemons:
                each.wait_until_copied()
            measurement = stopwatch.read()
        check_equal(source, destination)
        return measurement


def _apply(variant: Variant, chosen: Backlog, asked: int) -> Measurement:
    with (
        variant.source("source") as source,
        variant.destination("destination") as destination,
        source.client() as writer,
        destination.client() as written,
    ):
        variant.prepare(writer, chosen.base)
        backlog.load_base(writer, chosen)
        with variant.run(source, destination) as daemons:
            _suspend(daemons, variant.options(chosen.base))
            backlog.write(writer, chosen, asked)
            with variant.during():
                stopwatch = _Stopwatches(daemons, servers(source, destination))
                for each in daemons:
                    each.resume()
                wait_for(lambda: backlog.is_applied(written), _POLL_INTERVAL)
                measurement = stopwatch.read()
        check_equal(source, destination)
        return measurement


def _suspend(daemons: Sequence[Daemon], options: Mapping[str, Any]) -> None:
    """Start the sync, wait until it has caught up, and suspend all instances."""
    for each in daemons:
        each.start(**options)
    for each in daemons:
        each.wait_until_caught_up()
    for each in daemons:
        each.suspend()


class _Stopwatches:
    """Measures all instances of a sync together, beginning when this object is created.

    `clusters` are the process IDs of the servers, which do not count as unrelated processes.
    """

    def __init__(self, daemons: Sequence[Daemon], clusters: Sequence[int]) -> None:
        ours = [os.getpid(), *clusters]
        pids = [each.pid for each in daemons]
        self._each = [
            Stopwatch(pid, [*ours, *(other for other in pids if other != pid)]) for pid in pids
        ]

    def read(self) -> Measurement:
        """Return the cost of all instances: the sums of their CPU times and of their peak memory.

        The duration and `others` are taken from the first instance.
        """
        found = [each.read() for each in self._each]
        return replace(
            found[0],
            cpu_seconds=sum(each.cpu_seconds for each in found),
            peak_mb=sum(each.peak_mb for each in found),
        )
