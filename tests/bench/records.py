"""The record of a benchmark: its figures, with the machine, the commit, the load and the command that repeats it.

`tests.support.benchmarks` renders the records for the documentation.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.support.recording import origin, write

_PROGRAM = "python -m tests.bench"


def load() -> float:
    """Return the load of the machine, averaged over the last minute."""
    return round(os.getloadavg()[0], 1)


def command(
    name: str, options: Mapping[str, Any], defaults: Mapping[str, Any], folder: str | None
) -> str:
    """Return the command that repeats a benchmark. Options with their default values are left out.

    `options` are the values of the options that the benchmark obeys, and `folder` is the value of TMPDIR, if it is set.
    """
    words = [f"TMPDIR={folder}"] if folder else []
    words += [_PROGRAM, name]
    for option, value in options.items():
        if value != defaults[option]:
            values = value if isinstance(value, (list, tuple)) else [value]
            words += [f"--{option}", *map(str, values)]
    return " ".join(words)


def save(
    path: Path, repeating: str, rounds: int, loads: tuple[float, float], results: Sequence[Any]
) -> None:
    """Save the results of a benchmark.

    `repeating` is the command that repeats it, `rounds` is how often each candidate ran, and `loads` are the load
    averages of the machine before and after it.
    """
    found = {"command": repeating, "rounds": rounds, "load": loads, "results": results}
    write(path, {**origin(), **found})
