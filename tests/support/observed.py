"""The real daemon with an observer.

The observer obeys files in a folder (see `obedience`). With a file `classic-updates`, the daemon believes that the
source does not offer the oplog's own diffs; with `save-every-page`, the copy saves its resume point after every page;
with `small-partitions`, a sharded source is copied by ranges of 2 KB; with `old-source`, it believes that servers of
6.0 tell as little as those of 5.0, and compares definitions once before the commit; with `watch-closely`, the oplog is
looked at all the time, and so are shard keys, balancers and the definitions of an old source; with `wait-briefly`,
commands do not wait long for the startup; with `report-often`, the lines of every half minute come several times a
second. While there is a file `no-room`, it believes that there is little memory here, and no disk on the destination;
else that there is enough of both, whatever the machine has. An idle change stream answers sooner than usual, as most
tests wait for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from syncsvc import reporter
from syncsvc.cli import main
from syncsvc.engine import oplog_watch
from syncsvc.engine.copying import partitioned, portion
from syncsvc.engine.events import application, definition_watch, rekeying
from syncsvc.engine.run import balancers
from syncsvc.preflight import memory, questions
from tests.support.obedience import observer
from verifier.cluster import changes
from verifier.cluster.connect import Client
from verifier.cluster.facts import ClusterFacts
from verifier.runtime import commands


def without_raw_diffs(client: Client, facts: ClusterFacts) -> bool:
    """Stands in for the probe of a source that does not offer the oplog's own diffs."""
    return False


def run(folder: Path, options: Sequence[str]) -> int:
    """Run it in this process, of which nothing is of use after that; its exit status."""
    _obey_once(folder)
    _choose_room(folder)
    return main(options, observer(folder))


def _obey_once(folder: Path) -> None:
    changes._AWAIT_MS = 50
    if (folder / "classic-updates").exists():
        application.offers_raw_updates = without_raw_diffs
    if (folder / "old-source").exists():
        ClusterFacts.tells_definitions = False  # type: ignore[assignment,method-assign]
        definition_watch._INTERVAL = 3600.0
    if (folder / "save-every-page").exists():
        portion._SAVE_INTERVAL = 0.0
        partitioned._SETTLE_INTERVAL = 0.05
    if (folder / "small-partitions").exists():
        partitioned._RANGE_BYTES = 2000
    if (folder / "watch-closely").exists():
        oplog_watch._INTERVAL = rekeying._INTERVAL = balancers._INTERVAL = 0.1
        definition_watch._INTERVAL = 0.1
    if (folder / "wait-briefly").exists():
        commands.LONGEST_WAIT = 0.1
    if (folder / "report-often").exists():
        reporter._INTERVAL = 0.3


def _choose_room(folder: Path) -> None:
    """Stand in for what this machine has of memory, and the destination's of disk, which is no matter of a test."""

    def has_room() -> bool:
        return not (folder / "no-room").exists()

    def free_disk(client: Client) -> int:
        return 1 << 50 if has_room() else 0

    memory.available_memory = lambda: 1 << 40 if has_room() else 100_000_000
    questions.free_disk = free_disk
