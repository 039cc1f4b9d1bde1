"""The real daemon with an observer: `python -m tests.support.observed FOLDER ...daemon options`.

The observer obeys files in FOLDER, named after points: at the n-th passing of a point, `kill-<point>-<n>` ends the
process by SIGKILL, and `hold-<point>-<n>` makes it wait, after writing `reached-<point>-<n>`, until that file is gone.
A point may be named with what it is about, a namespace or a step; then only its passings with that are counted.
With a file `classic-updates`, the daemon believes that the source does not offer the oplog's own diffs; with
`save-every-page`, the copy saves its resume point after every page; with `old-source`, it believes that servers of 6.0
tell as little as those of 5.0; with `watch-closely`, the oplog is looked at all the time.
"""

from __future__ import annotations

import os
import re
import signal
import sys
import threading
from collections import Counter
from pathlib import Path

from syncsvc.cli import main
from syncsvc.engine import application, copy, watch
from syncsvc.engine.observe import Observer, Point
from verifier.cluster.connect import Client
from verifier.cluster.facts import ClusterFacts


def slug(point: Point, subject: str = "") -> str:
    """The file name of a point, in general or with one subject."""
    return re.sub(r"\W+", "_", f"{point.value} {subject}".strip())[:200]


def observer(folder: Path) -> Observer:
    lock = threading.Lock()
    passed: Counter[str] = Counter()
    pause = threading.Event()

    def observe(point: Point, subject: str) -> None:
        for name in {slug(point), slug(point, subject)}:
            obey(name)

    def obey(name: str) -> None:
        with lock:
            passed[name] += 1
            number = passed[name]
        if (folder / f"kill-{name}-{number}").exists():
            os.kill(os.getpid(), signal.SIGKILL)
        hold = folder / f"hold-{name}-{number}"
        if hold.exists():
            (folder / f"reached-{name}-{number}").touch()
            while hold.exists():
                pause.wait(0.01)

    return observe


def without_raw_diffs(client: Client, facts: ClusterFacts) -> bool:
    """Stands in for the probe of a source that does not offer the oplog's own diffs."""
    return False


if __name__ == "__main__":
    if (Path(sys.argv[1]) / "classic-updates").exists():
        application.offers_raw_updates = without_raw_diffs
    if (Path(sys.argv[1]) / "old-source").exists():
        ClusterFacts.tells_definitions = False  # type: ignore[assignment,method-assign]
    if (Path(sys.argv[1]) / "save-every-page").exists():
        copy._SAVE_INTERVAL = 0.0
    if (Path(sys.argv[1]) / "watch-closely").exists():
        watch._INTERVAL = 0.1
    raise SystemExit(main(sys.argv[2:], observer(Path(sys.argv[1]))))
