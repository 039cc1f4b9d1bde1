"""The commands `doctor`, `report` and `diagnose` of `syncctl`, which examine and document a sync."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from shlex import quote

import click
from rich.text import Text

from syncsvc.ctl import archive, doctor, options
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.reporting import now, write_report
from syncsvc.ctl.request_file import file_option, start_request
from syncsvc.ctl.tables import grid, plain
from syncsvc.ctl.tool import Command, Tool, pass_tool


@click.command(cls=Command, name="doctor")
@options.START
@pass_tool
def examine(tool: Tool, file: Path | None) -> None:
    """Examine the daemon and its clusters.

    Checks the connections, versions and clocks; before a start, also privileges, the oplog, disk and memory.
    """
    checks = [*doctor.examine(tool.api, start_request(file))]
    bad = doctor.has_problems(checks)
    if tool.json:
        tool.write(json.dumps({"success": not bad, "checks": [asdict(each) for each in checks]}))
    else:
        tool.say(grid((each.name, _judged(each)) for each in checks))
        step = (
            f"correct the reported problems, then examine again: {tool.name} doctor{file_option(file)}"
            if bad
            else f"{tool.name} status"
        )
        tool.say(tool.next(step))
    if bad:
        tool.end(Exit.FAILED)


_MARKS = {
    doctor.OK: "green",
    doctor.WARNING: "yellow",
    doctor.PROBLEM: "bold red",
    doctor.SKIPPED: "dim",
}


def _judged(check: doctor.Check) -> Text:
    return Text.assemble((f"{check.result}: ", _MARKS[check.result]), plain(check.text))


@click.command(cls=Command)
@options.output("The file to write. Default: syncsvc-report-TIME.html.")
@pass_tool
def report(tool: Tool, output: Path | None) -> None:
    """Write the report of the sync as an HTML file, for a manager or an auditor.

    The report says what was synced, when, by whom and by which versions, how it was verified, and what went wrong. It
    names hosts, collections, and the _ids of documents that differ. With --json, prints the JSON instead, or writes it
    to FILE.
    """
    write_report(tool, tool.api, output, "syncsvc-report")


@click.command(cls=Command)
@options.output("The archive to write. Default: syncsvc-diagnose-TIME.tar.gz.")
@click.option(
    "--log",
    "logs",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    metavar="PATH",
    help="A log file, or a directory whose log files (.log, and rotated or compressed ones such as .log.1 and .log.gz) "
    "are added, including those in subdirectories. Can be repeated.",
)
@options.START
@pass_tool
def diagnose(tool: Tool, output: Path | None, logs: Sequence[Path], file: Path | None) -> None:
    """Write an archive that helps to find the cause of a problem, without secrets.

    The archive (--output) holds answers of the daemon, such as the progress, the collections, the metrics, the report
    and a preflight with the start options of --file, and the end of the log files that --log names: at most 50 MB of
    each file and 200 MB in total, the newest files first. Damaged files in a directory are skipped, and listed in the
    output. Credentials, tokens and private keys are removed. The names of hosts and collections, and the _ids of
    documents that differ or are logged, are kept.
    """
    target = output or Path(f"syncsvc-diagnose-{now()}.tar.gz")
    read = archive.read_logs(logs)
    names = archive.write(archive.collected(tool.api, start_request(file), read.texts), target)
    damaged = [*map(str, read.damaged)]
    if tool.json:
        answer = {"success": True, "file": str(target), "contents": names, "damagedLogs": damaged}
        tool.write(json.dumps(answer))
        return
    left_out = (
        damaged and f"These logs were left out, because they cannot be read: {', '.join(damaged)}."
    )
    step = (
        f"{_missing_logs(logs, read)}list and review the files in the archive before you pass it on: "
        f"tar -tzf {quote(str(target))}"
    )
    tool.say(f"Wrote {target} with {', '.join(names)}.", left_out or None, tool.next(step))


def _missing_logs(given: Sequence[Path], read: archive.Logs) -> str:
    """Return the beginning of a sentence that says how to add the missing logs to the archive; "" if none are missing.

    Damaged logs do not count as missing. `given` are the paths that the operator named, and `read` is the result of
    reading them.
    """
    if not given:
        return "add the log to the archive with --log /var/log/syncsvc; "
    if not read.found:
        places = ", ".join(map(str, given))
        return f"no log file that you may read was found in {places}, so name another path with --log; "
    if read.too_old:
        left_out = f"{read.too_old} of {read.found}"
        return f"the oldest log files ({left_out}) did not fit; to include them, name only them with --log; "
    return ""
