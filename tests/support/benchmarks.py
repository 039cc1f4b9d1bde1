"""Renders the recorded benchmarks in docs/benchmarks as tables for the documentation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.bench.report import number, restored, rows
from tests.support.evidence import MISSING, origin_of, table

RECORDS = Path(__file__).parents[2] / "docs" / "benchmarks"
_PROGRAM = ".venv/bin/python -m tests.bench"


def part(name: str) -> str:
    """Return the recorded results of the benchmark `name` as reStructuredText, with the command that repeats them.

    If there is no record, return a sentence that says so, with the command that makes one.
    """
    path = RECORDS / f"{name}.json"
    if not path.exists():
        return f"{MISSING}\n``{_PROGRAM} {name} --record docs/benchmarks`` records it.\n"
    record = json.loads(path.read_text())
    return "\n".join([_run(record), *(_result(each) for each in record["results"])])


def _run(record: dict[str, Any]) -> str:
    """Return a paragraph about the run: its command, the machine and the load."""
    command = record["command"].replace("python -m tests.bench", _PROGRAM)
    before, after = record["load"]
    load = f"The load of the machine was {before} before and {after} after the run."
    return f"``{command}`` (rounds: {record['rounds']}). {origin_of(record)} {load}\n"


def _result(result: dict[str, Any]) -> str:
    if "candidates" in result:
        head, *found = rows(restored(result))
        return _titled(head[0], ["Candidate", *head[1:]], found)
    return "\n".join(_others(result))


def _others(result: dict[str, Any]) -> Iterator[str]:
    """Yield a table for each list in a result, and then a sentence with its numbers."""
    for values in result.values():
        if isinstance(values, list):
            head = [_words(name) for name in values[0]]
            yield _titled(result["title"], head, [[*map(_cell, each.values())] for each in values])
    figures = {name: value for name, value in result.items() if isinstance(value, (int, float))}
    if figures:
        yield ", ".join(f"{_words(name)}: {_cell(value)}" for name, value in figures.items()) + "\n"


def _titled(title: str, head: Sequence[str], found: Sequence[Sequence[str]]) -> str:
    return f"{title[0].upper()}{title[1:]}:\n\n{table(head, found)}"


def _words(name: str) -> str:
    return name.replace("_", " ")


def _cell(value: Any) -> str:
    if isinstance(value, float):
        return number(value)
    return f"{value:,}" if isinstance(value, int) else str(value)
