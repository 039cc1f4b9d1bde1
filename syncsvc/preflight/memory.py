"""How much memory this process may still take: what the machine has left, and what its control groups allow."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

# Where `proc` and `sys` are.
ROOT = Path("/")

# What a control group counts as used and gives back when it is asked for: pages of files.
_RECLAIMABLE = ("active_file", "inactive_file")


def available_memory(root: Path = ROOT) -> int | None:
    """In bytes: the least of what the kernel calls available and what each control group above us leaves.

    None where neither tells. `root` is where the folders `proc` and `sys` are.
    """
    return min([*_of_machine(root), *_of_groups(root)], default=None)


def _of_machine(root: Path) -> Iterator[int]:
    fields = _fields(root / "proc/meminfo")
    if "MemAvailable:" in fields:
        yield fields["MemAvailable:"] * 1024


def _of_groups(root: Path) -> Iterator[int]:
    """Of every control group that this process is in, up to the outermost: each may be the one that is full first."""
    mounts = root / "sys/fs/cgroup"
    for line in _text(root / "proc/self/cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        if not controllers:
            # Where both versions are mounted, the second one has a folder of its own.
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
    """The folder of a control group and of all above it. In a container, the mount alone may be what is seen of it."""
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
    """None where there is no such file, or no limit."""
    text = _text(path).strip()
    return int(text) if text.isdecimal() else None


def _fields(path: Path) -> dict[str, int]:
    """The second word of each line, by the first."""
    rows = (line.split() for line in _text(path).splitlines())
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}
