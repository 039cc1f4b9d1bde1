"""Runs a candidate (a program that a benchmark measures, except the service) in a process that measures itself.

`run` starts this module as a script, with a task on the command line, and reads the measurement from its output.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from bson.timestamp import Timestamp

from syncsvc.sandbox import ReplicaSet
from syncsvc.settings import read_settings
from tests.bench import core, limit, plain
from tests.bench.clusters import servers
from tests.bench.measure import Measurement, Stopwatch
from tests.bench.processes import python
from verifier import cli as verifier

_SECONDS = 600


@dataclass(frozen=True)
class Task:
    """The arguments of a candidate, which is one of the programs in `PROBES`.

    `source` and `destination` are connection strings. `ours` are the process IDs of the servers, which do not count as
    unrelated processes. `time` is the cluster time from which change events are read: seconds and increment.
    """

    source: str
    destination: str
    ours: list[int]
    time: tuple[int, int]

    @property
    def start(self) -> Timestamp:
        return Timestamp(*self.time)


def _default_writers(task: Task) -> int:
    flags = ["--cluster0", task.source, "--cluster1", task.destination]
    return read_settings(flags).load_level.writers


def _verify(task: Task) -> None:
    """Run a complete check by the verifier with `--checkOnce`.

    The check also saves its state, reads changes and counts documents, as in production. Raises RuntimeError unless
    the check passes.
    """
    flags = ["--verifyAll", "--checkOnce", "--clean", "--verbosity", "WARN"]
    if verifier.main([*flags, "--srcURI", task.source, "--destURI", task.destination]):
        raise RuntimeError("the check did not pass")


PROBES: dict[str, Callable[[Task], None]] = {
    "limit": lambda task: limit.copy(task.source, task.destination, _default_writers(task)),
    "pymongo": lambda task: plain.copy(task.source, task.destination),
    "pymongo verify": lambda task: plain.verify(task.source, task.destination),
    "dbHash": lambda task: limit.hash_both(task.source, task.destination),
    "verifier": _verify,
    "comparison": lambda task: core.compare(task.source, task.destination),
    "stream": lambda task: limit.read_stream(task.source, task.start),
    "pymongo apply": lambda task: plain.apply(task.source, task.destination, task.start),
}


def run(
    name: str, source: ReplicaSet, destination: ReplicaSet, start: Timestamp = Timestamp(0, 0)
) -> Measurement:
    task = Task(source.uri, destination.uri, servers(source, destination), (start.time, start.inc))
    arguments = ["-m", "tests.bench.probe", name, json.dumps(asdict(task))]
    with python(arguments) as child:
        if child.process.wait(_SECONDS):
            raise RuntimeError(f"{name} failed:\n{child.said}")
        return Measurement(**json.loads(child.said.splitlines()[-1]))


def main(name: str, task: Task) -> None:
    stopwatch = Stopwatch(os.getpid(), task.ours)
    PROBES[name](task)
    print(json.dumps(asdict(stopwatch.read())))


if __name__ == "__main__":
    main(sys.argv[1], Task(**json.loads(sys.argv[2])))
