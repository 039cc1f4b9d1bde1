"""`python -m tests.bench`: runs the benchmarks, prints their tables, and saves all figures as JSON.

The clusters store their data in the system's temporary folder; set TMPDIR=/dev/shm to exclude the disk.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.bench import applying, copying, delayed, records, verifying
from tests.bench.backlog import BACKLOGS
from tests.bench.benchmarks import BENCHMARKS
from tests.bench.data import SETS
from tests.support.recording import origin, write

_BY_DEFAULT = tuple(name for name, each in BENCHMARKS.items() if each.by_default)
_MEMORY_STEPS = (200_000, 2_000_000)
_MEMORY_BACKLOGS = (100_000, 1_000_000)


def main() -> None:
    parser = _parser()
    options = parser.parse_args()
    wanted = options.benchmarks or _BY_DEFAULT
    if options.memory:
        _show_memory(wanted)
        return
    # Run the benchmarks in the order of the table, each of them once.
    results: list[dict[str, Any]] = []
    for name in (each for each in BENCHMARKS if each in wanted):
        before = records.load()
        found = _run(name, options)
        results += found
        if options.record is not None:
            _record(name, options, _command(name, options, parser), before, found)
    write(options.json, {"machine": origin(), "rounds": options.rounds, "results": results})
    print(f"Written to {options.json}.")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench",
        description="Measure the service, and compare it with the limits of the servers and with plain pymongo.",
    )
    parser.add_argument(
        "benchmarks",
        nargs="*",
        type=_benchmark,
        metavar="|".join(BENCHMARKS),
        help=f"benchmarks to run (default: {', '.join(_BY_DEFAULT)})",
    )
    parser.add_argument("--rounds", type=int, default=3, help="number of runs of each candidate")
    parser.add_argument(
        "--documents",
        type=int,
        help="documents in each collection (default: the number in the data set)",
    )
    parser.add_argument(
        "--events",
        type=int,
        default=100_000,
        help="number of change events in each backlog (the backlog large contains only a twentieth of this number)",
    )
    parser.add_argument(
        "--sets", nargs="+", choices=SETS, default=["medium"], help="data sets to copy and verify"
    )
    parser.add_argument(
        "--backlogs", nargs="+", choices=BACKLOGS, default=["mixed"], help="backlogs to apply"
    )
    parser.add_argument(
        "--collections",
        nargs="+",
        type=int,
        default=[1000],
        help="numbers of collections; the downtime is measured once for each",
    )
    parser.add_argument(
        "--delays",
        nargs="+",
        type=int,
        default=delayed.DELAYS,
        help="round-trip times of the benchmark delayed, in milliseconds; the first one is the basis for comparison",
    )
    parser.add_argument(
        "--delay",
        type=int,
        default=20,
        help="round-trip time of the benchmark instances, in milliseconds",
    )
    parser.add_argument(
        "--mbit",
        type=int,
        default=100,
        help="bandwidth of each link in the benchmark compression, in Mbit/s",
    )
    parser.add_argument(
        "--json", type=Path, default=Path("bench-results.json"), help="file for the figures"
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FOLDER",
        help="also save the record of each benchmark in a file of this folder; docs/benchmarks shows such records",
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="measure only the peak memory of the service and the verifier, with small and large data",
    )
    return parser


def _benchmark(text: str) -> str:
    if text not in BENCHMARKS:
        raise ValueError(text)
    return text


_benchmark.__name__ = "benchmark"  # argparse shows this name in the message for an invalid value


def _run(name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Run a benchmark, print its tables, and return its results."""
    results = []
    for table, document in BENCHMARKS[name].run(options, _say):
        _say(f"\n{table}\n")
        results.append(document)
    return results


def _command(name: str, options: argparse.Namespace, parser: argparse.ArgumentParser) -> str:
    obeyed = {option: getattr(options, option) for option in BENCHMARKS[name].options}
    defaults = {option: parser.get_default(option) for option in obeyed}
    return records.command(name, obeyed, defaults, os.environ.get("TMPDIR"))


def _record(
    name: str, options: argparse.Namespace, command: str, before: float, found: list[dict[str, Any]]
) -> None:
    """Save the results of a benchmark. `before` is the load of the machine before it."""
    rounds = options.rounds if "rounds" in BENCHMARKS[name].options else 1
    options.record.mkdir(parents=True, exist_ok=True)
    path = options.record / f"{name}.json"
    records.save(path, command, rounds, (before, records.load()), found)
    _say(f"Recorded in {path}.")


def _show_memory(wanted: Sequence[str]) -> None:
    for name, measure, unit, steps in (
        ("copy", copying.memory, "documents", _MEMORY_STEPS),
        ("apply", applying.memory, "events", _MEMORY_BACKLOGS),
        ("verify", verifying.memory, "documents", _MEMORY_STEPS),
    ):
        for step in steps if name in wanted else ():
            _say(f"{name}: {step:>9,} {unit}: {measure(step).peak_mb:.0f} MB")


def _say(line: str) -> None:
    print(line, flush=True)


if __name__ == "__main__":
    main()
