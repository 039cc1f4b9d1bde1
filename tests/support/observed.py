"""The real daemon with an observer, which obeys files in a folder (see `obedience`).

More files in the folder change the daemon:

- `without-features`: it treats the clusters as if they lacked the server features that the file names, one in each
  line; after a name, the address of a cluster limits the line to that cluster.
- `save-every-page`: the copy saves its resume point after every page.
- `small-partitions`: larger collections are copied by ranges of the size, in bytes, that the file contains.
- `old-source`: it treats servers of 6.0 like those of 5.0, and compares definitions only once, before the commit.
- `watch-closely`: it checks the oplog, shard keys, balancers and definitions of an old source ten times a second.
- `spool-often`: the event spool gets a row several times a second, and rows are small. A paused sync that cannot save
  events retries soon.
- `expect-heartbeats`: it warns of another instance after three seconds without a heartbeat.
- `lease`: its lease (`--standby`) is valid for the number of seconds that the file contains.
- `wait-briefly`: commands do not wait long for the startup.
- `report-often`: the half-minute report is logged several times a second.
- `warn-soon`: it warns of a wait after two seconds instead of 15.
- `give-up-soon`: it retries after unexpected errors for five seconds instead of a minute, and waits for bytes from a
  server for ten seconds instead of a minute.
- `judge-soon`: differences that remain at the end of the verification count at once, instead of being rechecked for
  three seconds.
- `no-room`: while the file exists, it sees little memory, and no free disk on the destination. Otherwise it always
  sees enough of both, whatever the machine has.

An idle change stream returns sooner than usual, and other instances are checked more often, because most tests wait for
them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syncsvc.cli import main
from syncsvc.preflight import memory, questions
from syncsvc.tuning import Tuning
from tests.support.obedience import observer
from verifier.cluster import connect, failures, probing
from verifier.cluster.connect import Client
from verifier.cluster.facts import ClusterFacts
from verifier.cluster.features import Version
from verifier.compare.tuning import CheckTuning
from verifier.runtime import waits

_WATCH_CLOSELY = (
    "oplog_interval",
    "shard_key_interval",
    "balancer_interval",
    "definition_interval",
)


def run(folder: Path, options: Sequence[str]) -> int:
    """Run the daemon with these options, and return its exit status.

    Afterwards, this process cannot be used any more.
    """
    if (folder / "old-source").exists():
        ClusterFacts.reports_ddl = False  # type: ignore[assignment,method-assign]
    if (folder / "without-features").exists():
        _withhold((folder / "without-features").read_text().splitlines())
    _choose_room(folder)
    _choose_patience(folder)
    return main(options, observer(folder), Tuning(**dict(_tuned(folder))))


def _withhold(lines: Sequence[str]) -> None:
    """Make the probe report features as refused; each line names one, and may limit it to the primary's address."""
    refused = probing.refused

    def refused_now(client: Client, version: Version) -> frozenset[str]:
        primary = "{}:{}".format(*(client.primary or ("", "")))
        withheld = (line.partition(" ") for line in lines)
        return refused(client, version) | {
            name for name, _, address in withheld if address in ("", primary)
        }

    probing.refused = refused_now


def _tuned(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the tuning fields, as names and values, that the files in `folder` change."""
    yield "stream_wait_ms", 50
    yield "check", CheckTuning(stream_wait_ms=50)
    yield "instance_interval", 0.2
    if (folder / "old-source").exists():
        yield "definition_interval", 3600.0
    if (folder / "save-every-page").exists():
        yield "copy_save_interval", 0.0
        yield "settle_interval", 0.05
    if (folder / "small-partitions").exists():
        yield "partition_bytes", int((folder / "small-partitions").read_text())
    if (folder / "watch-closely").exists():
        yield from ((name, 0.1) for name in _WATCH_CLOSELY)
    if (folder / "spool-often").exists():
        yield "spool_interval", 0.1
        yield "spool_row_bytes", 100_000
        yield "pause_retry", 0.3
    if (folder / "expect-heartbeats").exists():
        yield "most_silence", 3.0
    if (folder / "lease").exists():
        yield "lease_seconds", float((folder / "lease").read_text())
    if (folder / "wait-briefly").exists():
        yield "startup_wait", 0.1
    if (folder / "report-often").exists():
        yield "report_interval", 0.3
    if (folder / "judge-soon").exists():
        yield "grace", 0.0


def _choose_patience(folder: Path) -> None:
    """Shorten the limits of waits that are no tuning, because they are the same for every sync."""
    if (folder / "warn-soon").exists():
        waits.LONG = 2.0
    if (folder / "give-up-soon").exists():
        failures.UNFORESEEN_PATIENCE = 5.0
        connect.SOCKET_MS = 10_000


def _choose_room(folder: Path) -> None:
    """Make the daemon see fixed amounts of free memory and disk space, so that tests do not depend on the machine."""

    def has_room() -> bool:
        return not (folder / "no-room").exists()

    def free_disk(client: Client) -> int:
        return 1 << 50 if has_room() else 0

    memory.available_memory = lambda: 1 << 40 if has_room() else 100_000_000
    questions.free_disk = free_disk
