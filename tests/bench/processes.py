"""Starts child processes that end even if this process is killed.

The output of each child process goes to a file in a separate folder.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir

from syncsvc.sandbox.reaper import keeper


@dataclass(frozen=True)
class Child:
    process: subprocess.Popen[bytes]
    output: Path

    @property
    def said(self) -> str:
        return self.output.read_text(errors="replace")


@contextmanager
def python(arguments: Sequence[str]) -> Iterator[Child]:
    """Run Python with these command-line arguments during the block, and kill its process at the end."""
    folder = keeper.make_folder(Path(gettempdir()))
    try:
        output = folder / "output"
        with output.open("wb") as file:
            process = keeper.spawn([sys.executable, *arguments], file)
        try:
            yield Child(process, output)
        finally:
            keeper.kill(process)
    finally:
        keeper.remove_folder(folder)
