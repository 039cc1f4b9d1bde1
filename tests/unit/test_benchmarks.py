"""Recorded benchmarks are rendered with the command that repeats them, and nothing is lost in a record."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.bench import crowd, downtime, records
from tests.bench.benchmarks import BENCHMARKS
from tests.bench.crowd import Latency
from tests.bench.downtime import Step, Steps
from tests.bench.measure import Measurement
from tests.bench.report import Result, document, restored
from tests.support import benchmarks

ORIGIN = {
    "date": "2026-11-26",
    "commit": "0123456789ab",
    "version": "0.1.0",
    "python": "3.11.7",
    "pymongo": "4.20.1",
    "mongod": "6.0.5",
    "kernel": "6.18",
    "cpus": 2,
    "memory_gb": 25,
}
RESULT = Result(
    "copy medium",
    "document",
    1000,
    "limit",
    ["daemon", "limit"],
    500_000,
    {
        "daemon": [Measurement(2.0, 0.5, 140.0, 0.1), Measurement(4.0, 0.7, 150.0, 0.3)],
        "limit": [Measurement(1.0, 0.1, 60.0, 0.0), Measurement(1.0, 0.1, 60.0, 0.0)],
    },
)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(benchmarks, "RECORDS", tmp_path)
    monkeypatch.setattr(records, "origin", lambda: ORIGIN)
    return tmp_path


def rendered(folder: Path, *results: Mapping[str, Any]) -> str:
    records.save(folder / "copy.json", "python -m tests.bench copy", 2, (0.4, 2.5), results)
    return benchmarks.part("copy")


def row(text: str, name: str) -> list[str]:
    """Return the words in the row of a table, without its first cell `name`."""
    (found,) = (line for line in text.splitlines() if line.startswith(f"{name} "))
    return found.split()[1:]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_missing_record_shows_how_to_record_it(name: str) -> None:
    text = benchmarks.part(name)
    assert text.startswith("Not recorded yet.\n")
    assert f"``.venv/bin/python -m tests.bench {name} --record docs/benchmarks``" in text


def test_a_record_shows_its_command_machine_and_load(folder: Path) -> None:
    text = " ".join(rendered(folder, document(RESULT)).split())
    assert text.startswith("``.venv/bin/python -m tests.bench copy`` (rounds: 2). 2026-11-26, ")
    assert "(commit ``0123456789ab``), MongoDB 6.0.5" in text
    assert "load of the machine was 0.4 before and 2.5 after" in text


def test_a_result_is_shown_with_its_median_and_range(folder: Path) -> None:
    text = rendered(folder, document(RESULT))
    assert "\nCopy medium:\n\n====" in text
    daemon = row(text, "daemon")
    assert daemon[:2] == ["375", "(250–500)"]  # documents/s
    assert daemon[4:6] == ["600", "(500–700)"]  # CPU time
    assert daemon[-1] == "0.50"  # best ÷ best


def test_the_steps_of_a_sync_are_shown(folder: Path) -> None:
    steps = Steps(1000, (Step("copy", 2.75, 3.0, 2.1),), 9.0, 95.0, 0.2)
    text = rendered(folder, downtime.document(steps))
    assert row(text, "copy") == ["2.75", "3.00", "2.10"]
    assert "collections: 1,000, cpu seconds: 9.00, peak mb: 95.0, others: 0.20" in text


def test_the_latencies_of_requests_are_shown(folder: Path) -> None:
    text = rendered(folder, crowd.document([Latency("https", 500, 200, 4.5, 9.1, 12.0, 30)]))
    assert row(text, "https") == ["500", "200", "4.50", "9.10", "12.0", "30"]


def test_nothing_is_lost_in_a_record(folder: Path) -> None:
    rendered(folder, document(RESULT))
    (saved,) = json.loads((folder / "copy.json").read_text())["results"]
    assert restored(saved) == RESULT


def test_the_command_has_only_options_without_default_values() -> None:
    options = {"rounds": 1, "sets": ["large", "huge"], "documents": None}
    defaults = {"rounds": 3, "sets": ["medium"], "documents": None}
    command = records.command("copy", options, defaults, "/dev/shm")
    assert command == ("TMPDIR=/dev/shm python -m tests.bench copy --rounds 1 --sets large huge")
    assert records.command("copy", defaults, defaults, None) == "python -m tests.bench copy"
