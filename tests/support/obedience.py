"""Kills a service, or makes it wait, at named points of its code, according to files in a folder.

The service calls an observer at each point. When the process passes the point for the nth time, the file
`kill-<point>-<n>` makes it kill itself with SIGKILL. The file `hold-<point>-<n>` makes it write the file
`reached-<point>-<n>` and wait until the hold file is deleted. The name can also contain a subject after the point, such
as a namespace or a step: then only passes with this subject count.
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
    """Return the part of a file name that stands for a point and, if it is not empty, its subject."""
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
