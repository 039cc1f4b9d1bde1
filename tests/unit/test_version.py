"""The project has the same version in all places."""

from __future__ import annotations

import re
from pathlib import Path

import syncsvc
import verifier
from tests.support.descriptions import DESCRIPTIONS
from verifier.runtime.version import VERSION

ROOT = Path(__file__).parents[2]


def test_both_programs_have_one_version() -> None:
    assert syncsvc.__version__ == verifier.__version__ == VERSION
    assert {each["info"]["version"] for each in DESCRIPTIONS.values()} == {VERSION}


def test_the_version_is_written_in_one_module() -> None:
    files = [
        path
        for package in ("syncsvc", "verifier")
        for path in (ROOT / package).rglob("*.py")
        if f'"{VERSION}"' in path.read_text()
    ]
    assert files == [ROOT / "verifier" / "runtime" / "version.py"]
    assert "attr: verifier.runtime.version.VERSION" in (ROOT / "setup.cfg").read_text()


def test_the_changelog_lists_the_version_below_unreleased() -> None:
    titles = re.findall(r"^(\S.*)\n-+$", (ROOT / "CHANGELOG.rst").read_text(), re.M)
    assert [title.split(" ")[0] for title in titles][:2] == ["Unreleased", VERSION]
