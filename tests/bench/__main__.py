"""`python -m tests.bench`: runs the benchmarks, prints a table for each, and saves all figures as JSON.

The clusters store their data in the system's temporary folder; set TMPDIR=/dev/shm to exclude the disk.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path

from tests.bench import applying, copying, crowd, delayed, downtime, spooling, verifying
from tests.bench.backlog import BACKLOGS
from tests.bench.data import MEDIUM, SETS, DataSet, medium
from tests.bench.report import Result, document, table
from tests.support.recording import origin

_BY_DEFAULT = ("copy", "apply", "verify", "downtime")
_BENCHMARKS = (*_BY_DEFAULT, "delayed", "spool", "crowd")
_MEMORY_STEPS = (200_000, 2_000_000)
_MEMORY_BACKLOGS = (100_000, 1_000_000)


def main() -> None:
    options = _parser().parse_args()
    if options.memory:
        _show_memory(options.benchmarks or _BY_DEFAULT)
        return
    results = []
    for result in _results(options):
        print(f"\n{table(result)}\n", flush=True)
        results.append(document(result))
    for number in options.collections if _is_wanted("downtime", options) else ():
        steps = downtime.benchmark(number, _say)
        print(f"\n{downtime.table(steps)}\n", flush=True)
        results.append(downtime.document(steps))
    if _is_wanted("crowd", options):
        latencies = crowd.benchmark(_say)
        print(f"\n{crowd.table(latencies)}\n", flush=True)
        results.append(crowd.document(latencies))
    kept = {"machine": origin(), "rounds": options.rounds, "results": results}
    options.json.write_text(json.dumps(kept, indent=2, ensure_ascii=False) + "\n")
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
        metavar="|".join(_BENCHMARKS),
        help="benchmarks to run (default: all except delayed, which takes long, spool and crowd)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each candidate")
    parser.add_argument(
        "--documents", type=int, default=MEDIUM.documents, help="size of the medium data set"
    )
    parser.add_argument("--events", type=int, default=100_000, help="size of the backlog")
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
        help="round-trip times of the benchmark delayed, in milliseconds; the first one is the standard",
    )
    parser.add_argument(
        "--json", type=Path, default=Path("bench-results.json"), help="file for the figures"
    )
    parser.add_argument(
        "--memory",
        action="store_true",
        help="measure only the peak memory of the service and the verifier, with small and large data",
    )
    return parser


def _benchmark(text: str) -> str:
    if text not in _BENCHMARKS:
        raise ValueError(text)
    return text


_benchmark.__name__ = "benchmark"  # argparse shows this name in the message for an invalid value


def _results(options: argparse.Namespace) -> Iterator[Result]:
    if _is_wanted("copy", options):
        for name in options.sets:
            yield copying.benchmark(_data_set(name, options.documents), options.rounds, _say)
    if _is_wanted("apply", options):
        for name in options.backlogs:
            yield applying.benchmark(name, options.events, options.rounds, _say)
    if _is_wanted("spool", options):
        for name in options.backlogs:
            yield spooling.benchmark(name, options.events, options.rounds, _say)
    if _is_wanted("verify", options):
        for name in options.sets:
            yield verifying.benchmark(_data_set(name, options.documents), options.rounds, _say)
    if _is_wanted("delayed", options):
        data_set = medium(options.documents)
        yield from delayed.documents(data_set, options.delays, options.rounds, _say)
        for name in options.backlogs:
            yield delayed.events(name, options.events, options.delays, options.rounds, _say)


def _is_wanted(benchmark: str, options: argparse.Namespace) -> bool:
    return benchmark in (options.benchmarks or _BY_DEFAULT)


def _data_set(name: str, documents: int) -> DataSet:
    return medium(documents) if name == "medium" else SETS[name]


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
