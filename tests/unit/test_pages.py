"""Every command in the documentation is run by a test, or has a comment that says why not.

No command shows a token in its arguments. The code that pages for developers name exists.
"""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from functools import cache
from pathlib import Path

import pytest

from tests.support.pages import PAGES, ROOT, Block, blocks

# The functions with which tests run commands; their arguments are a page and the titles of some of its sections.
RUNNERS = {"commands", "follow", "printed"}
LOOKS_LIKE_A_COMMAND = re.compile(
    r"^ +(?:\$ )?(?:\.venv/|curl|db\.|make |mongosh|pip |python|sudo|syncsvc|systemctl)", re.M
)


@cache
def runs() -> dict[str, list[tuple[str, ...]]]:
    """Return, by documentation page, the titles in each call of a test that runs commands of the page.

    Only the commands of the sections with these titles are run; without titles, those of the whole page.
    """
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    folders = ROOT / "tests" / "integration", ROOT / "tests" / "packages"
    for file in (file for folder in folders for file in folder.glob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Call) and name_of(node.func) in RUNNERS:
                constants = [
                    str(each.value) for each in node.args if isinstance(each, ast.Constant)
                ]
                if constants:
                    found[constants[0]].append(tuple(constants[1:]))
    return found


def name_of(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_every_command_is_run(page: Path) -> None:
    found = runs().get(str(page), [])
    left = {block.title for block in blocks(page) if block.is_run and not is_in(block, found)}
    assert not left, f"no integration test runs the commands under {left}"


def is_in(block: Block, found: list[tuple[str, ...]]) -> bool:
    return any(not titles or block.title in titles for titles in found)


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_commands_are_in_code_blocks(page: Path) -> None:
    text = (ROOT / page).read_text()
    literal = re.findall(r"::\n\n((?: +[^\n]*\n|\n)+)", re.sub(r"\.\. code-block::.*", "", text))
    for block in literal:
        assert not LOOKS_LIKE_A_COMMAND.search(block), block


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_no_command_has_a_token_among_its_arguments(page: Path) -> None:
    """All users of a machine can see the arguments of its processes."""
    for block in blocks(page):
        assert not re.search(r"(-H|--header)[ =]['\"]?Authorization|--from-literal", block.text)


@pytest.mark.parametrize("page", ["CONTRIBUTING.rst", "docs/explanation/architecture.rst"])
def test_the_code_that_a_page_names_exists(page: str) -> None:
    named = re.findall(r"``((?:syncsvc|verifier|tests)/[\w./]+)``", (ROOT / page).read_text())
    assert named
    assert not [path for path in named if not (ROOT / path).exists()]
    alone = re.findall(r"``(\w+\.py)``", (ROOT / page).read_text())
    modules = [path.name for top in ("syncsvc", "verifier") for path in (ROOT / top).rglob("*.py")]
    assert not [name for name in alone if modules.count(name) != 1]


def test_the_commands_of_a_page_are_found() -> None:
    found = list(blocks(Path("docs/howto/clean-up.rst")))
    assert found[0] == Block("After the commit", "sh", "syncctl report --output report.html", True)
    assert {each.language for each in found} == {"sh", "javascript"}
    assert not found[-1].is_run
