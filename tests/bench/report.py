"""Converts measurements to a table for people, and to JSON for programs and back."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from tests.bench.measure import Measurement


@dataclass
class Result:
    """The measurements of one benchmark.

    The benchmark handles `count` units, for example documents, of `bytes` bytes in total. The rate of each candidate is
    compared with that of the candidate named `limit`.
    """

    title: str
    unit: str
    count: int
    limit: str
    candidates: Sequence[str]
    bytes: int | None = None
    runs: dict[str, list[Measurement]] = field(default_factory=dict)

    def add(self, candidate: str, measurement: Measurement) -> None:
        self.runs.setdefault(candidate, []).append(measurement)

    def columns(self) -> dict[str, Callable[[str], list[float]]]:
        """Return a dict of functions, one for each column of the table, by the column's title.

        Each function takes the name of a candidate, and returns the candidate's values, one for each round.
        """
        columns = {
            f"{self.unit}s/s": self._rates,
            "MB/s": lambda name: [rate * self._mb_each for rate in self._rates(name)],
            f"client µs/{self.unit}": self._cost,
            "peak MB": lambda name: [run.peak_mb for run in self.runs[name]],
            f"rate ÷ {self.limit}": self._ratios,
            "others' CPUs": lambda name: [run.others for run in self.runs[name]],
        }
        if self.bytes is None:
            del columns["MB/s"]
        return columns

    def best_ratio(self, name: str) -> float:
        """Return the rate of the candidate's best run, divided by the rate of the best run of the candidate `limit`.

        Other processes have disturbed the best runs least.
        """
        return max(self._rates(name)) / max(self._rates(self.limit))

    @property
    def _mb_each(self) -> float:
        return (self.bytes or 0) / self.count / 1e6

    def _rates(self, name: str) -> list[float]:
        return [self.count / run.seconds for run in self.runs[name]]

    def _cost(self, name: str) -> list[float]:
        return [run.cpu_seconds / self.count * 1e6 for run in self.runs[name]]

    def _ratios(self, name: str) -> list[float]:
        return [ours / limit for ours, limit in zip(self._rates(name), self._rates(self.limit))]


def rows(result: Result) -> list[list[str]]:
    """Return the head of a table, which begins with the title, and a row for each candidate.

    The first cell of a row is the candidate's name, and the last one is its best ratio. The other cells contain the
    median, the minimum and the maximum of the rounds.
    """
    columns = result.columns()
    found = [
        [
            name,
            *(_cell(values(name)) for values in columns.values()),
            number(result.best_ratio(name)),
        ]
        for name in result.candidates
    ]
    return [[result.title, *columns, "best ÷ best"], *found]


def table(result: Result) -> str:
    """Return a text table of the rows of a result (see the function `rows`)."""
    shown = rows(result)
    widths = [max(map(len, column)) for column in zip(*shown)]
    return "\n".join(_line(row, widths) for row in shown)


def _line(row: Sequence[str], widths: Sequence[int]) -> str:
    name, *figures = (cell.rjust(width) for cell, width in zip(row, widths))
    return "  ".join([name.lstrip().ljust(widths[0]), *figures])


def document(result: Result) -> dict[str, Any]:
    """Return the medians and all measurements as a dict for JSON."""
    return {
        "title": result.title,
        "unit": result.unit,
        "count": result.count,
        "bytes": result.bytes,
        "limit": result.limit,
        "candidates": {name: _candidate(result, name) for name in result.candidates},
    }


def restored(saved: Mapping[str, Any]) -> Result:
    """Return the Result that `document` has converted to the dict `saved`."""
    candidates = saved["candidates"]
    fields = {name: saved[name] for name in ("title", "unit", "count", "bytes", "limit")}
    runs = {name: [Measurement(**run) for run in each["runs"]] for name, each in candidates.items()}
    return Result(**fields, candidates=list(candidates), runs=runs)


def _candidate(result: Result, name: str) -> dict[str, Any]:
    medians = {column: median(values(name)) for column, values in result.columns().items()}
    return {
        **medians,
        "best ÷ best": result.best_ratio(name),
        "runs": [asdict(run) for run in result.runs[name]],
    }


def _cell(values: Sequence[float]) -> str:
    return f"{number(median(values))} ({number(min(values))}–{number(max(values))})"


def number(value: float) -> str:
    """Format a number: without decimals from 100, with one decimal from 10, and with two decimals below 10."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
