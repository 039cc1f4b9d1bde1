"""The real daemon with an observer, which obeys files in a folder (see `obedience`).

More files in the folder change the daemon:

- `without-features`: it treats the clusters as if they lacked the server features that the file names, one in each
  line. If an address follows the name, only the cluster with this address lacks the feature.
- `save-every-page`: the copy saves its resume point after every page, and the progress of all instances often.
- `small-partitions`: the file contains a size in bytes. Collections larger than that are copied in ranges of that size.
- `old-source`: it ignores that the servers report DDL events, as if they were older than MongoDB 6.0. Without
  `watch-closely`, it does not compare definitions periodically, but only when a phase begins, while it applies found
  changes, and before the commit.
- `new-destination`: it treats the destination as MongoDB 6.3 or newer, which refuses the option `recordPreImages`. It
  also creates an index on the `metaField` and the time of each new time-series collection, as such a server does.
- `forge-events`: the change stream of the source reports the events of newer servers that `tests.support.forged`
  forges. The daemon itself checks only once for resharded collections.
- `hide-drops`: the change stream of the source reports no drops.
- `watch-closely`: it checks the oplog, shard keys and balancers ten times a second, and, for an old source, the
  definitions as often.
- `spool-often`: the event spool gets a row several times a second, and rows are small. A paused sync that cannot save
  events retries soon.
- `expect-heartbeats`: it warns of another instance after three seconds without a heartbeat.
- `lease`: its lease (`--standby`) is valid for the number of seconds that the file contains.
- `wait-briefly`: commands do not wait long for the startup.
- `report-often`: the half-minute report is logged several times a second.
- `warn-soon`: it warns of a wait, such as an unanswered call, after two seconds instead of 15.
- `give-up-soon`: it retries after unexpected errors for five seconds instead of a minute, and waits for bytes from a
  server for ten seconds instead of a minute. A reset waits for a source that does not answer for five seconds instead
  of a minute.
- `judge-soon`: differences that remain at the end of the verification count at once, instead of being rechecked for
  three seconds.
- `no-room`: while the file exists, the daemon sees little memory, and no free disk space on the destination. Otherwise,
  it always sees enough of both, regardless of the machine.

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
from tests.support import forged
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
    """Run the daemon with these options, obeying the files in `folder`, and return its exit status.

    Afterwards, this process cannot be used any more, because the files have changed global settings.
    """
    if (folder / "old-source").exists():
        ClusterFacts.reports_ddl = False  # type: ignore[assignment,method-assign]
    if (folder / "new-destination").exists():
        unknown = frozenset({"recordPreImages"})
        ClusterFacts.unknown_options = unknown  # type: ignore[assignment,method-assign]
        forged.index_time_series()
    if (folder / "without-features").exists():
        withhold((folder / "without-features").read_text().splitlines())
    if (folder / "forge-events").exists():
        forged.obey()
    if (folder / "hide-drops").exists():
        forged.hide_drops()
    _choose_room(folder)
    _choose_patience(folder)
    return main(options, observer(folder), Tuning(**dict(_tuned(folder))))


def withhold(lines: Sequence[str]) -> None:
    """Make the probe of server features report the features that `lines` name as refused by the server.

    Each line names one feature. If an address follows the name, only the cluster whose primary has this address lacks
    the feature.
    """
    refused = probing.refused

    def refused_now(client: Client, version: Version) -> frozenset[str]:
        primary = "{}:{}".format(*(client.primary or ("", "")))
        withheld = (line.partition(" ") for line in lines)
        return refused(client, version) | {
            name for name, _, address in withheld if address in ("", primary)
        }

    probing.refused = refused_now


def _tuned(folder: Path) -> Iterator[tuple[str, Any]]:
    """Yield the name and the value of each changed field of Tuning.

    The first fields are changed for all tests, the others only if files in `folder` request this.
    """
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
    if (folder / "forge-events").exists():
        yield "shard_key_interval", 3600.0
    if (folder / "spool-often").exists():
        yield "spool_interval", 0.1
        yield "spool_row_bytes", 100_000
        yield "pause_retry", 0.3
    if (folder / "expect-heartbeats").exists():
        yield "most_silence", 3.0
    if (folder / "lease").exists():
        yield "lease_seconds", float((folder / "lease").read_text())
    if (folder / "give-up-soon").exists():
        yield "source_patience", 5.0
    if (folder / "wait-briefly").exists():
        yield "startup_wait", 0.1
    if (folder / "report-often").exists():
        yield "report_interval", 0.3
    if (folder / "judge-soon").exists():
        yield "grace", 0.0


def _choose_patience(folder: Path) -> None:
    """Shorten time limits that are module constants, not fields of Tuning, if files in `folder` request this."""
    if (folder / "warn-soon").exists():
        waits.LONG = 2.0
    if (folder / "give-up-soon").exists():
        failures.UNFORESEEN_PATIENCE = 5.0
        connect.SOCKET_MS = 10_000


def _choose_room(folder: Path) -> None:
    """Make the daemon see plenty of free memory and disk space, so that tests do not depend on the machine.

    While the file `no-room` exists in `folder`, the daemon sees little memory and no free disk space instead. The file
    may appear and disappear while the daemon runs.
    """

    def has_room() -> bool:
        return not (folder / "no-room").exists()

    def available_memory(root: Path = memory.ROOT) -> int | None:
        return 1 << 40 if has_room() else 100_000_000

    def free_disk(client: Client) -> int:
        return 1 << 50 if has_room() else 0

    memory.available_memory = available_memory
    questions.free_disk = free_disk
