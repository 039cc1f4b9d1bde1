"""Renders the recorded test results in docs/evidence as tables for the documentation."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from tabulate import tabulate

from tests.faults import cells, test_matrix, test_matrix_sharded
from tests.faults.cells import Stage

RECORDS = Path(__file__).parents[2] / "docs" / "evidence"
MISSING = "Not recorded yet.\n"


def tests() -> str:
    """Return paragraphs and tables with the results of the recorded runs of `make test` and `make test-all`."""
    return "\n".join(_run(command, record) for command, record in _runs())


def _runs() -> list[tuple[str, Any]]:
    """Return the commands whose runs are recorded, each with its record; None if there is none.

    A run of `make test-all` can have several records: one for each share of the tests.
    """
    full = [_load(each) for each in sorted(RECORDS.glob("tests-full*.json"))]
    commands = [_full_command(each.get("share")) for each in full]
    return [
        ("make test", _read("tests")),
        *(zip(commands, full) if full else [("make test-all", None)]),
    ]


def _full_command(share: str | None) -> str:
    return f"make test-all SHARE={share}" if share else "make test-all"


def _run(command: str, record: Any) -> str:
    if record is None:
        return f"``{command}``: {MISSING}"
    rows = [
        (name, *(f"{area[each]:,}" for each in ("passed", "failed", "retried", "skipped")))
        + (f"{area['seconds'] / 60:,.1f}",)
        for name, area in record["areas"].items()
    ]
    head = ["Folder", "Passed", "Failed", "Retried", "Skipped", "Minutes of one process"]
    failures = "".join(f"- failed: ``{each}``\n" for each in record["failures"])
    return f"``{command}`` took {record['minutes']} minutes. {origin_of(record)}\n\n{table(head, rows)}\n{failures}"


def faults() -> str:
    """Return the paragraphs about faults for the documentation.

    They list the classes of faults, the number of planned faults in each stage of a sync, and how many of these faults
    occurred in the recorded runs.
    """
    columns = [
        selection
        for module in (test_matrix, test_matrix_sharded)
        for selection in (module.PAIRWISE, module.FULL)
    ]
    counts = [Counter(cell.stage for flight in column for cell in flight) for column in columns]
    rows = [(stage.value, *(f"{count[stage]:,}" for count in counts)) for stage in Stage]
    rows.append(("all", *(f"{count.total():,}" for count in counts)))
    head = ["Stage", "Replica sets", "with make test-all", "Shards", "with make test-all"]
    classes = ", ".join(f"{name} ({len(found)})" for name, found in cells.FAULTS.items())
    return f"The faults, by class: {classes}.\n\n{table(head, rows)}{_struck()}"


def _struck() -> str:
    """Return sentences with the number of planned faults that have occurred in the recorded runs."""
    return "".join(
        f"\nIn the recorded run of ``{command}``, {_sum(found, 'struck')} of {_sum(found, 'planned')} planned {name} "
        "have occurred; for the others, the stage ended first.\n"
        for command, record in _runs()
        for name, found in (record or {}).get("measured", {}).items()
        if name.startswith("faults")
    )


def _sum(flights: Iterable[Any], name: str) -> str:
    return f"{sum(each[name] for each in flights):,}"


def takeovers() -> str:
    """Return a table of the durations of takeovers, by phase and by the fault that stopped the active daemon."""
    record = _read("takeovers")
    if record is None:
        return MISSING
    groups: dict[tuple[str, str], list[Any]] = defaultdict(list)
    for each in record["measured"]["takeover"]:
        groups[each["phase"], each["fault"]].append(each)
        groups["all", "all"].append(each)
    # Move the row of all takeovers to the end.
    groups["all", "all"] = groups.pop(("all", "all"))
    rows = [(*names, *_durations(found)) for names, found in groups.items()]
    head = ["Phase", "Lost by", "Takeovers", "Median (s)", "Longest (s)", "Load"]
    failures = "".join(f"- failed: ``{each}``\n" for each in record["failures"])
    return f"{origin_of(record)}\n\n{table(head, rows)}\n{failures}"


def _durations(takeovers: Sequence[Any]) -> tuple[str, ...]:
    """Return cells of the table of takeovers: their number, median and longest duration, and the median load.

    The durations are in seconds; the load is that of the machine.
    """
    seconds = [each["seconds"] for each in takeovers]
    load = median(each["load"] for each in takeovers)
    return f"{len(seconds):,}", f"{median(seconds):.1f}", f"{max(seconds):.1f}", f"{load:.1f}"


def limits() -> str:
    """Return two tables: the rates of throttled copies, and the latency of a loaded destination.

    The latency is shown without and with the limit `auto`.
    """
    record = _read("limits")
    if record is None:
        return MISSING
    rates = [
        (each["limit"], f"{each['rate']:,}", f"{each['found']:,.1f}")
        + (f"{each['found'] / each['rate']:.1%}", f"{each['load']:.1f}")
        for each in record["measured"]["throttled copy"]
    ]
    latencies = [
        (f"{each['limit']:,}", *_latency(each["without"]), *_latency(each["limited"]))
        for each in record["measured"]["auto"]
    ]
    head = ["Limit", "Allowed documents/s", "Measured documents/s", "Measured share", "Load"]
    of_auto = ["Limit (ms)", "Median without (ms)", "Longest", "Median with auto (ms)", "Longest"]
    failures = "".join(f"- failed: ``{each}``\n" for each in record["failures"])
    tables = (table(head, rates), table(of_auto, latencies))
    return "\n".join([f"{origin_of(record)}\n", *tables, failures])


def _latency(milliseconds: Sequence[float]) -> tuple[str, str]:
    """Return the median and the maximum of these latencies in milliseconds, as text."""
    return f"{median(milliseconds):,.0f}", f"{max(milliseconds):,.0f}"


def model() -> str:
    """Return a table of the recorded runs of the model test, by profile."""
    record = _read("model")
    if record is None:
        return MISSING
    rows = [
        (
            name,
            f"{each['runs']:,}",
            f"{each['operations']:,}",
            f"{each['kills']:,}",
            f"{each['seconds'] / 3600:.1f}",
            ", ".join(map(str, each["failed"])) or "none",
        )
        for name, each in record["profiles"].items()
    ]
    head = ["Profile", "Runs", "Operations", "Kills", "Hours", "Failed seeds"]
    return f"Seeds {record['seeds']}. {origin_of(record)}\n\n{table(head, rows)}"


def origin_of(record: dict[str, Any]) -> str:
    """Return a sentence with the date, the versions and the machine of a record."""
    return (
        f"{record['date']}, version {record['version']} (commit ``{record['commit']}``), MongoDB {record['mongod']}, "
        f"Python {record['python']}, pymongo {record['pymongo']}, Linux {record['kernel']}, {record['cpus']} CPUs, "
        f"{record['memory_gb']} GB."
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table in reStructuredText; the first column is text, the others are numbers."""
    align = ("left", *["right"] * (len(head) - 1))
    shown = tabulate(
        list(rows), headers=list(head), tablefmt="rst", colalign=align, disable_numparse=True
    )
    return f"{shown}\n"


def _read(name: str) -> Any:
    path = RECORDS / f"{name}.json"
    return _load(path) if path.exists() else None


def _load(path: Path) -> Any:
    return json.loads(path.read_text())
