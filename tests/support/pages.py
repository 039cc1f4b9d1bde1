"""The commands in the documentation, and a shell to run them in.

A command is in a `code-block` of language `sh` or `javascript` (for mongosh). Tests run the blocks as printed. A block
that cannot be run has a comment before it that gives the reason::

    .. not run by the tests: REASON
    .. code-block:: sh
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent
from typing import Any

import yaml

from syncsvc.sandbox.replica_set import Client
from tests.support.waiting import PATIENCE

ROOT = Path(__file__).parents[2]
PAGES = (
    Path("README.rst"),
    Path("docs/tutorial.rst"),
    *sorted(page.relative_to(ROOT) for page in ROOT.glob("docs/howto/*.rst")),
)

_TITLE = re.compile(r"^(\S[^\n]*)\n(?:=|-|~){3,}\n", re.M)
_BLOCK = re.compile(
    r"(?P<reason>^ *\.\. not run by the tests: [^\n]+\n)?"
    r"^(?P<indent> *)\.\. code-block:: (?P<language>sh|javascript)\n\n"
    r"(?P<text>(?:(?P=indent) {4}[^\n]*\n|\n)+)",
    re.M,
)
_STATEMENT = re.compile(
    r"db(?:\.getSiblingDB\(\"(?P<database>\w+)\"\))?\.(?P<method>\w+)\((?P<argument>.*)\)", re.S
)


@dataclass(frozen=True)
class Block:
    """A block of commands on a page of the documentation. `title` is the title of its section.

    `language` is sh or javascript (for mongosh). `is_run` is true if the tests run the block.
    """

    title: str
    language: str
    text: str
    is_run: bool


def blocks(page: Path) -> Iterator[Block]:
    """Yield all blocks of commands on a page, in order."""
    text = (ROOT / page).read_text()
    for found in _BLOCK.finditer(text):
        *_, title = _TITLE.findall(text, 0, found.start())
        yield Block(
            title, found["language"], dedent(found["text"]).strip(), found["reason"] is None
        )


def commands(page: str, *titles: str) -> list[Block]:
    """Return the blocks of commands under these titles that tests can run; without titles, those of the whole page."""
    found = [each for each in blocks(Path(page)) if each.is_run]
    chosen = [each for each in found if each.title in titles or not titles]
    assert {each.title for each in chosen} >= {*titles}, f"{page} has no commands under {titles}"
    return chosen


def paste(text: str, replaced: Mapping[str, str]) -> str:
    """Run the text in a shell, and return the output; fail if a command fails, or prints `"success": false`.

    `replaced` maps words of the text to the words that replace them; it must not be empty.
    """
    # All words in one pass: the replacement of one word may contain another word.
    text = re.sub("|".join(map(re.escape, replaced)), lambda found: replaced[found[0]], text)
    done = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", text],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
    )
    assert done.returncode == 0, (text, done.stdout, done.stderr)
    assert not re.search('"success": *false', done.stdout), (text, done.stdout)
    return done.stdout


def evaluate(text: str, client: Client) -> None:
    """Run mongosh statements with the driver. Each one begins in the first column, and continues on indented lines."""
    without_comments = re.sub(r"^ *//.*\n", "", text, flags=re.M)
    for statement in re.split(r"\n(?! )", without_comments):
        found = _STATEMENT.fullmatch(statement)
        assert found, f"tests cannot evaluate {statement}"
        argument: dict[str, Any] = yaml.safe_load(found["argument"] or "{}")
        match found["method"]:
            case "adminCommand":
                client.admin.command(argument)
            case "createRole":
                client[found["database"]].command("createRole", argument.pop("role"), **argument)
            case "dropDatabase":
                client.drop_database(found["database"])
            case method:
                raise AssertionError(f"tests cannot evaluate {method}")
