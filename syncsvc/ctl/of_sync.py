"""The commands of `syncctl` that show, start or change a sync as a whole; `commit` is in `cutover`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from shlex import quote

import click

from syncsvc.ctl import options
from syncsvc.ctl.advice import destination_name, is_replaced
from syncsvc.ctl.client import ClientError, Document
from syncsvc.ctl.exits import Exit
from syncsvc.ctl.facts import sync_facts
from syncsvc.ctl.following import (
    end_watch,
    next_sentence,
    read_progress,
    sentence_after_command,
    sentence_after_plan,
    sentence_after_preflight,
    to_others,
    watch_sync,
)
from syncsvc.ctl.limits import change_of, limits_view
from syncsvc.ctl.rates import Rates
from syncsvc.ctl.request_file import file_option, read_request, start_request
from syncsvc.ctl.tables import preflight_view, repairs_view, reset_view
from syncsvc.ctl.tool import Command, Tool, confirm, pass_tool


@click.command(cls=Command)
@pass_tool
def status(tool: Tool) -> None:
    """Show the state of the sync, and what to do next."""
    answer = tool.api.get("progress")
    progress = read_progress(tool, answer)
    tool.show(
        answer, tool.facts(sync_facts(progress, Rates())), tool.next(next_sentence(tool, progress))
    )
    if progress["state"] == "FAILED":
        tool.end(Exit.FAILED)


_CONDITIONS: dict[str, Callable[[Document], bool]] = {
    "canCommit": lambda progress: progress["canCommit"],
    "canWrite": lambda progress: progress["canWrite"],
    "committed": lambda progress: progress["state"] == "COMMITTED",
    "idle": lambda progress: progress["state"] == "IDLE",
}
# For each value of --until, the states in which `watch` stops waiting: only another command could make it true.
_IN_VAIN = {
    "canCommit": ("FAILED", "IDLE", "COMMITTED"),
    "canWrite": ("FAILED", "IDLE"),
    "committed": ("FAILED", "IDLE"),
    "idle": ("FAILED", "COMMITTED"),
}


@click.command(cls=Command)
@click.option(
    "--until",
    type=click.Choice([*_CONDITIONS]),
    metavar="CONDITION",
    help="Stop watching when a commit is possible (canCommit), when applications may write to the destination "
    "(canWrite), when the sync is COMMITTED (committed, the default), or when it is IDLE after a reset (idle).",
)
@options.TIMEOUT
@pass_tool
def watch(tool: Tool, until: str | None, timeout: float | None) -> None:
    """Follow the sync until it is committed or has failed.

    With --until, also ends with exit status 1 if only another command could make the condition true; but it continues
    while the sync is paused.

    Shows a live display at a terminal; elsewhere, and with --json, one line for each step. Continues while the daemon
    is being restarted.
    """
    condition = until or "committed"
    # Without --until, wait for a start, too.
    in_vain = _IN_VAIN[condition] if until else ("FAILED",)
    holds = _CONDITIONS[condition]
    progress = watch_sync(tool, timeout).until(
        lambda now: holds(now) or now["state"] in in_vain and not is_replaced(now)
    )
    end_watch(tool, progress, holds(progress), condition)


@click.command(cls=Command)
@options.START
@pass_tool
def preflight(tool: Tool, file: Path | None) -> None:
    """Check whether a start would succeed. Changes nothing."""
    answer = tool.api.post("preflight", start_request(file))
    refused = answer.body["violations"]
    option = file_option(file)
    step = (
        f"correct the reported problems, then check again: {tool.name} preflight{option}"
        if refused
        else sentence_after_preflight(tool, f"{tool.name} start{option}")
    )
    tool.show(answer, preflight_view(answer.body), tool.next(step))
    if refused:
        tool.end(Exit.FAILED)


@click.command(cls=Command)
@options.START
@pass_tool
def start(tool: Tool, file: Path | None) -> None:
    """Start the sync."""
    answer = tool.api.post("start", start_request(file))
    step = f"{to_others(tool)}wait until a commit is possible: {tool.name} watch --until canCommit"
    tool.show(answer, "The daemon has accepted the start.", tool.next(step))


@click.command(cls=Command)
@pass_tool
def pause(tool: Tool) -> None:
    """Pause the sync. Do not stop the daemon while the sync is paused.

    If several instances share the sync, pauses only the called one: pause all of them.
    """
    answer = tool.api.post("pause")
    if others := to_others(tool):
        step = f"{others}keep all daemons running until you resume the sync."
        tool.show(answer, "This instance of the sync is paused.", tool.next(step))
        return
    # The declared state may forbid a resume.
    tool.show(answer, "The sync is paused.", tool.next(sentence_after_command(tool)))


@click.command(cls=Command)
@pass_tool
def resume(tool: Tool) -> None:
    """Continue a sync that is paused or has failed.

    If several instances share the sync, continues only the called one.
    """
    answer = tool.api.post("resume")
    if others := to_others(tool, "every other instance that is PAUSED or FAILED"):
        step = f"{others}see the next step: {tool.name} status"
        tool.show(answer, "This instance of the sync continues.", tool.next(step))
        return
    # The resume may complete a commit or a reset.
    tool.show(answer, "The sync continues.", tool.next(sentence_after_command(tool)))


@click.command(cls=Command)
@options.text(
    "--copy-bytes",
    "SIZE",
    "Maximum bytes to copy per second, such as 20MB, or `none` for no limit.",
)
@options.text(
    "--copy-documents", "NUMBER", "Maximum documents to copy per second, or `none` for no limit."
)
@options.text(
    "--events", "NUMBER", "Maximum change events to apply per second, or `none` for no limit."
)
@options.text(
    "--threads",
    "NUMBER",
    "Maximum threads that read and write at once in each instance, or `none` for no limit.",
)
@options.file(
    "YAML or JSON file with the limits to change. Only a file can change `windows` and `auto`."
)
@pass_tool
def limit(tool: Tool, /, file: Path | None, **given: str | None) -> None:
    """Show the limits of the sync, or change those that are given as options or in a file."""
    change = {**(read_request(file) if file else {}), **change_of(given)}
    try:
        answer = tool.api.patch("limits", change) if change else tool.api.get("limits")
    except ClientError as error:
        if error.error not in ("NotFound", "MethodNotAllowed"):
            raise
        raise ClientError(
            error.status,
            "NotSupported",
            "the program at this address has no limits that can be changed. If it is not syncsvc, correct --url. If it "
            "is an older syncsvc, update it, or restart it with another --loadLevel: the sync continues where it was.",
        ) from error
    tool.show(
        answer,
        limits_view(answer.body),
        tool.next(f"see the effect of the limits: {tool.name} watch"),
    )


@click.command(cls=Command)
@options.DRY_RUN
@pass_tool
def repair(tool: Tool, dry_run: bool) -> None:
    """Repair the differences that the verification found."""
    answer = tool.api.post("repair", {"dryRun": dry_run})
    if dry_run:
        step = "" if tool.json else sentence_after_plan(tool, answer.body["repairs"])
        tool.show(answer, repairs_view(answer.body), tool.next(step))
    else:
        others = to_others(tool, "every other instance that is FAILED")
        step = f"{others}wait until a commit is possible: {tool.name} watch --until canCommit"
        tool.show(answer, "The repair was requested.", tool.next(step))


@click.command(cls=Command)
@pass_tool
def reverse(tool: Tool) -> None:
    """Reverse a committed sync: let changes flow back to the old cluster."""
    answer = tool.api.post("reverse")
    step = f"wait until a commit in the other direction is possible: {tool.name} watch --until canCommit"
    tool.show(
        answer, "The daemon has accepted the reversal.", tool.next(f"{to_others(tool)}{step}")
    )


@click.command(cls=Command)
@options.DRY_RUN
@click.option(
    "--confirm",
    "name",
    metavar="NAME",
    help="Confirm the reset with the name of the destination, such as cluster1. Without this option, the command asks "
    "for the name.",
)
@pass_tool
def reset(tool: Tool, dry_run: bool, name: str | None) -> None:
    """Give the sync up: drop the collections, views, users and roles that it created on the destination.

    WARNING: deletes the data that the sync has written to the destination. Keeps users and roles that have changed
    since the sync created them, and roles that others still have.
    """
    progress = tool.api.progress()
    expected = destination_name(progress)
    if expected is None:
        state = progress["state"]
        raise ClientError(
            Exit.FAILED,
            "InvalidState",
            f"the daemon knows of no sync to reset; the state is {state}.",
        )
    if dry_run:
        answer = tool.api.post("reset", {"confirm": expected, "dryRun": True})
        tool.show(answer, "A reset:", reset_view(answer.body), tool.next(f"{tool.name} reset"))
        return
    if name is None:
        where = progress["directionMapping"]["Destination"]
        question = f"WARNING: the reset deletes the data that the sync has written to {where}."
        confirm(tool, expected, f"--confirm {quote(expected)}", question)
        name = expected
    answer = tool.api.post("reset", {"confirm": name})
    step = f"{to_others(tool)}wait until the reset is complete: {tool.name} watch --until idle"
    tool.show(answer, "The daemon has accepted the reset.", tool.next(step))
