"""An observer that obeys files in a folder, named after the points that a process passes.

At the n-th passing of a point, `kill-<point>-<n>` ends the process by SIGKILL, and `hold-<point>-<n>` makes it wait,
after writing `reached-<point>-<n>`, until that file is gone. A point may be named with what it is about, a namespace or
a step; then only its passings with that are counted.
"""

from __future__ import annotations

import os
import re
import signal
import threading
from collections import Counter
from collections.abc import Callable
from enum import Enum
from pathlib import Path


def slug(point: Enum, subject: str = "") -> str:
    """The file name of a point, in general or with one subject."""
    return re.sub(r"\W+", "_", f"{point.value} {subject}".strip())[:200]


def observer(folder: Path) -> Callable[[Enum, str], None]:
    lock = threading.Lock()
    passed: Counter[str] = Counter()
    pause = threading.Event()

    def observe(point: Enum, subject: str) -> None:
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
