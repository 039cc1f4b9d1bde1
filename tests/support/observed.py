"""The real daemon with an observer: `python -m tests.support.observed FOLDER ...daemon options`.

The observer obeys files in FOLDER (see `obedience`). With a file `classic-updates`, the daemon believes that the source
does not offer the oplog's own diffs; with `save-every-page`, the copy saves its resume point after every page; with
`small-partitions`, a sharded source is copied by ranges of 2 KB; with
`old-source`, it believes that servers of 6.0 tell as little as those of 5.0; with `watch-closely`, the oplog is looked
at all the time, and so are shard keys and balancers; with `report-often`, the lines of every half minute come several
times a second. While there is a file `no-room`, it believes that there is little memory here, and no disk on the
destination; else that there is enough of both, whatever the machine has. An idle change stream answers sooner than
usual, as most tests wait for it.
"""

from __future__ import annotations

import sys
from pathlib import Path

from syncsvc import reporter
from syncsvc.cli import main
from syncsvc.engine import balancers, watch
from syncsvc.engine.copying import partitioned, portion
from syncsvc.engine.events import application, rekeying
from syncsvc.preflight import memory, questions
from tests.support.obedience import observer
from verifier.cluster import changes
from verifier.cluster.connect import Client
from verifier.cluster.facts import ClusterFacts


def without_raw_diffs(client: Client, facts: ClusterFacts) -> bool:
    """Stands in for the probe of a source that does not offer the oplog's own diffs."""
    return False


def has_room() -> bool:
    return not (Path(sys.argv[1]) / "no-room").exists()


def memory_that_tests_choose() -> int:
    """Stands in for what the machine has left, which is no matter of a test."""
    return 1 << 40 if has_room() else 100_000_000


def disk_that_tests_choose(client: Client) -> int:
    """Stands in for what is free on the destination's disk."""
    return 1 << 50 if has_room() else 0


if __name__ == "__main__":
    changes._AWAIT_MS = 50
    memory.available_memory = memory_that_tests_choose  # type: ignore[assignment]
    questions.free_disk = disk_that_tests_choose
    if (Path(sys.argv[1]) / "classic-updates").exists():
        application.offers_raw_updates = without_raw_diffs
    if (Path(sys.argv[1]) / "old-source").exists():
        ClusterFacts.tells_definitions = False  # type: ignore[assignment,method-assign]
    if (Path(sys.argv[1]) / "save-every-page").exists():
        portion._SAVE_INTERVAL = 0.0
        partitioned._SETTLE_INTERVAL = 0.05
    if (Path(sys.argv[1]) / "small-partitions").exists():
        partitioned._RANGE_BYTES = 2000
    if (Path(sys.argv[1]) / "watch-closely").exists():
        watch._INTERVAL = rekeying._INTERVAL = balancers._INTERVAL = 0.1
    if (Path(sys.argv[1]) / "report-often").exists():
        reporter._INTERVAL = 0.3
    raise SystemExit(main(sys.argv[2:], observer(Path(sys.argv[1]))))
