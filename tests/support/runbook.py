"""The commands of the runbook, and what pastes them into a shell."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.waiting import PATIENCE

RUNBOOK = Path(__file__).parents[2] / "docs" / "runbook.rst"


@dataclass(frozen=True)
class Block:
    """What is to be pasted into a shell, or into mongosh."""

    language: str
    text: str


def section(title: str) -> list[Block]:
    """The blocks of commands under a title."""
    text = RUNBOOK.read_text()
    underlined = rf"^{re.escape(title)}\n[-~]+\n(.*?)(?=^[^\n]+\n[-~]+\n|\Z)"
    (body,) = re.findall(underlined, text, re.M | re.S)
    found = re.findall(r"^\.\. code-block:: (\w+)\n\n((?: {4}[^\n]*\n|\n)+)", body, re.M)
    assert found, title
    return [
        Block(language, re.sub("^ {4}", "", lines, flags=re.M).strip()) for language, lines in found
    ]


def paste(text: str, addresses: Mapping[str, str]) -> str:
    """Run these lines in a shell, with other addresses; all that it shows."""
    for printed, real in addresses.items():
        text = text.replace(printed, real)
    done = subprocess.run(
        ["bash", "-e", "-c", text], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, (text, done.stdout, done.stderr)
    assert '"success":false' not in done.stdout, (text, done.stdout)
    return done.stdout
