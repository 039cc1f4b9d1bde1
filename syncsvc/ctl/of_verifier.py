"""The commands of `syncctl verifier`, which operate the separate verifier."""

from __future__ import annotations

from itertools import chain
from pathlib import Path

import click

from syncsvc.ctl import options
from syncsvc.ctl.client import Answer, Document, progress_of
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.facts import check_facts
from syncsvc.ctl.lists import show_mismatches
from syncsvc.ctl.rates import Rates
from syncsvc.ctl.reporting import write_report
from syncsvc.ctl.request_file import read_request
from syncsvc.ctl.text import count, share
from syncsvc.ctl.tool import Group, Tool, pass_tool
from syncsvc.ctl.watching import Subject, Watch


@click.group(cls=Group, no_args_is_help=True)
def verifier() -> None:
    """Operate the separate verifier, at --verifier-url."""


def _read(tool: Tool, answer: Answer) -> Document:
    return progress_of(answer, "verificationStatus", f"{tool.verifier.url} is not a verifier")


def _next(progress: Document, syncctl: str) -> str:
    if progress["phase"] != "idle" and not progress["writesOff"]:
        stop = "if a sync is running, first wait until it is COMMITTED; then stop all writes to both clusters"
        return f"{stop}, and end the check: {syncctl} verifier writes-off --wait"
    if progress["phase"] != "idle":
        return f"wait until the check ends: {syncctl} verifier watch"
    if progress["generation"] is None:
        return f"start a check: {syncctl} verifier check"
    if progress["verdict"] == "passed" and not _documents(progress):
        return "make sure that these are the right clusters and filters: there was no document to compare."
    if progress["verdict"] == "passed":
        return "nothing to do: everything that was compared is equal."
    if progress["verdict"] == "incomplete":
        return f"remove the reported cause, then check again: {syncctl} verifier check"
    return f"look at the differences: {syncctl} verifier mismatches"


def _documents(progress: Document) -> int:
    """Return how many comparisons of documents an ended check has made: the first comparisons plus the rechecks."""
    compared: int = (progress["gen0Stats"] or progress["generationStats"])["docsCompared"]
    return compared + int(progress["totalRechecksDone"])


def _judge(tool: Tool, progress: Document) -> None:
    """End the command with the exit status FAILED or NOT_YET, unless the check has passed.

    NOT_YET means that there is no verdict yet.
    """
    if progress["verdict"] in ("failed", "incomplete"):
        tool.end(Exit.FAILED)
    if progress["verdict"] is None:
        tool.end(Exit.NOT_YET)


@verifier.command()
@pass_tool
def status(tool: Tool) -> None:
    """Show the state of the check. The exit status is 1 if the verdict is failed or incomplete."""
    answer = tool.verifier.get("progress")
    progress = _read(tool, answer)
    tool.show(
        answer, tool.facts(check_facts(progress, Rates())), tool.next(_next(progress, tool.name))
    )
    if progress["verdict"] is not None:
        _judge(tool, progress)


@verifier.command()
@options.file(
    "YAML or JSON file with the options of the check, such as filter: {owner: 7}. Default: compare all "
    "documents of the namespaces that the options of the verifier select."
)
@pass_tool
def check(tool: Tool, file: Path | None) -> None:
    """Start a check."""
    answer = tool.verifier.post("check", read_request(file) if file else None)
    step = f"follow the check: {tool.name} verifier watch"
    tool.show(answer, "The check has started.", tool.next(step))


@verifier.command("writes-off")
@options.flag("--wait", "Wait for the verdict.")
@options.TIMEOUT
@pass_tool
def writes_off(tool: Tool, wait: bool, timeout: float | None) -> None:
    """Tell the check that no application writes to either cluster, so that it can end."""
    answer = tool.verifier.post("writesOff")
    if wait:
        _follow(tool, timeout, answered=True)
        return
    tool.show(answer, "The check will end.", tool.next(f"{tool.name} verifier watch"))


@verifier.command()
@options.TIMEOUT
@pass_tool
def watch(tool: Tool, timeout: float | None) -> None:
    """Follow the check until it ends. The exit status shows the verdict."""
    _follow(tool, timeout)


def _follow(tool: Tool, timeout: float | None, answered: bool = False) -> None:
    subject = Subject(
        tool.verifier, lambda answer: _read(tool, answer), check_facts, _step, _counters
    )
    progress = Watch(tool, subject, timeout, answered).until(lambda now: now["phase"] == "idle")
    if not tool.json:
        tool.say(tool.next(_next(progress, tool.name)))
    _judge(tool, progress)


def _step(progress: Document) -> tuple[object, ...]:
    stats = progress["generationStats"]
    done = share(stats["docsCompared"], stats["totalDocs"])
    names = ("phase", "generation", "verdict", "writesOff")
    return (*map(progress.get, names), done and int(10 * done), len(progress.get("warnings", ())))


def _counters(progress: Document) -> dict[str, int]:
    first = progress["gen0Stats"] or progress["generationStats"]
    return {"compared": first["docsCompared"]}


@verifier.command()
@pass_tool
def summary(tool: Tool) -> None:
    """Show the results of the check. The exit status shows the verdict."""
    answer = tool.verifier.get("summary")
    found = answer.body
    documents = found["docMismatches"]
    lines = [
        f"verdict: {found['verdict'] or 'none yet'}",
        *found["verdictReasons"],
        f"Documents compared in the first pass: {count(found['checkStats']['docsCompared'])}.",
        f"Documents that differ: {count(documents['total'])}.",
        f"Differences in definitions or in numbers of documents: {count(found['nsMismatchesTotal'])}.",
        *found["notes"],
    ]
    step = "mismatches" if found["verdict"] == "failed" else "status"
    tool.show(answer, *lines, tool.next(f"{tool.name} verifier {step}"))
    _judge(tool, found)


@verifier.command()
@options.number("--limit", 100, "Show at most this many differences.")
@options.seconds(
    "--min-duration", "Omit documents that have differed for less than this many seconds."
)
@pass_tool
def mismatches(tool: Tool, limit: int, min_duration: float | None) -> None:
    """List the differences: first those in definitions and numbers of documents, then the documents that differ.

    Until the commit, a sync keeps some definitions different on purpose, such as those of unique and TTL indexes.
    """
    given = {} if min_duration is None else {"minDurationSecs": min_duration}
    api = tool.verifier
    progress = _read(tool, api.get("progress"))
    lines = chain(
        api.lines("nsMismatches", limit=limit + 1),
        api.lines("docMismatches", limit=limit + 1, **given),
    )
    step = (
        "if a sync is running that is not COMMITTED yet, correct nothing, and check again after the commit; otherwise "
        "correct the differences on the destination, then check again."
    )
    if progress["phase"] != "idle":
        # Some of the differences are changes that are not synced yet, or definitions that a commit completes.
        step = f"do not correct anything before the verdict; {_next(progress, tool.name)}"
    show_mismatches(tool, lines, limit, lambda: step)


@verifier.command()
@options.output("The file to write. Default: syncsvc-verifier-report-TIME.html.")
@pass_tool
def report(tool: Tool, output: Path | None) -> None:
    """Write the report of the check as an HTML file, for a manager or an auditor.

    The report says what was compared, when, by whom and by which versions, and what differs. It names hosts,
    collections, and the _ids of documents that differ. With --json, prints the JSON instead, or writes it to FILE.
    """
    write_report(tool, tool.verifier, output, "syncsvc-verifier-report")
