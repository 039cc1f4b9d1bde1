"""The real daemon with an observer.

The observer obeys files in a folder (see `obedience`). With a file `classic-updates`, the daemon does
not use the oplog's own diffs; with `save-every-page`, the copy saves its resume point after every page;
with `small-partitions`, a sharded source is copied by ranges of 2 KB; with `old-source`, it believes that servers of
6.0 tell as little as those of 5.0, and compares definitions once before the commit; with `watch-closely`, the oplog is
looked at all the time, and so are shard keys, balancers and the definitions of an old source; with `wait-briefly`,
commands do not wait long for the startup; with `report-often`, the lines of every half minute come several times a
second. While there is a file `no-room`, it believes that there is little memory here, and no disk on the destination;
else that there is enough of both, whatever the machine has. An idle change stream answers sooner than usual, as most
tests wait for it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from syncsvc.cli import main
from syncsvc.preflight import memory, questions
from syncsvc.tuning import Tuning
from tests.support.obedience import observer
from verifier.cluster.connect import Client
from verifier.cluster.facts import ClusterFacts
from verifier.compare.tuning import CheckTuning

_WATCH_CLOSELY = (
    "oplog_interval",
    "shard_key_interval",
    "balancer_interval",
    "definition_interval",
)


def run(folder: Path, options: Sequence[str]) -> int:
    """Run it in this process, of which nothing is of use after that; its exit status."""
    if (folder / "old-source").exists():
        ClusterFacts.tells_definitions = False  # type: ignore[assignment,method-assign]
    _choose_room(folder)
    return main(options, observer(folder), Tuning(**dict(_tuned(folder))))


def _tuned(folder: Path) -> Iterator[tuple[str, Any]]:
    """The fields of the tuning that the files change."""
    yield "stream_wait_ms", 50
    yield "check", CheckTuning(stream_wait_ms=50)
    if (folder / "classic-updates").exists():
        yield "raw_updates", False
    if (folder / "old-source").exists():
        yield "definition_interval", 3600.0
    if (folder / "save-every-page").exists():
        yield "copy_save_interval", 0.0
        yield "settle_interval", 0.05
    if (folder / "small-partitions").exists():
        yield "partition_bytes", 2000
    if (folder / "watch-closely").exists():
        yield from ((name, 0.1) for name in _WATCH_CLOSELY)
    if (folder / "wait-briefly").exists():
        yield "startup_wait", 0.1
    if (folder / "report-often").exists():
        yield "report_interval", 0.3


def _choose_room(folder: Path) -> None:
    """Stand in for what this machine has of memory, and the destination's of disk, which is no matter of a test."""

    def has_room() -> bool:
        return not (folder / "no-room").exists()

    def free_disk(client: Client) -> int:
        return 1 << 50 if has_room() else 0

    memory.available_memory = lambda: 1 << 40 if has_room() else 100_000_000
    questions.free_disk = free_disk
