"""An observer that obeys files in a folder, whose names contain points that a process passes.

When a point is passed for the nth time, `kill-<point>-<n>` kills the process with SIGKILL. `hold-<point>-<n>` makes the
process write the file `reached-<point>-<n>` and wait until the hold file is deleted. The name of a point can include a
subject, such as a namespace or a step: then the file counts only passes with this subject.
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
    """Return the form in which the name of a point, with or without a subject, is used in names of files."""
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
