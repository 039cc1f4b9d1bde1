"""What the README says of options, errors and reports is what the programs say."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import product
from pathlib import Path

import syncsvc.errors
import syncsvc.reports.metrics
import syncsvc.settings
import verifier.errors
import verifier.metrics
import verifier.settings
from syncsvc.settings import LOAD_LEVELS
from syncsvc.state import State, Trigger, next_state
from tests.support import roles
from tests.unit.verifier.values import EXAMPLE, EXAMPLE_DEFINITIONS, EXAMPLE_DOCUMENTS
from verifier.answers import progress_answer
from verifier.cluster import extended
from verifier.compare.lines import line
from verifier.report import report
from verifier.runtime import metrics, options
from verifier.runtime.errors import OperationError, as_rst

README = (Path(__file__).parents[2] / "README.rst").read_text()


def shown(lines: Iterable[str]) -> str:
    """A block of literal text."""
    return "".join(f"    {line}".rstrip() + "\n" for line in lines)


def test_the_options_are_those_of_the_tables() -> None:
    assert options.as_rst(syncsvc.settings.TABLE, syncsvc.settings.PREFIX) in README
    assert options.as_rst(verifier.settings.TABLE, verifier.settings.PREFIX) in README


def test_the_errors_are_those_of_the_tables() -> None:
    assert as_rst(syncsvc.errors.ALL) in README
    assert as_rst(verifier.errors.ALL) in README


def test_the_roles_are_those_that_are_tested() -> None:
    assert roles.as_rst() in README


def test_the_metrics_are_those_of_the_tables() -> None:
    assert metrics.as_rst(syncsvc.reports.metrics.TABLE) in README
    assert metrics.as_rst(verifier.metrics.TABLE) in README


def drawn_transitions() -> Iterator[tuple[State, Trigger, State]]:
    """Those of the drawing, whose lines are chains of states; the first link of a chain may be several."""
    (drawing,) = re.findall(r"^States\n-+\n\n::\n\n((?:    .*\n)+)", README, re.M)
    for chain in drawing.splitlines():
        first, *rest = re.split("--([a-z]+)-->", chain)
        for trigger, following in zip(rest[::2], rest[1::2]):
            for state in first.split(","):
                yield State(state.strip()), Trigger(trigger), State(following.strip())
            first = following


def test_the_states_are_drawn_as_they_are() -> None:
    drawn = list(drawn_transitions())
    assert len(drawn) == len({(state, trigger) for state, trigger, _ in drawn})
    pairs = product(State, Trigger)
    known = {(*pair, following) for pair in pairs if (following := following_state(*pair))}
    assert {*drawn} == known
    for state in State:
        assert f"``{state.value}``" in README


def following_state(state: State, trigger: Trigger) -> State | None:
    with suppress(OperationError):
        return next_state(state, trigger)
    return None


def test_the_threads_of_each_load_level_are_told() -> None:
    text = README.replace("\n", " ")
    for part, name in (("readers", "readers"), ("writers", "writers"), ("lanes", "change events")):
        counts = ", ".join(str(getattr(level, part)) for level in LOAD_LEVELS.values())
        assert re.search(rf"{name} {counts}", text), part


def test_the_report_is_as_shown() -> None:
    assert shown(report(EXAMPLE, EXAMPLE_DOCUMENTS, EXAMPLE_DEFINITIONS)) in README


def test_the_lines_for_programs_are_as_shown() -> None:
    lines = [*map(line, EXAMPLE_DOCUMENTS), *map(line, EXAMPLE_DEFINITIONS)]
    assert shown(map(extended.written, lines)) in README


def test_every_field_of_progress_is_told() -> None:
    answer = progress_answer(EXAMPLE)
    parts = ("verificationStatus", "generationStats", "srcChangeStats")
    for name in (*answer, *(inner for part in parts for inner in answer[part])):
        assert f"``{name}``" in README, name
