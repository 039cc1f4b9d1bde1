"""What the README says of options and errors is what the tables say."""

from __future__ import annotations

import re
from pathlib import Path

from syncsvc import errors
from syncsvc.settings import LOAD_LEVELS, PREFIX, TABLE
from verifier.runtime import options
from verifier.runtime.errors import as_rst

README = (Path(__file__).parents[2] / "README.rst").read_text()


def test_the_options_are_those_of_the_table() -> None:
    assert options.as_rst(TABLE, PREFIX) in README


def test_the_errors_are_those_of_the_table() -> None:
    assert as_rst(errors.ALL) in README


def test_the_threads_of_each_load_level_are_told() -> None:
    text = README.replace("\n", " ")
    for part, name in (("readers", "readers"), ("writers", "writers"), ("lanes", "change events")):
        counts = ", ".join(str(getattr(level, part)) for level in LOAD_LEVELS.values())
        assert re.search(rf"{name} {counts}", text), part
