"""A pytest plugin with the option `--record FILE`, which saves the results of a run and its environment as JSON.

`tests.support.evidence` renders the records for the documentation.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic
from typing import Any

import pymongo
import pytest

from syncsvc import __version__
from syncsvc.sandbox import find_mongod

_ROOT = Path(__file__).parents[2]
_AREAS = ("unit", "integration", "faults", "model", "contract", "upgrade", "sandbox", "browser")


def origin() -> dict[str, Any]:
    """Return the fields of a record that identify its run: the date, the commit, the versions and the machine."""
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "commit": _first_line("git", "rev-parse", "HEAD")[:12],
        "version": __version__,
        "python": platform.python_version(),
        "pymongo": pymongo.version,
        "mongod": _first_line(str(find_mongod()), "--version").rpartition("v")[2],
        "kernel": platform.release(),
        "cpus": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9),
    }


def write(path: Path, record: dict[str, Any]) -> None:
    path.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n")


def _first_line(*command: str) -> str:
    done = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()[0]


@dataclass
class Area:
    """The results of the tests in one folder. `seconds` is the time of all test processes together."""

    passed: int = 0
    failed: int = 0
    skipped: int = 0
    retried: int = 0
    seconds: float = 0.0


@dataclass
class Recorder:
    path: Path
    full: bool
    # The number of the share of the tests and the number of shares, such as "1/2"; None if all tests run.
    share: str | None
    began: float = field(default_factory=monotonic)
    areas: dict[str, Area] = field(default_factory=lambda: defaultdict(Area))
    failures: list[str] = field(default_factory=list)
    # The values that tests have recorded with `record_property`, by name.
    measured: dict[str, list[Any]] = field(default_factory=lambda: defaultdict(list))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        folders = report.nodeid.split("/")
        area = self.areas[next((each for each in folders if each in _AREAS), "unit")]
        area.seconds += report.duration
        if report.when == "call":
            for name, value in report.user_properties:
                self.measured[name].append(value)
        if report.outcome == "failed":
            self.failures.append(report.nodeid)
            area.failed += 1
        elif str(report.outcome) == "retried":
            area.retried += 1
        elif report.outcome == "skipped":
            area.skipped += 1
        elif report.when == "call":
            area.passed += 1

    def pytest_sessionfinish(self) -> None:
        areas = {
            name: {**asdict(self.areas[name]), "seconds": round(self.areas[name].seconds)}
            for name in _AREAS
            if name in self.areas
        }
        record = {
            **origin(),
            "full": self.full,
            **({"share": self.share} if self.share else {}),
            "minutes": round((monotonic() - self.began) / 60, 1),
            "areas": areas,
            "failures": self.failures,
            **({"measured": self.measured} if self.measured else {}),
        }
        write(self.path, record)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--record", type=Path, help="file for the results, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    path = config.getoption("record")
    # With pytest-xdist, the main process gets the reports of all others.
    if path is not None and not hasattr(config, "workerinput"):
        share = "/".join(map(str, config.getoption("share") or ())) or None
        config.pluginmanager.register(Recorder(path.absolute(), config.getoption("full"), share))
