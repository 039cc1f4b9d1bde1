"""Tests how the available memory is read from the kernel's files about the machine and its control groups."""

from __future__ import annotations

from pathlib import Path

import pytest

from syncsvc.preflight.memory import available_memory

MACHINE = {"proc/meminfo": "MemTotal: 9 kB\nMemAvailable:    8000 kB\nHugePages_Total: 0\n"}


def group(path: str, limit: str, used: int, **statistics: int) -> dict[str, str]:
    """Return the files of a control group (version 2), as contents by path.

    `limit` is a number of bytes or "max", `used` is in bytes, and `statistics` are the values in memory.stat.
    """
    lines = "".join(f"{name} {value}\n" for name, value in statistics.items())
    folder = f"sys/fs/cgroup{path}"
    return {
        f"{folder}/memory.max": f"{limit}\n",
        f"{folder}/memory.current": f"{used}\n",
        f"{folder}/memory.stat": lines,
    }


def old_group(path: str, limit: int, used: int, **statistics: int) -> dict[str, str]:
    """Return the files of a control group (version 1), as contents by path.

    `limit` and `used` are in bytes, and `statistics` are the values in memory.stat.
    """
    lines = "".join(f"{name} {value}\n" for name, value in statistics.items())
    folder = f"sys/fs/cgroup/memory{path}"
    return {
        f"{folder}/memory.limit_in_bytes": f"{limit}\n",
        f"{folder}/memory.usage_in_bytes": f"{used}\n",
        f"{folder}/memory.stat": lines,
    }


IN_A_B = {"proc/self/cgroup": "0::/a/b\n"}
OLD_IN_A = {"proc/self/cgroup": "5:cpu:/a\n4:memory,hugetlb:/a\n1:name=systemd:/a\n0::/\n"}
NO_LIMIT = 9223372036854771712

TABLE: list[tuple[str, dict[str, str], int | None]] = [
    ("nothing is known", {}, None),
    ("the machine alone", MACHINE, 8_192_000),
    ("an old kernel", {"proc/meminfo": "MemTotal: 9 kB\nMemFree: 3 kB\n"}, None),
    ("a group's limit", {**MACHINE, **IN_A_B, **group("/a/b", "5000", 2000)}, 3000),
    ("a group without the machine", {**IN_A_B, **group("/a/b", "5000", 2000)}, 3000),
    ("no limit", {**MACHINE, **IN_A_B, **group("/a/b", "max", 2000)}, 8_192_000),
    ("a wide limit", {**MACHINE, **IN_A_B, **group("/a/b", "9000000", 1)}, 8_192_000),
    (
        "a parent's limit",
        {**MACHINE, **IN_A_B, **group("/a/b", "max", 2000), **group("/a", "2500", 2400)},
        100,
    ),
    (
        "the least of several",
        {**IN_A_B, **group("/a/b", "900", 100), **group("/a", "2500", 200)},
        800,
    ),
    (
        "pages of files are given back",
        {**IN_A_B, **group("/a/b", "5000", 4900, active_file=1000, inactive_file=500, anon=3000)},
        1600,
    ),
    ("over the limit", {**IN_A_B, **group("/a/b", "100", 200)}, 0),
    ("in a container", {"proc/self/cgroup": "0::/\n", **group("", "700", 100)}, 600),
    ("a path from outside", {"proc/self/cgroup": "0::/x/y\n", **group("", "700", 100)}, 600),
    (
        "a path that leads out",
        {"proc/self/cgroup": "0::/../../x\n", **group("", "700", 100), **group("/x", "9", 9)},
        600,
    ),
    ("a group that tells nothing", {**MACHINE, **IN_A_B}, 8_192_000),
    (
        "the first version",
        {**MACHINE, **OLD_IN_A, **old_group("/a", 6000, 5000, total_active_file=70)},
        1070,
    ),
    (
        "the first version's parents",
        {**OLD_IN_A, **old_group("/a", NO_LIMIT, 50), **old_group("", 600, 50)},
        550,
    ),
    (
        "both versions",
        {
            **MACHINE,
            "proc/self/cgroup": "4:memory:/a\n0::/b\n",
            **old_group("/a", 6000, 5000),
            **group("/unified/b", "700", 200),
        },
        500,
    ),
]


@pytest.mark.parametrize("files, expected", [row[1:] for row in TABLE], ids=[r[0] for r in TABLE])
def test_the_smallest_limit_counts(
    tmp_path: Path, files: dict[str, str], expected: int | None
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_memory(tmp_path) == expected


def test_the_memory_of_this_machine_is_positive() -> None:
    available = available_memory()
    assert available is None or available > 0
