"""Measures how the downtime depends on the number of collections: the duration of each step of a sync of little data.

Each collection contains one document and has four indexes, one of them unique and one TTL. The commands that the
servers run are counted as well, because their number hardly depends on the machine.
"""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from time import monotonic
from typing import Any

from syncsvc.sandbox.replica_set import Client
from tests.bench.clusters import check_equal, cluster, servers
from tests.bench.daemon import Daemon, running
from tests.bench.data import DATABASE
from tests.bench.measure import Stopwatch

# The values of `info` in the progress before the copy.
_INITIALIZING = (None, "initializing collections and indexes")
# Commands that servers, drivers and this benchmark send in the background.
_IDLE = frozenset({"hello", "isMaster", "serverStatus", "getMore", "ping"})
_INDEXES = [
    {"name": "unique", "key": {"a": 1}, "unique": True},
    {"name": "ttl", "key": {"at": 1}, "expireAfterSeconds": 10**8},
    {"name": "plain", "key": {"b": 1}},
    {"name": "compound", "key": {"a": 1, "b": -1}},
]
# A server opens one file for each collection, for its index on `_id`, and for each other index; and some other files.
_FILES = 2 + len(_INDEXES)
_OTHER_FILES = 1000


@dataclass(frozen=True)
class Step:
    """One step of a sync: its duration, and the number of commands that each cluster has run in it per collection.

    The commands of all clients are counted, except background commands.
    """

    name: str
    seconds: float
    source: float
    destination: float


@dataclass(frozen=True)
class Steps:
    """The steps of one sync of `collections` collections.

    `cpu_seconds` and `peak_mb` are the CPU time and the peak memory of the daemon. `others` is the average number of
    CPUs that unrelated processes used.
    """

    collections: int
    steps: tuple[Step, ...]
    cpu_seconds: float
    peak_mb: float
    others: float


def benchmark(collections: int, say: Callable[[str], None]) -> Steps:
    """Measure a sync of `collections` collections.

    Raises RuntimeError if the servers cannot open enough files, the sync fails, or the clusters differ at the end.
    """
    _check_limit(collections)
    with (
        cluster("source") as source,
        cluster("destination") as destination,
        source.client() as reader,
        destination.client() as written,
    ):
        _fill(reader, collections)
        say(f"downtime: {collections:,} collections are filled")
        with running(source, destination) as daemon:
            recorder = _Recorder(collections, reader, written, say)
            stopwatch = Stopwatch(daemon.pid, servers(source, destination))
            _sync(daemon, recorder)
            measured = stopwatch.read()
        check_equal(source, destination)
    return Steps(
        collections,
        tuple(recorder.steps),
        measured.cpu_seconds,
        measured.peak_mb,
        measured.others,
    )


def table(result: Steps) -> str:
    """Return a text table of the steps; the last line shows the CPU time and memory of the daemon, and `others`."""
    head = (f"{result.collections:,} collections", "seconds", "source", "destination")
    rows = [
        (each.name, f"{each.seconds:.2f}", f"{each.source:.2f}", f"{each.destination:.2f}")
        for each in result.steps
    ]
    widths = [max(map(len, column)) for column in zip(head, *rows)]
    lines = [
        "  ".join(
            cell.ljust(width) if number == 0 else cell.rjust(width)
            for number, (cell, width) in enumerate(zip(row, widths))
        )
        for row in [head, *rows]
    ]
    lines.append(
        f"daemon: {result.cpu_seconds:.1f} s of CPU, {result.peak_mb:.0f} MB; others: {result.others:.1f} CPUs"
    )
    return "\n".join(lines)


def document(result: Steps) -> dict[str, Any]:
    return {"title": "downtime", **asdict(result)}


def _check_limit(collections: int) -> None:
    needed = _FILES * collections + _OTHER_FILES
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    if needed > limit:
        raise RuntimeError(
            f"{collections:,} collections need {needed:,} open files per server, but the hard limit is {limit:,}, at "
            f"which a server aborts. Raise it (ulimit -Hn), or measure at most {(limit - _OTHER_FILES) // _FILES:,}."
        )


def _fill(client: Client, collections: int) -> None:
    database = client[DATABASE]
    for number in range(collections):
        name = f"c{number}"
        database.command({"createIndexes": name, "indexes": _INDEXES})
        database.command({"insert": name, "documents": [{"_id": 1, "a": number, "b": "text"}]})


class _Recorder:
    """Measures the steps of a sync, one after another."""

    def __init__(
        self, collections: int, source: Client, destination: Client, say: Callable[[str], None]
    ) -> None:
        self._collections = collections
        self._clients = (source, destination)
        self._say = say
        self.steps: list[Step] = []

    @contextmanager
    def step(self, name: str) -> Iterator[None]:
        before, began = self._commands(), monotonic()
        yield
        seconds, after = monotonic() - began, self._commands()
        sent = [(now - then) / self._collections for then, now in zip(before, after)]
        self.steps.append(Step(name, seconds, *sent))
        self._say(f"downtime: {name}: {seconds:.2f} s")

    def _commands(self) -> list[int]:
        return [_count(client) for client in self._clients]


def _count(client: Client) -> int:
    """Return the number of commands that a server has run since its start, excluding background commands."""
    commands = client.admin.command("serverStatus")["metrics"]["commands"]
    return sum(
        int(each["total"])
        for name, each in commands.items()
        if name not in _IDLE and isinstance(each, dict) and "total" in each
    )


def _sync(daemon: Daemon, recorder: _Recorder) -> None:
    with recorder.step("preflight"):
        daemon.preflight(verified=True)
    with recorder.step("start"):
        daemon.start(verified=True)
    with recorder.step("definitions"):
        daemon.wait_until(lambda progress: progress["info"] not in _INITIALIZING)
    with recorder.step("copy"):
        daemon.wait_until_copied()
    with recorder.step("verification"):
        daemon.wait_until_caught_up()
    with recorder.step("commit to canWrite"):
        daemon.commit()
        daemon.wait_until(lambda progress: bool(progress["canWrite"]))
    with recorder.step("unique indexes"):
        daemon.wait_until(lambda progress: progress["state"] == "COMMITTED")
