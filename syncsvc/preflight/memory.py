"""Determines how much memory this process may still allocate, as limited by the machine and by control groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# The folder that contains `proc` and `sys`.
ROOT = Path("/")

# The fields of `memory.stat` that contain the size of the page cache. A control group counts the page cache as used
# memory, but gives it back under memory pressure.
_RECLAIMABLE = ("active_file", "inactive_file")


def available_memory(root: Path = ROOT) -> int | None:
    """Return the available memory in bytes: the least that the kernel or any control group of this process allows.

    Return None if none of these limits is known. `root` is the folder that contains `proc` and `sys`.
    """
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def _of_machine(root: Path) -> Iterator[int]:
    fields = _fields(root / "proc/meminfo")
    if "MemAvailable:" in fields:
        yield fields["MemAvailable:"] * 1024


def _of_groups(root: Path) -> Iterator[int]:
    """Yield the free memory, in bytes, of each control group of this process, and of each parent of such a group.

    Each of them limits this process separately; groups without a number as their limit are left out. `root` contains
    `proc` and `sys`.
    """
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # Where cgroup v1 and v2 are both mounted, v2 is in a separate folder.
            for mount in (mounts, mounts / "unified"):
                yield from _left(mount, path, "memory.max", "memory.current", "")
        elif "memory" in controllers.split(","):
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes")
            yield from _left(mounts / "memory", path, *names, "total_")


def _left(mount: Path, path: str, limit: str, usage: str, prefix: str) -> Iterator[int]:
    for group in _upwards(mount, path):
        most, used = _number(group / limit), _number(group / usage)
        if most is not None and used is not None:
            statistics = _fields(group / "memory.stat")
            given_back = sum(statistics.get(prefix + name, 0) for name in _RECLAIMABLE)
            yield max(0, most - used + given_back)


def _upwards(mount: Path, path: str) -> Iterator[Path]:
    """Yield the folder of the control group `path`, and those of its parents up to the mount point.

    In a container, perhaps only the mount point exists. If `path` contains "..", only the mount point is yielded.
    """
    parts = [part for part in path.split("/") if part]
    if ".." in parts:
        parts = []
    for length in range(len(parts), -1, -1):
        yield mount.joinpath(*parts[:length])


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    """Return the number in the file; None if the file is missing or holds no number, such as `max` (no limit)."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _fields(path: Path) -> dict[str, int]:
    """Return each number that is the second word of a line, by the first word; empty if the file is missing."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
